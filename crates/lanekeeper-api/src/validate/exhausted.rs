//! What happens to messages whose attempts are used up.

use lanekeeper_core::{
    aside::{Aside, Kind},
    names::SetName,
    record::{Breaker, ExhaustedPolicy, Park},
    subject::SubjectPattern,
};

use crate::{
    invalid::{Findings, Invalid},
    spec,
};

const DEAD_LETTER: &str = "spec.onExhausted.deadLetter";
const PARK: &str = "spec.onExhausted.park";
const BREAKER: &str = "spec.onExhausted.breaker";

/// The policy, and where the messages go that are put aside. Without a name there is nothing to make a subject from; that
/// was noted already.
pub(super) fn check(
    name: Option<&SetName>,
    given: &spec::OnExhausted,
    stream: &spec::Stream,
    findings: &mut Findings,
) -> (ExhaustedPolicy, Option<Aside>) {
    let letters_in = given.dead_letter.as_ref().and_then(|it| it.stream_name.as_deref());
    let parked_in = given.park.as_ref().and_then(|it| it.stream_name.as_deref());
    for (present, field, policy) in [
        (given.dead_letter.is_some(), DEAD_LETTER, spec::ExhaustedPolicy::DeadLetter),
        (given.park.is_some(), PARK, spec::ExhaustedPolicy::ParkKey),
    ] {
        if present && given.policy != policy {
            let allowed = format!("must be absent unless spec.onExhausted.policy is {policy:?}");
            findings.add(Invalid::forbidden(field, &allowed));
        }
    }
    for (named, kind) in [(letters_in, Kind::DeadLetters), (parked_in, Kind::Parked)] {
        if let Some(named) = named {
            check_name(kind.field(), named, stream, findings);
        }
    }
    if given.breaker.is_some() && given.policy == spec::ExhaustedPolicy::Block {
        let allowed = "must be absent when spec.onExhausted.policy is Block";
        findings.add(Invalid::forbidden(BREAKER, allowed));
    }
    let breaker = breaker(&given.breaker.clone().unwrap_or_default(), findings);
    let mut aside = |kind, name: &SetName, named| {
        let aside = Aside::new(kind, name, named);
        check_subject(&aside, stream, findings);
        aside
    };
    match (given.policy, name) {
        (spec::ExhaustedPolicy::Block, _) | (_, None) => (ExhaustedPolicy::Block, None),
        (spec::ExhaustedPolicy::Drop, _) => (ExhaustedPolicy::Drop { breaker }, None),
        (spec::ExhaustedPolicy::DeadLetter, Some(name)) => {
            let letters = aside(Kind::DeadLetters, name, letters_in);
            let (stream, subject) = (letters.stream.clone(), letters.subject.clone());
            (ExhaustedPolicy::DeadLetter { stream, subject, breaker }, Some(letters))
        }
        (spec::ExhaustedPolicy::ParkKey, Some(name)) => {
            (ExhaustedPolicy::ParkKey { breaker }, Some(aside(Kind::Parked, name, parked_in)))
        }
    }
}

/// Where lanes park, if they do.
pub(super) fn park(name: &SetName, aside: &Aside) -> Option<Park> {
    (aside.kind == Kind::Parked).then(|| Park { stream: aside.stream.clone(), prefix: name.park_prefix() })
}

fn check_name(field: &str, named: &str, stream: &spec::Stream, findings: &mut Findings) {
    findings.bound_text(field, named, 255);
    let legal = !named.contains(['.', '*', '>', '/', '\\']) && !named.contains(char::is_whitespace);
    let allowed = "must be a stream's name, without white space, '.', '*', '>', '/' and '\\'";
    findings.require_text(legal, field, named, allowed);
    let allowed = "must be another stream than spec.stream.name";
    findings.require_text(named != stream.name, field, named, allowed);
}

/// What the set's own stream takes would be handled again, and be put aside again.
fn check_subject(aside: &Aside, stream: &spec::Stream, findings: &mut Findings) {
    let Ok(subject) = SubjectPattern::parse(&aside.subject) else { return };
    for taken in &stream.subjects {
        if SubjectPattern::parse(taken).is_ok_and(|taken| taken.overlaps(&subject)) {
            let Aside { subject, kind, .. } = aside;
            let noun = if *kind == Kind::Parked { "subjects" } else { "subject" };
            let allowed = format!("must not take '{subject}', the {noun} of the set's {}", kind.words());
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
