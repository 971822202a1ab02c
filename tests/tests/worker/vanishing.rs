//! The message in hand is deleted: P08.

use serde_json::json;

use lanekeeper_tests::wait_until;

use crate::{
    DEADLINE,
    journal::{Journal, Script},
    rig::{Rig, STREAM, ms, seconds},
};

enum Way {
    Deleted,
    Purged,
    Expired,
}

async fn goes_on_after(way: Way) {
    let mut rig = Rig::new().await;
    rig.settings.ack_wait_milliseconds = 4_000;
    let consumer = rig.open().await;
    let journal = Journal::default();
    let worker = rig.start(Script::new(&journal, |message: &lanekeeper_worker::Message| {
        (if message.sequence() == 1 { seconds(3) } else { ms(0) }, Ok(()))
    }));
    rig.publish("k", "first").await;
    wait_until(DEADLINE, "the first message to be in hand", || async { journal.begun() == [1] }).await;
    match way {
        Way::Deleted => {
            rig.by_hand(&format!("STREAM.MSG.DELETE.{STREAM}"), json!({"seq": 1})).await;
        }
        Way::Purged => {
            let filter = rig.mapping.stored_subject("orders.k").unwrap();
            rig.by_hand(&format!("STREAM.PURGE.{STREAM}"), json!({"filter": filter})).await;
        }
        Way::Expired => {
            let info = rig.by_hand(&format!("STREAM.INFO.{STREAM}"), json!(null)).await;
            let mut config = info["config"].clone();
            config["max_age"] = 1_000_000_000u64.into();
            config["duplicate_window"] = 1_000_000_000u64.into();
            rig.by_hand(&format!("STREAM.UPDATE.{STREAM}"), config.clone()).await;
            wait_until(DEADLINE, "the message to expire", || async {
                rig.by_hand(&format!("STREAM.INFO.{STREAM}"), json!(null)).await["state"]["messages"] == 0
            })
            .await;
            config["max_age"] = 0.into();
            rig.by_hand(&format!("STREAM.UPDATE.{STREAM}"), config).await;
        }
    }
    assert_eq!(journal.done(), [0u64; 0], "it was still in hand");
    rig.publish("k", "second").await;
    wait_until(DEADLINE, "the second message to be handled", || async { journal.done() == [1, 2] }).await;
    rig.wait_settled(&consumer).await;
    let all = journal.all();
    let pause = all[1].start - all[0].ended.unwrap();
    assert!(pause <= ms(rig.settings.ack_wait_milliseconds) + seconds(5), "handled after {pause:?}");
    assert!(!worker.has_ended());
    worker.stop().await;
}

#[tokio::test]
async fn a_lane_goes_on_when_the_message_in_hand_is_deleted() {
    goes_on_after(Way::Deleted).await;
}

#[tokio::test]
async fn a_lane_goes_on_when_the_message_in_hand_is_purged() {
    goes_on_after(Way::Purged).await;
}

#[tokio::test]
async fn a_lane_goes_on_when_the_message_in_hand_expires() {
    goes_on_after(Way::Expired).await;
}
