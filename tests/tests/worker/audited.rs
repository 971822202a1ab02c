//! The journal of a worker: what it says of real handlings, and that the checker has nothing against it.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use async_nats::jetstream::{consumer::pull, stream};
use futures::StreamExt;
use lanekeeper_core::{
    fence::Fence,
    journal::{Checker, Ending, Entry, Options, Report},
    stream::Retention,
};
use lanekeeper_tests::{LATEST, NatsServer, TcpProxy, wait_until};
use lanekeeper_worker::{HandlerError, Message};

use crate::{
    DEADLINE,
    journal::{Journal, Script},
    process::{HttpScript, WorkerProcess},
    rig::{Rig, Running, ms, seconds, share},
};

const SUBJECT: &str = "audit.orders";

/// A set that keeps a journal, with a stream that has it.
pub(crate) async fn audited() -> Rig {
    audited_on(NatsServer::start(LATEST).await).await
}

pub(crate) async fn audited_on(server: NatsServer) -> Rig {
    let mut rig = Rig::on(server, Retention::Limits).await;
    rig.settings.journal = Some(SUBJECT.into());
    let config = stream::Config {
        name: "AUDIT".into(),
        subjects: vec!["audit.>".into()],
        ..stream::Config::default()
    };
    rig.connection.context().create_stream(config).await.unwrap();
    rig
}

/// Everything in the journal's stream, and under which subject.
async fn entries(rig: &Rig) -> Vec<(String, Entry)> {
    let stream = rig.connection.context().get_stream("AUDIT").await.unwrap();
    let count = usize::try_from(stream.cached_info().state.messages).unwrap();
    let consumer = stream.create_consumer(pull::OrderedConfig::default()).await.unwrap();
    let messages = consumer.messages().await.unwrap().take(count);
    let entries = messages.map(|message| {
        let message = message.unwrap();
        let entry: Entry = serde_json::from_slice(&message.payload).unwrap();
        (message.subject.to_string(), entry.judgeable().unwrap())
    });
    entries.collect().await
}

/// Waits until the journal has so many entries: the stream takes them at its own time.
pub(crate) async fn wait_entries(rig: &Rig, count: usize) -> Vec<Entry> {
    wait_until(DEADLINE, "the journal to have its entries", || async {
        let found = entries(rig).await;
        let outcomes: Vec<_> = found.iter().map(|(_, entry)| (entry.fence.sequence, entry.outcome)).collect();
        if found.len() >= count { Ok(()) } else { Err(format!("{outcomes:?}")) }
    })
    .await;
    entries(rig).await.into_iter().map(|(_, entry)| entry).collect()
}

/// The verdict when these messages were published: sequences by key.
pub(crate) fn judged(entries: &[Entry], published: &BTreeMap<&str, Vec<u64>>) -> Report {
    // One machine, one clock.
    let mut checker = Checker::new(Options::default());
    for (key, sequences) in published {
        for &sequence in sequences {
            checker.expect(key, Fence { stream_incarnation: 1, sequence }, true, true);
        }
    }
    for entry in entries {
        checker.add(entry);
    }
    checker.report()
}

fn of_one_key(count: u64) -> BTreeMap<&'static str, Vec<u64>> {
    BTreeMap::from([("k", (1..=count).collect())])
}

/// Sequence, attempt and outcome of each, by start.
fn story(entries: &[Entry]) -> Vec<(u64, u64, Ending)> {
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_by_key(|entry| entry.start);
    sorted.into_iter().map(|entry| (entry.fence.sequence, entry.attempt, entry.outcome)).collect()
}

#[tokio::test]
async fn each_handling_is_an_entry_that_says_what_it_was() {
    let rig = audited().await;
    let consumer = rig.open().await;
    let mut published: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for _ in 0..5 {
        for key in ["a", "b", "c"] {
            published.entry(key).or_default().push(rig.publish(key, "x").await);
        }
    }
    let journal = Journal::default();
    let worker = rig.start(Script::taking(&journal, ms(2)));
    rig.wait_settled(&consumer).await;
    let found = wait_entries(&rig, 15).await;
    let report = judged(&found, &published);
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.handled, report.repeats, report.missing, report.copies), (15, 0, 0, 0), "{report}");
    for (index, (subject, entry)) in entries(&rig).await.into_iter().enumerate() {
        assert_eq!(subject, "audit.orders.0");
        let sequence = index as u64 + 1;
        assert_eq!((entry.namespace.as_str(), entry.set.as_str()), ("shop", "orders"));
        assert_eq!((entry.partition, entry.incarnation, entry.pod.as_str()), (0, 1, "orders-0"));
        assert_eq!((entry.handling, entry.fence.sequence, entry.attempt), (sequence, sequence, 1));
        assert_eq!(entry.subject, format!("orders.{}", entry.key));
        assert!(entry.instance.starts_with("20"), "{entry:?}");
        assert!(entry.end - entry.start >= 2_000, "the handler took 2 ms: {entry:?}");
    }
    worker.stop().await;
}

#[tokio::test]
async fn each_attempt_is_an_entry_with_its_own_outcome() {
    let mut rig = audited().await;
    rig.settings.handler_timeout_milliseconds = 400;
    let consumer = rig.open().await;
    rig.publish_many("k", 2).await;
    let calls = AtomicU64::new(0);
    let worker = rig.start(Script::new(&Journal::default(), move |_: &Message| {
        let reason = "because".to_owned();
        match calls.fetch_add(1, Ordering::Relaxed) {
            0 => (ms(0), Err(HandlerError::retry("no"))),
            1 => (ms(0), Err(HandlerError::Wait { reason, after: ms(100) })),
            2 => (ms(0), Err(HandlerError::Unreachable { reason })),
            3 => (seconds(60), Ok(())),
            4 => (ms(0), Err(HandlerError::permanent("never"))),
            _ => (ms(0), Ok(())),
        }
    }));
    rig.wait_settled(&consumer).await;
    let found = wait_entries(&rig, 7).await;
    let expected = [
        (1, 1, Ending::Failed),
        (1, 2, Ending::Waited),
        (1, 2, Ending::Unreachable),
        (1, 2, Ending::Failed),
        (1, 3, Ending::Permanent),
        (1, 4, Ending::Done),
        (2, 1, Ending::Done),
    ];
    assert_eq!(story(&found), expected);
    let timed_out = found.iter().find(|entry| entry.handling == 4).unwrap();
    assert!(timed_out.end - timed_out.start >= 400_000, "{timed_out:?}");
    let report = judged(&found, &of_one_key(2));
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.unfinished, report.missing), (5, 0), "{report}");
    worker.stop().await;
}

#[tokio::test]
async fn a_message_that_comes_again_after_a_crash_is_in_order() {
    let rig = audited().await;
    let consumer = rig.open().await;
    rig.publish_many("k", 4).await;
    let journal = Journal::default();
    let handler = HttpScript::taking(&journal, ms(300)).await;
    let first = WorkerProcess::start(&rig, "first", &handler.url()).await;
    wait_until(DEADLINE, "the second message to be in work", || async { journal.begun().len() == 2 }).await;
    first.kill().await;
    let second = Running::start(rig.builder(0).pod("second"), Script::taking(&journal, ms(1)));
    rig.wait_settled(&consumer).await;
    let found = wait_entries(&rig, 4).await;
    let report = judged(&found, &of_one_key(4));
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.missing, 0, "what was begun last by the killed one is no hole: {report}");
    let by = |pod: &str| found.iter().filter(|entry| entry.pod == pod).count();
    assert_eq!((by("first"), by("second")), (1, 3));
    let again = found.iter().find(|entry| entry.fence.sequence == 2).unwrap();
    assert_eq!((again.attempt, again.handling), (2, 1));
    second.stop().await;
}

#[tokio::test]
async fn a_handling_that_a_shutdown_cuts_is_an_entry_and_no_violation() {
    let rig = audited().await;
    let consumer = rig.open().await;
    rig.publish_many("k", 2).await;
    let journal = Journal::default();
    let slow = Script::taking(&journal, seconds(600));
    let mut worker = Running::start(rig.builder(0).pod("old").grace(ms(200)), slow);
    wait_until(DEADLINE, "the first message to be in work", || async { journal.begun() == [1] }).await;
    worker.ask_to_stop();
    worker.ended().await;
    let next = Running::start(rig.builder(0).pod("new"), Script::taking(&journal, ms(1)));
    rig.wait_settled(&consumer).await;
    let found = wait_entries(&rig, 3).await;
    assert_eq!(story(&found), [(1, 1, Ending::Cut), (1, 1, Ending::Done), (2, 1, Ending::Done)]);
    let report = judged(&found, &of_one_key(2));
    assert!(report.is_clean(), "{report}");
    next.stop().await;
}

#[tokio::test]
async fn a_handling_whose_deadline_passed_is_an_entry_and_ends_before_the_next_begins() {
    let mut rig = audited().await;
    rig.settings.ack_wait_milliseconds = 1_000;
    let consumer = rig.open().await;
    rig.publish_many("k", 2).await;
    let calls = AtomicU64::new(0);
    let handler = Script::new(&Journal::default(), move |_: &Message| {
        let first = calls.fetch_add(1, Ordering::Relaxed) == 0;
        (if first { seconds(600) } else { ms(1) }, Ok(()))
    });
    let worker = Running::start(rig.builder(0).without_progress(), handler);
    rig.wait_settled(&consumer).await;
    let found = wait_entries(&rig, 3).await;
    assert_eq!(story(&found), [(1, 1, Ending::Lost), (1, 2, Ending::Done), (2, 1, Ending::Done)]);
    let report = judged(&found, &of_one_key(2));
    assert!(report.is_clean(), "{report}");
    worker.stop().await;
}

#[tokio::test]
async fn a_journal_is_switched_on_and_off_while_the_lane_goes_on() {
    let mut rig = audited().await;
    rig.settings.journal = None;
    let consumer = rig.open().await;
    let journal = Journal::default();
    let worker = rig.start(Script::taking(&journal, ms(0)));
    rig.publish_many("k", 3).await;
    wait_until(DEADLINE, "three to be handled", || async { journal.done().len() == 3 }).await;
    assert_eq!(entries(&rig).await, []);
    for (wanted, when) in [(Some(SUBJECT.to_owned()), "on"), (None, "off")] {
        rig.settings.journal.clone_from(&wanted);
        rig.assign(&rig.assignment(share(0, 1), 1)).await;
        // Each message is handled before the next is published, so a change of what is written is that of a setting.
        wait_until(DEADLINE, &format!("the journal to be {when}"), || async {
            let before = entries(&rig).await.len();
            let sequence = rig.publish("k", "x").await;
            wait_until(DEADLINE, "it to be handled", || async {
                journal.done().contains(&sequence).then_some(()).ok_or("it is not")
            })
            .await;
            rig.wait_settled(&consumer).await;
            let written = entries(&rig).await.len() > before;
            (written == wanted.is_some()).then_some(()).ok_or(format!("{before} entries"))
        })
        .await;
    }
    assert_eq!(worker.status().incarnation, Some(1));
    worker.stop().await;
}

#[tokio::test]
async fn what_was_acknowledged_is_in_the_journal_whatever_the_connection_does() {
    let rig = audited().await;
    let consumer = rig.open().await;
    let proxy = TcpProxy::start(rig.server.address()).await;
    let journal = Journal::default();
    let worker = Running::start(rig.builder_at(0, &proxy.url()), Script::taking(&journal, ms(1)));
    let (rounds, each) = (12, 25);
    for round in 1..=rounds {
        rig.publish_many("k", each).await;
        let half = usize::try_from((round - 1) * each + each / 2).unwrap();
        wait_until(DEADLINE, "half of them to be handled", || async { journal.done().len() >= half }).await;
        proxy.cut();
    }
    rig.wait_settled(&consumer).await;
    let total = rounds * each;
    let found = wait_entries(&rig, usize::try_from(total).unwrap()).await;
    let report = judged(&found, &of_one_key(total));
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.handled, usize::try_from(total).unwrap(), "{report}");
    worker.stop().await;
}

#[tokio::test]
async fn a_journal_that_may_not_be_published_is_counted_and_holds_nothing_up() {
    let config = r#"accounts { A { jetstream: enabled, users: [
        {user: all, password: x}
        {user: worker, password: x, permissions: {publish: {deny: ["audit.>"]}}}
    ] } }
    no_auth_user: all"#;
    let server = NatsServer::builder(LATEST).config(config).start().await;
    let mut rig = Rig::on(server, Retention::Limits).await;
    rig.settings.journal = Some(SUBJECT.into());
    let consumer = rig.open().await;
    let journal = Journal::default();
    let handler = HttpScript::taking(&journal, ms(0)).await;
    let folder = tempfile::tempdir().unwrap();
    for (name, value) in [("user", "worker"), ("password", "x")] {
        std::fs::write(folder.path().join(name), value).unwrap();
    }
    let files = [("LANEKEEPER_NATS_AUTH_DIR", folder.path().to_str().unwrap())];
    let worker = WorkerProcess::start_with(&rig, "worker", &handler.url(), &[], &files).await;
    rig.publish_many("k", 5).await;
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.done(), [1, 2, 3, 4, 5]);
    let failures = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("lanekeeper_lane_journal_failures_total{"))?;
        line.rsplit(' ').next()?.parse::<u64>().ok()
    };
    wait_until(DEADLINE, "the refusals to be counted", || async {
        // The server's word comes after the entry; the next one finds it.
        rig.publish("k", "x").await;
        let (_, text) = worker.ask("/metrics").await;
        failures(&text).is_some_and(|count| count >= 5).then_some(()).ok_or(text)
    })
    .await;
    assert_eq!(worker.ask("/readyz").await.0, 200);
}
