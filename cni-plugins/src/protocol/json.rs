//! Reading configuration the way upstream's decoder does (contract §1.5): keys match without regard to case, unknown keys
//! are ignored, `null` is absence, and a wrong type is an error that names the field.

use serde::Serialize;
use serde_json::{Map, Value};

/// A field has the wrong type or unreadable content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A value of another JSON type.
    #[error("json: cannot unmarshal {found} into Go struct field {owner}.{key} of type {wanted}")]
    Type {
        /// What was found, such as `string` or `number 1.5`.
        found: String,
        /// The object's type name.
        owner: &'static str,
        /// The field.
        key: &'static str,
        /// The type it must have.
        wanted: &'static str,
    },
    /// A text that does not parse as what the field holds.
    #[error("{0}")]
    Content(String),
}

/// A view of one JSON object with typed, case-insensitive access.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    map: Option<&'a Map<String, Value>>,
    owner: &'static str,
}

impl<'a> Fields<'a> {
    /// Views an object; `owner` is its type name in error texts.
    pub fn new(map: &'a Map<String, Value>, owner: &'static str) -> Self {
        Self { map: Some(map), owner }
    }

    /// The raw value of a key; the exact spelling wins over another case.
    pub fn value(&self, key: &str) -> Option<&'a Value> {
        let map = self.map?;
        map.get(key)
            .or_else(|| {
                map.iter()
                    .find(|(name, _)| name.eq_ignore_ascii_case(key))
                    .map(|(_, value)| value)
            })
            .filter(|value| !value.is_null())
    }

    /// Whether the object itself was there.
    pub fn is_present(&self) -> bool {
        self.map.is_some()
    }

    /// A text, empty when absent.
    pub fn string(&self, key: &'static str) -> Result<&'a str, DecodeError> {
        match self.value(key) {
            None => Ok(""),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(self.mismatch(other, key, "string")),
        }
    }

    /// A truth value, if given.
    pub fn maybe_bool(&self, key: &'static str) -> Result<Option<bool>, DecodeError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Bool(truth)) => Ok(Some(*truth)),
            Some(other) => Err(self.mismatch(other, key, "bool")),
        }
    }

    /// A truth value, false when absent.
    pub fn bool(&self, key: &'static str) -> Result<bool, DecodeError> {
        Ok(self.maybe_bool(key)?.unwrap_or(false))
    }

    /// A whole number, if given.
    pub fn maybe_int(&self, key: &'static str) -> Result<Option<i64>, DecodeError> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => value.as_i64().map(Some).ok_or_else(|| self.mismatch(value, key, "int")),
        }
    }

    /// A whole number, zero when absent.
    pub fn int(&self, key: &'static str) -> Result<i64, DecodeError> {
        Ok(self.maybe_int(key)?.unwrap_or(0))
    }

    /// An unsigned number, if given.
    pub fn maybe_uint(&self, key: &'static str) -> Result<Option<u64>, DecodeError> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => value
                .as_u64()
                .map(Some)
                .ok_or_else(|| self.mismatch(value, key, "uint")),
        }
    }

    /// An object; absent ones read as empty.
    pub fn object(&self, key: &'static str, owner: &'static str) -> Result<Fields<'a>, DecodeError> {
        match self.value(key) {
            None => Ok(Fields { map: None, owner }),
            Some(Value::Object(map)) => Ok(Fields { map: Some(map), owner }),
            Some(other) => Err(self.mismatch(other, key, owner)),
        }
    }

    /// A list, empty when absent.
    pub fn list(&self, key: &'static str, wanted: &'static str) -> Result<&'a [Value], DecodeError> {
        match self.value(key) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(self.mismatch(other, key, wanted)),
        }
    }

    /// A list of objects.
    pub fn objects(&self, key: &'static str, owner: &'static str) -> Result<Vec<Fields<'a>>, DecodeError> {
        self.list(key, owner)?
            .iter()
            .map(|item| match item {
                Value::Object(map) => Ok(Fields::new(map, owner)),
                Value::Null => Ok(Fields { map: None, owner }),
                other => Err(self.mismatch(other, key, owner)),
            })
            .collect()
    }

    /// A list of texts, empty when absent.
    pub fn strings(&self, key: &'static str) -> Result<Vec<String>, DecodeError> {
        self.list(key, "[]string")?
            .iter()
            .map(|item| match item {
                Value::String(text) => Ok(text.clone()),
                Value::Null => Ok(String::new()),
                other => Err(self.mismatch(other, key, "string")),
            })
            .collect()
    }

    /// A text that `parse` turns into a value; empty or absent is `None`.
    pub fn parsed<T, E: std::fmt::Display>(
        &self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, DecodeError> {
        let text = self.string(key)?;
        if text.is_empty() {
            return Ok(None);
        }
        parse(text)
            .map(Some)
            .map_err(|error| DecodeError::Content(error.to_string()))
    }

    fn mismatch(&self, found: &Value, key: &'static str, wanted: &'static str) -> DecodeError {
        DecodeError::Type {
            found: kind(found),
            owner: self.owner,
            key,
            wanted,
        }
    }
}

/// An IP address as Go's `net.IP` reads it from text; an IPv4-mapped address becomes IPv4.
pub fn parse_ip(text: &str) -> Result<std::net::IpAddr, DecodeError> {
    text.parse::<std::net::IpAddr>()
        .map(|addr| addr.to_canonical())
        .map_err(|_| DecodeError::Content(format!("invalid IP address: {text}")))
}

/// The name of a value's JSON type, as Go's decoder gives it.
pub(crate) fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(number) if number.is_f64() => format!("number {number}"),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(_) => "array".into(),
        Value::Object(_) => "object".into(),
    }
}

/// Prints with four spaces of indentation and a closing newline, as upstream's plugins do.
pub fn render(value: &Value) -> String {
    let mut bytes = Vec::with_capacity(512);
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    value
        .serialize(&mut serializer)
        .expect("a JSON tree in memory always serialises");
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("serde_json writes UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read<T>(value: Value, read: impl Fn(Fields<'_>) -> T) -> T {
        read(Fields::new(value.as_object().unwrap(), "NetConf"))
    }

    #[test]
    fn keys_match_in_any_case_and_the_exact_one_wins() {
        assert!(read(json!({"ISGATEWAY": true}), |f| f.bool("isGateway").unwrap()));
        assert!(!read(json!({"ISGATEWAY": true, "isGateway": false}), |f| f
            .bool("isGateway")
            .unwrap()));
        assert_eq!(read(json!({"mtu": null}), |f| f.int("mtu").unwrap()), 0);
    }

    #[test]
    fn wrong_types_name_the_field() {
        let text = read(json!({"mtu": "x"}), |f| f.int("mtu").unwrap_err().to_string());
        assert_eq!(
            text,
            "json: cannot unmarshal string into Go struct field NetConf.mtu of type int"
        );
        assert!(read(json!({"mtu": 1.5}), |f| f.int("mtu").is_err()));
        assert!(read(json!({"a": [1]}), |f| f.strings("a").is_err()));
        assert!(read(json!({"a": "x"}), |f| f.object("a", "A").is_err()));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_a_reader_panic(text in "\\PC*") {
            let value = json!({"k": text});
            let fields = Fields::new(value.as_object().unwrap(), "T");
            let _ = (fields.parsed("k", parse_ip), fields.parsed("k", netlink::cidr::Cidr::parse), fields.int("k"));
        }
    }
}
