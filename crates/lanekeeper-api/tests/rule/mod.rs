//! The definition's CEL rules, without an API server.

#![allow(clippy::unwrap_used)]

use kube::core::cel::{ErrorKind, Validator, apply_defaults};
use lanekeeper_api::crd;
use serde_json::Value;

pub(crate) fn schema() -> Value {
    let definition = serde_json::to_value(crd::definition()).unwrap();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// The words of every CEL rule that refuses, after defaults as the API server fills them in.
pub(crate) fn rules(schema: &Value, set: &Value, old: Option<&Value>) -> Vec<String> {
    let set = apply_defaults(schema, set);
    let old = old.map(|old| apply_defaults(schema, old));
    match Validator::new().validate(schema, &set, old.as_ref()) {
        Ok(()) => Vec::new(),
        Err(errors) => errors
            .into_vec()
            .into_iter()
            .map(|error| {
                assert_eq!(error.kind, ErrorKind::ValidationFailure, "{}: {}", error.rule, error.message);
                error.message
            })
            .collect(),
    }
}
