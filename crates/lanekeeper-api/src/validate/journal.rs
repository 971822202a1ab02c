//! The journal: a subject of its own, that the set's stream does not take.

use lanekeeper_core::{
    mapping::LANES,
    subject::{SubjectPattern, check_subject},
};

use crate::{
    invalid::{Findings, Invalid},
    spec,
};

const SUBJECT: &str = "spec.worker.journal.subject";

/// The journal's subject, if there is to be a journal.
pub(super) fn check(
    given: Option<&spec::Journal>,
    stream: &spec::Stream,
    findings: &mut Findings,
) -> Option<String> {
    let subject = &given?.subject;
    findings.bound_text(SUBJECT, subject, 256);
    if let Err(error) = check_subject(subject) {
        let allowed = format!("must be tokens joined by dots, without wildcards or white space; {error}");
        findings.add(Invalid::text(SUBJECT, subject, allowed));
    }
    let reserved = subject.starts_with('$') || subject.split('.').next() == Some(LANES);
    let allowed = format!("must not begin with '{LANES}.' or '$', which are reserved");
    findings.require_text(!reserved, SUBJECT, subject, &allowed);
    let published = SubjectPattern::parse(&format!("{subject}.*")).ok();
    for taken in &stream.subjects {
        let pattern = SubjectPattern::parse(taken).ok();
        if let (Some(published), Some(pattern)) = (&published, pattern)
            && published.overlaps(&pattern)
        {
            let allowed = format!(
                "must not be below a subject of spec.stream.subjects; '{taken}' would have the stream keep its own journal"
            );
            findings.add(Invalid::text(SUBJECT, subject, allowed));
        }
    }
    Some(subject.clone())
}
