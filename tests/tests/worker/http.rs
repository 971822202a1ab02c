//! The HTTP binding and the admin server of the real program.

use std::{
    process::Stdio,
    sync::atomic::{AtomicU64, Ordering},
};

use axum::http::StatusCode;
use lanekeeper_tests::wait_until;

use crate::{
    DEADLINE,
    journal::{End, Journal},
    process::{HttpScript, WorkerProcess},
    rig::{Rig, ms},
};

#[tokio::test]
async fn a_message_becomes_a_cloud_event_in_binary_mode() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    let mut headers = async_nats::HeaderMap::new();
    for (name, value) in [
        ("Content-Type", "application/json"),
        ("X-Trace", "abc"),
        ("ce-id", "forged"),
        ("Lane-Fence", "forged"),
    ] {
        headers.insert(name, value);
    }
    let context = rig.connection.context();
    let sent = context.publish_with_headers("orders.käse", headers, r#"{"n":1}"#.into()).await.unwrap();
    sent.await.unwrap();
    let journal = Journal::default();
    let handler = HttpScript::taking(&journal, ms(0)).await;
    let worker = WorkerProcess::start(&rig, "p", &handler.url()).await;
    rig.wait_settled(&consumer).await;
    let got = handler.got();
    let [got] = &got[..] else { panic!("{got:?}") };
    let expected = [
        ("ce-specversion", "1.0"),
        ("ce-id", "ORDERS/1"),
        ("ce-source", "/nats/ORDERS"),
        ("ce-type", "dev.lanekeeper.message"),
        ("ce-subject", "orders.k%C3%A4se"),
        ("ce-partitionkey", "k%C3%A4se"),
        ("ce-sequence", "00000000000000000001"),
        ("lane-partition", "0"),
        ("lane-attempt", "1"),
        ("lane-fence", "0000000001-00000000000000000001"),
        ("content-type", "application/json"),
        ("x-trace", "abc"),
    ];
    for (name, value) in expected {
        assert_eq!(got.headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(got.headers["ce-time"].ends_with('Z'), "{}", got.headers["ce-time"]);
    assert_eq!(got.body, br#"{"n":1}"#);
    drop(worker);
}

#[tokio::test]
async fn each_answer_of_a_handler_means_what_is_documented() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.publish_many("k", 4).await;
    let journal = Journal::default();
    let requests = AtomicU64::new(0);
    let handler = HttpScript::start(&journal, move |_| {
        let retry = vec![("retry-after", "1".to_owned())];
        match requests.fetch_add(1, Ordering::Relaxed) {
            0 => (ms(0), StatusCode::CONFLICT, Vec::new()),
            1 => (ms(0), StatusCode::INTERNAL_SERVER_ERROR, Vec::new()),
            3 => (ms(0), StatusCode::SERVICE_UNAVAILABLE, retry),
            5 => (ms(0), StatusCode::UNPROCESSABLE_ENTITY, Vec::new()),
            _ => (ms(0), StatusCode::ACCEPTED, Vec::new()),
        }
    })
    .await;
    let worker = WorkerProcess::start(&rig, "p", &handler.url()).await;
    rig.wait_settled(&consumer).await;
    let (done, failed) = (End::Done, End::Failed);
    let story = [(1, done), (2, failed), (2, done), (3, failed), (3, done), (4, failed), (4, done)];
    assert_eq!(journal.story(), story);
    let attempts: Vec<u64> = journal.all().iter().map(|handling| handling.attempt).collect();
    assert_eq!(attempts, [1, 1, 2, 1, 1, 1, 2], "being asked to wait is no attempt");
    let all = journal.all();
    assert!(all[4].start - all[3].start >= ms(1_000), "it waited as asked");
    assert!(all[6].start - all[5].start >= ms(1_500), "what will never work is tried slowly at once");
    drop(worker);
}

#[tokio::test]
async fn a_handler_that_starts_late_costs_no_attempt_and_readiness_says_so() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.publish_many("k", 2).await;
    let journal = Journal::default();
    let reserved = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = reserved.local_addr().unwrap();
    drop(reserved);
    let worker = WorkerProcess::start(&rig, "p", &format!("http://{address}/in")).await;
    let held = "the handler is not there or wants to wait; the message is held";
    wait_until(DEADLINE, "the message to be held", || async { worker.logged(held).is_some() }).await;
    let (status, words) = worker.ask("/readyz").await;
    assert_eq!(status, 503, "{words}");
    assert!(
        words.contains("the handler cannot be reached") && words.contains(&address.to_string()),
        "{words}"
    );
    assert_eq!(worker.ask("/healthz").await.0, 200);
    let _handler = HttpScript::start_at(address, &journal, |_| (ms(0), StatusCode::OK, Vec::new())).await;
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.done(), [1, 2]);
    assert!(journal.all().iter().all(|handling| handling.attempt == 1));
    wait_until(DEADLINE, "the worker to be ready", || async { worker.ask("/readyz").await.0 == 200 }).await;
}

#[tokio::test]
async fn metrics_tell_what_the_lane_did() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.publish_many("k", 5).await;
    let journal = Journal::default();
    let failed = AtomicU64::new(0);
    let handler = HttpScript::start(&journal, move |_| {
        let first = failed.fetch_add(1, Ordering::Relaxed) == 0;
        (ms(0), if first { StatusCode::BAD_GATEWAY } else { StatusCode::OK }, Vec::new())
    })
    .await;
    let worker = WorkerProcess::start(&rig, "p", &handler.url()).await;
    rig.wait_settled(&consumer).await;
    let labels = r#"namespace="shop",set="orders",partition="0""#;
    let expected = [
        format!("lanekeeper_lane_handled_total{{{labels}}} 5"),
        format!("lanekeeper_lane_failed_total{{{labels}}} 1"),
        format!("lanekeeper_lane_duplicates_total{{{labels}}} 0"),
        format!("lanekeeper_lane_deadline_losses_total{{{labels}}} 0"),
        format!("lanekeeper_lane_handling_seconds_count{{{labels}}} 6"),
        format!("lanekeeper_lane_nats_connected{{{labels}}} 1"),
    ];
    wait_until(DEADLINE, "the metrics to say it", || async {
        let (status, text) = worker.ask("/metrics").await;
        assert_eq!(status, 200);
        let missing = expected.iter().find(|line| !text.contains(*line));
        missing.map_or(Ok(()), |line| Err(format!("'{line}' is not in {text}")))
    })
    .await;
    let (_, text) = worker.ask("/metrics").await;
    assert!(text.contains("lanekeeper_lane_state{"), "{text}");
    assert!(text.contains("lanekeeper_lane_invariant_violations_total{"), "{text}");
    let violated = text.lines().any(|line| {
        line.contains("invariant_violations_total") && !line.starts_with('#') && !line.ends_with(" 0")
    });
    assert!(!violated, "{text}");
}

#[tokio::test]
async fn a_wrong_environment_is_named_and_ends_the_program() {
    let run = |variables: &[(&str, &str)]| {
        let mut command = tokio::process::Command::new(lanekeeper_tests::binary::worker());
        command.env_clear().envs(variables.iter().copied()).stderr(Stdio::piped());
        async move {
            let output = command.output().await.unwrap();
            assert_eq!(output.status.code(), Some(1));
            String::from_utf8(output.stderr).unwrap()
        }
    };
    let said = run(&[("LANEKEEPER_NAMESPACE", "shop")]).await;
    assert!(
        said.contains("LANEKEEPER_SET is not set: it must be the name of the OrderedPartitionSet"),
        "{said}"
    );
    let complete = [
        ("LANEKEEPER_NAMESPACE", "shop"),
        ("LANEKEEPER_SET", "orders"),
        ("LANEKEEPER_PARTITION", "0"),
        ("LANEKEEPER_POD", "p"),
        ("LANEKEEPER_STREAM", "ORDERS"),
        ("LANEKEEPER_NATS_SERVERS", "nats://127.0.0.1:1"),
        ("LANEKEEPER_HANDLER_URL", "https://127.0.0.1/"),
    ];
    let said = run(&complete).await;
    assert!(
        said.contains("LANEKEEPER_HANDLER_URL: 'https://127.0.0.1/' is no address of a handler"),
        "{said}"
    );
    let said = run(&[&complete[..6], &[("LANEKEEPER_CONSUMER", "lk_shop_orders_0_1")]].concat()).await;
    assert!(said.contains("LANEKEEPER_CONSUMER is 'lk_shop_orders_0_1': it must be absent"), "{said}");
}

/// A handler that says these status lines, one for each request, with no length and no end of the body: HTTP takes the end
/// of the connection for it, which stays open.
async fn endless(statuses: &'static [&'static str]) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut open = Vec::new();
        let mut next = statuses.iter();
        // A connection that says nothing is the look whether somebody listens.
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            if stream.read(&mut request).await.is_ok_and(|length| length > 0) {
                let status = next.next().unwrap_or(&"200 OK");
                stream.write_all(format!("HTTP/1.1 {status}\r\n\r\nbecause").as_bytes()).await.unwrap();
                open.push(stream);
            }
        }
    });
    url
}

#[tokio::test]
async fn a_status_is_the_answer_even_when_its_body_never_ends() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.publish_many("k", 2).await;
    let worker = WorkerProcess::start(&rig, "p", &endless(&["422 Unprocessable Entity"]).await).await;
    let reason = wait_until(DEADLINE, "the lane to be blocked", || async {
        let blocked = rig.report(0, "p").await.and_then(|report| report.blocked);
        blocked.map(|at| at.reason).ok_or("it is not")
    })
    .await;
    assert!(
        reason.contains("422") && reason.contains("because") && reason.contains("did not end"),
        "{reason}"
    );
    // Tried again, it is done, and so is the next one.
    rig.wait_settled(&consumer).await;
    drop(worker);
}
