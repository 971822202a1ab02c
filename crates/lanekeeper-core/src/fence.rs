//! The fence: what a side effect compares to tell a newer message of a key from an older one.
//!
//! The format is frozen: users' databases keep these strings. This module must not know servers.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Which message, over all lives of a stream. Strictly increasing for the messages of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fence {
    /// Rises by one each time the stream is replaced by a new one of the same name; starts at 1.
    pub stream_incarnation: u32,
    /// The stream sequence of the message.
    pub sequence: u64,
}

impl fmt::Display for Fence {
    /// Fixed width (31 bytes), so that comparing the text compares the fence.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:010}-{:020}", self.stream_incarnation, self.sequence)
    }
}

/// The text was no fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceError(String);

impl fmt::Display for FenceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "'{}' is no fence: it must be 10 digits, a dash and 20 digits", self.0)
    }
}

impl std::error::Error for FenceError {}

impl FromStr for Fence {
    type Err = FenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || FenceError(text.to_owned());
        let (incarnation, sequence) = text.split_once('-').ok_or_else(wrong)?;
        let digits = |part: &str, width| part.len() == width && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(incarnation, 10) || !digits(sequence, 20) {
            return Err(wrong());
        }
        Ok(Self {
            stream_incarnation: incarnation.parse().map_err(|_| wrong())?,
            sequence: sequence.parse().map_err(|_| wrong())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_format_is_frozen() {
        let fence = Fence { stream_incarnation: 1, sequence: 42 };
        assert_eq!(fence.to_string(), "0000000001-00000000000000000042");
    }

    #[test]
    fn what_is_no_fence_is_refused_by_name() {
        for text in ["", "1-2", "0000000001-0000000000000000004x", "+000000001-00000000000000000042"] {
            assert!(text.parse::<Fence>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_sorts_as_the_fence_does(a: (u32, u64), b: (u32, u64)) {
            let a = Fence { stream_incarnation: a.0, sequence: a.1 };
            let b = Fence { stream_incarnation: b.0, sequence: b.1 };
            prop_assert_eq!(a.to_string().cmp(&b.to_string()), a.cmp(&b));
            prop_assert_eq!(a.to_string().parse::<Fence>(), Ok(a));
        }
    }
}
