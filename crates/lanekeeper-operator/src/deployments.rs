//! Applies and deletes the Deployments of a set: I/O.
//!
//! A Deployment is written only when it differs from what is wanted, so that a set at rest writes nothing; server-side
//! apply then gives back what a person changed and takes away what is not wanted any more. A Deployment of the same
//! name with another controller, or with none and not our labels, is never touched.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, Patch, PatchParams, Preconditions},
    core::{DynamicObject, params::ValidationDirective},
    runtime::reflector::{ObjectRef, Store},
};
use lanekeeper_api::reason::Reason;
use serde_json::Value;

use crate::{
    build::{self, Blueprint},
    compare::{Difference, comparable, differences},
    events::News,
    failure::{About, Failure, words},
    labels,
    metrics::{KubernetesWrite, Metrics},
    workers::is_controlled_by,
};

/// Paths in one message.
const MAX_PATHS: usize = 5;

/// Why a Deployment is not as wanted.
#[derive(Debug, thiserror::Error)]
pub enum DeploymentError {
    /// Somebody else's.
    #[error(
        "Deployment {name} exists and belongs to {owner}; the operator takes over none: delete or rename it"
    )]
    Foreign {
        /// Its name.
        name: String,
        /// Who controls it.
        owner: String,
    },
    /// It is on its way out.
    #[error("Deployment {name} is being deleted; a new one follows")]
    Going {
        /// Its name.
        name: String,
    },
    /// The API server refused it.
    #[error("Deployment {name} was refused: {}", words(error))]
    Refused {
        /// Its name.
        name: String,
        /// The answer.
        #[source]
        error: Box<kube::Error>,
    },
    /// The API server could not be asked.
    #[error("Deployment {name}: {}", words(error))]
    Kubernetes {
        /// Its name.
        name: String,
        /// The failure.
        #[source]
        error: Box<kube::Error>,
    },
}

impl DeploymentError {
    /// The word for conditions.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Foreign { .. } => Reason::DeploymentConflict,
            Self::Going { .. } => Reason::Progressing,
            Self::Refused { error, .. } if words(error).contains("exceeded quota") => Reason::QuotaExceeded,
            Self::Refused { .. } => Reason::DeploymentRefused,
            Self::Kubernetes { .. } => Reason::KubernetesApiError,
        }
    }

    fn of(name: &str, error: kube::Error) -> Self {
        let name = name.to_owned();
        let refused = match &error {
            // An unknown field is a failure of the server's own in its eyes.
            kube::Error::Api(status) => {
                matches!(status.code, 400 | 403 | 422)
                    || status.message.contains("field not declared in schema")
            }
            _ => false,
        };
        let error = Box::new(error);
        if refused { Self::Refused { name, error } } else { Self::Kubernetes { name, error } }
    }
}

impl From<DeploymentError> for Failure {
    fn from(error: DeploymentError) -> Self {
        Self::new(About::Workers, error.reason(), error.to_string())
    }
}

/// What a Deployment looked like right after it was applied, where the server writes values in its own way (`1000m`
/// becomes `1`): such differences are not drift.
#[derive(Debug, Default)]
pub struct Settled {
    known: Mutex<HashMap<String, Vec<Difference>>>,
}

impl Settled {
    fn is(&self, uid: Option<&str>, found: &[Difference]) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        uid.and_then(|uid| known.get(uid)).is_some_and(|known| known == found)
    }

    fn set(&self, uid: Option<String>, found: Vec<Difference>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match uid {
            Some(uid) if found.is_empty() => drop(known.remove(&uid)),
            Some(uid) => drop(known.insert(uid, found)),
            None => {}
        }
    }

    fn forget(&self, uid: Option<&str>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        uid.and_then(|uid| known.remove(uid));
    }
}

/// The Deployments of one set.
pub struct Deployments<'a> {
    api: Api<DynamicObject>,
    cache: &'a Store<DynamicObject>,
    settled: &'a Settled,
    metrics: &'a Metrics,
    namespace: &'a str,
    uid: &'a str,
}

/// The type, for raw objects: types would drop fields that they do not know.
pub fn resource() -> ApiResource {
    ApiResource::erase::<Deployment>(&())
}

impl<'a> Deployments<'a> {
    /// Of the set with this namespace and uid.
    pub fn new(
        client: &Client,
        cache: &'a Store<DynamicObject>,
        settled: &'a Settled,
        metrics: &'a Metrics,
        (namespace, uid): (&'a str, &'a str),
    ) -> Self {
        let api = Api::namespaced_with(client.clone(), namespace, &resource());
        Self { api, cache, settled, metrics, namespace, uid }
    }

    /// Those that the cache knows.
    pub fn known(&self) -> Vec<DynamicObject> {
        let ours = |one: &DynamicObject| {
            one.namespace().as_deref() == Some(self.namespace) && is_controlled_by(one, self.uid)
        };
        self.cache.state().iter().filter(|one| ours(one)).map(|one| DynamicObject::clone(one)).collect()
    }

    /// Makes one partition's Deployment what it must be. Whether anything was written.
    pub async fn apply(
        &self,
        blueprint: &Blueprint<'_>,
        partition: u32,
        news: &mut News,
    ) -> Result<bool, DeploymentError> {
        let wanted = build::deployment(blueprint, partition);
        let name = blueprint.set.name.deployment(partition);
        let Some(live) = self.find(&name).await? else {
            self.patch(&name, &wanted, false).await?;
            news.done(Reason::DeploymentCreated, format!("Deployment {name} was created"));
            return Ok(true);
        };
        if !is_controlled_by(&live, self.uid) && !is_orphan_of(&live, &wanted) {
            return Err(DeploymentError::Foreign { name, owner: controller(&live) });
        }
        if live.metadata.deletion_timestamp.is_some() {
            return Err(DeploymentError::Going { name });
        }
        let found = compared(&wanted, &live);
        if found.is_empty() || self.settled.is(live.metadata.uid.as_deref(), &found) {
            return Ok(false);
        }
        let mut bound = wanted.clone();
        // The patch is meant for this object only, not for one of the same name that came after it.
        bound["metadata"]["uid"] = live.metadata.uid.clone().unwrap_or_default().into();
        let applied = self.patch(&name, &bound, true).await?;
        self.settled.set(applied.metadata.uid.clone(), compared(&wanted, &applied));
        let asked = |one: &DynamicObject| one.annotations().get(labels::APPLIED).cloned();
        if applied.metadata.resource_version != live.metadata.resource_version
            && asked(&applied) == asked(&live)
        {
            news.done(
                Reason::DeploymentRepaired,
                format!("Deployment {name} was changed back: {}", paths(&found)),
            );
        }
        Ok(true)
    }

    /// Deletes the Deployments of partitions that are not kept.
    pub async fn delete_all_but(
        &self,
        keep: impl Fn(u32) -> bool,
        news: &mut News,
    ) -> Result<usize, DeploymentError> {
        let mut deleted = 0;
        for one in self.known() {
            let partition = one.labels().get(labels::PARTITION).and_then(|text| text.parse().ok());
            if partition.is_some_and(&keep) || one.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let name = one.name_any();
            let preconditions = Preconditions { uid: one.metadata.uid.clone(), resource_version: None };
            let parameters = DeleteParams::background().preconditions(preconditions);
            match self.api.delete(&name, &parameters).await {
                Ok(_) => {
                    self.metrics.write(KubernetesWrite::DeleteDeployment);
                    self.settled.forget(one.metadata.uid.as_deref());
                    news.done(Reason::DeploymentDeleted, format!("Deployment {name} was deleted"));
                    deleted += 1;
                }
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(DeploymentError::of(&name, error)),
            }
        }
        Ok(deleted)
    }

    /// The cache, and when it knows none, the API server: a person may have taken our label away.
    async fn find(&self, name: &str) -> Result<Option<DynamicObject>, DeploymentError> {
        let reference = ObjectRef::new_with(name, resource()).within(self.namespace);
        if let Some(known) = self.cache.get(&reference) {
            return Ok(Some(DynamicObject::clone(&known)));
        }
        self.api.get_opt(name).await.map_err(|error| DeploymentError::of(name, error))
    }

    /// Without `force` it meets a conflict when there is one of somebody else's already.
    async fn patch(&self, name: &str, wanted: &Value, force: bool) -> Result<DynamicObject, DeploymentError> {
        let mut parameters = PatchParams::apply(labels::FIELD_MANAGER);
        parameters.force = force;
        parameters.field_validation = Some(ValidationDirective::Strict);
        self.metrics.write(KubernetesWrite::ApplyDeployment);
        let patched = self.api.patch(name, &parameters, &Patch::Apply(wanted)).await;
        patched.map_err(|error| DeploymentError::of(name, error))
    }
}

/// Whether nobody controls an object that has all of our labels: somebody took the owner away, or deleted an earlier
/// set and left its children.
fn is_orphan_of(live: &DynamicObject, wanted: &Value) -> bool {
    let controlled = live.owner_references().iter().any(|owner| owner.controller == Some(true));
    let labels = wanted["metadata"]["labels"].as_object().into_iter().flatten();
    !controlled
        && labels
            .into_iter()
            .all(|(name, value)| live.labels().get(name).map(String::as_str) == value.as_str())
}

fn compared(wanted: &Value, live: &DynamicObject) -> Vec<Difference> {
    let live = serde_json::to_value(live).unwrap_or_default();
    differences(&comparable(wanted), &comparable(&live))
}

fn controller(object: &DynamicObject) -> String {
    let owner = object.owner_references().iter().find(|owner| owner.controller == Some(true));
    owner
        .map_or_else(|| "nobody".to_owned(), |owner| format!("{} {} ({})", owner.kind, owner.name, owner.uid))
}

fn paths(found: &[Difference]) -> String {
    let named: Vec<&str> = found.iter().take(MAX_PATHS).map(|one| one.path.as_str()).collect();
    let more = found.len().saturating_sub(MAX_PATHS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", named.join(", "))
}
