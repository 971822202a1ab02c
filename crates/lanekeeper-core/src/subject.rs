//! Subjects and subject patterns: parsing, matching, inclusion.
//!
//! Only the grammar of NATS subjects is known here: nothing of partitions or mappings.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest subject or pattern accepted, in bytes. The API's bound on strings is the same.
pub const MAX_SUBJECT_BYTES: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Token {
    Literal(String),
    Single,
    Rest,
}

/// A subject with wildcards: `*` stands for one token, a last `>` for one or more.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SubjectPattern {
    text: String,
    tokens: Vec<Token>,
}

/// Why a text is no subject pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubjectError {
    /// Nothing was given.
    Empty,
    /// Longer than [`MAX_SUBJECT_BYTES`].
    TooLong(usize),
    /// White space or a control character.
    Character(String, char),
    /// Two dots in a row, or one at an end.
    EmptyToken(String),
    /// `>` anywhere but at the end.
    RestNotLast(String),
    /// `*` or `>` inside a longer token, where servers take it for an ordinary character.
    WildcardInToken(String, String),
    /// A subject to publish to has no wildcards.
    Wildcard(String),
}

impl fmt::Display for SubjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the subject is empty"),
            Self::TooLong(bytes) => {
                write!(f, "the subject has {bytes} bytes, at most {MAX_SUBJECT_BYTES} are allowed")
            }
            Self::Character(text, c) => {
                write!(f, "'{text}' has the character {c:?}, which no subject may have")
            }
            Self::EmptyToken(text) => write!(f, "'{text}' has an empty token"),
            Self::RestNotLast(text) => write!(f, "'{text}' has '>' before its last token"),
            Self::WildcardInToken(text, token) => {
                write!(f, "'{text}' has a wildcard inside the token '{token}'; a wildcard is a whole token")
            }
            Self::Wildcard(text) => write!(f, "'{text}' has wildcards; a message has none in its subject"),
        }
    }
}

impl std::error::Error for SubjectError {}

/// What is between dots. The same as `str::split`, which takes several times as long for parts as short as these.
struct Parts<'a>(Option<&'a str>);

impl<'a> Iterator for Parts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let text = self.0?;
        let Some(dot) = text.bytes().position(|byte| byte == b'.') else { return self.0.take() };
        self.0 = Some(&text[dot + 1..]);
        Some(&text[..dot])
    }
}

impl SubjectPattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self, SubjectError> {
        if text.is_empty() {
            return Err(SubjectError::Empty);
        }
        if text.len() > MAX_SUBJECT_BYTES {
            return Err(SubjectError::TooLong(text.len()));
        }
        if let Some(c) = text.chars().find(|c| c.is_whitespace() || c.is_control()) {
            return Err(SubjectError::Character(text.to_owned(), c));
        }
        let count = text.split('.').count();
        let mut tokens = Vec::with_capacity(count);
        for (index, token) in text.split('.').enumerate() {
            tokens.push(match token {
                "" => return Err(SubjectError::EmptyToken(text.to_owned())),
                "*" => Token::Single,
                ">" if index + 1 == count => Token::Rest,
                ">" => return Err(SubjectError::RestNotLast(text.to_owned())),
                literal if literal.contains(['*', '>']) => {
                    return Err(SubjectError::WildcardInToken(text.to_owned(), literal.to_owned()));
                }
                literal => Token::Literal(literal.to_owned()),
            });
        }
        Ok(Self { text: text.to_owned(), tokens })
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How many `*` the pattern has.
    pub fn single_wildcards(&self) -> usize {
        self.tokens.iter().filter(|token| **token == Token::Single).count()
    }

    /// Whether the pattern ends in `>`.
    pub fn has_rest(&self) -> bool {
        self.tokens.last() == Some(&Token::Rest)
    }

    /// Whether the pattern has no wildcard at all.
    pub fn is_literal(&self) -> bool {
        self.tokens.iter().all(|token| matches!(token, Token::Literal(_)))
    }

    /// What stands at each `*`, in order, when the subject matches; otherwise `None`.
    pub fn captures<'a>(&self, subject: &'a str) -> Option<Vec<&'a str>> {
        let mut captured = Vec::new();
        self.capture(subject, |part| captured.push(part)).then_some(captured)
    }

    /// Whether a message with this subject is meant by the pattern.
    pub fn matches(&self, subject: &str) -> bool {
        self.capture(subject, |_| {})
    }

    /// Whether the subject matches. What stands at each `*` is shown, in order; nothing is to be made of it when it does not.
    pub(crate) fn capture<'a>(&self, subject: &'a str, mut show: impl FnMut(&'a str)) -> bool {
        let mut given = Parts(Some(subject));
        for token in &self.tokens {
            let Some(part) = given.next().filter(|part| !part.is_empty()) else { return false };
            match token {
                Token::Literal(literal) if literal == part => {}
                Token::Literal(_) => return false,
                Token::Single => show(part),
                Token::Rest => return given.all(|part| !part.is_empty()),
            }
        }
        given.next().is_none()
    }

    /// Whether each subject that this pattern means is also meant by `other`.
    pub fn is_subset_of(&self, other: &Self) -> bool {
        for (index, theirs) in other.tokens.iter().enumerate() {
            match (theirs, self.tokens.get(index)) {
                (_, None) => return false,
                (Token::Rest, Some(_)) => return true,
                (Token::Single, Some(Token::Literal(_) | Token::Single)) => {}
                (Token::Literal(theirs), Some(Token::Literal(ours))) if theirs == ours => {}
                _ => return false,
            }
        }
        self.tokens.len() == other.tokens.len()
    }

    /// Whether some subject is meant by both patterns.
    pub fn overlaps(&self, other: &Self) -> bool {
        for index in 0.. {
            match (self.tokens.get(index), other.tokens.get(index)) {
                (None, None) => return true,
                (None, Some(_)) | (Some(_), None) => return false,
                (Some(Token::Rest), _) | (_, Some(Token::Rest)) => return true,
                (Some(Token::Literal(ours)), Some(Token::Literal(theirs))) if ours != theirs => return false,
                _ => {}
            }
        }
        unreachable!("the loop ends at the shorter pattern")
    }

    /// The pattern with something else at some of its `*`, which are counted from 1.
    pub(crate) fn filled<'a>(&'a self, fill: impl Fn(usize) -> Option<&'a str>) -> String {
        let mut number = 0;
        let tokens: Vec<&str> = self
            .tokens
            .iter()
            .map(|token| match token {
                Token::Literal(literal) => literal,
                Token::Single => {
                    number += 1;
                    fill(number).unwrap_or("*")
                }
                Token::Rest => ">",
            })
            .collect();
        tokens.join(".")
    }

    /// The pattern as the destination of a mapping: its `*` numbered, its `>` kept.
    pub(crate) fn as_destination(&self) -> String {
        let mut number = 0;
        let tokens: Vec<String> = self
            .tokens
            .iter()
            .map(|token| match token {
                Token::Literal(literal) => literal.clone(),
                Token::Single => {
                    number += 1;
                    format!("{{{{wildcard({number})}}}}")
                }
                Token::Rest => ">".to_owned(),
            })
            .collect();
        tokens.join(".")
    }
}

/// Checks a subject that a message could have: no wildcards, no empty tokens.
pub fn check_subject(subject: &str) -> Result<(), SubjectError> {
    if SubjectPattern::parse(subject)?.is_literal() {
        Ok(())
    } else {
        Err(SubjectError::Wildcard(subject.to_owned()))
    }
}

impl fmt::Display for SubjectPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for SubjectPattern {
    type Error = SubjectError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<SubjectPattern> for String {
    fn from(pattern: SubjectPattern) -> Self {
        pattern.text
    }
}

#[cfg(test)]
mod tests;
