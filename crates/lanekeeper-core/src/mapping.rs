//! The mapping of one stream: original subjects to lane subjects, once and for every number of partitions.
//!
//! The destination holds the partition number for each power of two up to the maximum, so that the keys of
//! any [`Share`] are one literal subject prefix and changing the number of partitions never touches the
//! stream's transform. This module must not talk to servers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{hash::fnv1a32, share::Share, subject::SubjectPattern};

/// Most partitions a mapping may provide for: each power of two is one token in every stored subject.
pub const MAX_PARTITIONS: u32 = 1024;

/// What `mapping.maxPartitions` is when it is not given.
pub const DEFAULT_MAX_PARTITIONS: u32 = 256;

/// First token of every stored subject.
pub const LANES: &str = "lanes";

/// How the subjects of a stream become lanes. Immutable for the life of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mapping {
    /// The stream's name, which is a token of every stored subject.
    pub stream: String,
    /// Which subjects are mapped; its `*` are the candidates for key tokens.
    pub source: SubjectPattern,
    /// Which `*` of the source make the key: 1-based, in the order in which they are hashed.
    pub key_tokens: Vec<u32>,
    /// A power of two from 1 to [`MAX_PARTITIONS`].
    pub max_partitions: u32,
}

/// Why a mapping cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MappingError {
    /// The stream's name cannot be one token of a subject.
    Stream(String),
    /// The source has no `*`.
    NoWildcard(String),
    /// No key token was named.
    NoKeyToken,
    /// A key token is not the number of a `*` of the source.
    KeyToken {
        /// The number given.
        token: i64,
        /// How many `*` the source has.
        wildcards: usize,
        /// The source.
        source: String,
    },
    /// A key token was named twice.
    Repeated(u32),
    /// Not a power of two from 1 to [`MAX_PARTITIONS`].
    MaxPartitions(i64),
}

impl fmt::Display for MappingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(name) => write!(
                f,
                "stream.name is '{name}': it must have 1 to 255 characters, none of them white space, '.', '*', '>', '/' or '\\'"
            ),
            Self::NoWildcard(source) if source.ends_with('>') => write!(
                f,
                "mapping.subject is '{source}': a key is made of single-token wildcards, so it must have at least one '*' (for example '{}*')",
                source.trim_end_matches('>')
            ),
            Self::NoWildcard(source) => {
                write!(
                    f,
                    "mapping.subject is '{source}': it must have at least one '*', from which the key is taken"
                )
            }
            Self::NoKeyToken => {
                f.write_str("mapping.keyTokens is empty: name at least one '*' of mapping.subject")
            }
            Self::KeyToken { token, wildcards, source } => write!(
                f,
                "mapping.keyTokens has {token}: it must be from 1 to {wildcards}, the number of '*' in '{source}'"
            ),
            Self::Repeated(token) => {
                write!(f, "mapping.keyTokens has {token} twice: key tokens must be distinct")
            }
            Self::MaxPartitions(given) => write!(
                f,
                "mapping.maxPartitions is {given}: it must be a power of two from 1 to {MAX_PARTITIONS}"
            ),
        }
    }
}

impl std::error::Error for MappingError {}

impl Mapping {
    /// Checks and makes a mapping. `key_tokens` and `max_partitions` are as a person wrote them.
    pub fn new(
        stream: &str,
        source: SubjectPattern,
        key_tokens: &[i64],
        max_partitions: i64,
    ) -> Result<Self, MappingError> {
        let forbidden = |c: char| c.is_whitespace() || c.is_control() || ".*>/\\".contains(c);
        if stream.is_empty() || stream.len() > 255 || stream.contains(forbidden) {
            return Err(MappingError::Stream(stream.to_owned()));
        }
        let wildcards = source.single_wildcards();
        if wildcards == 0 {
            return Err(MappingError::NoWildcard(source.as_str().to_owned()));
        }
        if key_tokens.is_empty() {
            return Err(MappingError::NoKeyToken);
        }
        let mut checked: Vec<u32> = Vec::with_capacity(key_tokens.len());
        for &token in key_tokens {
            let wrong = || MappingError::KeyToken { token, wildcards, source: source.as_str().to_owned() };
            let number = u32::try_from(token).map_err(|_| wrong())?;
            if number == 0 || number as usize > wildcards {
                return Err(wrong());
            }
            if checked.contains(&number) {
                return Err(MappingError::Repeated(number));
            }
            checked.push(number);
        }
        let max = u32::try_from(max_partitions)
            .ok()
            .filter(|max| max.is_power_of_two() && *max <= MAX_PARTITIONS)
            .ok_or(MappingError::MaxPartitions(max_partitions))?;
        Ok(Self { stream: stream.to_owned(), source, key_tokens: checked, max_partitions: max })
    }

    /// The destination of the stream's subject transform.
    pub fn destination(&self) -> String {
        let tokens: Vec<String> = self.key_tokens.iter().map(u32::to_string).collect();
        let tokens = tokens.join(",");
        let mut destination = format!("{LANES}.{}.", self.stream);
        for modulus in self.moduli() {
            // A mapping function is expanded only as a whole token.
            write_to(&mut destination, format_args!("{{{{partition({modulus},{tokens})}}}}."));
        }
        destination.push_str(&self.source.as_destination());
        destination
    }

    /// The one literal filter that has exactly the keys of a share.
    pub fn filter(&self, share: Share) -> String {
        self.filter_under(&format!("{LANES}.{}", self.stream), share)
    }

    /// The same of what is stored elsewhere, by [`Mapping::subject_under`].
    pub fn filter_under(&self, prefix: &str, share: Share) -> String {
        let mut filter = format!("{prefix}.");
        for modulus in self.moduli().take_while(|modulus| *modulus <= share.modulus) {
            write_to(&mut filter, format_args!("{}.", share.residue % modulus));
        }
        filter.push('>');
        filter
    }

    /// The filter that has exactly one key of what is stored by [`Mapping::subject_under`]. `None` when the text is no key:
    /// its tokens in the order in which they are hashed, joined by dots.
    pub fn key_filter_under(&self, prefix: &str, key: &str) -> Option<String> {
        let tokens: Vec<&str> = key.split('.').collect();
        let legal = |token: &&str| crate::subject::check_subject(token).is_ok();
        if tokens.len() != self.key_tokens.len() || !tokens.iter().all(legal) {
            return None;
        }
        let hash = fnv1a32(tokens.iter().map(|token| token.as_bytes()));
        let at = |wildcard: usize| {
            let index = self.key_tokens.iter().position(|token| *token as usize == wildcard)?;
            tokens.get(index).copied()
        };
        Some(format!("{}{}", self.path_under(prefix, hash), self.source.filled(at)))
    }

    /// Everything the mapping stores, as one pattern.
    pub fn all_lanes(&self) -> String {
        format!("{LANES}.{}.>", self.stream)
    }

    /// The subject under which the stream stores a message published to `original`.
    pub fn stored_subject(&self, original: &str) -> Option<String> {
        self.subject_under(&format!("{LANES}.{}", self.stream), original)
    }

    /// A subject elsewhere that holds the same path, so that a share is one filter there as well.
    pub fn subject_under(&self, prefix: &str, original: &str) -> Option<String> {
        let hash = self.key_hash(original)?;
        Some(format!("{}{original}", self.path_under(prefix, hash)))
    }

    /// The full depth of the path to a key, with a dot at its end.
    fn path_under(&self, prefix: &str, hash: u32) -> String {
        let mut path = format!("{prefix}.");
        for modulus in self.moduli() {
            write_to(&mut path, format_args!("{}.", hash % modulus));
        }
        path
    }

    /// The original subject of a stored one; `None` when it is not of this mapping.
    pub fn original_subject<'a>(&self, stored: &'a str) -> Option<&'a str> {
        let rest = stored.strip_prefix(LANES)?.strip_prefix('.')?.strip_prefix(self.stream.as_str())?;
        self.original_behind(rest)
    }

    /// The original subject of one made by [`Mapping::subject_under`].
    pub fn original_under<'a>(&self, prefix: &str, stored: &'a str) -> Option<&'a str> {
        self.original_behind(stored.strip_prefix(prefix)?)
    }

    fn original_behind<'a>(&self, path: &'a str) -> Option<&'a str> {
        let mut rest = path.strip_prefix('.')?;
        for _ in self.moduli() {
            // By bytes, as each message comes by here several times.
            let dot = rest.bytes().position(|byte| byte == b'.')?;
            rest = &rest[dot + 1..];
        }
        self.source.matches(rest).then_some(rest)
    }

    /// The tokens of the key, in the order in which they are hashed; `None` when the subject is not mapped.
    pub fn key_of<'a>(&self, original: &'a str) -> Option<Vec<&'a str>> {
        self.with_key(original, <[&str]>::to_vec)
    }

    /// The key as one text: its tokens, joined by dots.
    pub fn key_text(&self, original: &str) -> Option<String> {
        self.with_key(original, |key| key.join("."))
    }

    /// The hash of the key of an original subject; `None` when the subject is not mapped.
    pub fn key_hash(&self, original: &str) -> Option<u32> {
        self.with_key(original, |key| fnv1a32(key.iter().map(|token| token.as_bytes())))
    }

    /// Each message is looked at several times, so the usual key takes no memory of its own.
    fn with_key<'a, R>(&self, original: &'a str, make: impl FnOnce(&[&'a str]) -> R) -> Option<R> {
        let mut captured = Few::default();
        if !self.source.capture(original, |part| captured.push(part)) {
            return None;
        }
        let mut key = Few::default();
        for token in &self.key_tokens {
            key.push(captured.as_slice().get(*token as usize - 1).copied()?);
        }
        Some(make(key.as_slice()))
    }

    /// The filter that has exactly the stored messages of one key, given by its tokens in the order in which they are
    /// hashed; `None` when their number is wrong.
    pub fn key_filter(&self, key: &[&str]) -> Option<String> {
        self.key_filter_under(&format!("{LANES}.{}", self.stream), &key.join("."))
    }

    fn moduli(&self) -> impl Iterator<Item = u32> + use<> {
        (1..=self.max_partitions.ilog2()).map(|level| 1 << level)
    }
}

/// Some tokens of a subject.
#[derive(Default)]
struct Few<'a> {
    first: [&'a str; 4],
    count: usize,
    /// All of them, once they are more.
    many: Vec<&'a str>,
}

impl<'a> Few<'a> {
    fn push(&mut self, token: &'a str) {
        if let Some(place) = self.first.get_mut(self.count) {
            *place = token;
        } else {
            if self.many.is_empty() {
                self.many.extend(self.first);
            }
            self.many.push(token);
        }
        self.count += 1;
    }

    fn as_slice(&self) -> &[&'a str] {
        if self.many.is_empty() { &self.first[..self.count] } else { &self.many }
    }
}

/// Writing to a `String` cannot fail.
fn write_to(text: &mut String, arguments: fmt::Arguments<'_>) {
    let _ = fmt::Write::write_fmt(text, arguments);
}

#[cfg(test)]
mod tests;
