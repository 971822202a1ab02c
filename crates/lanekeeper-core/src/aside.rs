//! A message put aside, as a dead letter or parked: what it is called, what its headers say, and the stream that takes it.
//! Written by workers, read by people, by the plugin and, when it was parked, by workers again.
//!
//! The payload is that of the message. The publisher's headers are kept, except those that servers act upon (`Nats-…`)
//! and those that would pass for the lane's (`Lanekeeper-…`).

use std::collections::BTreeMap;

use crate::{
    consumer::Drift,
    fence::Fence,
    names::SetName,
    stream::{StreamFound, StreamOwner, metadata},
    subject::SubjectPattern,
};

/// The subject that the message was published to.
pub const SUBJECT: &str = "Lanekeeper-Subject";
/// The stream that it was in.
pub const STREAM: &str = "Lanekeeper-Stream";
/// Its number there.
pub const SEQUENCE: &str = "Lanekeeper-Sequence";
/// Its fence.
pub const FENCE: &str = "Lanekeeper-Fence";
/// Its key.
pub const KEY: &str = "Lanekeeper-Key";
/// The set that put it away: namespace and name.
pub const SET: &str = "Lanekeeper-Set";
/// The partition that had it.
pub const PARTITION: &str = "Lanekeeper-Partition";
/// How many attempts were made.
pub const ATTEMPTS: &str = "Lanekeeper-Attempts";
/// What the handler said last.
pub const REASON: &str = "Lanekeeper-Reason";
/// When it was published (RFC 3339).
pub const PUBLISHED: &str = "Lanekeeper-Published";
/// When it was put away (RFC 3339).
pub const TIME: &str = "Lanekeeper-Time";
/// The publisher's own message id.
pub const MESSAGE_ID: &str = "Lanekeeper-Message-Id";
/// Of a message that was replayed: the dead letter that it was. Kept like a publisher's header.
pub const REPLAY_OF: &str = "Lanekeeper-Replay-Of";

/// Whether a publisher's header is kept as it is.
pub fn keeps(header: &str) -> bool {
    let begins =
        |prefix: &str| header.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    header == REPLAY_OF || !(begins("nats-") || begins("lanekeeper-"))
}

/// The same for the same message, whoever puts it away and however often: within the stream's duplicate window one is
/// kept, and beyond it a repeat can be recognised.
pub fn message_id(kind: Kind, set: &SetName, stream: &str, fence: Fence) -> String {
    let what = match kind {
        Kind::DeadLetters => "dlq",
        Kind::Parked => "park",
    };
    format!("lanekeeper-{what} {set} {stream} {fence}")
}

/// The same for each time that the same dead letter is published again: within the window of the message's own stream it is
/// stored once. The publisher's own id is not used again: within that window the stream would take the message for the first
/// one.
pub fn replay_id(set: &SetName, stream: &str, fence: Fence) -> String {
    format!("lanekeeper-replay {set} {stream} {fence}")
}

/// What [`REPLAY_OF`] says: the stream and the fence of the message that failed.
pub fn replay_of(stream: &str, fence: Fence) -> String {
    format!("{stream} {fence}")
}

/// Why messages are put aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// They are given up.
    DeadLetters,
    /// They wait, with every later one of their key, until a person releases them.
    Parked,
}

impl Kind {
    /// The field that names a stream of the user's.
    pub fn field(self) -> &'static str {
        match self {
            Self::DeadLetters => "spec.onExhausted.deadLetter.streamName",
            Self::Parked => "spec.onExhausted.park.streamName",
        }
    }

    /// Metadata of a stream of ours: the subject that it takes.
    pub fn metadata(self) -> &'static str {
        match self {
            Self::DeadLetters => "lanekeeper.dev/dead-letters",
            Self::Parked => "lanekeeper.dev/parked",
        }
    }

    /// What the stream is for, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::DeadLetters => "dead letters",
            Self::Parked => "parked messages",
        }
    }
}

/// Where the messages of a set go that are put aside.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Aside {
    /// Why.
    pub kind: Kind,
    /// The stream.
    pub stream: String,
    /// The subject, or the pattern of all subjects.
    pub subject: String,
    /// Whether the operator makes the stream; otherwise a person did.
    pub ours: bool,
}

impl Aside {
    /// In a stream of the operator's, or in the one that is named.
    pub fn new(kind: Kind, set: &SetName, named: Option<&str>) -> Self {
        let (stream, subject) = match kind {
            Kind::DeadLetters => (set.dead_letter_stream(), set.dead_letter_subject()),
            Kind::Parked => (set.park_stream(), format!("{}.>", set.park_prefix())),
        };
        Self { kind, stream: named.map_or(stream, str::to_owned), subject, ours: named.is_none() }
    }
}

/// What a stream that was found is to the messages of a set that are put aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// It takes them.
    Right,
    /// It is the operator's and somebody changed it.
    Drifted(Vec<Drift>),
    /// It cannot take them, and is not the operator's to change: why.
    Wrong(String),
}

/// Our metadata of such a stream: of whose, and for which subject.
pub fn metadata_of(wanted: &Aside, us: &StreamOwner) -> BTreeMap<String, String> {
    BTreeMap::from([
        (metadata::OWNER.to_owned(), us.id.clone()),
        (metadata::OWNER_UID.to_owned(), us.uid.clone()),
        (wanted.kind.metadata().to_owned(), wanted.subject.clone()),
    ])
}

fn discards(found: &StreamFound) -> bool {
    let limits = [found.max_messages, found.max_bytes, found.max_messages_per_subject];
    found.max_age_seconds > 0 || limits.iter().any(|limit| *limit > 0)
}

/// Decides about a stream that was found. Limits that somebody gave a stream of dead letters are theirs to know.
pub fn judge(wanted: &Aside, replicas: u32, us: &StreamOwner, found: &StreamFound) -> Judgement {
    let Aside { kind, stream, subject, ours } = wanted;
    let wrong = |why: &str| Judgement::Wrong(format!("stream {stream} {why}"));
    if found.sealed {
        return wrong("is sealed and takes nothing any more");
    }
    if found.retention == "interest" {
        return wrong("has retention Interest, which discards what nobody consumes");
    }
    if *kind == Kind::Parked && found.retention == "workqueue" {
        return wrong("has retention WorkQueue, where whoever consumes a parked message removes it");
    }
    if *kind == Kind::Parked && !*ours && discards(found) {
        return wrong(
            "has limits (max_age, max_msgs, max_bytes or max_msgs_per_subject), and a parked message that is discarded would unlock its key",
        );
    }
    let taken = SubjectPattern::parse(subject).is_ok_and(|subject| {
        let takes =
            |taken: &String| SubjectPattern::parse(taken).is_ok_and(|taken| subject.is_subset_of(&taken));
        found.subjects.iter().any(takes)
    });
    if !*ours {
        return if !taken {
            wrong(&format!("does not take subject {subject}: add it to the stream's subjects"))
        } else if found.no_ack {
            wrong("gives no acknowledgements (no_ack), so that nothing is known to be stored")
        } else {
            Judgement::Right
        };
    }
    if found.metadata.get(metadata::OWNER) != Some(&us.id) {
        return wrong(&format!("exists and was not made for this set: name another in {}", kind.field()));
    }
    let mut drift = Vec::new();
    let mut check = |field, wanted: String, has: String| {
        if wanted != has {
            drift.push(Drift { field, wanted, found: has, repairable: true });
        }
    };
    check("subjects", subject.clone(), found.subjects.join(", "));
    check("num_replicas", replicas.to_string(), found.replicas.to_string());
    check("no_ack", "false".into(), found.no_ack.to_string());
    if *kind == Kind::Parked {
        check("limits", "none".into(), if discards(found) { "some" } else { "none" }.to_owned());
    }
    for (key, value) in metadata_of(wanted, us) {
        let has = found.metadata.get(&key).cloned().unwrap_or_default();
        check("metadata", format!("{key}={value}"), format!("{key}={has}"));
    }
    if drift.is_empty() { Judgement::Right } else { Judgement::Drifted(drift) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_parked_messages_takes_all_of_the_sets_subjects_and_is_no_work_queue() {
        let us = StreamOwner { id: "c/shop/orders".into(), uid: "u".into() };
        let parked = Aside::new(Kind::Parked, &SetName::new("shop", "orders"), Some("PARK"));
        assert_eq!(parked.subject, "lanekeeper.park.shop.orders.>");
        let named = StreamFound { metadata: BTreeMap::new(), ..found(&parked, &us) };
        assert_eq!(judge(&parked, 1, &us, &named), Judgement::Right);
        let queue = StreamFound { retention: "workqueue".into(), ..named.clone() };
        assert!(matches!(judge(&parked, 1, &us, &queue), Judgement::Wrong(why) if why.contains("WorkQueue")));
        let narrow = StreamFound { subjects: vec!["lanekeeper.park.shop.orders.*".into()], ..named.clone() };
        assert!(matches!(judge(&parked, 1, &us, &narrow), Judgement::Wrong(_)));
        let limited = StreamFound { max_age_seconds: 60, ..named };
        assert!(matches!(judge(&parked, 1, &us, &limited), Judgement::Wrong(why) if why.contains("unlock")));
        let ours = Aside { ours: true, ..parked };
        let drifted = StreamFound { max_messages: 9, ..found(&ours, &us) };
        assert!(matches!(judge(&ours, 1, &us, &drifted), Judgement::Drifted(drift) if drift.len() == 1));
    }

    #[test]
    fn headers_that_servers_act_upon_or_that_would_pass_for_ours_are_not_kept() {
        for header in [
            "Nats-Msg-Id",
            "nats-expected-stream",
            "NATS-TTL",
            "Nats-Rollup",
            "lanekeeper-reason",
            "Lanekeeper-X",
        ] {
            assert!(!keeps(header), "{header}");
        }
        for header in ["traceparent", "Nats", "ce-id", "", "é", REPLAY_OF] {
            assert!(keeps(header), "{header}");
        }
    }

    fn found(letters: &Aside, us: &StreamOwner) -> StreamFound {
        StreamFound {
            name: letters.stream.clone(),
            created: String::new(),
            subjects: vec![letters.subject.clone()],
            transform: None,
            replicas: 1,
            storage: "file".into(),
            retention: "limits".into(),
            max_age_seconds: 0,
            max_bytes: -1,
            max_messages: -1,
            duplicate_window_seconds: 120,
            max_messages_per_subject: -1,
            no_ack: false,
            sealed: false,
            consumer_limits: String::new(),
            sourced: false,
            metadata: metadata_of(letters, us),
            first_sequence: 0,
            last_sequence: 0,
            messages: 0,
        }
    }

    #[test]
    fn a_stream_of_ours_is_repaired_and_one_of_another_set_refused() {
        let us = StreamOwner { id: "c/shop/orders".into(), uid: "u".into() };
        let letters = Aside::new(Kind::DeadLetters, &SetName::new("shop", "orders"), None);
        let right = found(&letters, &us);
        assert_eq!(judge(&letters, 1, &us, &right), Judgement::Right);
        let drifted = StreamFound { subjects: vec!["x".into()], max_messages: 5, ..right.clone() };
        let Judgement::Drifted(drift) = judge(&letters, 3, &us, &drifted) else { panic!("it drifted") };
        let fields: Vec<&str> = drift.iter().map(|one| one.field).collect();
        assert_eq!(fields, ["subjects", "num_replicas"], "a limit is a person's");
        let other = StreamOwner { id: "c/shop/other".into(), ..us.clone() };
        assert!(matches!(judge(&letters, 1, &other, &right), Judgement::Wrong(_)));
        let sealed = StreamFound { sealed: true, ..right };
        assert!(matches!(judge(&letters, 1, &us, &sealed), Judgement::Wrong(_)));
    }

    #[test]
    fn a_named_stream_has_to_take_the_subject_keep_it_and_say_so() {
        let us = StreamOwner { id: "c/shop/orders".into(), uid: "u".into() };
        let letters = Aside::new(Kind::DeadLetters, &SetName::new("shop", "orders"), Some("DEAD"));
        let named = StreamFound { metadata: BTreeMap::new(), replicas: 3, ..found(&letters, &us) };
        let wide = StreamFound { subjects: vec!["a".into(), "lanekeeper.dlq.>".into()], ..named.clone() };
        assert_eq!(judge(&letters, 1, &us, &wide), Judgement::Right);
        let words = |found: StreamFound| match judge(&letters, 1, &us, &found) {
            Judgement::Wrong(words) => words,
            other => panic!("{other:?}"),
        };
        let narrow = StreamFound { subjects: vec!["lanekeeper.dlq.*".into()], ..named.clone() };
        assert!(words(narrow).contains("does not take subject lanekeeper.dlq.shop.orders"));
        assert!(words(StreamFound { no_ack: true, ..named.clone() }).contains("no_ack"));
        assert!(words(StreamFound { retention: "interest".into(), ..named }).contains("Interest"));
    }

    #[test]
    fn the_id_tells_sets_streams_and_lives_of_a_stream_apart() {
        let fence = Fence { stream_incarnation: 2, sequence: 7 };
        let id = message_id(Kind::DeadLetters, &SetName::new("shop", "orders"), "ORDERS", fence);
        assert_eq!(id, "lanekeeper-dlq shop/orders ORDERS 0000000002-00000000000000000007");
        let id = message_id(Kind::Parked, &SetName::new("shop", "orders"), "ORDERS", fence);
        assert_eq!(id, "lanekeeper-park shop/orders ORDERS 0000000002-00000000000000000007");
    }
}
