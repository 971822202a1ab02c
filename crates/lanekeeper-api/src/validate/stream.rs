//! The stream.

use lanekeeper_core::{
    mapping::Mapping,
    stream::{Retention, Storage, StreamSpec},
    subject::SubjectPattern,
};

use crate::{
    invalid::{Findings, Invalid},
    spec,
};

const SUBJECTS: &str = "spec.stream.subjects";
const HUNDRED_YEARS_IN_SECONDS: u64 = 3_153_600_000;

/// The stream with its mapping; `None` when there is no mapping, which was noted already.
pub(super) fn check(
    given: &spec::Stream,
    mapping: Option<Mapping>,
    findings: &mut Findings,
) -> Option<StreamSpec> {
    let subjects = check_subjects(given, findings);
    let replicas = findings.bound("spec.stream.replicas", i64::from(given.replicas), 1, 5);
    let mut seconds = |field, value: Option<i64>| {
        value.map(|value| findings.bound(field, value, 1, HUNDRED_YEARS_IN_SECONDS))
    };
    let max_age_seconds = seconds("spec.stream.maxAgeSeconds", given.max_age_seconds);
    let window = "spec.stream.duplicateWindowSeconds";
    let duplicate_window_seconds = seconds(window, given.duplicate_window_seconds);
    if let (Some(window_seconds), Some(age)) = (duplicate_window_seconds, max_age_seconds)
        && window_seconds > age
    {
        let allowed = format!("must be at most spec.stream.maxAgeSeconds, which is {age}");
        findings.add(Invalid::value(window, window_seconds, allowed));
    }
    let max_bytes = given.max_bytes.map(|value| findings.bound("spec.stream.maxBytes", value, 1, 1 << 50));
    let max_messages = given
        .max_messages
        .map(|value| findings.bound("spec.stream.maxMessages", value, 1, 1_000_000_000_000));
    let mapping = mapping?;
    if !subjects.is_empty() && !subjects.iter().any(|subject| mapping.source.is_subset_of(subject)) {
        let allowed =
            format!("must be covered by one of {SUBJECTS}, which are {}", given.subjects.join(", "));
        findings.add(Invalid::text("spec.mapping.subject", mapping.source.as_str(), allowed));
    }
    Some(StreamSpec {
        mapping,
        subjects: given.subjects.clone(),
        replicas,
        storage: match given.storage {
            spec::Storage::File => Storage::File,
            spec::Storage::Memory => Storage::Memory,
        },
        retention: match given.retention {
            spec::Retention::Limits => Retention::Limits,
            spec::Retention::Interest => Retention::Interest,
            spec::Retention::WorkQueue => Retention::WorkQueue,
        },
        max_age_seconds,
        max_bytes,
        max_messages,
        duplicate_window_seconds,
    })
}

fn check_subjects(given: &spec::Stream, findings: &mut Findings) -> Vec<SubjectPattern> {
    if given.subjects.is_empty() || given.subjects.len() > 32 {
        findings.add(Invalid::value(
            SUBJECTS,
            format!("{} entries", given.subjects.len()),
            "must have 1 to 32",
        ));
    }
    let mut patterns: Vec<SubjectPattern> = Vec::new();
    for subject in &given.subjects {
        match SubjectPattern::parse(subject) {
            Ok(pattern) => {
                super::mapping::reserved(SUBJECTS, &pattern, &given.name, findings);
                if let Some(other) = patterns.iter().find(|other| other.overlaps(&pattern)) {
                    let allowed = format!("must not overlap with '{other}'");
                    findings.add(Invalid::text(SUBJECTS, subject, allowed));
                }
                patterns.push(pattern);
            }
            Err(error) => {
                let allowed = format!("must be subject tokens joined by dots; {error}");
                findings.add(Invalid::text(SUBJECTS, subject, allowed));
            }
        }
    }
    patterns
}
