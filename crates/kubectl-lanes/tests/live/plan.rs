//! Previews, held against what the change then does.

use lanekeeper_core::record::{Blocked, Report};
use lanekeeper_tests::wait_until;
use serde_json::{Value, json};

use crate::{
    calling::plugin,
    rig::{DEADLINE, Operator, Rig},
    workers::{Handled, Running, make_pod},
};

const KEYS: u64 = 20;

async fn publish(rig: &Rig, messages: u64) {
    let context = async_nats::jetstream::new(rig.nats.client().await);
    for number in 0..messages {
        context.publish(format!("orders.{}", number % KEYS), "x".into()).await.unwrap().await.unwrap();
    }
}

async fn wait_for_handled(handled: &Handled, wanted: u64) {
    wait_until(DEADLINE, &format!("{wanted} messages to be handled"), || async {
        let found = handled.all();
        if found == wanted { Ok(()) } else { Err(format!("{found} are")) }
    })
    .await;
}

/// How many messages a lane was ever given.
async fn given(rig: &Rig, partition: u32) -> u64 {
    let assignment = rig.assignment("orders", partition).await.expect("the lane is open");
    let operation = format!("CONSUMER.INFO.ORDERS.{}", assignment.consumer);
    let info: Value = rig.connection().await.api(&operation, &Value::Null).await.unwrap();
    info["delivered"]["consumer_seq"].as_u64().unwrap()
}

/// Four partitions of which one has fallen behind, and how many messages that one has not handled.
async fn one_behind(rig: &Rig, retention: &str) -> (Operator, Handled, Vec<Running>) {
    let operator = rig.operator().await;
    let mut spec = rig.spec(4);
    spec["stream"]["retention"] = json!(retention);
    spec["consumer"]["ackWaitSeconds"] = json!(30);
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let handled = Handled::default();
    let mut workers = Vec::new();
    for partition in 0..4 {
        workers.push(Running::start(rig, partition, &handled).await);
    }
    publish(rig, 100).await;
    wait_for_handled(&handled, 100).await;
    workers.remove(1).stop().await;
    let before = handled.all() - handled.of(1);
    publish(rig, 200).await;
    // Of each hundred the lane handles the same keys.
    let theirs = handled.of(1) * 2;
    assert!(theirs > 0, "the partition has keys");
    wait_for_handled(&handled, handled.of(1) + before + 200 - theirs).await;
    (operator, handled, workers)
}

async fn a_merge_does_what_the_plan_said(name: &str, retention: &str, skips: bool) {
    let rig = Rig::prepare(name, lanekeeper_tests::NatsServer::start(lanekeeper_tests::LATEST).await).await;
    let (operator, handled, mut workers) = one_behind(&rig, retention).await;
    let before = handled.of(1);
    let behind = before * 2;
    let plan = plugin(&rig, "plan orders --partitions 2 -o json").await.json();
    let group = plan["groups"].as_array().unwrap().iter().find(|group| group["after"][0]["partition"] == 1);
    let group = group.unwrap_or_else(|| panic!("{plan}"));
    assert_eq!(group["kind"], "merge", "{plan}");
    assert_eq!(group["before"][0]["position"]["waiting"], behind, "{plan}");
    let after = &group["after"][0];
    assert_eq!(after["waiting"], json!({"messages": behind, "exact": true}), "{plan}");
    // What is behind is partition 1's and stays there; partition 3 has nothing that waits.
    assert_eq!(plan["moved"], json!({"messages": 0, "exact": true}), "{plan}");
    assert_eq!(after["skipped"]["exact"], true, "{plan}");
    let skipped = after["skipped"]["messages"].as_u64().unwrap();
    assert_eq!(skipped > 0, skips, "{plan}");

    let text = plugin(&rig, "plan orders -N 2").await.text();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains(&format!("kubectl -n {} scale ops/orders --replicas 2", rig.namespace)), "{text}");

    // The partition's worker comes only now: what the plan saw is what is merged.
    rig.patch("orders", json!({"spec": {"partitions": 2}})).await;
    rig.wait_condition("orders", "Rescaling", "False/Settled").await;
    workers.push(Running::start(&rig, 1, &handled).await);
    wait_for_handled(&handled, 300).await;
    let handled_by_successor = handled.of(1) - before;
    wait_until(DEADLINE, "everything to be acknowledged", || async {
        let found = rig.consumers_of("orders", "ORDERS").await;
        if found.iter().all(|one| one.pending + one.ack_pending == 0) {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
    let given = given(&rig, 1).await;
    println!(
        "{retention}: {given} given to the successor, {handled_by_successor} handled, {skipped} were to be skipped"
    );
    assert_eq!(
        given - handled_by_successor,
        skipped,
        "{retention}: what a real merge acknowledged without the handler"
    );
    for worker in workers {
        worker.stop().await;
    }
    operator.stop().await;
}

#[tokio::test]
async fn a_merge_skips_as_many_messages_as_the_plan_said_on_a_limits_stream() {
    a_merge_does_what_the_plan_said("plan-limits", "Limits", true).await;
}

#[tokio::test]
async fn a_merge_skips_as_many_messages_as_the_plan_said_on_an_interest_stream() {
    a_merge_does_what_the_plan_said("plan-interest", "Interest", false).await;
}

#[tokio::test]
async fn a_merge_skips_as_many_messages_as_the_plan_said_on_a_work_queue() {
    a_merge_does_what_the_plan_said("plan-queue", "WorkQueue", false).await;
}

#[tokio::test]
async fn a_split_is_shown_with_what_each_part_will_have_and_what_stands_in_the_way() {
    let (rig, operator) = Rig::start("plan-split").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    publish(&rig, 100).await;
    let report = Report {
        blocked: Some(Blocked::new(17, "no stock")),
        ..Report::new(rig.assignment("orders", 0).await.unwrap().incarnation)
    };
    // Reports of pods that are gone are forgotten.
    make_pod(&rig, "orders-0-a", 0).await;
    let bucket = rig.bucket().await;
    bucket.put_json(&rig.name("orders").report_key(0, "orders-0-a"), &report, None).await.unwrap();
    let plan = plugin(&rig, "plan orders --partitions 3 -o json").await.json();
    let groups = plan["groups"].as_array().unwrap();
    assert_eq!((groups.len(), plan["untouched"][0]["partition"].as_u64()), (1, Some(1)), "{plan}");
    let count = |value: &Value| {
        assert_eq!(value["exact"], true, "{plan}");
        value["messages"].as_u64().unwrap()
    };
    let after: Vec<u64> =
        groups[0]["after"].as_array().unwrap().iter().map(|one| count(&one["waiting"])).collect();
    let before = groups[0]["before"][0]["position"]["waiting"].as_u64().unwrap();
    assert_eq!((after.len(), after.iter().sum::<u64>()), (2, before), "{plan}");
    assert!(after.iter().all(|waiting| *waiting > 0), "{plan}");
    assert_eq!(count(&plan["moved"]), after[1], "{plan}");
    let notes = plan["notes"].to_string();
    assert!(notes.contains("Blocked: partition 0 at message 17."), "{notes}");
    assert!(notes.contains("Partition 2 is started first"), "{notes}");
    let text = plugin(&rig, "plan orders -N 2").await.text();
    assert!(text.contains("2 is the number in force: nothing would change."), "{text}");
    operator.stop().await;
}

#[tokio::test]
async fn a_plan_that_cannot_be_made_is_refused_with_what_helps() {
    let (rig, operator) = Rig::start("plan-errors").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    for (arguments, words) in [
        (
            "plan orders -N 17",
            "--partitions is 17: must be from 1 to spec.mapping.maxPartitions, which is 16",
        ),
        ("plan orders -N 0", "--partitions is 0: must be from 1 to"),
        ("plan nope -N 4", "there is no set nope"),
        ("plan orders -N 4 --nats-server nats://127.0.0.1:1", "--no-nats shows what can be known without it"),
        (
            "plan orders -N 4 --nats-bucket other",
            "bucket 'other' does not exist; --nats-bucket names another",
        ),
    ] {
        let refusal = plugin(&rig, arguments).await.refusal();
        assert!(refusal.contains(words), "{arguments}: {refusal}");
    }
    operator.stop().await;
    let gone: Value = rig.connection().await.api("STREAM.DELETE.ORDERS", &Value::Null).await.unwrap();
    assert_eq!(gone["success"], true);
    let refusal = plugin(&rig, "plan orders -N 4").await.refusal();
    assert!(refusal.contains("there is no stream ORDERS in NATS"), "{refusal}");
    let text = plugin(&rig, "plan orders -N 4 --no-nats --nats-server nats://127.0.0.1:1").await.text();
    assert!(
        text.contains("split      0 ")
            && text.contains("not known without NATS")
            && !text.contains("Waits for"),
        "{text}"
    );
}

/// The configuration of the user that the plugin's page shows, for a namespace.
fn documented(namespace: &str) -> String {
    let page = include_str!("../../../../docs/reference/plugin.md");
    let block = page.split("```nats\n").nth(1).and_then(|rest| rest.split("```").next());
    block.expect("there is a block").replace("set.shop.orders", &format!("set.{namespace}.orders"))
}

#[tokio::test]
async fn the_documented_permissions_are_enough_and_without_the_right_to_count_there_are_bounds() {
    let all = "{user: all, password: x}";
    let server = |users: &str, user: &str| {
        format!(
            "accounts {{ A {{ jetstream: {{max_consumers: 3}}, users: [{users}] }} }}\nno_auth_user: {user}"
        )
    };
    let nats = lanekeeper_tests::NatsServer::builder(lanekeeper_tests::LATEST).config(&server(all, "all"));
    let mut rig = Rig::prepare("looker", nats.start().await).await;
    let operator = rig.operator().await;
    let mut spec = rig.spec(2);
    // The server is started again.
    spec["stream"]["storage"] = json!("File");
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    publish(&rig, 40).await;
    operator.stop().await;

    let looker = documented(&rig.namespace);
    rig.nats.restart_with(|settings| settings.config(&server(&format!("{all}, {looker}"), "looker"))).await;
    let plan = plugin(&rig, "plan orders -N 4 -o json").await.json();
    assert_eq!(plan["moved"]["exact"], true, "{plan}");
    assert!(plan["moved"]["messages"].as_u64().is_some_and(|moved| moved > 0), "{plan}");
    let notes = plan["notes"].to_string();
    assert!(notes.contains("needs 4 more consumers, and the NATS account allows 1 more"), "{notes}");
    let line = plugin(&rig, "status orders -w --until-settled --timeout 20s").await.text();
    assert!(line.contains("2  open 0, 1"), "{line}");

    let narrow = looker.replace("\"$JS.API.DIRECT.GET.ORDERS\"", "");
    rig.nats.restart_with(|settings| settings.config(&server(&format!("{all}, {narrow}"), "looker"))).await;
    let plan = plugin(&rig, "plan orders -N 4 -o json").await.json();
    assert_eq!(plan["moved"], json!({"messages": 40, "exact": false}), "{plan}");
    let notes = plan["notes"].to_string();
    assert!(notes.contains("Bounds are shown") && notes.contains("DIRECT.GET.ORDERS"), "{notes}");
    let text = plugin(&rig, "plan orders -N 4").await.text();
    assert!(text.contains("at most 40 messages of 40"), "{text}");
}
