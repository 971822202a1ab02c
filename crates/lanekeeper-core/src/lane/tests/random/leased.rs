//! The same with a lease in the place of the pin.

use std::time::Duration;

use proptest::prelude::*;

use super::{
    Leases, MESSAGES, Worker, World,
    troubles::{death, policy, trouble},
};
use crate::{lane::Event, record::ExhaustedPolicy};

impl World {
    /// Where a lease decides who has the messages.
    fn leased(workers: usize, policy: ExhaustedPolicy) -> Self {
        let mut world = Self::new(0, policy);
        world.server.pins_nobody = true;
        world.leases = Some(Leases::new(workers));
        world.workers.extend((0..workers).map(Worker::new));
        for index in 0..workers {
            world.start(index);
        }
        world
    }

    /// What goes on about the lease, and what the workers are told of it.
    pub(super) fn lease_on(&mut self) {
        let Some(leases) = &mut self.leases else { return };
        leases.now = self.now;
        for (process, worker) in leases.processes.iter_mut().zip(&self.workers) {
            process.frozen_until = worker.frozen_until;
            process.delays = (worker.delay, worker.delay);
            process.losses = (!worker.connected, !worker.connected);
            process.gone |= worker.exited;
        }
        leases.turn();
        let untils: Vec<Option<Duration>> = (0..leases.processes.len())
            .map(|index| {
                leases.processes[index].lessee.until(self.now).filter(|_| !leases.processes[index].gone)
            })
            .collect();
        for (index, until) in untils.into_iter().enumerate() {
            let worker = &mut self.workers[index];
            if self.now >= worker.frozen_until && worker.told != until {
                worker.told = until;
                self.tell(index, Event::Leased { incarnation: 1, until });
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn order_holds_with_a_lease_as_well_and_no_two_handlers_are_ever_at_work(
        policy in policy(), troubles in prop::collection::vec(trouble(), 0..80)
    ) {
        let mut world = World::leased(2, policy);
        for trouble in troubles {
            world.suffer(trouble);
        }
        world.recover();
        let missing: Vec<u64> = (1..=MESSAGES).filter(|q| !world.completed.contains(q)).collect();
        prop_assert!(missing.is_empty(), "{missing:?} never completed\n{}", world.history.join("\n"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn releasing_the_lease_of_a_dead_worker_never_makes_two_handlers(troubles in prop::collection::vec(death(), 0..80)) {
        let mut world = World::leased(3, ExhaustedPolicy::Block);
        for trouble in troubles {
            world.suffer(trouble);
        }
        world.recover();
        let missing: Vec<u64> = (1..=MESSAGES).filter(|q| !world.completed.contains(q)).collect();
        prop_assert!(missing.is_empty(), "{missing:?} never completed\n{}", world.history.join("\n"));
    }
}
