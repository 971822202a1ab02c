//! Where a key goes: pure, by the rules of `lanekeeper-core`.

use lanekeeper_api::{OrderedPartitionSet, Validated, invalid};
use lanekeeper_core::{
    hash::fnv1a32,
    mapping::Mapping,
    share::{Share, partition_of},
    subject::{SubjectError, check_subject},
};
use serde::Serialize;

use crate::table;

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked<'a> {
    /// A key, or a subject if it looks like one.
    Either(&'a str),
    /// A subject.
    Subject(&'a str),
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("neither a key nor a subject was given")]
    Nothing,
    #[error("the set cannot be used as it is: {0}")]
    Invalid(String),
    #[error("no key and no subject: {0}")]
    Text(SubjectError),
    #[error(
        "'{subject}' is not matched by the set's mapping '{source_pattern}': such messages reach no lane"
    )]
    NotMapped { subject: String, source_pattern: String },
    #[error(
        "'{text}' is no subject of '{source_pattern}', and no key of it either: a key has {wanted} (keyTokens {key_tokens}), not {found}"
    )]
    Neither { text: String, source_pattern: String, wanted: String, key_tokens: String, found: usize },
    #[error(
        "'{text}' can be a subject (partition {as_subject}) or a key (partition {as_key}): use --subject for the former, or write a whole subject"
    )]
    Ambiguous { text: String, as_subject: u32, as_key: u32 },
}

impl<'a> Asked<'a> {
    /// From the command line.
    pub(crate) fn new(key: Option<&'a str>, subject: Option<&'a str>) -> Result<Self, PlaceError> {
        match (key, subject) {
            (_, Some(subject)) => Ok(Self::Subject(subject)),
            (Some(key), None) => Ok(Self::Either(key)),
            (None, None) => Err(PlaceError::Nothing),
        }
    }
}

/// Where a key goes.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Place {
    /// `namespace/name` of the set.
    pub(crate) set: String,
    /// The key's tokens, in the order in which they are hashed.
    pub(crate) key: Vec<String>,
    /// The subject under which the stream stores it, when a subject was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stored_subject: Option<String>,
    /// The key's hash.
    pub(crate) hash: u32,
    /// The number of partitions in force.
    pub(crate) partitions: u32,
    /// The partition.
    pub(crate) partition: u32,
    /// All keys of the partition: those with `hash % modulus == residue`.
    #[serde(flatten)]
    pub(crate) share: Share,
    /// Its Deployment.
    pub(crate) deployment: String,
    /// Its consumer's filter.
    pub(crate) filter: String,
    /// The stream.
    pub(crate) stream: String,
    /// What its consumer's name begins with; the number of its incarnation follows.
    pub(crate) consumer_prefix: String,
    /// Where the key goes once the wanted number of partitions is in force, if that is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wanted: Option<Wanted>,
}

/// Where the key goes after a change that is not done yet.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Wanted {
    /// The number of partitions wanted.
    pub(crate) partitions: u32,
    /// The partition then.
    pub(crate) partition: u32,
}

/// Finds it.
pub(crate) fn find(set: &OrderedPartitionSet, asked: Asked<'_>) -> Result<Place, PlaceError> {
    let validated =
        lanekeeper_api::validate(set).map_err(|found| PlaceError::Invalid(invalid::summary(&found)))?;
    let in_force = set.status.as_ref().and_then(|status| u32::try_from(status.partitions).ok());
    let partitions = in_force.filter(|number| *number > 0).unwrap_or(validated.partitions);
    let mapping = &validated.stream.mapping;
    let (key, stored_subject) = match asked {
        Asked::Subject(subject) => of_subject(mapping, subject)?,
        Asked::Either(text) => either(mapping, text, partitions)?,
    };
    Ok(place(&validated, partitions, key, stored_subject))
}

fn place(set: &Validated, partitions: u32, key: Vec<String>, stored_subject: Option<String>) -> Place {
    let mapping = &set.stream.mapping;
    let hash = hash(&key);
    let partition = partition_of(hash, partitions);
    // A partition below their number always has a share.
    let share = Share::of_partition(partition, partitions).unwrap_or(Share { modulus: 1, residue: 0 });
    let prefix = set.name.consumer_prefix();
    Place {
        set: set.name.to_string(),
        key,
        stored_subject,
        hash,
        partitions,
        partition,
        share,
        deployment: set.name.deployment(partition),
        filter: mapping.filter(share),
        stream: mapping.stream.clone(),
        consumer_prefix: format!("{prefix}{partition}_"),
        wanted: (set.partitions != partitions)
            .then(|| Wanted { partitions: set.partitions, partition: partition_of(hash, set.partitions) }),
    }
}

type Found = (Vec<String>, Option<String>);

fn of_subject(mapping: &Mapping, subject: &str) -> Result<Found, PlaceError> {
    check_subject(subject).map_err(PlaceError::Text)?;
    match mapping.key_of(subject) {
        Some(key) => Ok((key.into_iter().map(str::to_owned).collect(), mapping.stored_subject(subject))),
        None => Err(PlaceError::NotMapped {
            subject: subject.to_owned(),
            source_pattern: mapping.source.as_str().to_owned(),
        }),
    }
}

fn either(mapping: &Mapping, text: &str, partitions: u32) -> Result<Found, PlaceError> {
    check_subject(text).map_err(PlaceError::Text)?;
    let tokens: Vec<String> = text.split('.').map(str::to_owned).collect();
    let found = tokens.len();
    let as_key = (found == mapping.key_tokens.len()).then_some(tokens);
    let as_subject = of_subject(mapping, text);
    match (as_subject, as_key) {
        (Ok(subject), Some(key)) => {
            let [by_subject, by_key] = [&subject.0, &key].map(|key| partition_of(hash(key), partitions));
            if by_subject != by_key {
                let text = text.to_owned();
                return Err(PlaceError::Ambiguous { text, as_subject: by_subject, as_key: by_key });
            }
            Ok(subject)
        }
        (Ok(subject), None) => Ok(subject),
        (Err(_), Some(key)) => Ok((key, None)),
        (Err(_), None) => {
            let number = mapping.key_tokens.len();
            Err(PlaceError::Neither {
                text: text.to_owned(),
                source_pattern: mapping.source.as_str().to_owned(),
                wanted: if number == 1 { "1 token".to_owned() } else { format!("{number} tokens") },
                key_tokens: format!("{:?}", mapping.key_tokens),
                found,
            })
        }
    }
}

fn hash(key: &[String]) -> u32 {
    fnv1a32(key.iter().map(String::as_bytes))
}

/// For people.
pub(crate) fn render(place: &Place) -> String {
    let Share { modulus, residue } = place.share;
    let mut lines = vec![
        ("Key", place.key.join(" ")),
        ("Hash", place.hash.to_string()),
        ("Partition", format!("{} of {}", place.partition, place.partitions)),
        ("Share", format!("1/{modulus} of all keys (hash mod {modulus} = {residue})")),
        ("Deployment", place.deployment.clone()),
        ("Stream", place.stream.clone()),
        ("Filter", place.filter.clone()),
        (
            "Consumer",
            format!("{}* (*: `incarnation` in kubectl lanes status -o json)", place.consumer_prefix),
        ),
    ];
    if let Some(stored) = &place.stored_subject {
        lines.push(("Stored as", stored.clone()));
    }
    if let Some(wanted) = &place.wanted {
        lines.push(("Changing to", format!("partition {} of {}", wanted.partition, wanted.partitions)));
    }
    table::facts(&lines)
}

#[cfg(test)]
mod tests;
