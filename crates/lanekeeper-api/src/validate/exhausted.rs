//! What happens to messages whose attempts are used up.

use lanekeeper_core::{
    dead_letter::DeadLetters,
    names::SetName,
    record::{Breaker, ExhaustedPolicy},
    subject::SubjectPattern,
};

use crate::{
    invalid::{Findings, Invalid},
    spec,
};

const DEAD_LETTER: &str = "spec.onExhausted.deadLetter";
const STREAM_NAME: &str = "spec.onExhausted.deadLetter.streamName";
const BREAKER: &str = "spec.onExhausted.breaker";

/// The policy, and where its dead letters go. Without a name there is nothing to make a subject from; that was noted
/// already.
pub(super) fn check(
    name: Option<&SetName>,
    given: &spec::OnExhausted,
    stream: &spec::Stream,
    findings: &mut Findings,
) -> (ExhaustedPolicy, Option<DeadLetters>) {
    let named = given.dead_letter.as_ref().and_then(|it| it.stream_name.as_deref());
    if given.dead_letter.is_some() && given.policy != spec::ExhaustedPolicy::DeadLetter {
        let allowed = "must be absent unless spec.onExhausted.policy is DeadLetter";
        findings.add(Invalid::forbidden(DEAD_LETTER, allowed));
    }
    if let Some(named) = named {
        check_name(named, stream, findings);
    }
    if given.breaker.is_some() && given.policy == spec::ExhaustedPolicy::Block {
        let allowed = "must be absent when spec.onExhausted.policy is Block";
        findings.add(Invalid::forbidden(BREAKER, allowed));
    }
    let breaker = breaker(&given.breaker.clone().unwrap_or_default(), findings);
    match (given.policy, name) {
        (spec::ExhaustedPolicy::Block, _) | (_, None) => (ExhaustedPolicy::Block, None),
        (spec::ExhaustedPolicy::Drop, _) => (ExhaustedPolicy::Drop { breaker }, None),
        (spec::ExhaustedPolicy::DeadLetter, Some(name)) => {
            let letters = DeadLetters::new(name, named);
            check_subject(&letters.subject, stream, findings);
            let (stream, subject) = (letters.stream.clone(), letters.subject.clone());
            (ExhaustedPolicy::DeadLetter { stream, subject, breaker }, Some(letters))
        }
    }
}

fn check_name(named: &str, stream: &spec::Stream, findings: &mut Findings) {
    findings.bound_text(STREAM_NAME, named, 255);
    let legal = !named.contains(['.', '*', '>', '/', '\\']) && !named.contains(char::is_whitespace);
    let allowed = "must be a stream's name, without white space, '.', '*', '>', '/' and '\\'";
    findings.require_text(legal, STREAM_NAME, named, allowed);
    let allowed = "must be another stream than spec.stream.name";
    findings.require_text(named != stream.name, STREAM_NAME, named, allowed);
}

/// A dead letter that the set's own stream takes would be handled again, and die again.
fn check_subject(subject: &str, stream: &spec::Stream, findings: &mut Findings) {
    let Ok(letters) = SubjectPattern::parse(subject) else { return };
    for taken in &stream.subjects {
        if SubjectPattern::parse(taken).is_ok_and(|taken| taken.overlaps(&letters)) {
            let allowed = format!("must not take '{subject}', the subject of the set's dead letters");
            findings.add(Invalid::text("spec.stream.subjects", taken, allowed));
        }
    }
}

fn breaker(given: &spec::Breaker, findings: &mut Findings) -> Breaker {
    let field = |name: &str| format!("{BREAKER}.{name}");
    Breaker {
        max_exhausted: findings.bound(&field("maxExhausted"), i64::from(given.max_exhausted), 1, 1_000_000),
        window_seconds: findings.bound(&field("windowSeconds"), i64::from(given.window_seconds), 1, 86_400),
    }
}
