//! A lane with a clock and a watchful monitor.

use std::{sync::Arc, time::Duration};

use crate::{
    invariants::LaneMonitor,
    lane::{ConsumerFacts, Delivered, Effect, Event, Lane, Note, Options, Outcome, PullRequest},
    mapping::Mapping,
    record::{
        Assignment, Delivery, Excused, ExhaustedPolicy, Floor, LaneSettings, Ownership, Retry, VERSION,
    },
    share::Share,
    subject::SubjectPattern,
};

pub(super) const WAIT: Duration = Duration::from_secs(15);

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(super) fn mapping() -> Mapping {
    Mapping::new("ORDERS", SubjectPattern::parse("orders.*").unwrap(), &[1], 4).unwrap()
}

/// The key of a stored subject.
pub(super) fn key_of(subject: &str) -> String {
    let mapping = mapping();
    mapping.key_of(mapping.original_subject(subject).unwrap()).unwrap().join(".")
}
/// What the subjects of parked messages begin with.
pub(super) const PARK: &str = "lanekeeper.park.shop.orders";

/// The stored subject of some key of the share.
pub(super) fn subject_of(share: Share) -> String {
    subjects_of(share).next().unwrap()
}

/// The stored subjects of keys of the share.
pub(super) fn subjects_of(share: Share) -> impl Iterator<Item = String> {
    (0..1_000).filter_map(move |number| {
        let mapping = mapping();
        let subject = format!("orders.k{number}");
        share
            .contains_hash(mapping.key_hash(&subject).unwrap())
            .then(|| mapping.stored_subject(&subject).unwrap())
    })
}

pub(super) fn assignment(incarnation: u64) -> Assignment {
    let share = Share { modulus: 2, residue: 1 };
    Assignment {
        v: VERSION,
        consumer: format!("lk_shop_orders_1_{incarnation}"),
        incarnation,
        share,
        filter: mapping().filter(share),
        mapping: mapping(),
        stream_incarnation: 1,
        floors: Vec::<Floor>::new(),
        retiring: false,
        settings: LaneSettings {
            ack_wait_milliseconds: 15_000,
            ownership: Ownership::Pin,
            handler_timeout_milliseconds: 60_000,
            retry: Retry {
                initial_backoff_milliseconds: 100,
                max_backoff_milliseconds: 30_000,
                max_attempts: 3,
            },
            on_exhausted: ExhaustedPolicy::Block,
            park: None,
            delivery: Delivery::Serial,
            paused: false,
            journal: None,
        },
    }
}

pub(super) struct Rig {
    pub(super) lane: Lane,
    monitor: LaneMonitor,
    pub(super) now: Duration,
    messages: u64,
    pub(super) subject: String,
    /// The pin that messages come with.
    pub(super) pin: Option<String>,
    /// Everything done so far.
    pub(super) log: Vec<Effect>,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(Options::default())
    }

    pub(super) fn with(options: Options) -> Self {
        Self {
            lane: Lane::new(options),
            monitor: LaneMonitor::new(),
            now: Duration::ZERO,
            messages: 0,
            subject: subject_of(assignment(1).share),
            pin: None,
            log: Vec::new(),
        }
    }

    /// In, with the first pull out.
    pub(super) fn serving() -> Self {
        Self::serving_with(assignment(1), None)
    }

    pub(super) fn serving_with(assignment: Assignment, excused: Option<Excused>) -> Self {
        let mut rig = Self::new();
        let incarnation = assignment.incarnation;
        rig.on(Event::Connected);
        let effects = rig.on(Event::Assigned(Arc::new(assignment)));
        let [Effect::Inspect { token }] = effects[..] else { panic!("{effects:?}") };
        let effects = rig.on(Event::Consumer { token, facts: Self::facts() });
        assert_eq!(effects, [Effect::Join { incarnation }]);
        let effects = rig.on(Event::Joined { incarnation, retiring: false, excused });
        assert!(matches!(effects.last(), Some(Effect::Pull(_))), "{effects:?}");
        rig
    }

    /// In, at a consumer whose server pins it to us with the first message.
    pub(super) fn pinned() -> Self {
        Self { pin: Some("pin1".into()), ..Self::serving() }
    }

    pub(super) fn facts() -> ConsumerFacts {
        ConsumerFacts { shortest_wait: WAIT, max_ack_pending: 1, ack_pending: 1, ..ConsumerFacts::default() }
    }

    pub(super) fn on(&mut self, event: Event<'_>) -> Vec<Effect> {
        self.monitor.told(self.now, &event);
        let effects = self.lane.on(self.now, event);
        assert_eq!(self.monitor.did(self.now, &effects), [], "{effects:?} after {:?}", self.log);
        self.log.extend(effects.iter().cloned());
        effects
    }

    /// Lets time pass, with a tick whenever the lane wants one; what was done meanwhile.
    pub(super) fn pass(&mut self, time: Duration) -> Vec<Effect> {
        let until = self.now + time;
        let mut effects = Vec::new();
        while let Some(wake) = self.lane.wake(self.now).filter(|wake| *wake <= until) {
            assert!(wake > self.now, "a lane never asks for a tick in the past");
            self.now = wake;
            effects.extend(self.on(Event::Tick));
        }
        self.now = until;
        effects.extend(self.on(Event::Tick));
        effects
    }

    /// Lets time pass on a server that answers each in-progress ack at once.
    pub(super) fn keep(&mut self, time: Duration) -> Vec<Effect> {
        let until = self.now + time;
        let mut effects = Vec::new();
        loop {
            let wake = self.lane.wake(self.now).filter(|wake| *wake <= until);
            self.now = wake.unwrap_or(until);
            let done = self.on(Event::Tick);
            for effect in &done {
                if let Effect::Progress { token, .. } = effect {
                    effects.extend(self.on(Event::Answered { token: *token }));
                }
            }
            effects.extend(done);
            if wake.is_none() {
                return effects;
            }
        }
    }

    /// Time passes without anybody looking, as when a process is stopped.
    pub(super) fn freeze(&mut self, time: Duration) {
        self.now += time;
    }

    /// The pull that was sent last.
    pub(super) fn last_pull(&self) -> PullRequest {
        let pull = |effect: &Effect| match effect {
            Effect::Pull(pull) | Effect::Ack { pull: Some(pull), .. } => Some(pull.clone()),
            _ => None,
        };
        self.log.iter().rev().find_map(pull).expect("a pull was sent")
    }

    /// A message answers the last pull.
    pub(super) fn deliver(&mut self, sequence: u64, deliveries: u64) -> Vec<Effect> {
        let pull = self.last_pull().id;
        self.deliver_to(pull, sequence, deliveries)
    }

    pub(super) fn deliver_to(&mut self, pull: u64, sequence: u64, deliveries: u64) -> Vec<Effect> {
        self.messages += 1;
        let (subject, pin) = (self.subject.clone(), self.pin.clone());
        let (message, pin) = (self.messages, pin.as_deref());
        self.on(Event::Delivered(Delivered {
            message,
            pull,
            sequence,
            consumer_sequence: message,
            deliveries,
            subject: &subject,
            pin,
        }))
    }

    pub(super) fn done(&mut self) -> Vec<Effect> {
        self.on(Event::Handled(Outcome::Done))
    }

    pub(super) fn fails(&mut self) -> Vec<Effect> {
        self.on(Event::Handled(Outcome::Retry { reason: "no".into(), after: None }))
    }

    /// The last ack, nak or progress is answered.
    pub(super) fn answer_last(&mut self) -> Vec<Effect> {
        let token = self.last_token();
        self.on(Event::Answered { token })
    }

    pub(super) fn last_token(&self) -> u64 {
        let token = |effect: &Effect| match effect {
            Effect::Ack { token, .. }
            | Effect::Nak { token, .. }
            | Effect::Progress { token, .. }
            | Effect::Inspect { token } => Some(*token),
            _ => None,
        };
        self.log.iter().rev().find_map(token).expect("something was asked")
    }

    /// Everything asked of the consumer so far is answered with these facts.
    pub(super) fn answer_inspection(&mut self, facts: ConsumerFacts) -> Vec<Effect> {
        let asked = |effect: &Effect| match effect {
            Effect::Inspect { token } => Some(*token),
            _ => None,
        };
        let token = self.log.iter().rev().find_map(asked).expect("it was asked");
        self.on(Event::Consumer { token, facts })
    }
}

pub(super) fn handles(effects: &[Effect]) -> Vec<u64> {
    let attempt = |effect: &Effect| match effect {
        Effect::Handle { attempt, .. } => Some(*attempt),
        _ => None,
    };
    effects.iter().filter_map(attempt).collect()
}

pub(super) fn acks(effects: &[Effect]) -> Vec<bool> {
    let carries = |effect: &Effect| match effect {
        Effect::Ack { pull, .. } => Some(pull.is_some()),
        _ => None,
    };
    effects.iter().filter_map(carries).collect()
}

pub(super) fn naks(effects: &[Effect]) -> Vec<Duration> {
    let delay = |effect: &Effect| match effect {
        Effect::Nak { delay, .. } => Some(*delay),
        _ => None,
    };
    effects.iter().filter_map(delay).collect()
}

pub(super) fn pulls(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::Pull(_))).count()
}

pub(super) fn progress(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::Progress { .. })).count()
}

pub(super) fn notes(effects: &[Effect]) -> Vec<Note> {
    let note = |effect: &Effect| match effect {
        Effect::Note(note) => Some(note.clone()),
        _ => None,
    };
    effects.iter().filter_map(note).collect()
}

/// Whether anything was sent for a message.
pub(super) fn silent(effects: &[Effect]) -> bool {
    acks(effects).is_empty() && naks(effects).is_empty() && progress(effects) == 0
}
