//! The mapping.

use lanekeeper_core::{
    mapping::{LANES, MAX_PARTITIONS, Mapping, MappingError},
    subject::SubjectPattern,
};

use crate::{
    invalid::{Findings, Invalid},
    spec,
};

const SUBJECT: &str = "spec.mapping.subject";
const KEY_TOKENS: &str = "spec.mapping.keyTokens";

/// The mapping of a stream of this name; `None` when it cannot be, which is then noted.
pub(super) fn check(stream: &str, given: &spec::Mapping, findings: &mut Findings) -> Option<Mapping> {
    let source = match SubjectPattern::parse(&given.subject) {
        Ok(source) => source,
        Err(error) => {
            let allowed = format!("must be subject tokens joined by dots; {error}");
            findings.add(Invalid::text(SUBJECT, &given.subject, allowed));
            return None;
        }
    };
    reserved(SUBJECT, &source, stream, findings);
    if given.key_tokens.len() > 32 {
        findings.add(Invalid::value(
            KEY_TOKENS,
            format!("{:?}", given.key_tokens),
            "must have 1 to 32 entries",
        ));
    }
    let key_tokens: Vec<i64> = given.key_tokens.iter().copied().map(i64::from).collect();
    match Mapping::new(stream, source, &key_tokens, i64::from(given.max_partitions)) {
        Ok(mapping) => Some(mapping),
        Err(error) => {
            findings.add(invalid(error));
            None
        }
    }
}

/// A message whose own subject looks like that of a lane would reach the lane past the mapping.
pub(super) fn reserved(field: &str, pattern: &SubjectPattern, stream: &str, findings: &mut Findings) {
    let text = pattern.as_str();
    findings.require_text(
        !text.starts_with('$') && text != ">",
        field,
        text,
        "must not be '>' and must not begin with '$', which NATS keeps for itself",
    );
    let lanes = SubjectPattern::parse(&format!("{LANES}.{stream}.>"));
    let clashes = text.starts_with("lanes.") || lanes.is_ok_and(|lanes| pattern.overlaps(&lanes));
    let allowed = format!("must not have subjects that begin with '{LANES}.', which are the lanes' own");
    findings.require_text(!clashes, field, text, &allowed);
}

fn invalid(error: MappingError) -> Invalid {
    match error {
        MappingError::Stream(name) => Invalid::text(
            "spec.stream.name",
            &name,
            "must have 1 to 255 characters, none of them white space, '.', '*', '>', '/' or '\\'",
        ),
        MappingError::NoWildcard(source) => {
            let hint = source.strip_suffix('>').map(|rest| format!(" (for example '{rest}*')"));
            let allowed = format!(
                "must have at least one '*', from which the key is taken{}",
                hint.unwrap_or_default()
            );
            Invalid::text(SUBJECT, &source, allowed)
        }
        MappingError::NoKeyToken => {
            Invalid::value(KEY_TOKENS, "empty", format!("must name at least one '*' of {SUBJECT}"))
        }
        MappingError::KeyToken { token, wildcards, source } => Invalid::value(
            KEY_TOKENS,
            token,
            format!("must be from 1 to {wildcards}, the number of '*' in '{source}'"),
        ),
        MappingError::Repeated(token) => {
            Invalid::value(KEY_TOKENS, format!("{token} twice"), "must be distinct")
        }
        MappingError::MaxPartitions(given) => Invalid::value(
            "spec.mapping.maxPartitions",
            given,
            format!("must be a power of two from 1 to {MAX_PARTITIONS}"),
        ),
    }
}
