//! Processes, a key with copies that lag, and a network that loses. Lanes with leases are tried on it as well.

use std::time::Duration;

use super::{super::*, terms};

#[derive(Debug, Clone)]
pub(super) enum Request {
    Read,
    Write { expected: u64, lease: Lease },
}

#[derive(Debug)]
enum Answer {
    Found(Found),
    Written(u64),
    Refused,
}

pub(crate) struct Process {
    pub(crate) lessee: Lessee,
    pub(crate) frozen_until: Duration,
    /// What its clock is behind, and until when it stands.
    pub(super) behind: Duration,
    /// How long requests take, and answers.
    pub(crate) delays: (Duration, Duration),
    /// Whether requests are lost, and answers.
    pub(crate) losses: (bool, bool),
    /// What it waits for: number, request, when it gives up by its own clock.
    pub(super) asked: Option<(u64, Request, Duration)>,
    /// It gave the lease back, or does not contend yet.
    pub(crate) gone: bool,
}

pub(crate) struct World {
    pub(crate) now: Duration,
    /// Every state of the key: revision (0 if nothing is there), value.
    pub(super) states: Vec<Found>,
    revision: u64,
    pub(super) lag: usize,
    pub(crate) processes: Vec<Process>,
    started: u64,
    requests: u64,
    up: Vec<(Duration, usize, u64, Request)>,
    down: Vec<(Duration, usize, u64, Answer)>,
    pub(super) dead: Vec<Holder>,
    pub(super) releases: Vec<(Duration, u64)>,
    pub(super) history: Vec<String>,
}

impl World {
    pub(crate) fn new(processes: usize) -> Self {
        let mut world = Self {
            now: Duration::ZERO,
            states: vec![Found { revision: 0, lease: None }],
            revision: 0,
            lag: 0,
            processes: Vec::new(),
            started: 0,
            requests: 0,
            up: Vec::new(),
            down: Vec::new(),
            dead: Vec::new(),
            releases: Vec::new(),
            history: Vec::new(),
        };
        for index in 0..processes {
            let process = world.process(index);
            world.processes.push(process);
        }
        world
    }

    /// A new process. None may have contended before the first of all.
    fn process(&mut self, index: usize) -> Process {
        // It is let in at the beginning of all.
        let first = (self.started == 0).then(|| terms().first_time());
        self.started += 1;
        let us = Holder { pod: index.to_string(), instance: self.started.to_string() };
        Process {
            lessee: Lessee::new(us, terms(), 0, first),
            frozen_until: Duration::ZERO,
            behind: Duration::ZERO,
            delays: (Duration::from_millis(1), Duration::from_millis(1)),
            losses: (false, false),
            asked: None,
            gone: false,
        }
    }

    /// The revision of the key, if it names a process that is dead.
    pub(crate) fn revision_of_dead(&self) -> Option<u64> {
        let current = self.states.last()?;
        let holder = current.lease.as_ref()?.holder.as_ref()?;
        self.dead.contains(holder).then_some(current.revision)
    }

    /// The lease is given back in the name of whoever has it at this revision; whether it is still there.
    pub(crate) fn free(&mut self, expected: u64) -> bool {
        let lease = Lease::free(0, terms());
        matches!(self.serve(&Request::Write { expected, lease }), Answer::Written(_))
    }

    /// A process is killed, and another starts under its name.
    pub(crate) fn kill(&mut self, index: usize) {
        self.dead.push(self.processes[index].lessee.holder().clone());
        self.processes[index] = self.process(index);
    }

    /// The same process contends once more.
    pub(crate) fn again(&mut self, index: usize) {
        let lessee = &self.processes[index].lessee;
        let lessee = Lessee::new(lessee.holder().clone(), lessee.terms(), lessee.nonces(), None);
        let process = &mut self.processes[index];
        (process.lessee, process.asked, process.gone) = (lessee, None, false);
    }

    pub(crate) fn clock(&self, index: usize) -> Duration {
        self.now.saturating_sub(self.processes[index].behind)
    }

    pub(super) fn holders(&self) -> Vec<usize> {
        (0..self.processes.len())
            .filter(|index| {
                let process = &self.processes[*index];
                self.now >= process.frozen_until && process.lessee.until(self.clock(*index)).is_some()
            })
            .collect()
    }

    pub(super) fn say(&mut self, words: impl Into<String>) {
        self.history.push(format!("{:?} {}", self.now, words.into()));
    }

    pub(super) fn put(&mut self, lease: Option<Lease>) {
        self.revision += 1;
        self.states.push(Found { revision: self.revision, lease });
    }

    fn serve(&mut self, request: &Request) -> Answer {
        let current = self.states.last().unwrap().clone();
        match request {
            Request::Read => {
                let behind = self.states.len().saturating_sub(1 + self.lag);
                Answer::Found(self.states[behind].clone())
            }
            Request::Write { expected, lease } if *expected == current.revision => {
                self.put(Some(lease.clone()));
                Answer::Written(self.revision)
            }
            Request::Write { .. } => Answer::Refused,
        }
    }

    /// Everything that is due now.
    pub(crate) fn turn(&mut self) {
        while let Some(index) = self.up.iter().position(|packet| packet.0 <= self.now) {
            let (_, process, number, request) = self.up.remove(index);
            let answer = self.serve(&request);
            self.say(format!("{process} {request:?} -> {answer:?}"));
            let Process { delays, losses, .. } = &self.processes[process];
            if !losses.1 {
                self.down.push((self.now + delays.1, process, number, answer));
            }
        }
        while let Some(index) = self.releases.iter().position(|release| release.0 <= self.now) {
            let (_, expected) = self.releases.remove(index);
            self.free(expected);
        }
        for index in 0..self.processes.len() {
            while self.now >= self.processes[index].frozen_until && self.step(index) {}
        }
        let holders = self.holders();
        assert!(holders.len() < 2, "{holders:?} at once\n{}", self.history.join("\n"));
    }

    /// One thing that a process does now; whether there may be another.
    fn step(&mut self, index: usize) -> bool {
        let clock = self.clock(index);
        if let Some((number, request, limit)) = self.processes[index].asked.clone() {
            let of = |packet: &(Duration, usize, u64, Answer)| {
                packet.0 <= self.now && packet.1 == index && packet.2 == number
            };
            let Some(arrived) = self.down.iter().position(of) else {
                if clock < limit {
                    return false;
                }
                self.processes[index].asked = None;
                let lessee = &mut self.processes[index].lessee;
                match request {
                    Request::Read => lessee.unread(clock),
                    Request::Write { .. } => lessee.unknown(clock),
                }
                return true;
            };
            let (.., answer) = self.down.remove(arrived);
            self.processes[index].asked = None;
            let lessee = &mut self.processes[index].lessee;
            match (request, answer) {
                (Request::Read, Answer::Found(found)) => lessee.found(clock, found),
                (Request::Write { lease, .. }, Answer::Written(revision)) => {
                    lessee.written(clock, revision, lease);
                }
                (Request::Write { lease, .. }, Answer::Refused) => lessee.refused(clock, lease.nonce),
                (request, answer) => panic!("{answer:?} for {request:?}"),
            }
            return true;
        }
        if self.processes[index].gone {
            return false;
        }
        let request = match self.processes[index].lessee.next(clock) {
            Next::Read => Request::Read,
            Next::Write { expected, lease } => Request::Write { expected, lease },
            Next::Wait(until) => {
                assert!(until > clock, "a wait for the past\n{}", self.history.join("\n"));
                return false;
            }
            Next::Done => {
                self.processes[index].gone = true;
                return false;
            }
        };
        self.requests += 1;
        let limit = clock + terms().patience();
        let process = &mut self.processes[index];
        process.asked = Some((self.requests, request.clone(), limit));
        if !process.losses.0 {
            self.up.push((self.now + process.delays.0, index, self.requests, request));
        }
        true
    }

    pub(crate) fn wake(&self) -> Duration {
        let mut times: Vec<Duration> = self.up.iter().map(|packet| packet.0).collect();
        times.extend(self.releases.iter().map(|release| release.0));
        times.extend(self.down.iter().map(|packet| packet.0.max(self.processes[packet.1].frozen_until)));
        for index in 0..self.processes.len() {
            let clock = self.clock(index);
            let process = &self.processes[index];
            let due = match &process.asked {
                Some((.., limit)) => *limit,
                None if process.gone => continue,
                None => match process.lessee.clone().next(clock) {
                    Next::Wait(until) => until,
                    _ => clock,
                },
            };
            times.push((due + process.behind).max(process.frozen_until));
            // The end of its time is a moment to look at, too.
            times.extend(process.lessee.until(clock).map(|until| until + process.behind));
        }
        times.into_iter().filter(|time| *time > self.now).min().unwrap_or(Duration::MAX)
    }

    pub(super) fn pass(&mut self, milliseconds: u64) {
        let until = self.now + Duration::from_millis(milliseconds);
        let mut steps = 0;
        loop {
            self.turn();
            let wake = self.wake();
            if wake > until {
                break;
            }
            steps += 1;
            assert!(steps < 100_000, "a hot loop");
            self.now = wake;
        }
        self.now = until;
        self.turn();
    }
}
