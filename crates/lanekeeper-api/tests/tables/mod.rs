//! The tables of `rules/`.

// Each program of tests uses a part of it.
#![allow(dead_code, clippy::unwrap_used)]

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
pub(crate) struct Good {
    pub(crate) base: Value,
    pub(crate) cases: Vec<GoodCase>,
}

#[derive(Deserialize)]
pub(crate) struct GoodCase {
    pub(crate) name: String,
    pub(crate) change: Value,
}

#[derive(Deserialize)]
struct Table<T> {
    cases: Vec<T>,
}

#[derive(Deserialize)]
pub(crate) struct BadCase {
    pub(crate) name: String,
    pub(crate) field: String,
    pub(crate) by: Judge,
    pub(crate) change: Value,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Judge {
    Schema,
    Rule,
    Operator,
}

#[derive(Deserialize)]
pub(crate) struct UpdateCase {
    pub(crate) name: String,
    pub(crate) field: Option<String>,
    pub(crate) from: Value,
    pub(crate) to: Value,
}

pub(crate) fn good() -> Good {
    serde_yaml::from_str(include_str!("../rules/good.yaml")).unwrap()
}

pub(crate) fn bad() -> Vec<BadCase> {
    serde_yaml::from_str::<Table<_>>(include_str!("../rules/bad.yaml")).unwrap().cases
}

pub(crate) fn updates() -> Vec<UpdateCase> {
    serde_yaml::from_str::<Table<_>>(include_str!("../rules/updates.yaml")).unwrap().cases
}

/// RFC 7386: null removes.
pub(crate) fn changed(base: &Value, change: &Value) -> Value {
    let Value::Object(changes) = change else { return change.clone() };
    let mut merged = base.as_object().cloned().unwrap_or_default();
    for (name, change) in changes {
        if change.is_null() {
            merged.remove(name);
        } else {
            let old = merged.get(name).cloned().unwrap_or(Value::Null);
            merged.insert(name.clone(), changed(&old, change));
        }
    }
    Value::Object(merged)
}
