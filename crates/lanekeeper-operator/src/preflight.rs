//! What must be there before any set is looked at: the API server's version, the definition of the resource, the
//! identity of the cluster. I/O.
//!
//! What can still come is waited for, and said: in the log and at `/readyz`.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, CustomResourceExt, Resource};
use lanekeeper_api::{OrderedPartitionSet, crd};
use tokio::sync::watch;

use crate::{admin::NotReady, failure::words};

/// The oldest Kubernetes: native sidecars are on from here.
const OLDEST: (u32, u32) = (1, 29);
const PAUSE: Duration = Duration::from_secs(2);

/// Why the operator cannot work here.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// Too old: nothing to wait for.
    #[error("this Kubernetes is {found}; at least 1.29 is needed, for native sidecars")]
    KubernetesTooOld {
        /// Its version.
        found: String,
    },
}

/// Waits until everything is there; the cluster's identity.
pub async fn wait(client: &Client, not_ready: &watch::Sender<NotReady>) -> Result<String, PreflightError> {
    loop {
        let missing = match check(client).await {
            Ok(cluster) => return Ok(cluster),
            Err(Missing::Never(error)) => return Err(error),
            Err(Missing::Yet(words)) => words,
        };
        if not_ready.borrow().as_ref() != Some(&missing) {
            tracing::warn!("the operator waits: {missing}");
            not_ready.send_replace(Some(missing));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

enum Missing {
    Yet(String),
    Never(PreflightError),
}

async fn check(client: &Client) -> Result<String, Missing> {
    let refused = |what: &str, error: &kube::Error| Missing::Yet(format!("{what}: {}", words(error)));
    let version =
        client.apiserver_version().await.map_err(|error| refused("the API server's version", &error))?;
    if number(&version.major).zip(number(&version.minor)).is_some_and(|found| found < OLDEST) {
        return Err(Missing::Never(PreflightError::KubernetesTooOld { found: version.git_version }));
    }
    let name = OrderedPartitionSet::crd_name();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let installed = match definitions.get_opt(name).await {
        Ok(Some(installed)) => installed,
        Ok(None) => return Err(Missing::Yet(format!("CustomResourceDefinition {name} is not installed"))),
        Err(error) => return Err(refused(&format!("CustomResourceDefinition {name}"), &error)),
    };
    complete(&installed).map_err(Missing::Yet)?;
    // Namespaces cannot be made anew with the same uid, and this one is never deleted.
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let system =
        namespaces.get("kube-system").await.map_err(|error| refused("namespace kube-system", &error))?;
    system.metadata.uid.ok_or_else(|| Missing::Yet("namespace kube-system has no uid".to_owned()))
}

/// Whether the installed definition knows every field that this version acts on.
fn complete(installed: &CustomResourceDefinition) -> Result<(), String> {
    let name = OrderedPartitionSet::crd_name();
    let version = OrderedPartitionSet::version(&());
    let schema = |definition: &CustomResourceDefinition| {
        let found =
            definition.spec.versions.iter().find(|one| one.name == version && one.served)?.schema.clone()?;
        serde_json::to_value(found.open_api_v3_schema?).ok()
    };
    let Some(found) = schema(installed) else {
        return Err(format!("CustomResourceDefinition {name} does not serve version {version}"));
    };
    let established = installed.status.iter().flat_map(|status| status.conditions.iter().flatten());
    if !established.into_iter().any(|one| one.type_ == "Established" && one.status == "True") {
        return Err(format!("CustomResourceDefinition {name} is not established yet"));
    }
    let mut missing = Vec::new();
    if let Some(wanted) = schema(&crd::definition()) {
        missing_fields("", &wanted, &found, &mut missing);
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "CustomResourceDefinition {name} is older than this operator, it lacks {}; install the one of this version",
        missing.join(", ")
    ))
}

fn missing_fields(
    path: &str,
    wanted: &serde_json::Value,
    found: &serde_json::Value,
    missing: &mut Vec<String>,
) {
    for (name, field) in wanted["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match found["properties"].get(name) {
            Some(found) => missing_fields(&path, field, found, missing),
            None => missing.push(path),
        }
    }
    if wanted["items"].is_object() {
        missing_fields(&format!("{path}[]"), &wanted["items"], &found["items"], missing);
    }
}

/// Some providers write `29+`.
fn number(text: &str) -> Option<u32> {
    text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinitionCondition, CustomResourceDefinitionStatus,
    };

    use super::*;

    fn established() -> CustomResourceDefinition {
        let condition = CustomResourceDefinitionCondition {
            type_: "Established".into(),
            status: "True".into(),
            ..Default::default()
        };
        let status =
            CustomResourceDefinitionStatus { conditions: Some(vec![condition]), ..Default::default() };
        CustomResourceDefinition { status: Some(status), ..crd::definition() }
    }

    #[test]
    fn the_definition_of_this_version_is_complete_and_one_with_a_field_less_is_not() {
        assert_eq!(complete(&established()), Ok(()));
        let mut older = established();
        let root = older.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
        let spec = root.properties.as_mut().unwrap().get_mut("spec").unwrap();
        let retry = spec.properties.as_mut().unwrap().get_mut("retry").unwrap();
        retry.properties.as_mut().unwrap().remove("maxAttempts");
        let words = complete(&older).unwrap_err();
        assert!(words.contains("it lacks .spec.retry.maxAttempts;"), "{words}");
    }

    #[test]
    fn a_definition_that_is_not_established_is_waited_for() {
        let words = complete(&crd::definition()).unwrap_err();
        assert!(words.contains("not established"), "{words}");
    }

    #[test]
    fn versions_of_providers_are_read() {
        assert_eq!(number("29+"), Some(29));
        assert!(number("28").is_some_and(|minor| (1, minor) < OLDEST));
    }
}
