//! Go's duration text (`1m30s`, `-5s`), which is how the configuration and flags write times: read, and written back as Go does. Pure.

use std::time::Duration;

/// Units, the longest first, with their nanoseconds.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

/// Nanoseconds that a text means; negative ones too, for validation to refuse them by name.
///
/// # Errors
/// The text is no duration of Go's, or longer than 292 years.
pub(crate) fn parse(text: &str) -> Result<i64, String> {
    let bad = || format!("time: invalid duration {text:?}");
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    let mut nanos: f64 = 0.0;
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let number: f64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let end = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        let unit = UNITS.iter().find(|(unit, _)| *unit == &rest[..end]);
        nanos += number * unit.ok_or_else(bad)?.1;
        rest = &rest[end..];
    }
    if nanos > 9.2e18 {
        return Err(bad());
    }
    let nanos = nanos.round() as i64;
    Ok(if negative { -nanos } else { nanos })
}

/// The text Go prints: `1h0m0s`, `250ms`, `0s`.
pub(crate) fn text(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let left = nanos.unsigned_abs();
    if left < 1_000_000_000 {
        let (unit, size) = match left {
            0 => return "0s".to_owned(),
            1..1_000 => ("ns", 1),
            1_000..1_000_000 => ("µs", 1_000),
            _ => ("ms", 1_000_000),
        };
        return format!("{sign}{}{unit}", left as f64 / f64::from(size));
    }
    let (seconds, rest) = (left / 1_000_000_000, left % 1_000_000_000);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let seconds = match rest {
        0 => (seconds % 60).to_string(),
        _ => format!("{}.{rest:09}", seconds % 60).trim_end_matches('0').to_owned(),
    };
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, _) => format!("{sign}{minutes}m{seconds}s"),
        _ => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// A time that has been found not to be negative.
pub(crate) fn positive(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_go_does() {
        for (given, nanos, written) in [
            ("10s", 10_000_000_000, "10s"),
            ("90s", 90_000_000_000, "1m30s"),
            ("2h", 7_200_000_000_000, "2h0m0s"),
            ("1h0m5.5s", 3_605_500_000_000, "1h0m5.5s"),
            ("100ms", 100_000_000, "100ms"),
            ("1.5ms", 1_500_000, "1.5ms"),
            ("-1s", -1_000_000_000, "-1s"),
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("5us", 5_000, "5µs"),
            ("7ns", 7, "7ns"),
            ("24h0m0s", 86_400_000_000_000, "24h0m0s"),
        ] {
            assert_eq!(parse(given), Ok(nanos), "{given}");
            assert_eq!(text(nanos), written, "{given}");
        }
        for bad in ["", "-", "10", "s", "1d", "1s2", "x", "1..5s", "9999999h"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_reads_back(nanos in -9_000_000_000_000_000i64..9_000_000_000_000_000) {
            proptest::prop_assert_eq!(parse(&text(nanos)), Ok(nanos));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}
