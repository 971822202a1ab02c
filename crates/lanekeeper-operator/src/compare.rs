//! Where an object that lives differs from what was applied: pure.
//!
//! Only what is wanted is compared. Fields that nobody asked for (defaults of the server, sidecars and annotations of
//! a mutating neighbour) are no difference. Entries of lists are matched by what server-side apply keys them by.

use serde_json::{Map, Value};

/// Fields by which server-side apply tells the entries of a list apart, the most telling first.
const KEYS: [&str; 5] = ["mountPath", "containerPort", "uid", "name", "topologyKey"];

/// The paths at which `live` is not as `wanted`, each with what stands there now; sorted.
pub fn differences(wanted: &Value, live: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare("", wanted, Some(live), &mut found);
    found.sort();
    found
}

/// One field that is not as wanted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The path, for example `spec.strategy.type`.
    pub path: String,
    /// What is there now, as JSON; `None` when it is missing.
    pub found: Option<String>,
}

fn compare(path: &str, wanted: &Value, live: Option<&Value>, found: &mut Vec<Difference>) {
    match (wanted, live) {
        (Value::Null, _) => {}
        // The server drops what is empty.
        (Value::Object(fields), None) if fields.values().all(is_empty) => {}
        (Value::Array(entries), None) if entries.is_empty() => {}
        (Value::Object(fields), Some(Value::Object(lives))) => {
            for (name, value) in fields {
                compare(&joined(path, name), value, lives.get(name), found);
            }
        }
        (Value::Array(entries), Some(Value::Array(lives))) => compare_lists(path, entries, lives, found),
        (wanted, Some(live)) if wanted == live => {}
        // Amounts of resources may be written as numbers, and are kept as texts.
        (Value::Number(number), Some(Value::String(text)))
            if path.contains(".resources.") && number.to_string() == *text => {}
        (_, live) => found.push(Difference { path: path.to_owned(), found: live.map(Value::to_string) }),
    }
}

fn compare_lists(path: &str, wanted: &[Value], live: &[Value], found: &mut Vec<Difference>) {
    let key =
        KEYS.into_iter().find(|key| !wanted.is_empty() && wanted.iter().all(|one| one.get(key).is_some()));
    if let Some(key) = key {
        for entry in wanted {
            let id = &entry[key];
            let name = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
            let same = live.iter().find(|one| one.get(key) == Some(id));
            compare(&format!("{path}[{name}]"), entry, same, found);
        }
    } else if wanted.len() == live.len() {
        for (index, (wanted, live)) in wanted.iter().zip(live).enumerate() {
            compare(&format!("{path}[{index}]"), wanted, Some(live), found);
        }
    } else {
        found.push(Difference { path: path.to_owned(), found: Some(Value::from(live.to_vec()).to_string()) });
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Array(entries) => entries.is_empty(),
        _ => false,
    }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The parts of an object that are compared: what the server alone writes is left out.
pub fn comparable(object: &Value) -> Value {
    let mut kept = Map::new();
    for part in ["metadata", "spec"] {
        if let Some(value) = object.get(part) {
            kept.insert(part.to_owned(), value.clone());
        }
    }
    Value::Object(kept)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(wanted: &Value, live: &Value) -> Vec<String> {
        differences(wanted, live).into_iter().map(|one| one.path).collect()
    }

    #[test]
    fn what_the_server_or_a_neighbour_adds_is_no_difference() {
        let wanted =
            json!({"spec": {"containers": [{"name": "lane", "env": [{"name": "A", "value": "1"}]}]}});
        let live = json!({"spec": {
            "dnsPolicy": "ClusterFirst",
            "containers": [
                {"name": "mesh"},
                {"name": "lane", "terminationMessagePath": "/dev", "env": [{"name": "B"}, {"name": "A", "value": "1"}]},
            ],
        }});
        assert_eq!(paths(&wanted, &live), Vec::<String>::new());
    }

    #[test]
    fn changed_missing_and_replaced_fields_are_named_by_their_path() {
        let wanted = json!({"spec": {
            "strategy": {"type": "RollingUpdate"},
            "containers": [{"name": "lane", "image": "a", "command": ["x", "y"], "volumeMounts": [{"name": "v", "mountPath": "/a"}]}],
        }});
        let live = json!({"spec": {
            "strategy": {"type": "Recreate"},
            "containers": [{"name": "lane", "image": "b", "command": ["x"], "volumeMounts": [{"name": "v", "mountPath": "/b"}]}],
        }});
        assert_eq!(
            paths(&wanted, &live),
            [
                "spec.containers[lane].command",
                "spec.containers[lane].image",
                "spec.containers[lane].volumeMounts[/a]",
                "spec.strategy.type",
            ]
        );
        assert_eq!(differences(&wanted, &live)[1].found.as_deref(), Some("\"b\""));
    }

    #[test]
    fn an_amount_written_as_a_number_is_the_text_that_the_server_keeps() {
        let of = |cpu: Value, port: Value| json!({"spec": {"resources": {"requests": {"cpu": cpu}}, "port": port}});
        let live = of(json!("64"), json!("80"));
        // A port's name is another thing than its number.
        assert_eq!(paths(&of(json!(64), json!(80)), &live), ["spec.port"]);
        assert_eq!(paths(&of(json!(65), json!("80")), &live), ["spec.resources.requests.cpu"]);
    }

    #[test]
    fn nothing_and_an_empty_object_are_the_same() {
        assert_eq!(paths(&json!({"emptyDir": {}, "a": null, "b": []}), &json!({})), Vec::<String>::new());
    }
}
