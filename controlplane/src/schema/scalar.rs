//! Canonical forms of scalars that are more than a string: times, bytes, quantities. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

/// A time in UTC with whole seconds.
pub(super) fn time(text: &str) -> Result<String, String> {
    let parsed = parse_time(text)?;
    Ok(parsed.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
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

const QUANTITY_ERROR: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// A quantity as a string.
pub(super) fn quantity(value: &Value) -> Result<String, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Err(QUANTITY_ERROR.to_owned()),
    };
    if is_quantity(&text) {
        Ok(text)
    } else {
        Err(QUANTITY_ERROR.to_owned())
    }
}

fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(digits);
    let whole = number.chars().any(|c| c.is_ascii_digit()) && number.matches('.').count() <= 1;
    let known = match suffix {
        "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei" => true,
        _ => suffix
            .strip_prefix(['e', 'E'])
            .is_some_and(|exponent| exponent.parse::<i32>().is_ok()),
    };
    whole && known
}
