//! Random changes of the number of partitions under load, with kills in between, on three NATS servers.
//!
//! Short in `make test`; `make soak MINUTES=n` runs it for as long as that, with up to 64 partitions. Everything that
//! is chosen comes from a seed, which is printed first; what the machine does with it is its own.

mod load;
mod servers;
mod troubles;

use std::time::{Duration, Instant};

use lanekeeper_tests::{
    journal::Published,
    soak::{
        chance::{Chance, minutes, seed},
        failures::Failures,
        history::History,
        numbers,
        verdict::judge,
    },
    wait_until,
};
use serde_json::json;

use self::{
    load::Load,
    troubles::{Trouble, Troubles},
};
use crate::{FLOW, machine::alone, story::Story};

/// What `make test` has time for.
const SHORT: Extent = Extent { changes: 6, minutes: 0, most: 8 };
/// Pods of 64 partitions on one small node, one after another.
const SETTLED: Duration = Duration::from_secs(900);

/// How much is done.
#[derive(Clone, Copy)]
struct Extent {
    /// At least so many changes.
    changes: usize,
    /// For at least so long.
    minutes: u64,
    /// The largest number of partitions.
    most: u32,
}

#[tokio::test]
async fn random_changes_of_the_number_of_partitions_with_kills_in_between_keep_every_key_in_order() {
    // Other stories need the operator that is killed here.
    let _alone = alone().await;
    let extent = minutes().map_or(SHORT, |minutes| Extent { changes: 30, minutes, most: 64 });
    let seed = seed();
    println!("seed {seed}: LANEKEEPER_SOAK_SEED={seed} chooses the same again");
    let mut chance = Chance::new(seed);

    let mut story = Story::begin_on("soak", 4, servers::three).await;
    story
        .slow_handler("5ms")
        .put("/spec/stream/replicas", json!(3))
        .put("/spec/consumer", json!({"ackWaitSeconds": 5}));
    story.apply_and_wait().await;
    let load = Load::start(&story, chance.fork());
    let failures = Failures::new(&History::new());
    let mut troubles = Troubles::new(&story, &failures);

    let begun = Instant::now();
    let mut now = 4;
    let mut changes = 0;
    while changes < extent.changes || begun.elapsed() < Duration::from_secs(60 * extent.minutes) {
        let wanted = numbers::next(&mut chance, now, extent.most);
        let trouble = *chance.pick(&Trouble::ALL);
        println!("{:>6.0} s: {now} -> {wanted}, {trouble:?}", begun.elapsed().as_secs_f64());
        story.run(&["scale", "ops/flights", &format!("--replicas={wanted}")]);
        troubles.make(trouble, &mut chance).await;
        (now, changes) = (wanted, changes + 1);
        // Some numbers come before the change before them has ended.
        if !chance.one_in(4) {
            settled(&story, wanted).await;
            load.wait_for_more_handled().await;
        }
    }
    settled(&story, now).await;
    let messages = load.stop().await;
    let published = Published::new(messages.iter().map(|one| (one.key.clone(), one.number))).unwrap();
    story.has_published(messages);
    story.wait_for_handled(published.messages()).await;
    story.wait_until_ready().await;
    let verdict = judge(&published, &story.entries(), &failures.all());
    println!(
        "{changes} changes in {:.0} s, {:?}\n{verdict}",
        begun.elapsed().as_secs_f64(),
        failures.counts()
    );
    assert!(verdict.is_clean(), "seed {seed}");
    assert_eq!(story.consumers().await.len(), now as usize, "no consumer of an earlier number is left");
}

/// Waits until a number is in force and nothing is left to be done.
async fn settled(story: &Story, wanted: u32) {
    wait_until(SETTLED.max(FLOW), &format!("{wanted} partitions in force"), || async {
        let set = story.resource().await.ok_or("there is no set")?;
        let status = &set["status"];
        let seen = status["observedGeneration"] == set["metadata"]["generation"];
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let rescaling = conditions.into_iter().find(|one| one["type"] == "Rescaling").unwrap_or_default();
        if seen && status["partitions"] == wanted && rescaling["status"] == "False" {
            Ok(())
        } else {
            Err(format!(
                "{} in force: {} {}",
                status["partitions"], rescaling["reason"], rescaling["message"]
            ))
        }
    })
    .await;
}
