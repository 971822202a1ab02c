//! Release by evidence: handing on at once what a worker had that is proven to be gone.
//!
//! A worker that is pinned, or has the lane's lease, notes that in the lane's key, and takes the note back when it
//! leaves. A note of a worker that is no holder any more, or of an earlier process of the reader's own pod, is the
//! evidence: holders are taken out by themselves or on the kubelet's word that their container has ended, and a container
//! starts only after its last process has ended. Never on suspicion: nothing here follows from silence.
//!
//! Neither the request that takes a pin away nor the one that gives a message back is conditional at the server, and
//! both may arrive late. So they are sent in an order in which a late one does no harm:
//!
//! 1. Look: the consumer is pinned with the very pin that was noted. Then no other worker was given a message since, and
//!    what is out, if anything is, was the dead one's.
//! 2. Take the pin away, and wait for the answer. If this comes late, when the pin has lapsed and another worker has it,
//!    that one keeps its message; the server has one out at once.
//! 3. Look again: if there was no delivery since the first look, what is out is still the dead one's. Give it back. If
//!    this comes late, when another worker has the message again, that worker has a pin of its own (a pin is given
//!    together with a message), and nobody but itself can be given the message.
//!
//! Two releases that are both late, one with its second and one with its third step, can break both locks within one
//! handling; a random test found that, and it is one of the pairs that `docs/guarantees.md` names.
//!
//! With a lease in the place of the pin it is the same order: see that the lease names the dead one, look, give the lease
//! back in its name by compare-and-set, look again. Until it is given back nobody else had the lease, so what was out at the
//! first look was the dead one's.
//!
//! Only one worker does this for a note: the one that took it out of the key by compare-and-set.

use crate::record::{Holder, LaneKey, Owned};

/// What the server says of a consumer, as far as this needs it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// The pin in force; empty when there is none.
    pub pin: String,
    /// Messages out now.
    pub ack_pending: u64,
    /// How many deliveries there were.
    pub consumer_sequence: u64,
    /// The stream sequence of the latest message that was delivered.
    pub stream_sequence: u64,
}

/// Whether the pin in force is the one of a worker that is gone.
pub fn may_unpin(pin: &str, seen: &Seen) -> bool {
    !pin.is_empty() && seen.pin == pin
}

/// Whether what is out is still what the dead worker had; looked at before and after its pin was taken away.
pub fn may_give_back(before: &Seen, after: &Seen) -> bool {
    after.ack_pending == 1 && after.consumer_sequence == before.consumer_sequence && after.pin.is_empty()
}

/// The same for a pipelined lane, of which several messages may be out. A late one does no harm there either: it brings a
/// message to whoever is pinned, and a pipelined lane knows what it has.
pub fn may_give_all_back(before: &Seen, after: &Seen) -> bool {
    after.ack_pending > 0 && after.consumer_sequence == before.consumer_sequence && after.pin.is_empty()
}

/// The worker that had the lane's messages and is gone, if the key proves that.
pub fn evidence<'a>(key: &'a LaneKey, us: &Holder) -> Option<&'a Owned> {
    let owner = key.owner.as_ref()?;
    let earlier_process = owner.holder.pod == us.pod && owner.holder.instance != us.instance;
    let gone = !key.holders.contains(&owner.holder);
    (owner.holder != *us && (earlier_process || gone)).then_some(owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Owned;

    fn holder(pod: &str, instance: &str) -> Holder {
        Holder { pod: pod.into(), instance: instance.into() }
    }

    #[test]
    fn only_a_worker_that_is_proven_gone_is_evidence() {
        let us = holder("a", "2");
        let key = |owner: Option<Holder>, holders: &[Holder]| LaneKey {
            owner: owner.map(|holder| Owned { holder, pin: "pin".into() }),
            holders: holders.to_vec(),
            ..LaneKey::new()
        };
        let (before, other) = (holder("a", "1"), holder("b", "1"));
        for (owner, holders, expected) in [
            (None, vec![], None),
            (Some(us.clone()), vec![us.clone()], None),
            // Ourselves, on the way out.
            (Some(us.clone()), vec![], None),
            (Some(other.clone()), vec![other.clone(), us.clone()], None),
            (Some(other.clone()), vec![us.clone()], Some("pin")),
            (Some(before.clone()), vec![before.clone(), us.clone()], Some("pin")),
            (Some(before), vec![], Some("pin")),
        ] {
            let key = key(owner.clone(), &holders);
            let found = evidence(&key, &us).map(|owned| owned.pin.as_str());
            assert_eq!(found, expected, "{owner:?} {holders:?}");
        }
    }

    #[test]
    fn nothing_is_taken_from_a_pin_or_delivery_of_another() {
        let before = Seen { pin: "pin".into(), ack_pending: 1, consumer_sequence: 7, stream_sequence: 5 };
        assert!(may_unpin("pin", &before));
        assert!(!may_unpin("other", &before));
        assert!(!may_unpin("", &Seen::default()));
        let after = Seen { pin: String::new(), ..before.clone() };
        assert!(may_give_back(&before, &after));
        for other in [
            Seen { pin: "new".into(), ..after.clone() },
            Seen { ack_pending: 0, ..after.clone() },
            Seen { ack_pending: 2, ..after.clone() },
            Seen { consumer_sequence: 8, ..after.clone() },
        ] {
            assert!(!may_give_back(&before, &other), "{other:?}");
            assert_eq!(may_give_all_back(&before, &other), other.ack_pending == 2, "{other:?}");
        }
    }
}
