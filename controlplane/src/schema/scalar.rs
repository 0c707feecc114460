//! Canonical forms of scalars that are more than a string: times, bytes, quantities. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use proto::api::quantity::Quantity;
use serde_json::{Number, Value};

/// A time in UTC with whole seconds.
pub(super) fn time(text: &str) -> Result<String, String> {
    if is_canonical(text.as_bytes()) {
        return Ok(text.to_owned());
    }
    let parsed = parse_time(text)?;
    Ok(parsed.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Whether a time is in the form it is written in: most are, each time their object is written. `false` where more is to be known
/// of a calendar than how long its months are in every year.
fn is_canonical(text: &[u8]) -> bool {
    const FORM: &[u8; 20] = b"0000-00-00T00:00:00Z";
    const DAYS: [usize; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let has_form = text.len() == FORM.len()
        && text.iter().zip(FORM).all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            form => byte == form,
        });
    if !has_form {
        return false;
    }
    let number = |at: usize| usize::from(text[at] - b'0') * 10 + usize::from(text[at + 1] - b'0');
    let days = number(5).checked_sub(1).and_then(|month| DAYS.get(month));
    (10..99).contains(&number(0))
        && days.is_some_and(|days| (1..=*days).contains(&number(8)))
        && number(11) < 24
        && number(14) < 60
        && number(17) < 60
}

/// A time in UTC with six digits of fraction.
pub(super) fn micro_time(text: &str) -> Result<String, String> {
    let parsed = parse_time(text)?;
    Ok(parsed.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|_| format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?}"))
}

/// Base64 in its padded form without line breaks.
pub(super) fn bytes(text: &str) -> Result<String, String> {
    let clean: String = text.chars().filter(|c| *c != '\n' && *c != '\r').collect();
    match STANDARD.decode(&clean) {
        Ok(_) => Ok(clean),
        Err(base64::DecodeError::InvalidByte(at, _)) => Err(format!("illegal base64 data at input byte {at}")),
        Err(_) => Err(format!("illegal base64 data at input byte {}", clean.len())),
    }
}

/// A float64 as Go writes it down: without a fraction where it has none (control-plane contract §1). `None` for what JSON has no
/// number for. Whole numbers beyond 2^53 stay as they are.
pub(super) fn float(value: f64) -> Option<Number> {
    const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;
    let is_whole = value.fract() == 0.0 && value.abs() < EXACT_BELOW && (value != 0.0 || value.is_sign_positive());
    match is_whole {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and small enough")]
        true => Some(Number::from(value as i64)),
        false => Number::from_f64(value),
    }
}

/// A quantity in canonical form: `1000m` is `1`.
pub(super) fn quantity(value: &Value) -> Result<String, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let parsed = Quantity::parse(&text).map_err(|error| error.to_string())?;
    Ok(parsed.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_left_as_it_is_is_one_and_reads_the_same() {
        let mut left = 0;
        for year in [0, 999, 1000, 1900, 2000, 2024, 2026, 9898, 9999] {
            for (month, day) in (0..=13).flat_map(|month| (0..=32).map(move |day| (month, day))) {
                for clock in ["00:00:00", "23:59:59", "23:59:60", "24:00:00", "12:60:00"] {
                    let text = format!("{year:04}-{month:02}-{day:02}T{clock}Z");
                    if is_canonical(text.as_bytes()) {
                        left += 1;
                        let read = parse_time(&text).expect("a time");
                        assert_eq!(read.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), text);
                    }
                }
            }
        }
        assert_eq!(left, 6 * 365 * 2);
        for other in [
            "",
            "2026-01-01T00:00:00",
            "2026-01-01t00:00:00Z",
            "2026-01-01T00:00:00+",
            "2026-1-01T00:00:000Z",
        ] {
            assert!(!is_canonical(other.as_bytes()), "{other}");
        }
        assert_eq!(time("2024-02-29T01:00:00+01:00").as_deref(), Ok("2024-02-29T00:00:00Z"));
        assert!(time("2023-02-29T00:00:00Z").is_err());
    }
}
