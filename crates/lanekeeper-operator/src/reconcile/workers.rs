//! The Deployments: one for each partition that has a lane or is to have one; and their disruption budgets.

use std::collections::BTreeSet;

use kube::ResourceExt;
use lanekeeper_api::reason::Reason;
use lanekeeper_core::record::LaneState;

use super::Pass;
use crate::{
    build::{self, Blueprint},
    children::Children,
    failure::Failure,
    labels, workers,
};

impl Pass<'_> {
    /// Makes them what they must be, and says how they are. Without news of the lanes only those that exist are kept
    /// as they must be; none is made and none deleted.
    pub(super) async fn workers(
        &mut self,
        blueprint: &Blueprint<'_>,
        deployments: &Children<'_>,
        budgets: &Children<'_>,
        lanes_are_known: bool,
    ) {
        let wanted = blueprint.set.partitions;
        let known: BTreeSet<u32> = deployments
            .known()
            .iter()
            .filter_map(|one| one.labels().get(labels::PARTITION)?.parse().ok())
            .collect();
        let with_lane: BTreeSet<u32> = match &self.findings.record {
            Some(record) if lanes_are_known => record
                .lanes
                .iter()
                .filter(|lane| lane.state != LaneState::Settled)
                .map(|lane| lane.share.partition())
                .collect(),
            _ => BTreeSet::new(),
        };
        let all: BTreeSet<u32> = if self.findings.record.is_none() || !lanes_are_known {
            known
        } else if self.findings.rescale.kept().is_some() {
            with_lane.clone()
        } else {
            (0..wanted).chain(with_lane.iter().copied()).collect()
        };
        for partition in &all {
            if let Err(error) = deployments.apply(blueprint, *partition, &mut self.news).await {
                let failure = Failure::from(error);
                // The same words for a thousand partitions help nobody, and cost the API server.
                let stop = failure.reason != Reason::DeploymentConflict;
                self.findings.failures.push(failure);
                if stop {
                    break;
                }
            }
        }
        let settled = lanes_are_known && self.findings.waits.is_empty() && !all.is_empty();
        if settled && self.findings.record.is_some() {
            let keep = |partition: u32| all.contains(&partition);
            if let Err(error) = deployments.delete_all_but(keep, &mut self.news).await {
                self.findings.failures.push(error.into());
            }
        }
        self.budgets(blueprint, budgets, &all, settled).await;
        let partitions = all.last().map_or(0, |last| last + 1);
        let pods = self.pods();
        let found =
            workers::workers(&blueprint.set.name, blueprint.uid, partitions, &deployments.known(), &pods);
        self.findings.workers = found.into_iter().filter(|worker| all.contains(&worker.partition)).collect();
    }

    /// The disruption budgets of these partitions, where lanes have standbys. While it is not `settled` which partitions
    /// there are, those of others are left alone.
    async fn budgets(
        &mut self,
        blueprint: &Blueprint<'_>,
        budgets: &Children<'_>,
        partitions: &BTreeSet<u32>,
        settled: bool,
    ) {
        let wanted = build::has_disruption_budgets(blueprint.set);
        for partition in partitions.iter().filter(|_| wanted) {
            if let Err(error) = budgets.apply(blueprint, *partition, &mut self.news).await {
                let failure = Failure::from(error);
                let stop = failure.reason != Reason::DisruptionBudgetConflict;
                self.findings.failures.push(failure);
                if stop {
                    return;
                }
            }
        }
        let keep = |partition: u32| wanted && (!settled || partitions.contains(&partition));
        if let Err(error) = budgets.delete_all_but(keep, &mut self.news).await {
            self.findings.failures.push(error.into());
        }
    }
}
