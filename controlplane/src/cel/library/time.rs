//! Durations and times as texts, in the forms that Go reads.

use jiff::civil::{Date, DateTime};
use std::fmt;

/// Seconds of the first and the last moment there is: of the years 1 and 9999.
const FIRST_SECOND: i64 = -62_135_596_800;
const LAST_SECOND: i64 = 253_402_300_799;
const NANOS: i128 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;

/// A moment of the years 1 to 9999, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    /// Since 1970.
    seconds: i64,
    nanos: u32,
}

impl Moment {
    /// `None` where there is none.
    pub(crate) fn from_seconds(seconds: i64) -> Option<Self> {
        (FIRST_SECOND..=LAST_SECOND)
            .contains(&seconds)
            .then_some(Self { seconds, nanos: 0 })
    }

    pub(crate) fn seconds(self) -> i64 {
        self.seconds
    }

    fn total(self) -> i128 {
        i128::from(self.seconds) * NANOS + i128::from(self.nanos)
    }

    /// The moment so many nanoseconds later; `None` where there is none.
    pub(crate) fn later(self, nanoseconds: i128) -> Option<Self> {
        let total = self.total().checked_add(nanoseconds)?;
        let own = Self::from_seconds(i64::try_from(total.div_euclid(NANOS)).ok()?)?;
        Some(Self {
            nanos: u32::try_from(total.rem_euclid(NANOS)).ok()?,
            ..own
        })
    }

    /// Nanoseconds since another one; `None` where they have no room.
    pub(crate) fn since(self, other: Self) -> Option<i64> {
        i64::try_from(self.total() - other.total()).ok()
    }

    /// What clocks and calendars show at an offset of so many seconds.
    pub(crate) fn at_offset(self, offset: i64) -> DateTime {
        // A day more at both ends is within what dates can be.
        let local = self.seconds + offset;
        let (days, second) = (local.div_euclid(DAY_SECONDS), local.rem_euclid(DAY_SECONDS));
        let date = Date::constant(1970, 1, 1).saturating_add(jiff::Span::new().days(days));
        let part = |number: i64| i8::try_from(number).unwrap_or_default();
        let nanos = i32::try_from(self.nanos).unwrap_or_default();
        date.at(part(second / 3600), part(second / 60 % 60), part(second % 60), nanos)
    }
}

/// As Go's `RFC3339Nano`.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at_offset(0);
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            at.year(),
            at.month(),
            at.day(),
            at.hour(),
            at.minute(),
            at.second()
        )?;
        if self.nanos > 0 {
            write!(f, ".{}", format!("{:09}", self.nanos).trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

/// Nanoseconds of a duration such as `1h30m`, as Go reads it.
pub(crate) fn duration(text: &str) -> Option<i64> {
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0i128;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, after) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || whole.len() > 19 {
            return None;
        }
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total += whole * unit;
        let fraction = &fraction[..fraction.len().min(18)];
        if !fraction.is_empty() {
            total += fraction.parse::<i128>().ok()? * unit / 10i128.pow(u32::try_from(fraction.len()).ok()?);
        }
        rest = after;
    }
    i64::try_from(if is_negative { -total } else { total }).ok()
}

/// A number of exactly so many digits, and what comes after.
fn digits(text: &str, count: usize) -> Option<(i64, &str)> {
    let (number, rest) = text.split_at_checked(count)?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    Some((number.parse().ok().filter(|_| is_number)?, rest))
}

/// Seconds of an offset such as `+02:00`.
pub(crate) fn offset(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, text.get(1..)?),
        b'-' => (-1, text.get(1..)?),
        _ => (1, text),
    };
    let (hours, rest) = digits(rest, 2)?;
    let (minutes, rest) = digits(rest.strip_prefix(':')?, 2)?;
    let is_offset = rest.is_empty() && hours <= 24 && minutes < 60;
    is_offset.then_some(sign * (hours * 3600 + minutes * 60))
}

/// Seconds of the beginning of a day such as `2026-01-02`, and what comes after.
fn day(text: &str) -> Option<(i64, &str)> {
    let (year, rest) = digits(text, 4)?;
    let (month, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let date = Date::new(year.try_into().ok()?, month.try_into().ok()?, day.try_into().ok()?).ok()?;
    let days = date.since(Date::constant(1970, 1, 1)).ok()?.get_days();
    Some((i64::from(days) * DAY_SECONDS, rest))
}

/// Whether a text is a day.
pub(crate) fn is_date(text: &str) -> bool {
    day(text).is_some_and(|(_, rest)| rest.is_empty())
}

/// Whether a schema's `date-time` takes it: letters may be small, and the fraction may follow any sign.
pub(crate) fn is_date_time(text: &str) -> bool {
    if text.len() > 256 {
        return false;
    }
    let text = text.to_ascii_lowercase();
    let Some((date, time)) = text.split_once('t') else {
        return false;
    };
    let clock = |time: &str| -> Option<bool> {
        let (hour, rest) = digits(time, 2)?;
        let (minute, rest) = digits(rest.strip_prefix(':')?, 2)?;
        let (second, rest) = digits(rest.strip_prefix(':')?, 2)?;
        let zone = match rest.find(['z', '+', '-']) {
            Some(0) => rest,
            _ => {
                let mark = rest.chars().next()?.len_utf8();
                let fraction = rest.get(mark..)?;
                let zone = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
                Some(zone).filter(|zone| zone.len() < fraction.len())?
            }
        };
        let is_zone = zone == "z"
            || (zone.starts_with(['+', '-']) && zone.len() == 6 && {
                let (_, rest) = digits(zone.get(1..)?, 2)?;
                digits(rest.strip_prefix(':')?, 2).is_some()
            });
        Some(hour <= 23 && minute <= 59 && second <= 59 && is_zone)
    };
    is_date(date) && clock(time) == Some(true)
}

/// A moment such as `2026-01-02T03:04:05.6Z` (RFC 3339, with large letters).
pub(crate) fn moment(text: &str) -> Option<Moment> {
    let (day, rest) = day(text)?;
    let (hour, rest) = digits(rest.strip_prefix('T')?, 2)?;
    let (minute, rest) = digits(rest.strip_prefix(':')?, 2)?;
    let (second, rest) = digits(rest.strip_prefix(':')?, 2)?;
    let (nanos, zone) = match rest.strip_prefix(['.', ',']) {
        None => (0, rest),
        Some(fraction) => {
            let zone = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            let fraction = fraction
                .get(..fraction.len() - zone.len())
                .filter(|own| !own.is_empty())?;
            let nine: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
            (nine.parse::<i128>().ok()?, zone)
        }
    };
    let offset = match zone {
        "Z" => 0,
        zone => offset(zone).filter(|_| zone.starts_with(['+', '-']))?,
    };
    let is_clock = hour <= 23 && minute <= 59 && second <= 59;
    let seconds = day + hour * 3600 + minute * 60 + second - offset;
    Moment::from_seconds(seconds).filter(|_| is_clock)?.later(nanos)
}

/// What a schema's field of a day or of a moment holds.
pub(crate) fn declared(text: &str) -> Option<Moment> {
    match day(text) {
        Some((seconds, "")) => Moment::from_seconds(seconds),
        _ => moment(text),
    }
}

/// Units by what they begin with or are; the last of each may go on as it likes (`hours`), in letters of any size.
const UNITS: [(&[&str], i64); 8] = [
    (&["ns", "nano"], 1),
    (&["us", "\u{b5}s", "micro"], 1_000),
    (&["ms", "milli"], 1_000_000),
    (&["s", "sec"], 1_000_000_000),
    (&["m", "min"], 60_000_000_000),
    (&["h", "hr", "hour"], 3_600_000_000_000),
    (&["d", "day"], 86_400_000_000_000),
    (&["w", "wk", "week"], 604_800_000_000_000),
];

/// Nanoseconds of what a schema's `duration` takes: as [`duration`], or numbers with units in words, whatever stands between them.
pub(crate) fn lenient_duration(text: &str) -> Option<i64> {
    if let Some(nanoseconds) = duration(text) {
        return Some(nanoseconds);
    }
    let (mut rest, mut total) = (text, None::<i64>);
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let after = rest[at..].trim_start_matches(|c: char| c.is_ascii_digit());
        let number = &rest[at..rest.len() - after.len()];
        let word = after.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
        let end = word
            .find(|c: char| !(c.is_ascii_alphabetic() || c == '\u{b5}'))
            .unwrap_or(word.len());
        let (unit, left) = word.split_at(end);
        rest = left;
        if unit.is_empty() {
            continue;
        }
        let number: i64 = number.parse().ok()?;
        let unit = unit.to_lowercase();
        for (names, nanoseconds) in UNITS {
            for (i, name) in names.iter().enumerate() {
                if unit == *name || (i + 1 == names.len() && unit.starts_with(name)) {
                    total = Some(total.unwrap_or(0).wrapping_add(number.wrapping_mul(nanoseconds)));
                }
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_rfc_3339_in_the_years_of_four_digits() {
        for (text, shown) in [
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
            ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("2026-01-02T03:04:05.250+02:00", "2026-01-02T01:04:05.25Z"),
            ("2024-02-29T00:00:00-00:30", "2024-02-29T00:30:00Z"),
        ] {
            assert_eq!(moment(text).unwrap().to_string(), shown);
            assert!(is_date_time(text), "{text}");
        }
        for text in [
            "0000-12-31T23:59:59Z",
            "0001-01-01T00:00:00+00:01",
            "2026-01-02T00Z",
            "2026-01-02T00:00:00+00",
            "2026-01-02T00:00:00+00:00[UTC]",
            "2026-01-02t00:00:00z",
            "2026-01-02T23:59:60Z",
            "2026-02-30T00:00:00Z",
            "2026-01-02",
            "2026-01-02T00:00:00.Z",
            "\u{e9}",
        ] {
            assert_eq!(moment(text), None, "{text}");
        }
        assert!(is_date_time("2026-01-02t00:00:00z") && is_date("9999-12-31"));
        for text in [
            "2026-01-02T24:00:00Z",
            "2026-01-02T00:00Z",
            "2026-13-02T00:00:00Z",
            "t",
            "2026-01-02T00:00:00.Z",
        ] {
            assert!(!is_date_time(text), "{text}");
        }
        assert_eq!(Moment::from_seconds(-62_135_596_801), None);
        assert_eq!(
            Moment::from_seconds(253_402_300_799).unwrap().later(1_000_000_000),
            None
        );
        assert_eq!(declared("1970-01-02").unwrap().seconds(), 86_400);
    }

    #[test]
    fn durations_in_words_are_durations_of_schemas() {
        let hour = 3_600_000_000_000;
        for (text, nanoseconds) in [
            ("1 hour", Some(hour)),
            ("2 weeks", Some(336 * hour)),
            ("1d", Some(24 * hour)),
            ("3 days 2h", Some(74 * hour)),
            ("1h30m", Some(hour + hour / 2)),
            ("banana", None),
            ("3", None),
            ("3 parsecs", None),
            ("", None),
        ] {
            assert_eq!(lenient_duration(text), nanoseconds, "{text}");
        }
    }
}
