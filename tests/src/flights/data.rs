//! The messages: departures of the real data set, or numbered ones for tests that want few keys with many messages.

use std::{fmt, process::Command, str::FromStr};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::{binary, cluster::repository};

/// One message: its key, its number within the key, and its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The aircraft.
    pub key: String,
    /// From 1, rising within the key.
    pub number: u64,
    /// A JSON object, as `data.py` writes it.
    pub body: String,
}

/// How many departures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// The first so many.
    First(u32),
    /// Every one of the data set.
    All,
}

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "all" => Ok(Self::All),
            Ok(count) if count > 0 => Ok(Self::First(count)),
            _ => Err(format!("FLIGHTS={text}: a number from 1 up, or all, is expected")),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First(count) => write!(formatter, "{count}"),
            Self::All => formatter.write_str("all"),
        }
    }
}

/// The departures in the order in which the aircraft left.
pub fn departures(amount: Amount) -> Result<Vec<Message>> {
    let script = repository().join("examples/flights/data.py");
    let output = Command::new("python3")
        .arg(&script)
        .arg(binary::tool("flights-data"))
        .args(["--first", &amount.to_string()])
        .output()
        .context("starting python3")?;
    if !output.status.success() {
        bail!("{} failed: {}", script.display(), String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout).context("data.py writes UTF-8")?;
    text.lines().map(read).collect()
}

/// Round-robin over `keys` keys, numbers 1 to `each`: in every moment all keys have messages on the way.
pub fn numbered(keys: u64, each: u64) -> Vec<Message> {
    numbered_from(keys, 1, each)
}

/// The same from a number on, for the second part of a story.
pub fn numbered_from(keys: u64, first: u64, last: u64) -> Vec<Message> {
    let one = |number: u64, key: u64| {
        let key = format!("N{key:03}");
        let body = format!(r#"{{"key":"{key}","number":{number},"dest":"A{number}"}}"#);
        Message { key, number, body }
    };
    (first..=last).flat_map(|number| (0..keys).map(move |key| one(number, key))).collect()
}

fn read(line: &str) -> Result<Message> {
    #[derive(Deserialize)]
    struct Head {
        key: String,
        number: u64,
    }
    let head: Head = serde_json::from_str(line).with_context(|| format!("data.py wrote {line:?}"))?;
    Ok(Message { key: head.key, number: head.number, body: line.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_a_number_or_all() {
        assert_eq!("20000".parse(), Ok(Amount::First(20_000)));
        assert_eq!("all".parse(), Ok(Amount::All));
        for wrong in ["0", "-1", "many", ""] {
            assert!(wrong.parse::<Amount>().unwrap_err().contains("from 1 up, or all"), "{wrong}");
        }
    }

    #[test]
    fn numbered_messages_go_round_the_keys() {
        let order: Vec<_> = numbered(2, 2).into_iter().map(|one| (one.key, one.number)).collect();
        let expected = [("N000", 1), ("N001", 1), ("N000", 2), ("N001", 2)];
        assert_eq!(order, expected.map(|(key, number)| (key.to_owned(), number)));
        let body = numbered_from(1, 5, 5).remove(0).body;
        assert_eq!(read(&body).unwrap().number, 5);
    }
}
