//! Canonical forms of scalars that are more than a string: times, bytes, quantities. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use proto::api::quantity::Quantity;
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

/// A quantity in canonical form: `1000m` is `1`.
pub(super) fn quantity(value: &Value) -> Result<String, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let parsed = Quantity::parse(&text).map_err(|error| error.to_string())?;
    Ok(parsed.to_string())
}
