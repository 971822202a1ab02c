//! A worker: the production lane, its handler, and what is on its way between it and the servers.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use lanekeeper_core::{
    lane::{Delivered, Event, Lane, Number, Options},
    record::{Assignment, Excused, LaneKey},
};

use crate::world::{MAX_PARTITIONS, mapping};

/// What the lane last read of its partition: the assignment, and of that lane's key whether it retires and what it excuses.
pub(crate) type View = (Option<Arc<Assignment>>, Option<(bool, Option<Excused>)>);

/// A pull, or what only keeps the pin: its number, and the pin that it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Pull {
    pub(crate) number: u64,
    pub(crate) pin: Option<&'static str>,
}

/// What a lane asks of the servers, with all that they need to know.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    Pull { incarnation: u64, pull: Pull },
    Ack { incarnation: u64, sequence: u64, token: u64, pull: Option<Pull> },
    Nak { incarnation: u64, sequence: u64, token: u64, delay: Duration },
    Progress { incarnation: u64, sequence: u64, token: u64 },
    Renew { incarnation: u64, pull: Pull },
    Unpin { incarnation: u64 },
    Inspect { incarnation: u64, token: u64 },
    Join { incarnation: u64 },
    Leave { incarnation: u64, excused: Option<Excused> },
    Excuse { incarnation: u64, excused: Excused },
}

impl Request {
    /// Whether it goes to the bucket: servers do what is asked of a bucket and of a consumer in any order.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Self::Join { .. } | Self::Leave { .. } | Self::Excuse { .. })
    }

    /// What an idle lane does all the time.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self, Self::Pull { .. } | Self::Inspect { .. })
    }

    pub(crate) fn numbers(&mut self, visit: &mut dyn FnMut(Number<'_>)) {
        match self {
            Self::Pull { pull, .. } | Self::Renew { pull, .. } => visit(Number::Pull(&mut pull.number)),
            Self::Ack { token, pull, .. } => {
                visit(Number::Token(token));
                if let Some(pull) = pull {
                    visit(Number::Pull(&mut pull.number));
                }
            }
            Self::Nak { token, .. } | Self::Progress { token, .. } | Self::Inspect { token, .. } => {
                visit(Number::Token(token));
            }
            Self::Join { .. } | Self::Leave { .. } | Self::Excuse { .. } | Self::Unpin { .. } => {}
        }
    }
}

/// Something that is applied late: a write of a key as the worker read it, or what is asked of a consumer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "there are none or one or two")]
pub(crate) enum Late {
    Write {
        incarnation: u64,
        before: LaneKey,
        after: LaneKey,
    },
    Asked(Request),
    /// An answer, or a message.
    Heard(Event<'static>),
}

/// A message that a worker has, by the pull that it answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Hand {
    pub(crate) message: u64,
    pub(crate) incarnation: u64,
    pub(crate) sequence: u64,
}

/// A handler at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Running {
    pub(crate) sequence: u64,
    /// It ended while its lane's process stood still.
    pub(crate) done: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Pod {
    pub(crate) lane: Lane,
    pub(crate) connected: bool,
    /// Since when the process stands still.
    pub(crate) frozen: Option<Duration>,
    pub(crate) stopping: bool,
    pub(crate) exited: bool,
    pub(crate) read: View,
    pub(crate) running: Option<Running>,
    pub(crate) hands: Vec<Hand>,
    /// What arrived while the process stood still.
    pub(crate) inbox: Vec<Event<'static>>,
    /// Under way, in the order in which they were sent.
    pub(crate) requests: Vec<Request>,
    pub(crate) late: Vec<Late>,
}

impl Pod {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            lane: Lane::new(options),
            connected: false,
            frozen: None,
            stopping: false,
            exited: false,
            read: (None, None),
            running: None,
            hands: Vec::new(),
            inbox: Vec::new(),
            requests: Vec::new(),
            late: Vec::new(),
        }
    }

    pub(crate) fn sequence(&self, message: u64) -> Option<Hand> {
        self.hands.iter().copied().find(|hand| hand.message == message)
    }

    /// Visits every number that belongs to the process, but what servers keep of it.
    pub(crate) fn numbers(&mut self, visit: &mut dyn FnMut(Number<'_>)) {
        self.lane.numbers(visit);
        if let Some(since) = &mut self.frozen {
            visit(Number::Since(since));
        }
        for hand in &mut self.hands {
            visit(Number::Pull(&mut hand.message));
        }
        for event in &mut self.inbox {
            event_numbers(event, visit);
        }
        for request in &mut self.requests {
            request.numbers(visit);
        }
        for late in &mut self.late {
            match late {
                Late::Write { .. } => {}
                Late::Asked(request) => request.numbers(visit),
                Late::Heard(event) => event_numbers(event, visit),
            }
        }
    }
}

fn event_numbers(event: &mut Event<'static>, visit: &mut dyn FnMut(Number<'_>)) {
    match event {
        Event::Consumer { token, .. }
        | Event::ConsumerGone { token }
        | Event::InspectFailed { token }
        | Event::Answered { token }
        | Event::NoResponders { token } => visit(Number::Token(token)),
        Event::Delivered(Delivered { message, pull, .. }) => {
            visit(Number::Pull(message));
            visit(Number::Pull(pull));
        }
        Event::Heartbeat { pull } | Event::PullEnded { pull, .. } => visit(Number::Pull(pull)),
        _ => {}
    }
}

/// The stored subject of the key that a hash stands for.
pub(crate) fn subject(hash: u32) -> &'static str {
    static SUBJECTS: LazyLock<Vec<String>> = LazyLock::new(|| {
        (0..MAX_PARTITIONS)
            .map(|hash| {
                (0..1000)
                    .map(|number| format!("o.k{number}"))
                    .find(|subject| mapping().key_hash(subject).unwrap() % MAX_PARTITIONS == hash)
                    .and_then(|subject| mapping().stored_subject(&subject))
                    .unwrap()
            })
            .collect()
    });
    &SUBJECTS[hash as usize]
}

/// What the server calls a pin.
pub(crate) fn pin_named(number: usize) -> &'static str {
    static PINS: LazyLock<Vec<String>> =
        LazyLock::new(|| (0..1000).map(|number| format!("pin {number}")).collect());
    &PINS[number]
}

/// As the server called it.
pub(crate) fn pin(name: &str) -> &'static str {
    let number = name.strip_prefix("pin ").and_then(|number| number.parse().ok());
    pin_named(number.unwrap())
}
