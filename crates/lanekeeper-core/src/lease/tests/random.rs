//! Contenders, a key with copies that lag, and a network that loses, under random trouble: at no instant two processes that
//! run go by the lease, and one has it once the trouble ends.

use std::time::Duration;

use proptest::prelude::*;

use super::{TIME, world::World};
use crate::lease::Found;

const PROCESSES: usize = 3;

#[derive(Debug, Clone)]
enum Trouble {
    Pass(u64),
    /// The process is stopped; its clock goes on.
    Freeze(usize, u64),
    /// The machine of one that has nothing and waits for nothing: its clock stands still.
    Suspend(usize, u64),
    /// Each way takes this long from now on.
    Slow(usize, u64, u64),
    /// Requests and answers are lost, or not.
    Lossy(usize, bool, bool),
    Kill(usize),
    Leave(usize),
    /// Copies answer with what was so many writes ago.
    Lag(usize),
    /// Somebody deletes the key; a mark stays or not.
    Delete(bool),
    /// What a process that was killed had is given back in its name, a while after it was looked at.
    Release(u64),
}

impl World {
    fn suffer(&mut self, trouble: &Trouble) {
        self.say(format!("{trouble:?}"));
        match *trouble {
            Trouble::Pass(milliseconds) => self.pass(milliseconds),
            Trouble::Freeze(index, milliseconds) => {
                let until = self.now + Duration::from_millis(milliseconds);
                self.processes[index].frozen_until = until;
            }
            Trouble::Suspend(index, milliseconds) => {
                // One that has or asks for something would take the time that it missed for its own.
                let clock = self.clock(index);
                let process = &mut self.processes[index];
                if process.lessee.until(clock).is_none() && process.lessee.is_at_rest() {
                    let time = Duration::from_millis(milliseconds);
                    // It goes on only when its clock does.
                    process.frozen_until = self.now + time + Duration::from_nanos(1);
                    process.asked = None;
                    self.pass(milliseconds);
                    self.processes[index].behind += time;
                }
            }
            Trouble::Slow(index, up, down) => {
                let delays = (Duration::from_millis(up), Duration::from_millis(down));
                self.processes[index].delays = delays;
            }
            Trouble::Lossy(index, up, down) => self.processes[index].losses = (up, down),
            Trouble::Kill(index) => self.kill(index),
            Trouble::Leave(index) if self.processes[index].gone => self.again(index),
            Trouble::Leave(index) => self.processes[index].lessee.leave(),
            Trouble::Lag(writes) => self.lag = writes,
            Trouble::Delete(true) => self.put(None),
            Trouble::Delete(false) => self.states.push(Found { revision: 0, lease: None }),
            Trouble::Release(milliseconds) => {
                let at = self.now + Duration::from_millis(milliseconds);
                self.releases.extend(self.revision_of_dead().map(|revision| (at, revision)));
            }
        }
    }

    /// All trouble ends.
    fn recover(&mut self) {
        self.lag = 0;
        for process in &mut self.processes {
            process.delays = (Duration::from_millis(1), Duration::from_millis(1));
            process.losses = (false, false);
            process.frozen_until = Duration::ZERO;
        }
        // Those that are about to give back come to their end.
        self.pass(60_000);
        for index in 0..PROCESSES {
            if self.processes[index].gone {
                self.kill(index);
            }
        }
        self.pass(120_000);
    }
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let process = 0..PROCESSES;
    let delay = || prop_oneof![4 => 1u64..100, 1 => 100u64..60_000];
    prop_oneof![
        8 => prop_oneof![1u64..100, 100u64..10_000, 10_000u64..60_000].prop_map(Trouble::Pass),
        2 => (process.clone(), 100u64..90_000).prop_map(|(index, time)| Trouble::Freeze(index, time)),
        1 => (process.clone(), 100u64..90_000).prop_map(|(index, time)| Trouble::Suspend(index, time)),
        3 => (process.clone(), delay(), delay()).prop_map(|(index, up, down)| Trouble::Slow(index, up, down)),
        2 => (process.clone(), any::<bool>(), any::<bool>()).prop_map(|(index, up, down)| Trouble::Lossy(index, up, down)),
        2 => process.clone().prop_map(Trouble::Kill),
        2 => process.prop_map(Trouble::Leave),
        2 => (0usize..4).prop_map(Trouble::Lag),
        1 => any::<bool>().prop_map(Trouble::Delete),
        2 => delay().prop_map(Trouble::Release),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn at_most_one_process_goes_by_the_lease_and_one_does_when_the_trouble_ends(
        troubles in prop::collection::vec(trouble(), 0..80)
    ) {
        let mut world = World::new(PROCESSES);
        for trouble in &troubles {
            world.suffer(trouble);
        }
        world.recover();
        prop_assert_eq!(world.holders().len(), 1, "{}", world.history.join("\n"));
        let holder = world.holders();
        world.pass(u64::try_from(TIME.as_millis()).unwrap() * 3);
        prop_assert_eq!(world.holders(), holder, "it keeps it");
    }
}
