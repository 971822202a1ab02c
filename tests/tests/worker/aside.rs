//! Messages that are put aside, whichever way: what stories of dead letters and of parked messages have in common.

use async_nats::jetstream::stream::{Config, DiscardPolicy};
use lanekeeper_core::record::{Blocked, BlockedBy};
use lanekeeper_tests::wait_until;
use lanekeeper_worker::{HandlerError, Message};

use crate::{
    DEADLINE,
    journal::{End, Journal, Script},
    process::{HttpScript, WorkerProcess},
    rig::{Rig, ms},
};

/// Messages in the stream of the set.
pub(crate) async fn stored(rig: &Rig) -> u64 {
    lanekeeper_nats::observe::stream(&rig.connection, "ORDERS").await.unwrap().unwrap().messages
}

/// Waits until the lane stands at a message, for a reason whose words are given.
pub(crate) async fn wait_blocked(rig: &Rig, pod: &str, by: BlockedBy, words: &str) -> Blocked {
    wait_until(DEADLINE, "the lane to say why it stands", || async {
        let report = rig.report(0, pod).await.ok_or("there is no report")?;
        let blocked = report.blocked.ok_or("nothing is blocked")?;
        if blocked.by == by && blocked.reason.contains(words) {
            Ok(blocked)
        } else {
            Err(format!("{blocked:?}"))
        }
    })
    .await
}

/// A worker as a process, with the rights of one of the server's users, whose name is its password.
pub(crate) async fn as_user(rig: &Rig, user: &str, handler: &HttpScript) -> WorkerProcess {
    let folder = tempfile::tempdir().unwrap();
    for name in ["user", "password"] {
        std::fs::write(folder.path().join(name), user).unwrap();
    }
    let path = folder.keep();
    let variables = [("LANEKEEPER_NATS_AUTH_DIR", path.to_str().unwrap())];
    WorkerProcess::start_with(rig, "p", &handler.url(), &[], &variables).await
}

/// The lane stands at its first message while the stream that takes what is put aside is missing, at the second while it is
/// full, and goes on when there is room. `config` is the stream's; `put_aside` counts what it has. The first two of
/// four messages are of a key that fails; the story of the handler.
pub(crate) async fn missing_then_full(
    rig: &Rig,
    by: BlockedBy,
    config: Config,
    put_aside: impl AsyncFn() -> usize,
) -> Vec<(u64, End)> {
    let consumer = rig.open().await;
    for key in ["bad", "bad", "good", "good"] {
        rig.publish(key, "x").await;
    }
    let journal = Journal::default();
    let worker = rig.start(Script::new(&journal, |message: &Message| {
        let fails = message.key() == "bad";
        (ms(0), if fails { Err(HandlerError::permanent("422")) } else { Ok(()) })
    }));
    let blocked = wait_blocked(rig, "orders-0", by, "no stream takes subject").await;
    assert_eq!(blocked.sequence, 1);
    // Longer than the message's deadline: it is kept alive.
    tokio::time::sleep(ms(rig.settings.ack_wait_milliseconds + 1_000)).await;
    assert_eq!(journal.begun(), [1], "the handler is not asked again");
    let context = rig.connection.context();
    let full = Config { max_messages: 1, discard: DiscardPolicy::New, ..config };
    context.create_stream(full.clone()).await.unwrap();
    let blocked = wait_blocked(rig, "orders-0", by, "maximum messages exceeded").await;
    assert_eq!((blocked.sequence, put_aside().await), (2, 1));
    context.update_stream(Config { max_messages: 9, ..full }).await.unwrap();
    rig.wait_settled(&consumer).await;
    assert_eq!(put_aside().await, 2);
    wait_until(DEADLINE, "the report to be taken back", || async {
        rig.report(0, "orders-0").await.is_some_and(|report| report.blocked.is_none())
    })
    .await;
    worker.stop().await;
    journal.story()
}
