//! Durations and times as texts.

use jiff::Timestamp;

/// Nanoseconds of a duration such as `1h30m`, as Go reads it.
pub(in super::super) fn duration(text: &str) -> Option<i64> {
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

/// A moment as expressions write it: with its time.
pub(in super::super) fn moment(text: &str) -> Option<Timestamp> {
    timestamp(text).filter(|_| text.len() > 10)
}

/// A moment such as `2026-01-02T03:04:05Z`, or the first of a day.
pub(in super::super) fn timestamp(text: &str) -> Option<Timestamp> {
    if text.len() == 10 {
        return format!("{text}T00:00:00Z").parse().ok();
    }
    // Only with a `T`, and an offset.
    text.get(10..11).filter(|letter| letter.eq_ignore_ascii_case("t"))?;
    text.parse().ok()
}
