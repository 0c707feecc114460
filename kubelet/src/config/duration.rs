//! Go's duration text (`1m30s`, `100ms`), which is how configuration files and flags write times. Pure.

use std::time::Duration;

/// Reads Go duration text; negative durations and units Go does not know are refused.
pub fn parse(text: &str) -> Result<Duration, String> {
    let bad = || format!("invalid duration {text:?}");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanos: f64 = 0.0;
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let number: f64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let factor = match &rest[..unit_end] {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return Err(bad()),
        };
        rest = &rest[unit_end..];
        nanos += number * factor;
    }
    if nanos > 9.2e18 {
        return Err(bad());
    }
    Ok(Duration::from_nanos(nanos.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations() {
        for (text, expected) in [
            ("10s", Duration::from_secs(10)),
            ("1m30s", Duration::from_secs(90)),
            ("2h0m0s", Duration::from_secs(7200)),
            ("100ms", Duration::from_millis(100)),
            ("1.5s", Duration::from_millis(1500)),
            ("0", Duration::ZERO),
            ("0s", Duration::ZERO),
            ("5us", Duration::from_micros(5)),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
        for bad in ["", "10", "s", "-1s", "1d", "1s2", "x"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
