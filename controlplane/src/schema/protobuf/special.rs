//! Messages whose JSON form is not an object of their fields: times, quantities, raw JSON.

use super::field_table::META;
use super::wire::{Item, Wire, first, number, utf8};
use super::{MAGIC, enveloped};
use jiff::Timestamp;
use serde_json::{Map, Value};

/// Messages whose JSON form is not an object of their fields.
pub(super) fn special(name: &str, bytes: &[u8], depth: usize) -> Result<Option<Value>, String> {
    let (package, short) = name.rsplit_once('.').unwrap_or(("", name));
    let value = match (package, short) {
        (META, "Time") => time(bytes, false)?,
        (META, "MicroTime") => time(bytes, true)?,
        (META, "FieldsV1") | ("k8s.io.apimachinery.pkg.runtime", "RawExtension") => raw(first(bytes, 1)?, depth)?,
        (META, "Duration") => Value::String(go_duration(number(bytes, 1)?)),
        (META, "Verbs") | (_, "ExtraValue") => {
            let mut items = Vec::new();
            for field in Wire(bytes) {
                if let (1, Item::Bytes(text)) = field? {
                    items.push(Value::String(utf8(text)?));
                }
            }
            Value::Array(items)
        }
        ("k8s.io.apimachinery.pkg.api.resource", "Quantity") => Value::String(utf8(first(bytes, 1)?)?),
        ("k8s.io.apimachinery.pkg.util.intstr", "IntOrString") => match number(bytes, 1)? {
            0 => Value::from(number(bytes, 2)?),
            _ => Value::String(utf8(first(bytes, 3)?)?),
        },
        (_, "JSON") if name.contains("apiextensions") => raw(first(bytes, 1)?, depth)?,
        _ => return Ok(None),
    };
    Ok(Some(value))
}

/// The messages that in JSON are one of their members: a schema, or else a list, true or false, or strings.
pub(super) fn union(name: &str, fields: &mut Map<String, Value>) -> Option<Value> {
    let short = name.strip_prefix("k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOr")?;
    let other = match short {
        "Array" => fields.remove("jSONSchemas"),
        "Bool" => {
            return fields
                .remove("schema")
                .or_else(|| fields.remove("allows"))
                .or(Some(Value::Bool(false)));
        }
        "StringArray" => fields.remove("property"),
        _ => return None,
    };
    other.or_else(|| fields.remove("schema")).or(Some(Value::Null))
}

/// JSON inside, or a whole enveloped object, which may have such fields itself.
fn raw(bytes: &[u8], depth: usize) -> Result<Value, String> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    if bytes.starts_with(MAGIC) {
        return enveloped(bytes, depth + 1);
    }
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

/// The zero time is no time.
fn time(bytes: &[u8], micro: bool) -> Result<Value, String> {
    /// Seconds of Go's zero time, which encoders of old sent for "none".
    const GO_ZERO_SECONDS: i64 = -62_135_596_800;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (seconds, nanos) = (number(bytes, 1)?, number(bytes, 2)?);
    if seconds == GO_ZERO_SECONDS {
        return Ok(Value::Null);
    }
    let nanos = i32::try_from(nanos).map_err(|error| error.to_string())?;
    let time = Timestamp::new(seconds, if micro { nanos } else { 0 }).map_err(|error| error.to_string())?;
    let format = if micro {
        "%Y-%m-%dT%H:%M:%S.%6fZ"
    } else {
        "%Y-%m-%dT%H:%M:%SZ"
    };
    Ok(Value::String(time.strftime(format).to_string()))
}

/// Nanoseconds as Go prints a duration, in the units that matter.
pub(super) fn go_duration(nanos: i64) -> String {
    let (sign, total) = if nanos < 0 {
        ("-", nanos.unsigned_abs())
    } else {
        ("", nanos.unsigned_abs())
    };
    let (seconds, fraction) = (total / 1_000_000_000, total % 1_000_000_000);
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = match fraction {
        0 => String::new(),
        some => format!(".{some:09}").trim_end_matches('0').to_owned(),
    };
    match (hours, minutes) {
        (0, 0) => format!("{sign}{rest}{fraction}s"),
        (0, minutes) => format!("{sign}{minutes}m{rest}{fraction}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{rest}{fraction}s"),
    }
}
