//! How long a request may take: what its `timeout` asks for, within the server's own bound (control-plane contract §8). Pure.

use super::request::Query;
use super::status::ApiError;
use std::time::Duration;

/// Requests other than long-running ones end after this long.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// The time a request has.
///
/// # Errors
/// 400 when `timeout` is no Go duration.
pub(super) fn of(query: &Query) -> Result<Duration, ApiError> {
    let text = query.text("timeout");
    if text.is_empty() {
        return Ok(DEADLINE);
    }
    let seconds = seconds(text).ok_or_else(|| {
        ApiError::bad_request(format!(
            "invalid timeout specified in the request URL: time: invalid duration \"{text}\""
        ))
    })?;
    Ok(if seconds.is_zero() {
        DEADLINE
    } else {
        seconds.min(DEADLINE)
    })
}

/// What a request is told whose time is over, in upstream's words.
pub(super) fn exceeded() -> ApiError {
    let text = "Timeout: request did not complete within the allotted timeout";
    ApiError::new(504, "Timeout", text)
}

/// A Go duration, such as `1m30s`; zero if it is negative, which means the same to its reader. `None` if Go could not read or
/// hold it.
fn seconds(text: &str) -> Option<Duration> {
    /// What 63 bits of nanoseconds hold.
    const GO_MAX_SECONDS: f64 = 9_223_372_036.0;
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned == "0" {
        return Some(Duration::ZERO);
    }
    if unsigned.is_empty() {
        return None;
    }
    let mut total = 0.0_f64;
    let mut rest = unsigned;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?;
        let (unit, scale) = [
            ("ms", 0.001),
            ("us", 1e-6),
            ("µs", 1e-6),
            ("ns", 1e-9),
            ("h", 3600.0),
            ("m", 60.0),
            ("s", 1.0),
        ]
        .into_iter()
        .find(|(unit, _)| rest.starts_with(unit))?;
        total += number * scale;
        rest = rest.get(unit.len()..)?;
    }
    if total > GO_MAX_SECONDS {
        return None;
    }
    match text.starts_with('-') {
        true => Some(Duration::ZERO),
        false => Duration::try_from_secs_f64(total).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_read() {
        let cases = [
            ("30s", Some(30_000)),
            ("1m30s", Some(90_000)),
            ("1.5h", Some(5_400_000)),
            ("250ms", Some(250)),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("-5s", Some(0)),
            ("+5s", Some(5_000)),
            ("1000000h", Some(3_600_000_000_000)),
            ("9999999999h", None),
            (&"9".repeat(400), None),
            (&format!("{}s", "9".repeat(400)), None),
            ("-", None),
            ("30", None),
            ("x", None),
        ];
        for (text, expected) in cases {
            let text: &str = text;
            assert_eq!(seconds(text).map(|found| found.as_millis()), expected, "{text}");
        }
    }
}
