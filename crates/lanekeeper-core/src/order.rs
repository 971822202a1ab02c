//! Orders: what a person wants done with messages of a lane. Shapes only.
//!
//! The plugin writes an order into the key of the lane that serves the message's key; the lane's owner carries it out and
//! takes it out again, leaving the result there. An order names its messages by sequence, so that carrying it out twice does
//! nothing to any other message. What a newer version may have ordered is left alone: verbs that are not known are kept as
//! they are and never carried out. How an order is carried out is [`crate::lane`]; that a lane's successor takes over what
//! was not carried out is [`crate::plan`].

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{hash::fnv1a32, record::LaneKey};

/// Orders that a lane's key holds at most; as many results.
pub const MAX_ORDERS: usize = 16;
/// Longest reason of an order, in characters.
pub const MAX_REASON: usize = 256;
/// Longest name of who gave an order, in characters.
pub const MAX_BY: usize = 128;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// Try the message at which the lane stands at once, once, whether attempts are left or not.
    Retry,
    /// Acknowledge without the handler.
    Skip,
    /// Hand what is parked of the key to the handler, in order.
    Release,
    /// Delete what is parked of the key, or one message of it.
    Drop,
    /// Of a newer version.
    #[serde(untagged)]
    Other(String),
}

/// One order. It is about one message (`sequence`), or about all messages of its key up to one (`through`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// Unique for ever.
    pub id: String,
    /// What is to be done.
    pub verb: Verb,
    /// The tokens of the key, joined by dots: decides which successor of the lane takes the order over.
    #[serde(default)]
    pub key: String,
    /// The stream sequence of the one message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// The last stream sequence of the key that is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<u64>,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// Who gave it, as their plugin says.
    #[serde(default)]
    pub by: String,
    /// When, by the clock of their machine (RFC 3339).
    #[serde(default)]
    pub at: String,
    /// Its one attempt has begun: whoever has the message next makes no other because of this order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
}

impl Order {
    /// Whether it is about a message.
    pub fn covers(&self, sequence: u64, key: &str) -> bool {
        match (self.sequence, self.through) {
            (Some(one), _) => one == sequence,
            (None, Some(last)) => sequence <= last && self.key == key,
            (None, None) => false,
        }
    }

    /// The last message that it can be about: a lane that is past it is past the order.
    pub fn last(&self) -> u64 {
        self.sequence.or(self.through).unwrap_or_default()
    }

    /// The hash of its key, which says whose it is after a change of the number of partitions.
    pub fn hash(&self) -> u32 {
        fnv1a32(self.key.split('.').map(str::as_bytes))
    }
}

/// How an order ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OrderOutcome {
    /// Messages were skipped.
    Skipped,
    /// The handler completed the message.
    Succeeded,
    /// What was parked of the key was handled, and nothing is parked any more.
    Released,
    /// Parked messages were deleted.
    Dropped,
    /// The attempt failed.
    Failed,
    /// Nothing was done: the lane was past what it is about.
    Void,
    /// Of a newer version.
    #[serde(untagged)]
    Other(String),
}

/// What came of an order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderResult {
    /// The order's.
    pub id: String,
    /// How it ended.
    pub outcome: OrderOutcome,
    /// How many messages something was done with.
    #[serde(default)]
    pub messages: u64,
    /// The handler's last words, or why nothing was done.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Why an order is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderError {
    /// A worker would not carry it out any more.
    Retiring,
    /// See [`MAX_ORDERS`].
    Full,
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retiring => f.write_str("the lane is being handed over"),
            Self::Full => {
                write!(f, "the lane has {MAX_ORDERS} orders that are not carried out yet, and takes no more")
            }
        }
    }
}

impl std::error::Error for OrderError {}

impl LaneKey {
    /// Adds an order; one that is there already changes nothing.
    pub fn add_order(&mut self, order: Order) -> Result<(), OrderError> {
        if self.orders.iter().any(|known| known.id == order.id) {
            return Ok(());
        }
        if self.retiring {
            return Err(OrderError::Retiring);
        }
        if self.orders.len() >= MAX_ORDERS {
            return Err(OrderError::Full);
        }
        self.orders.push(order);
        Ok(())
    }

    /// Notes that the one attempt of an order has begun. Whether anything changed.
    pub fn begin_order(&mut self, id: &str) -> bool {
        let order = self.orders.iter_mut().find(|order| order.id == id && !order.begun);
        order.map(|order| order.begun = true).is_some()
    }

    /// Replaces an order by its result. Whether anything changed: what was taken out before is not reported again.
    pub fn end_order(&mut self, result: OrderResult) -> bool {
        let before = self.orders.len();
        self.orders.retain(|order| order.id != result.id);
        if self.orders.len() == before {
            return false;
        }
        self.results.push(result);
        let superfluous = self.results.len().saturating_sub(MAX_ORDERS);
        self.results.drain(..superfluous);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(json: serde_json::Value) -> Order {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn an_order_is_about_one_message_or_about_those_of_its_key_up_to_one() {
        let one = order(serde_json::json!({"id": "a", "verb": "skip", "key": "k", "sequence": 5}));
        assert!(one.covers(5, "k") && !one.covers(4, "k") && !one.covers(6, "k"));
        let key = order(serde_json::json!({"id": "a", "verb": "skip", "key": "k", "through": 5}));
        assert!(key.covers(1, "k") && key.covers(5, "k") && !key.covers(6, "k") && !key.covers(5, "other"));
        assert_eq!((one.last(), key.last()), (5, 5));
    }

    #[test]
    fn what_a_newer_version_orders_is_kept_as_it_is_and_is_about_nothing() {
        let json = serde_json::json!({"id": "a", "verb": "praise", "key": "k", "loudly": true});
        let newer = order(json);
        assert_eq!(newer.verb, Verb::Other("praise".into()));
        assert!(!newer.covers(1, "k"));
        let back = serde_json::to_value(newer).unwrap();
        assert_eq!(back["verb"], "praise");
        let known = serde_json::to_value(order(serde_json::json!({"id": "a", "verb": "retry"}))).unwrap();
        assert_eq!(known["verb"], "retry");
    }

    #[test]
    fn a_key_takes_a_bounded_number_of_orders_and_none_once_it_retires() {
        let mut key = LaneKey::new();
        let given = |number: usize| order(serde_json::json!({"id": number.to_string(), "verb": "skip"}));
        for number in 0..MAX_ORDERS {
            key.add_order(given(number)).unwrap();
        }
        assert_eq!(key.add_order(given(3)), Ok(()), "it is there already");
        assert_eq!(key.add_order(given(99)), Err(OrderError::Full));
        let result = |id: &str| OrderResult {
            id: id.into(),
            outcome: OrderOutcome::Void,
            messages: 0,
            reason: String::new(),
        };
        assert!(key.begin_order("3") && !key.begin_order("3") && !key.begin_order("99"));
        assert!(key.end_order(result("3")) && !key.end_order(result("3")), "once");
        assert_eq!((key.orders.len(), key.results.len()), (MAX_ORDERS - 1, 1));
        key.retiring = true;
        assert_eq!(key.add_order(given(99)), Err(OrderError::Retiring));
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<LaneKey>(&text).unwrap(), key);
    }

    #[test]
    fn the_hash_of_an_order_is_that_of_its_key() {
        let given = order(serde_json::json!({"id": "a", "verb": "skip", "key": "ab.c"}));
        assert_eq!(given.hash(), fnv1a32(["ab".as_bytes(), "c".as_bytes()]));
    }
}
