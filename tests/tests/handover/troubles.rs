//! What goes wrong in a story, and for whom.

use std::time::Duration;

use lanekeeper_core::{hash::fnv1a32, names::SetName, share::partition_of};
use lanekeeper_nats::{observe, provision};
use lanekeeper_tests::{
    Direction, Flow,
    soak::{chance::Chance, failures::Whose, ground::STREAM, numbers},
    wait_for,
};
use serde_json::Value;
use tokio::time::sleep;

use crate::{DEADLINE, place::Place, story::Story};

/// Something that happens while lanes change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nothing.
    Calm,
    /// The operator ends between two effects, and another starts.
    OperatorKilled,
    /// Two operators are at work, and neither knows of the other.
    TwoOperators,
    /// The number is changed again and again before the last change has ended.
    BackAndForth,
    /// A worker's container ends and starts again.
    WorkerCrashes,
    /// A worker's pod ends and another takes its place.
    PodReplaced,
    /// A worker's pod is replaced in an orderly way.
    PodRolled,
    /// Every connection breaks.
    ConnectionsCut,
    /// Answers come late.
    AnswersHeld,
    /// The server stops and starts again.
    NatsRestarts,
    /// Somebody deletes the consumer of a lane.
    ConsumerDeleted,
    /// A worker's process is stopped, and goes on when its lane has long been succeeded.
    WorkerFrozen,
    /// The stream has another leader.
    StreamStepsDown,
    /// Consumers have other leaders.
    ConsumersStepDown,
    /// The bucket has another leader.
    BucketStepsDown,
    /// One of three servers is killed and started again.
    ServerKilled,
}

/// What can happen anywhere.
pub(crate) const EVERYWHERE: [Trouble; 7] = [
    Trouble::Calm,
    Trouble::OperatorKilled,
    Trouble::TwoOperators,
    Trouble::BackAndForth,
    Trouble::WorkerCrashes,
    Trouble::PodReplaced,
    Trouble::PodRolled,
];

impl Story {
    /// Lets it happen now.
    pub(crate) async fn cause(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Calm => {}
            Trouble::OperatorKilled => {
                for _ in 0..=self.chance.below(3) {
                    self.failures.moment("a killed operator", Whose::Nobodys);
                    self.conductor.abort();
                    self.conductor = self.desk.conduct();
                    self.moment(10).await;
                }
            }
            Trouble::TwoOperators => {
                self.failures.moment("a second operator", Whose::Nobodys);
                let other = self.desk.conduct();
                let between = numbers::next(&mut self.chance, self.desk.wanted(), self.outline.most);
                self.say(&format!("-> {between}"));
                let asked = self.desk.want(between);
                self.settled(asked).await;
                other.abort();
            }
            Trouble::BackAndForth => {
                self.failures.moment("back and forth", Whose::Nobodys);
                let mut asked = tokio::time::Instant::now();
                for _ in 0..3 + self.chance.below(4) {
                    let next = numbers::next(&mut self.chance, self.desk.wanted(), self.outline.most);
                    self.say(&format!("-> {next}"));
                    asked = self.desk.want(next);
                    self.moment(8).await;
                }
                self.settled(asked).await;
            }
            Trouble::WorkerCrashes => {
                for partition in self.some_partitions() {
                    self.say(&format!("the worker of {partition} crashes"));
                    self.pool.crash(partition).await;
                }
            }
            Trouble::PodReplaced => {
                for partition in self.some_partitions() {
                    self.say(&format!("the pod of {partition} is replaced"));
                    self.pool.replace(partition).await;
                }
            }
            Trouble::PodRolled => {
                for partition in self.some_partitions() {
                    self.say(&format!("the pod of {partition} is rolled"));
                    self.pool.roll(partition).await;
                }
            }
            Trouble::WorkerFrozen => self.freeze().await,
            Trouble::ConsumerDeleted => self.delete_consumer().await,
            Trouble::ConnectionsCut | Trouble::AnswersHeld | Trouble::NatsRestarts => {
                self.one_server(trouble).await;
            }
            Trouble::StreamStepsDown
            | Trouble::ConsumersStepDown
            | Trouble::BucketStepsDown
            | Trouble::ServerKilled => self.three_servers(trouble).await,
        }
    }

    async fn one_server(&mut self, trouble: Trouble) {
        let Place::One { server, proxy } = &mut self.place else { panic!("{trouble:?} needs one server") };
        match trouble {
            Trouble::ConnectionsCut => {
                self.failures.moment("cut connections", Whose::Everybodys);
                proxy.cut();
            }
            Trouble::AnswersHeld => {
                let lasting = self.failures.begin("late answers", Whose::Everybodys);
                proxy.set(Direction::ToClient, Flow::Hold);
                sleep(Duration::from_millis(50 + self.chance.below(400))).await;
                proxy.set(Direction::ToClient, Flow::Forward);
                lasting.end();
            }
            _ => {
                let lasting = self.failures.begin("a restarted server", Whose::Everybodys);
                server.restart().await;
                lasting.end();
            }
        }
    }

    async fn three_servers(&mut self, trouble: Trouble) {
        let lasting = match trouble {
            Trouble::ServerKilled => self.failures.begin("a killed server", Whose::Everybodys),
            _ => self.failures.begin("another leader", Whose::Everybodys),
        };
        match trouble {
            Trouble::StreamStepsDown => self.step_down(&format!("STREAM.LEADER.STEPDOWN.{STREAM}")).await,
            Trouble::BucketStepsDown => self.step_down("STREAM.LEADER.STEPDOWN.KV_lanekeeper").await,
            Trouble::ConsumersStepDown => {
                for name in self.some_consumers().await {
                    self.step_down(&format!("CONSUMER.LEADER.STEPDOWN.{STREAM}.{name}")).await;
                }
            }
            _ => {
                let Place::Three(trio) = &mut self.place else { panic!("{trouble:?} needs three servers") };
                let node = usize::try_from(self.chance.below(3)).unwrap();
                trio.nodes[node].kill();
                sleep(Duration::from_millis(self.chance.below(2_000))).await;
                trio.nodes[node].start_again().await;
            }
        }
        // Over when every leader answers again.
        let answers = wait_for(DEADLINE, "every consumer to have a leader", || async {
            observe::consumers(&self.judge, STREAM).await
        })
        .await;
        self.right(answers);
        lasting.end();
    }

    /// A refusal is fine: there may be no leader just now, or the consumer is gone.
    async fn step_down(&mut self, operation: &str) {
        self.say(operation);
        let _ = self.judge.api::<Value>(operation, &Value::Null).await;
    }

    /// The process of a worker is stopped in the middle of its work, the change goes on without it, and it wakes up
    /// while its successors are at work.
    async fn freeze(&mut self) {
        let partition = self.some_partitions()[0];
        let whose = self.pool.name(partition).map(|pod| Whose::Pod(pod.to_owned())).unwrap();
        let lasting = self.failures.begin("a stopped worker", whose);
        self.say(&format!("the worker of {partition} is stopped"));
        self.pool.freeze(partition);
        // Its lane is part of each of these changes.
        for partitions in [self.outline.most, 1] {
            let asked = self.desk.want(partitions);
            self.settled(asked).await;
        }
        self.pool.thaw(partition);
        lasting.end();
        self.say(&format!("the worker of {partition} goes on"));
        let last = numbers::next(&mut self.chance, 1, self.outline.most);
        let asked = self.desk.want(last);
        self.settled(asked).await;
    }

    async fn delete_consumer(&mut self) {
        let Some(name) = self.some_consumers().await.pop() else { return };
        let (partition, _) = SetName::new("shop", "orders").parse_consumer(&name).unwrap();
        self.say(&format!("consumer {name} is deleted"));
        // What comes of it lasts until the lane is succeeded: until then its worker handles what it has in hand.
        let lasting = self.failures.begin("a deleted consumer", Whose::Partition(i64::from(partition)));
        let deleted = provision::delete_consumer(&self.judge, STREAM, &name).await;
        self.right(deleted);
        let asked = tokio::time::Instant::now();
        self.settled(asked).await;
        lasting.end();
    }

    /// One to three partitions that have a lane, or will have one: any, or that of a hot key, whose worker is busy.
    fn some_partitions(&mut self) -> Vec<u32> {
        let wanted = self.desk.wanted();
        let some = 1 + self.chance.below(3);
        let one = |chance: &mut Chance| {
            if chance.one_in(2) {
                let hot = *chance.pick(&["k0", "k1", "k2", "k3"]);
                partition_of(fnv1a32([hot.as_bytes()]), wanted)
            } else {
                u32::try_from(chance.below(u64::from(wanted))).unwrap()
            }
        };
        (0..some).map(|_| one(&mut self.chance)).collect()
    }

    /// One to three consumers that exist now.
    async fn some_consumers(&mut self) -> Vec<String> {
        let found = observe::consumers(&self.judge, STREAM).await.unwrap_or_default();
        if found.is_empty() {
            return Vec::new();
        }
        let some = 1 + self.chance.below(3);
        (0..some).map(|_| self.chance.pick(&found).name.clone()).collect()
    }

    /// At most so many milliseconds, chosen.
    async fn moment(&mut self, most: u64) {
        sleep(Duration::from_micros(self.chance.below(most * 1_000))).await;
    }
}
