//! The verdict in numbers and words, and where to go from here.

use anyhow::Result;

use super::flow::{Outcome, grouped};
use crate::{
    binary,
    cluster::{Cluster, repository},
    flights::{HANDLER_PORT, NAMESPACE, SET, SUBJECT, data::Message},
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
        ("flights", report.published, "published, one message each"),
        ("aircraft", report.keys, "keys: the order that counts is the order within one"),
        ("handled", report.handled, "flights that a handler wrote into its journal"),
        ("repeats", report.repeats, "handled again, in order: allowed, after a crash for example"),
        ("out of order", report.out_of_order.count, "handled before an earlier flight of their aircraft was"),
        ("overlaps", report.overlaps.count, "began while another flight of their aircraft was being handled"),
        ("lost", report.lost.count, "published, and in no journal"),
        ("unknown", report.unknown.count, "in a journal, but never published"),
    ]
    .map(|(name, count, meaning)| format!("  {name:<13}{:>9}   {meaning}", grouped(count as u64)))
    .join("\n")
        + &format!(
            "\n  {:<13}{:>9.0}   from the first start of a handler to the last end",
            "msg/s",
            report.messages_per_second()
        )
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
    let root = repository();
    let root = root.canonicalize().unwrap_or(root);
    println!(
        "
Look around:
  export KUBECONFIG={kubeconfig} PATH={path}:$PATH
  kubectl -n {NAMESPACE} get ops,deployments,pods
  kubectl -n {NAMESPACE} describe ops {SET}
  kubectl lanes status {SET} -n {NAMESPACE}
  kubectl lanes where {SET} N14228 -n {NAMESPACE}
Change the number of partitions, here to 6; first what that would do, then how it goes:
  kubectl lanes plan {SET} -n {NAMESPACE} --partitions 6
  kubectl -n {NAMESPACE} scale ops/{SET} --replicas 6
  kubectl lanes status {SET} -n {NAMESPACE} --watch --until-settled
Send one departure more (the first line builds the nats program, some minutes the first time):
  nats=$({cluster_py} path nats)
  {nats}
  $nats -s $server pub {SUBJECT}.N14228 '{{\"key\":\"N14228\",\"number\":1000}}'
See what a pod has handled; its journal is /journal/<pod>.ndjson in it, and goes with it:
  pod=$(kubectl -n {NAMESPACE} get pods -o name | grep {SET}-0- | head -1 | cut -d/ -f2)
  kubectl get --raw /api/v1/namespaces/{NAMESPACE}/pods/$pod:{HANDLER_PORT}/proxy/journal | tail -3
Stop it:
  {stop}",
        kubeconfig = cluster.kubeconfig,
        cluster_py = root.join("tests/cluster/cluster.py").display(),
        nats = nats_server(cluster),
    );
}

/// A line of shell that puts the address of NATS, as this machine reaches it, into `server`.
fn nats_server(cluster: &Cluster) -> String {
    if cluster.is_this_machine() {
        return format!(
            "server=$(kubectl -n {NAMESPACE} get service nats -o jsonpath={{.spec.clusterIP}}):4222"
        );
    }
    format!("kubectl -n {NAMESPACE} port-forward service/nats 4222 & server=127.0.0.1:4222")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{flights::data::numbered, journal::Entry};

    fn handled(messages: &[Message]) -> Vec<Entry> {
        let entry = |(index, one): (usize, &Message)| Entry {
            key: one.key.clone(),
            number: one.number,
            fence: format!("0000000001-{:020}", index + 1),
            partition: 0,
            attempt: 1,
            start: i64::try_from(index * 10).unwrap(),
            end: i64::try_from(index * 10 + 5).unwrap(),
            pod: "p".into(),
        };
        messages.iter().enumerate().map(entry).collect()
    }

    #[test]
    fn only_a_complete_and_ordered_run_without_trouble_is_a_good_one() {
        let messages = numbered(3, 4);
        let verdict = |entries: Vec<Entry>, trouble: Option<&str>| {
            tell(&Outcome { entries, trouble: trouble.map(str::to_owned) }, &messages).unwrap()
        };
        let all = handled(&messages);
        assert!(verdict(all.clone(), None));
        assert!(!verdict(all.clone(), Some("nothing moved")));
        assert!(!verdict(all[..11].to_vec(), None), "a loss");
        let mut swapped = all;
        let (one, other) = (swapped[0].start, swapped[3].start);
        (swapped[0].start, swapped[0].end, swapped[3].start, swapped[3].end) =
            (other, other + 5, one, one + 5);
        assert!(!verdict(swapped, None), "a swap within a key");
    }

    #[test]
    fn the_words_have_every_number() {
        let messages = numbered(2, 3);
        let published = Published::new(messages.iter().map(|one| (one.key.clone(), one.number))).unwrap();
        let words = words(&journal::check(&published, &handled(&messages)));
        for name in [
            "flights",
            "aircraft",
            "handled",
            "repeats",
            "out of order",
            "overlaps",
            "lost",
            "unknown",
            "msg/s",
        ] {
            assert!(words.contains(name), "{name} is missing in {words}");
        }
    }
}
