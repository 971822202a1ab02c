//! How long, in one short word.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How long something asked of a cluster may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The time since then, in its largest unit that is at least two: `90s` rather than `1m`.
pub(crate) fn since(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second()).max(0);
    let units = [(86_400, "d"), (3600, "h"), (60, "m")];
    let fitting = units.iter().find(|(size, _)| seconds >= 2 * size);
    fitting.map_or_else(|| format!("{seconds}s"), |(size, unit)| format!("{}{unit}", seconds / size))
}

/// A time as a person writes it: `100ms`, `90s`, `5m`, `1h`, `7d`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("ms", 1), ("s", 1000)];
    let read = units.iter().find_map(|(unit, size)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*size).map(Duration::from_millis)
    });
    read.ok_or_else(|| "it must be a whole number with ms, s, m, h or d, for example 90s".to_owned())
}

/// A point in time (RFC 3339), or how long ago it was; as servers read it.
pub(crate) fn point(text: &str) -> Result<String, String> {
    let ago = |ago: Duration| Timestamp::now().checked_sub(SignedDuration::try_from(ago).ok()?).ok();
    let time = text.parse().ok().or_else(|| ago(parse(text).ok()?));
    let allowed = "it must be a point in time (2026-11-30T06:00:00Z) or how long ago it was (2h)";
    time.map(|time: Timestamp| time.to_string()).ok_or_else(|| allowed.to_owned())
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
        for (text, seconds) in [("90s", 90), ("5m", 300), ("1h", 3600), ("0s", 0), ("7d", 604_800)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse("100ms"), Ok(Duration::from_millis(100)));
        for bad in ["", "5", "m", "-1s", "1.5h", "1w", "99999999999999999999h"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_point_in_time_is_one_or_so_long_ago() {
        assert_eq!(point("2026-11-30T06:00:00Z").unwrap(), "2026-11-30T06:00:00Z");
        assert_eq!(point("2026-11-30T07:00:00+01:00").unwrap(), "2026-11-30T06:00:00Z");
        let ago: Timestamp = point("2h").unwrap().parse().unwrap();
        assert!((7199..=7260).contains(&Timestamp::now().duration_since(ago).as_secs()), "{ago}");
        for bad in ["yesterday", "99999999999999d"] {
            assert!(point(bad).unwrap_err().contains("how long ago"), "{bad}");
        }
    }
}
