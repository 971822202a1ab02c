//! How long ago, in one short word.

use k8s_openapi::jiff::Timestamp;

/// The time since then, in its largest unit that is at least two: `90s` rather than `1m`.
pub(crate) fn since(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second()).max(0);
    let units = [(86_400, "d"), (3600, "h"), (60, "m")];
    let fitting = units.iter().find(|(size, _)| seconds >= 2 * size);
    fitting.map_or_else(|| format!("{seconds}s"), |(size, unit)| format!("{}{unit}", seconds / size))
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
}
