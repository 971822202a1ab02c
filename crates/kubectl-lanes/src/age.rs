//! How long, in one short word.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

/// The time since then, in its largest unit that is at least two: `90s` rather than `1m`.
pub(crate) fn since(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second()).max(0);
    let units = [(86_400, "d"), (3600, "h"), (60, "m")];
    let fitting = units.iter().find(|(size, _)| seconds >= 2 * size);
    fitting.map_or_else(|| format!("{seconds}s"), |(size, unit)| format!("{}{unit}", seconds / size))
}

/// A time as a person writes it: `90s`, `5m`, `1h`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let units = [("h", 3600), ("m", 60), ("s", 1)];
    let read = units.iter().find_map(|(unit, size)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*size).map(Duration::from_secs)
    });
    read.ok_or_else(|| "it must be a whole number with s, m or h, for example 90s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_grows_with_the_time() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (seconds, words) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7199, "119m"),
            (7200, "2h"),
            (172_800, "2d"),
            (8_640_000, "100d"),
        ] {
            assert_eq!(since(at(1000), at(1000 + seconds)), words);
        }
        assert_eq!(since(at(1000), at(0)), "0s", "a clock that is behind shows no nonsense");
    }

    #[test]
    fn times_are_read_with_their_unit() {
        for (text, seconds) in [("90s", 90), ("5m", 300), ("1h", 3600), ("0s", 0)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in ["", "5", "m", "-1s", "1.5h", "1d", "99999999999999999999h"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
