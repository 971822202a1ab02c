//! Points in time as text.

use std::time::{Duration, SystemTime};

/// RFC 3339 in UTC with nanoseconds. Times before 1970 are given as 1970.
///
/// The date is computed by Howard Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html>), for days since 1970 only.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (seconds, nanoseconds) = (since.as_secs(), since.subsec_nanos());
    let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z")
}

/// The time since 1970 of what [`rfc3339`] wrote.
pub(crate) fn parse_rfc3339(text: &str) -> Option<Duration> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, separator: char| -> Option<Vec<u64>> {
        text.split(separator).map(|number| number.parse().ok()).collect()
    };
    let (time, fraction) = time.split_once('.')?;
    let (date, time) = (numbers(date, '-')?, numbers(time, ':')?);
    let (&[year, month, day], &[hour, minute, second]) = (date.as_slice(), time.as_slice()) else {
        return None;
    };
    let in_range = (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !in_range || hour > 23 || minute > 59 || second > 60 || fraction.len() != 9 {
        return None;
    }
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let seconds = days.checked_sub(719_468)? * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Duration::new(seconds, fraction.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        for since in
            [Duration::ZERO, Duration::new(951_782_399, 5), Duration::new(4_107_542_400, 999_999_999)]
        {
            assert_eq!(parse_rfc3339(&rfc3339(SystemTime::UNIX_EPOCH + since)), Some(since));
        }
        for wrong in [
            "",
            "2026-01-01",
            "2026-01-01T00:00:00Z",
            "2026-13-01T00:00:00.000000000Z",
            "x-1-1T0:0:0.000000000Z",
        ] {
            assert_eq!(parse_rfc3339(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn known_moments_are_written_as_they_are() {
        let at = |seconds, nanoseconds| rfc3339(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds));
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(at(951_782_399, 5), "2000-02-28T23:59:59.000000005Z");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00.000000000Z");
        assert_eq!(at(1_709_251_199, 999_999_999), "2024-02-29T23:59:59.999999999Z");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000000000Z");
    }
}
