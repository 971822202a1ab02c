//! What came of an order, for people. Pure.

use lanekeeper_core::order::{OrderOutcome, Verb};

use super::{Answer, Target, seconds};

/// In one line.
pub(crate) fn render(answer: &Answer) -> String {
    let Target { partition, key, sequence, through, .. } = &answer.target;
    let what = match (sequence, through) {
        (Some(sequence), _) => format!("message {sequence} of key {key} (partition {partition})"),
        (None, Some(last)) => format!("key {key} (partition {partition}) up to message {last}"),
        (None, None) => format!("key {key} (partition {partition})"),
    };
    let Some(result) = &answer.result else {
        let verb = match answer.verb {
            Verb::Skip => "skipped",
            Verb::Release => "released",
            Verb::Drop => "dropped",
            _ => "tried",
        };
        return format!(
            "{what}: not {verb} within {}; the order {} stays, and is carried out as soon as the lane comes to it\n",
            seconds(&answer.timeout),
            answer.order
        );
    };
    let reason = &result.reason;
    match &result.outcome {
        OrderOutcome::Skipped if result.messages == 1 => format!("{what}: skipped\n"),
        OrderOutcome::Skipped => format!("{what}: {} messages skipped\n", result.messages),
        OrderOutcome::Succeeded => format!("{what}: tried, and it succeeded\n"),
        OrderOutcome::Released => {
            format!("{what}: {} parked messages handled; it is free\n", result.messages)
        }
        OrderOutcome::Dropped => format!("{what}: {} parked messages dropped\n", result.messages),
        OrderOutcome::Failed if answer.verb == Verb::Release => format!(
            "{what}: {} parked messages handled, then one failed, and it stays parked: {reason}\n",
            result.messages
        ),
        OrderOutcome::Failed if answer.verb == Verb::Drop => {
            format!("{what}: {} parked messages dropped, then it failed: {reason}\n", result.messages)
        }
        OrderOutcome::Failed => format!("{what}: tried, and it failed: {reason}\n"),
        OrderOutcome::Void => format!("{what}: nothing was done: {reason}\n"),
        OrderOutcome::Other(word) => format!("{what}: {word}: {reason}\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::orders::Said;

    #[test]
    fn every_outcome_has_its_words() {
        let target =
            Target { partition: 2, incarnation: 7, key: "k".into(), sequence: Some(5), through: None };
        let said = |outcome: Option<OrderOutcome>, verb: Verb, messages: u64| {
            let result = outcome.map(|outcome| Said { outcome, messages, reason: "no".into() });
            let (set, target, order) = ("shop/orders".into(), target.clone(), "X1".into());
            render(&Answer { set, target, order, verb, result, timeout: Duration::from_secs(30) })
        };
        let what = "message 5 of key k (partition 2): ";
        for (outcome, verb, messages, words) in [
            (Some(OrderOutcome::Skipped), Verb::Skip, 1, "skipped\n"),
            (Some(OrderOutcome::Skipped), Verb::Skip, 3, "3 messages skipped\n"),
            (Some(OrderOutcome::Succeeded), Verb::Retry, 1, "tried, and it succeeded\n"),
            (Some(OrderOutcome::Failed), Verb::Retry, 1, "tried, and it failed: no\n"),
            (Some(OrderOutcome::Void), Verb::Retry, 0, "nothing was done: no\n"),
            (
                None,
                Verb::Skip,
                0,
                "not skipped within 30 s; the order X1 stays, and is carried out as soon as the lane comes to it\n",
            ),
        ] {
            assert_eq!(said(outcome, verb, messages), format!("{what}{words}"));
        }
    }
}
