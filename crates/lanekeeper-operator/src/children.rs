//! Applies and deletes what a set has one of per partition, its Deployments and its disruption budgets: I/O.
//!
//! An object is written only when it differs from what is wanted, so that a set at rest writes nothing; server-side
//! apply then gives back what a person changed and takes away what is not wanted any more. An object of the same
//! name with another controller, or with none and not our labels, is never touched.

mod kind;

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::{DynamicObject, params::ValidationDirective},
    runtime::reflector::{ObjectRef, Store},
};
use lanekeeper_api::reason::Reason;
use serde_json::Value;

pub use self::kind::Kind;
use crate::{
    build::Blueprint,
    compare::Difference,
    context::Scope,
    events::News,
    failure::{About, Failure, words},
    labels,
    metrics::Metrics,
    workers::is_controlled_by,
};

/// Paths in one message.
const MAX_PATHS: usize = 5;

/// Why an object is not as wanted.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// Somebody else's.
    #[error("{kind} {name} exists and belongs to {owner}; the operator takes over none: delete or rename it")]
    Foreign {
        /// What it is.
        kind: Kind,
        /// Its name.
        name: String,
        /// Who controls it.
        owner: String,
    },
    /// It is on its way out.
    #[error("{kind} {name} is being deleted; a new one follows")]
    Going {
        /// What it is.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// The API server refused it.
    #[error("{kind} {name} was refused: {}", words(error))]
    Refused {
        /// What it is.
        kind: Kind,
        /// Its name.
        name: String,
        /// The answer.
        #[source]
        error: Box<kube::Error>,
    },
    /// The API server could not be asked.
    #[error("{kind} {name}: {}", words(error))]
    Kubernetes {
        /// What it is.
        kind: Kind,
        /// Its name.
        name: String,
        /// The failure.
        #[source]
        error: Box<kube::Error>,
    },
}

impl ChildError {
    /// The word for conditions.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Foreign { kind, .. } => kind.conflict(),
            Self::Going { .. } => Reason::Progressing,
            Self::Refused { error, .. } if words(error).contains("exceeded quota") => Reason::QuotaExceeded,
            Self::Refused { kind, .. } => kind.refused(),
            Self::Kubernetes { .. } => Reason::KubernetesApiError,
        }
    }

    fn of(kind: Kind, name: &str, error: kube::Error) -> Self {
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
        if refused { Self::Refused { kind, name, error } } else { Self::Kubernetes { kind, name, error } }
    }

    /// Whether what was asked for cannot be, as the object is now.
    fn is_invalid(&self) -> bool {
        let Self::Refused { error, .. } = self else { return false };
        matches!(&**error, kube::Error::Api(status) if status.code == 422)
    }
}

impl From<ChildError> for Failure {
    fn from(error: ChildError) -> Self {
        Self::new(About::Workers, error.reason(), error.to_string())
    }
}

/// What an object looked like right after it was applied, where the server writes values in its own way (`1000m`
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

/// The objects of one kind that one set has.
pub struct Children<'a> {
    kind: Kind,
    api: Api<DynamicObject>,
    cache: &'a Store<DynamicObject>,
    settled: &'a Settled,
    metrics: &'a Metrics,
    namespace: &'a str,
    uid: &'a str,
}

impl<'a> Children<'a> {
    /// Of the set with this namespace and uid.
    pub fn new(scope: &'a Scope, kind: Kind, (namespace, uid): (&'a str, &'a str)) -> Self {
        let context = &scope.context;
        let api = Api::namespaced_with(context.client.clone(), namespace, &kind.resource());
        let (settled, metrics) = (&context.settled, &*context.metrics);
        Self { kind, api, cache: scope.caches.children(kind), settled, metrics, namespace, uid }
    }

    /// Those that the cache knows.
    pub fn known(&self) -> Vec<DynamicObject> {
        let ours = |one: &DynamicObject| {
            one.namespace().as_deref() == Some(self.namespace) && is_controlled_by(one, self.uid)
        };
        self.cache.state().iter().filter(|one| ours(one)).map(|one| DynamicObject::clone(one)).collect()
    }

    /// Makes one partition's object what it must be. Whether anything was written.
    pub async fn apply(
        &self,
        blueprint: &Blueprint<'_>,
        partition: u32,
        news: &mut News,
    ) -> Result<bool, ChildError> {
        let kind = self.kind;
        let wanted = kind.wanted(blueprint, partition);
        let name = blueprint.set.name.deployment(partition);
        let Some(live) = self.find(&name).await? else {
            self.patch(&name, &wanted, false).await?;
            news.done(kind.created(), format!("{kind} {name} was created"));
            return Ok(true);
        };
        if !is_controlled_by(&live, self.uid) && !is_orphan_of(&live, &wanted) {
            return Err(ChildError::Foreign { kind, name, owner: controller(&live) });
        }
        if live.metadata.deletion_timestamp.is_some() {
            return Err(ChildError::Going { kind, name });
        }
        let found = self.compared(&wanted, &live);
        if found.is_empty() || self.settled.is(live.metadata.uid.as_deref(), &found) {
            return Ok(false);
        }
        let mut bound = wanted.clone();
        // The patch is meant for this object only, not for one of the same name that came after it.
        bound["metadata"]["uid"] = live.metadata.uid.clone().unwrap_or_default().into();
        let applied = match self.patch(&name, &bound, true).await {
            Err(error) if error.is_invalid() && kind.has_no_state() => {
                // What a person added, and apply leaves alone, cannot be together with what is wanted.
                self.delete(&live).await?;
                self.patch(&name, &wanted, false).await?
            }
            applied => applied?,
        };
        self.settled.set(applied.metadata.uid.clone(), self.compared(&wanted, &applied));
        let asked = |one: &DynamicObject| one.annotations().get(labels::APPLIED).cloned();
        if applied.metadata.resource_version != live.metadata.resource_version
            && asked(&applied) == asked(&live)
        {
            news.done(kind.repaired(), format!("{kind} {name} was changed back: {}", paths(&found)));
        }
        Ok(true)
    }

    /// Deletes those of partitions that are not kept.
    pub async fn delete_all_but(
        &self,
        keep: impl Fn(u32) -> bool,
        news: &mut News,
    ) -> Result<usize, ChildError> {
        let mut deleted = 0;
        for one in self.known() {
            let partition = one.labels().get(labels::PARTITION).and_then(|text| text.parse().ok());
            if partition.is_some_and(&keep) || one.metadata.deletion_timestamp.is_some() {
                continue;
            }
            if self.delete(&one).await? {
                let (kind, name) = (self.kind, one.name_any());
                news.done(kind.deleted(), format!("{kind} {name} was deleted"));
                deleted += 1;
            }
        }
        Ok(deleted)
    }

    /// Deletes this very object. Whether it was there.
    async fn delete(&self, one: &DynamicObject) -> Result<bool, ChildError> {
        let name = one.name_any();
        let preconditions = Preconditions { uid: one.metadata.uid.clone(), resource_version: None };
        let parameters = DeleteParams::background().preconditions(preconditions);
        match self.api.delete(&name, &parameters).await {
            Ok(_) => {
                self.metrics.write(self.kind.deletion());
                self.settled.forget(one.metadata.uid.as_deref());
                Ok(true)
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            Err(error) => Err(ChildError::of(self.kind, &name, error)),
        }
    }

    /// The cache, and when it knows none, the API server: a person may have taken our label away.
    async fn find(&self, name: &str) -> Result<Option<DynamicObject>, ChildError> {
        let reference = ObjectRef::new_with(name, self.kind.resource()).within(self.namespace);
        if let Some(known) = self.cache.get(&reference) {
            return Ok(Some(DynamicObject::clone(&known)));
        }
        self.api.get_opt(name).await.map_err(|error| ChildError::of(self.kind, name, error))
    }

    /// Without `force` it meets a conflict when there is one of somebody else's already.
    async fn patch(&self, name: &str, wanted: &Value, force: bool) -> Result<DynamicObject, ChildError> {
        let mut parameters = PatchParams::apply(labels::FIELD_MANAGER);
        parameters.force = force;
        parameters.field_validation = Some(ValidationDirective::Strict);
        self.metrics.write(self.kind.application());
        let patched = self.api.patch(name, &parameters, &Patch::Apply(wanted)).await;
        patched.map_err(|error| ChildError::of(self.kind, name, error))
    }

    fn compared(&self, wanted: &Value, live: &DynamicObject) -> Vec<Difference> {
        self.kind.differences(wanted, &serde_json::to_value(live).unwrap_or_default())
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
