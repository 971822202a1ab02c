//! The kinds of objects of which a set has one per partition, and what is different about them: pure.

use std::fmt;

use k8s_openapi::api::{apps::v1::Deployment, policy::v1::PodDisruptionBudget};
use kube::api::ApiResource;
use lanekeeper_api::reason::Reason;
use serde_json::Value;

use crate::{
    build::{self, Blueprint},
    compare::{Difference, comparable, differences},
    metrics::KubernetesWrite,
};

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The pods of a lane.
    Deployment,
    /// How many of them an eviction may take at once.
    DisruptionBudget,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Deployment => "Deployment",
            Self::DisruptionBudget => "PodDisruptionBudget",
        })
    }
}

impl Kind {
    /// The type, for raw objects: types would drop fields that they do not know.
    pub fn resource(self) -> ApiResource {
        match self {
            Self::Deployment => ApiResource::erase::<Deployment>(&()),
            Self::DisruptionBudget => ApiResource::erase::<PodDisruptionBudget>(&()),
        }
    }

    /// What one of a partition must be.
    pub(super) fn wanted(self, blueprint: &Blueprint<'_>, partition: u32) -> Value {
        match self {
            Self::Deployment => build::deployment(blueprint, partition),
            Self::DisruptionBudget => build::disruption_budget(blueprint, partition),
        }
    }

    /// Where one that lives is not as wanted.
    pub(super) fn differences(self, wanted: &Value, live: &Value) -> Vec<Difference> {
        let mut found = differences(&comparable(wanted), &comparable(live));
        // One term more selects other pods. A Deployment's selector cannot be changed at all.
        let (selector, there) = (&wanted["spec"]["selector"], &live["spec"]["selector"]);
        if self == Self::DisruptionBudget && selector != there {
            found.retain(|one| !one.path.starts_with("spec.selector"));
            found.push(Difference { path: "spec.selector".into(), found: Some(there.to_string()) });
            found.sort();
        }
        found
    }

    /// Whether one may be deleted and made anew at any time.
    pub(super) fn has_no_state(self) -> bool {
        self == Self::DisruptionBudget
    }

    pub(super) fn conflict(self) -> Reason {
        match self {
            Self::Deployment => Reason::DeploymentConflict,
            Self::DisruptionBudget => Reason::DisruptionBudgetConflict,
        }
    }

    pub(super) fn refused(self) -> Reason {
        match self {
            Self::Deployment => Reason::DeploymentRefused,
            Self::DisruptionBudget => Reason::DisruptionBudgetRefused,
        }
    }

    pub(super) fn created(self) -> Reason {
        match self {
            Self::Deployment => Reason::DeploymentCreated,
            Self::DisruptionBudget => Reason::DisruptionBudgetCreated,
        }
    }

    pub(super) fn repaired(self) -> Reason {
        match self {
            Self::Deployment => Reason::DeploymentRepaired,
            Self::DisruptionBudget => Reason::DisruptionBudgetRepaired,
        }
    }

    pub(super) fn deleted(self) -> Reason {
        match self {
            Self::Deployment => Reason::DeploymentDeleted,
            Self::DisruptionBudget => Reason::DisruptionBudgetDeleted,
        }
    }

    pub(super) fn application(self) -> KubernetesWrite {
        match self {
            Self::Deployment => KubernetesWrite::ApplyDeployment,
            Self::DisruptionBudget => KubernetesWrite::ApplyDisruptionBudget,
        }
    }

    pub(super) fn deletion(self) -> KubernetesWrite {
        match self {
            Self::Deployment => KubernetesWrite::DeleteDeployment,
            Self::DisruptionBudget => KubernetesWrite::DeleteDisruptionBudget,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_term_more_in_a_budgets_selector_is_a_difference() {
        let budget =
            |labels: Value| json!({"spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}}});
        let wanted = budget(json!({"set": "orders"}));
        let paths = |live: &Value| -> Vec<String> {
            let found = Kind::DisruptionBudget.differences(&wanted, live);
            found.into_iter().map(|one| one.path).collect()
        };
        assert_eq!(paths(&wanted), Vec::<String>::new());
        assert_eq!(paths(&budget(json!({"set": "orders", "app": "other"}))), ["spec.selector"]);
        assert_eq!(paths(&budget(json!({"set": "other"}))), ["spec.selector"]);
        assert_eq!(paths(&json!({"spec": {}})), ["spec.maxUnavailable", "spec.selector"]);
    }
}
