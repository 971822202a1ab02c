//! What a line of the program means.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::handler::HandlerError;

/// As much of a reason is kept.
const REASON: usize = 200;
/// As much of an unexpected line is quoted.
const QUOTED: usize = 100;
const RESULTS: &str = "must be \"done\", \"retry\", \"permanent\" or \"wait\"";

/// A line, judged.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// The answer to the message in hand, though perhaps one that nobody can use.
    Answer(Result<(), HandlerError>),
    /// Anything else: who wrote it cannot be trusted with another message.
    Foreign(String),
}

pub(super) fn judge(line: &[u8], id: &str) -> Judged {
    let Ok(Value::Object(answer)) = serde_json::from_slice(line) else {
        return Judged::Foreign(format!("wrote {} while {id} was in hand: no JSON object", quoted(line)));
    };
    match answer.get("id") {
        Some(Value::String(answered)) if answered == id => {}
        other => {
            let what = other.map_or("without an id".to_owned(), |other| format!("to {}", shown(other)));
            return Judged::Foreign(format!("wrote an answer {what} while {id} was in hand"));
        }
    }
    match outcome(&answer) {
        Ok(outcome) => Judged::Answer(outcome),
        Err(wrong) => {
            let reason = format!("the answer to {id} cannot be used: {wrong}");
            Judged::Answer(Err(HandlerError::retry(reason)))
        }
    }
}

/// The answer's outcome, or what is wrong with it. A member that nobody knows is wrong: misspelt, it would otherwise
/// be left out without a word.
fn outcome(answer: &Map<String, Value>) -> Result<Result<(), HandlerError>, String> {
    let wrong =
        |field: &str, value: &Value, allowed: &str| format!("'{field}' is {}: {allowed}", shown(value));
    for (field, value) in answer {
        if !["id", "result", "reason", "afterMilliseconds"].contains(&field.as_str()) {
            let allowed = "must not be there; known are id, result, reason and afterMilliseconds";
            return Err(wrong(field, value, allowed));
        }
    }
    let given = |field: &str| answer.get(field).filter(|value| !value.is_null());
    let reason = match given("reason") {
        None => "the handler gave no reason".to_owned(),
        Some(Value::String(reason)) => reason.trim().chars().take(REASON).collect(),
        Some(other) => return Err(wrong("reason", other, "must be a text")),
    };
    let allowed = "must be a number of milliseconds, 0 or more";
    let after = match given("afterMilliseconds") {
        None => None,
        Some(number) => Some(Duration::from_millis(
            number.as_u64().ok_or_else(|| wrong("afterMilliseconds", number, allowed))?,
        )),
    };
    let Some(result) = given("result") else { return Err(format!("'result' is missing: {RESULTS}")) };
    match (result.as_str(), after) {
        (Some("done"), _) => Ok(Ok(())),
        (Some("retry"), after) => Ok(Err(HandlerError::Retry { reason, after })),
        (Some("permanent"), _) => Ok(Err(HandlerError::Permanent { reason })),
        (Some("wait"), Some(after)) => Ok(Err(HandlerError::Wait { reason, after })),
        (Some("wait"), None) => Err(format!("'afterMilliseconds' is missing: with \"wait\" it {allowed}")),
        _ => Err(wrong("result", result, RESULTS)),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text.as_bytes()),
        other => quoted(other.to_string().as_bytes()),
    }
}

/// The beginning of what was written, in a form that fits a log.
pub(super) fn quoted(line: &[u8]) -> String {
    // Four bytes hold any character.
    let start = line.get(..line.len().min(QUOTED * 4)).unwrap_or_default();
    let text = String::from_utf8_lossy(start);
    let mut words: String = text.chars().take(QUOTED).flat_map(char::escape_default).collect();
    if text.chars().nth(QUOTED).is_some() || start.len() < line.len() {
        words.push('…');
    }
    format!("'{words}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(line: &str) -> Result<(), HandlerError> {
        match judge(line.as_bytes(), "S/1") {
            Judged::Answer(outcome) => outcome,
            Judged::Foreign(words) => panic!("{line}: {words}"),
        }
    }

    #[test]
    fn each_result_means_what_is_documented() {
        let reason = || "because".to_owned();
        let (after, none) = (Duration::from_millis(7), "the handler gave no reason".to_owned());
        assert_eq!(answered(r#"{"id":"S/1","result":"done"}"#), Ok(()));
        assert_eq!(answered(r#" {"result":"done","id":"S/1","reason":null} "#), Ok(()));
        assert_eq!(
            answered(r#"{"id":"S/1","result":"retry","reason":" because "}"#),
            Err(HandlerError::Retry { reason: reason(), after: None })
        );
        assert_eq!(
            answered(r#"{"id":"S/1","result":"retry","afterMilliseconds":7}"#),
            Err(HandlerError::Retry { reason: none, after: Some(after) })
        );
        assert_eq!(
            answered(r#"{"id":"S/1","result":"permanent","reason":"because"}"#),
            Err(HandlerError::Permanent { reason: reason() })
        );
        assert_eq!(
            answered(r#"{"id":"S/1","result":"wait","reason":"because","afterMilliseconds":7}"#),
            Err(HandlerError::Wait { reason: reason(), after })
        );
    }

    #[test]
    fn an_answer_that_cannot_be_used_is_a_failed_attempt_that_names_member_value_and_what_is_allowed() {
        for (line, words) in [
            (r#"{"id":"S/1"}"#, "'result' is missing: must be \"done\""),
            (r#"{"id":"S/1","result":"ok"}"#, "'result' is 'ok': must be"),
            (r#"{"id":"S/1","result":true}"#, "'result' is 'true': must be"),
            (r#"{"id":"S/1","result":"wait"}"#, "'afterMilliseconds' is missing"),
            (
                r#"{"id":"S/1","result":"wait","afterMilliseconds":-1}"#,
                "'afterMilliseconds' is '-1': must be",
            ),
            (r#"{"id":"S/1","result":"retry","reason":5}"#, "'reason' is '5': must be a text"),
            (r#"{"id":"S/1","result":"retry","afterMiliseconds":5}"#, "'afterMiliseconds' is '5': must not"),
        ] {
            let error = answered(line).unwrap_err();
            assert!(matches!(error, HandlerError::Retry { after: None, .. }), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn what_is_no_answer_to_this_message_is_foreign_and_said() {
        for (line, words) in [
            ("", "wrote '' while S/1"),
            ("hello", "wrote 'hello' while S/1 was in hand: no JSON object"),
            ("[1]", "no JSON object"),
            (r#"{"id":"S/1","result":"done"}}"#, "no JSON object"),
            (r#"{"result":"done"}"#, "an answer without an id while S/1"),
            (r#"{"id":7,"result":"done"}"#, "an answer to '7' while S/1"),
            (r#"{"id":"S/2","result":"done"}"#, "an answer to 'S/2' while S/1"),
        ] {
            let Judged::Foreign(said) = judge(line.as_bytes(), "S/1") else { panic!("{line}") };
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn a_reason_and_what_is_quoted_are_cut() {
        let line = format!(r#"{{"id":"S/1","result":"permanent","reason":"{}"}}"#, "é".repeat(9000));
        let Err(HandlerError::Permanent { reason }) = answered(&line) else { panic!() };
        assert_eq!(reason.chars().count(), REASON);
        let words = quoted("\u{1b}[2J\u{0}é".repeat(9000).as_bytes());
        assert!(words.len() < QUOTED * 10 && words.ends_with("…'"), "{words}");
        assert!(words.chars().all(|one| !one.is_control()), "{words}");
    }
}
