//! The verdict in numbers and words, and where to go from here.

use anyhow::Result;

use super::flow::{Outcome, grouped};
use crate::{
    binary,
    cluster::Cluster,
    flights::{NAMESPACE, SET, data::Message},
    images::Images,
    journal::{self, Published, Report},
};

/// Prints the verdict; whether it is a good one.
pub(super) fn tell(outcome: &Outcome, messages: &[Message]) -> Result<bool> {
    let published = Published::new(messages.iter().map(|one| (one.key.clone(), one.number)))?;
    let report = journal::check(&published, &outcome.entries);
    let clean = report.is_clean() && outcome.trouble.is_none();
    println!("\n{}", words(&report));
    if let Some(trouble) = &outcome.trouble {
        println!("\nIt ended early: {trouble}.");
    }
    if clean {
        println!("\nVERDICT: every departure was handled, in order for its aircraft.");
    } else {
        println!("\n{report}\nVERDICT: NOT in order, or not complete; see above.");
    }
    Ok(clean)
}

fn words(report: &Report) -> String {
    [
        ("flights", report.published),
        ("aircraft", report.keys),
        ("handled", report.handled),
        ("repeats", report.repeats),
        ("out of order", report.out_of_order.count),
        ("overlaps", report.overlaps.count),
        ("lost", report.lost.count),
        ("unknown", report.unknown.count),
    ]
    .map(|(name, count)| format!("  {name:<13}{:>9}", grouped(count as u64)))
    .join("\n")
        + &format!("\n  {:<13}{:>9.0}", "msg/s", report.messages_per_second())
}

/// How to look around and how to stop.
pub(super) fn look_around(cluster: &Cluster, images: &Images) {
    let folder = |path: &std::path::Path| path.parent().unwrap_or(path).display().to_string();
    let path = format!("{}:{}", folder(&binary::tool("kubectl")), folder(&images.plugin.program));
    let stop = match cluster.mode.as_str() {
        "full" => "make demo-stop".to_owned(),
        "kind" => "kind delete cluster --name ${KIND_CLUSTER_NAME:-lanekeeper}".to_owned(),
        _ => format!(
            "kubectl delete namespace {NAMESPACE}; helm uninstall lanekeeper -n {}",
            crate::helm::NAMESPACE
        ),
    };
    println!(
        "
Look around:
  export KUBECONFIG={kubeconfig} PATH={path}:$PATH
  kubectl -n {NAMESPACE} get ops,deployments,pods
  kubectl -n {NAMESPACE} describe ops {SET}
  kubectl lanes status {SET} -n {NAMESPACE}
  kubectl lanes where {SET} N14228 -n {NAMESPACE}
Stop it:
  {stop}",
        kubeconfig = cluster.kubeconfig,
    );
}
