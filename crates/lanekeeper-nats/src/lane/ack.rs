//! The subject to which a message is acknowledged, and what it tells of the delivery.
//!
//! Two forms: `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>`, and since
//! 2.14 the same with `<domain>.<account hash>` after `ACK` and perhaps more at the end
//! (<https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-15.md>).

use std::time::Duration;

/// What an ack subject says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckSubject<'a> {
    /// The stream.
    pub stream: &'a str,
    /// The consumer.
    pub consumer: &'a str,
    /// How often the message was delivered, this time included.
    pub deliveries: u64,
    /// Stream sequence.
    pub sequence: u64,
    /// Consumer sequence: rises with each delivery.
    pub consumer_sequence: u64,
    /// When the message was stored, since the Unix epoch.
    pub published: Duration,
    /// Messages that the consumer has not delivered yet.
    pub pending: u64,
}

/// The subject is no ack subject.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no ack subject: it must be $JS.ACK.<stream>.<consumer> and five numbers, or the same with a domain and an account hash after ACK"
)]
pub struct AckError(pub String);

impl<'a> AckSubject<'a> {
    /// Reads both forms.
    pub fn parse(subject: &'a str) -> Result<Self, AckError> {
        Self::read(subject).ok_or_else(|| AckError(subject.to_owned()))
    }

    fn read(subject: &'a str) -> Option<Self> {
        let mut rest = Some(subject.strip_prefix("$JS.ACK.")?);
        // By bytes: `str::split` takes several times as long for tokens as short as these.
        let dots = subject.bytes().filter(|byte| *byte == b'.').count();
        let mut token = || {
            let text = rest?;
            let Some(dot) = text.bytes().position(|byte| byte == b'.') else { return rest.take() };
            rest = Some(&text[dot + 1..]);
            Some(&text[..dot])
        };
        match dots {
            8 => {}
            dots if dots >= 10 => {
                token()?;
                token()?;
            }
            _ => return None,
        }
        let (stream, consumer) = (token()?, token()?);
        let mut number = || token()?.parse::<u64>().ok();
        Some(Self {
            stream,
            consumer,
            deliveries: number()?,
            sequence: number()?,
            consumer_sequence: number()?,
            published: Duration::from_nanos(number()?),
            pending: number()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> AckSubject<'static> {
        AckSubject {
            stream: "ORDERS",
            consumer: "lk_shop_orders_1_2",
            deliveries: 3,
            sequence: 41,
            consumer_sequence: 57,
            published: Duration::from_nanos(1_700_000_000_123_456_789),
            pending: 9,
        }
    }

    #[test]
    fn both_forms_say_the_same() {
        let numbers = "ORDERS.lk_shop_orders_1_2.3.41.57.1700000000123456789.9";
        for prefix in ["$JS.ACK.", "$JS.ACK._.hash.", "$JS.ACK.hub.hash."] {
            assert_eq!(AckSubject::parse(&format!("{prefix}{numbers}")), Ok(expected()), "{prefix}");
        }
        let longer = format!("$JS.ACK._.hash.{numbers}.random");
        assert_eq!(AckSubject::parse(&longer), Ok(expected()));
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        for subject in [
            "",
            "$JS.ACK.ORDERS.c.1.2.3.4",
            "$JS.ACK.h.ORDERS.c.1.2.3.4.5",
            "$JS.ACK.ORDERS.c.x.2.3.4.5",
            "$JS.NAK.ORDERS.c.1.2.3.4.5",
            "_INBOX.x.1.2.3.4.5.6.7",
        ] {
            assert_eq!(AckSubject::parse(subject), Err(AckError(subject.into())), "{subject}");
        }
    }
}
