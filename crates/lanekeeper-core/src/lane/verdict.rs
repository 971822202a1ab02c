//! Whether a message that arrived belongs to the lane.
//!
//! Nothing is trusted: the hash is computed again from the stored subject, whatever filter the consumer has.

use crate::record::Assignment;

/// What is to become of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is this lane's to handle.
    Ours,
    /// A predecessor had settled it.
    Covered,
    /// It is not this lane's: the reason.
    Refused(String),
}

pub(super) fn verdict(assignment: &Assignment, subject: &str, sequence: u64) -> Verdict {
    let mapping = &assignment.mapping;
    let Some(original) = mapping.original_subject(subject) else {
        return Verdict::Refused(format!(
            "subject '{subject}' is not one that '{}' is mapped to in stream '{}'",
            mapping.source, mapping.stream
        ));
    };
    let Some(hash) = mapping.key_hash(original) else {
        return Verdict::Refused(format!("subject '{original}' has no key"));
    };
    if !assignment.share.contains_hash(hash) {
        let (modulus, residue) = (assignment.share.modulus, assignment.share.residue);
        return Verdict::Refused(format!(
            "subject '{original}' has residue {} for modulus {modulus}, this lane has {residue}",
            hash % modulus
        ));
    }
    if assignment.floors.iter().any(|floor| sequence <= floor.sequence && floor.share.contains_hash(hash)) {
        return Verdict::Covered;
    }
    Verdict::Ours
}
