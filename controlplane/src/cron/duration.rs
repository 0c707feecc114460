//! Lengths of time as Go writes them: `1h30m`, `1.5h`, `-2m`. Pure.

use k8s_openapi::jiff::SignedDuration;

fn unit_ns(name: &str) -> Option<i128> {
    Some(match name {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// Reads a length of time of at most 290 years.
pub(super) fn parse(text: &str) -> Result<SignedDuration, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (sign, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (-1, &text[1..]),
        Some(b'+') => (1, &text[1..]),
        _ => (1, text),
    };
    if rest == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if part.contains('.') || (whole.is_empty() && part.is_empty()) || number.len() > 40 {
            return Err(invalid());
        }
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        if name.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let Some(unit) = unit_ns(name) else {
            return Err(format!("time: unknown unit {name:?} in duration {text:?}"));
        };
        let digits = |digits: &str| {
            if digits.is_empty() {
                Ok(0)
            } else {
                digits.parse::<i128>()
            }
        };
        let whole = digits(whole).map_err(|_| invalid())?;
        // Nineteen digits after the point are more than a nanosecond of any unit.
        let part = &part[..part.len().min(19)];
        let scale = 10_i128.pow(u32::try_from(part.len()).unwrap_or_default());
        let fraction = digits(part).map_err(|_| invalid())? * unit / scale;
        let piece = whole.checked_mul(unit).and_then(|ns| ns.checked_add(fraction));
        total = piece.and_then(|ns| total.checked_add(ns)).ok_or_else(invalid)?;
        if total > i128::from(i64::MAX) {
            return Err(invalid());
        }
        rest = after;
    }
    Ok(SignedDuration::from_nanos(
        i64::try_from(sign * total).map_err(|_| invalid())?,
    ))
}
