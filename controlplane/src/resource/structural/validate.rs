//! What is wrong with a tree, in upstream's words. Pure.

use std::collections::HashSet;

use jiff::{Timestamp, civil::Date};
use serde_json::Value;

use super::{Form, Rules, Structural, Unique};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};

/// What errors of `allOf` and its kind are told of: upstream knows no path there.
const NO_PATH: &str = "<nil>";

fn below(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::IntOrString => "integer,string",
        }
    }

    fn takes(self, value: &Value) -> bool {
        let is_whole = |value: &Value| value.as_f64().is_some_and(|number| number.fract() == 0.0);
        match self {
            Self::Any => true,
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
            Self::String => value.is_string(),
            Self::Integer => is_whole(value),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::IntOrString => value.is_string() || is_whole(value),
        }
    }
}

impl Structural {
    /// Everything wrong with an object but its metadata.
    pub(in crate::resource) fn validate_object(&self, object: &Value, errors: &mut FieldErrors) {
        self.validate(object, "", errors);
    }

    /// What is wrong with the value at `path`.
    pub(super) fn validate(&self, value: &Value, path: &str, errors: &mut FieldErrors) {
        if errors.is_full() || (value.is_null() && (self.nullable || self.form == Form::Any)) {
            return;
        }
        if !self.form.takes(value) {
            let found = type_of(value);
            let why = format!("{path} in body must be of type {}: {found:?}", self.form.name());
            errors.push(FieldError::new(
                path,
                FieldErrorKind::TypeInvalid,
                Value::from(found),
                why,
            ));
            return;
        }
        match value {
            Value::Object(map) => {
                for (key, member) in map {
                    let schema = self.properties.get(key.as_str()).or(self.values.as_deref());
                    // The API's own metadata has rules of its own.
                    if let Some(schema) = schema.filter(|_| !(path.is_empty() && key == "metadata")) {
                        schema.validate(member, &below(path, key), errors);
                    }
                }
            }
            Value::Array(members) => {
                if let Some(items) = &self.items {
                    for (i, member) in members.iter().enumerate() {
                        items.validate(member, &format!("{path}[{i}]"), errors);
                    }
                }
            }
            _ => {}
        }
        if let Some(rules) = &self.rules {
            rules.validate(value, path, errors);
        }
    }

    fn takes(&self, value: &Value, path: &str) -> bool {
        let mut errors = FieldErrors::default();
        self.validate(value, path, &mut errors);
        errors.is_empty()
    }
}

impl Rules {
    fn validate(&self, value: &Value, path: &str, errors: &mut FieldErrors) {
        if let Some(allowed) = &self.allowed
            && !allowed.contains(value)
        {
            let shown = |one: &Value| one.as_str().map_or_else(|| one.to_string(), str::to_owned);
            let allowed: Vec<String> = allowed.iter().map(shown).collect();
            let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
            errors.push(FieldError::not_supported(path, value.clone(), &allowed));
        }
        match value {
            Value::String(text) => self.text(text, path, errors),
            Value::Number(_) => self.number(value, path, errors),
            Value::Array(members) => self.members(members, path, errors),
            Value::Object(map) => {
                for name in self.required.iter().filter(|name| !map.contains_key(&***name)) {
                    errors.push(FieldError::required(below(path, name), ""));
                }
                let (count, bounds) = (map.len() as u64, &self.properties);
                if let Some(least) = bounds.0.filter(|least| count < *least) {
                    let why = format!("{path} in body should have at least {least} properties");
                    errors.push(FieldError::invalid(path, count, why));
                }
                too_many(count, bounds.1, path, errors);
            }
            _ => {}
        }
        self.junctors(value, path, errors);
    }

    fn text(&self, text: &str, path: &str, errors: &mut FieldErrors) {
        let mut invalid = |why: String| errors.push(FieldError::invalid(path, text, why));
        let length = text.chars().count() as u64;
        if let Some(least) = self.length.0.filter(|least| length < *least) {
            invalid(format!("{path} in body should be at least {least} chars long"));
        }
        if let Some(pattern) = self.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            invalid(format!("{path} in body should match '{}'", pattern.as_str()));
        }
        if let Some(format) = self.format.as_deref().filter(|format| !has_format(text, format)) {
            let why = format!("{path} in body must be of type {format}: {text:?}");
            errors.push(FieldError::new(
                path,
                FieldErrorKind::TypeInvalid,
                Value::from(text),
                why,
            ));
        }
        if let Some(most) = self.length.1.filter(|most| length > *most) {
            let why = format!("may not be more than {most} bytes");
            errors.push(FieldError::new(path, FieldErrorKind::TooLong, Value::Null, why));
        }
    }

    fn number(&self, value: &Value, path: &str, errors: &mut FieldErrors) {
        let number = value.as_f64().unwrap_or_default();
        let mut invalid = |why: String| errors.push(FieldError::invalid(path, value.clone(), why));
        match self.minimum {
            Some((bound, true)) if number <= bound => invalid(format!("{path} in body should be greater than {bound}")),
            Some((bound, false)) if number < bound => {
                invalid(format!("{path} in body should be greater than or equal to {bound}"));
            }
            _ => {}
        }
        match self.maximum {
            Some((bound, true)) if number >= bound => invalid(format!("{path} in body should be less than {bound}")),
            Some((bound, false)) if number > bound => {
                invalid(format!("{path} in body should be less than or equal to {bound}"));
            }
            _ => {}
        }
        if let Some(of) = self.multiple_of.filter(|of| *of != 0.0 && (number / of).fract() != 0.0) {
            invalid(format!("{path} in body should be a multiple of {of}"));
        }
        let fits = match self.format.as_deref() {
            Some("int32") => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
            Some("int64") => value.as_i64().is_some() || value.is_f64(),
            _ => true,
        };
        if let Some(format) = self.format.as_deref().filter(|_| !fits) {
            let why = format!("{path} in body must be of type {format}: \"{value}\"");
            errors.push(FieldError::new(path, FieldErrorKind::TypeInvalid, value.clone(), why));
        }
    }

    fn members(&self, members: &[Value], path: &str, errors: &mut FieldErrors) {
        let count = members.len() as u64;
        if let Some(least) = self.items.0.filter(|least| count < *least) {
            let why = format!("{path} in body should have at least {least} items");
            errors.push(FieldError::invalid(path, count, why));
        }
        too_many(count, self.items.1, path, errors);
        let Some(unique) = &self.unique else { return };
        let mut seen = HashSet::new();
        for (i, member) in members.iter().enumerate() {
            let shown = match unique {
                Unique::Set => member.clone(),
                Unique::Keys(keys) => {
                    let pairs = keys
                        .iter()
                        .filter_map(|key| Some((key.to_string(), member.get(&**key)?.clone())));
                    Value::Object(pairs.collect())
                }
            };
            if !seen.insert(shown.to_string()) {
                let path = format!("{path}[{i}]");
                errors.push(FieldError::new(path, FieldErrorKind::Duplicate, shown, ""));
            }
        }
    }

    fn junctors(&self, value: &Value, path: &str, errors: &mut FieldErrors) {
        for schema in &self.all_of {
            schema.validate(value, path, errors);
        }
        let mut failed = |why: String| errors.push(FieldError::invalid(NO_PATH, "", why));
        let takes = |all: &[Structural]| all.iter().filter(|schema| schema.takes(value, path)).count();
        if !self.any_of.is_empty() && takes(&self.any_of) == 0 {
            failed(format!("{path:?} must validate at least one schema (anyOf)"));
        }
        if !self.one_of.is_empty() {
            match takes(&self.one_of) {
                1 => {}
                0 => failed(format!(
                    "{path:?} must validate one and only one schema (oneOf). Found none valid"
                )),
                many => failed(format!(
                    "{path:?} must validate one and only one schema (oneOf). Found {many} valid alternatives"
                )),
            }
        }
        if self.not.as_ref().is_some_and(|not| not.takes(value, path)) {
            failed(format!("{path:?} must not validate the schema (not)"));
        }
    }
}

fn too_many(count: u64, most: Option<u64>, path: &str, errors: &mut FieldErrors) {
    if let Some(most) = most.filter(|most| count > *most) {
        let why = format!("must have at most {most} items");
        errors.push(FieldError::new(path, FieldErrorKind::TooMany, Value::from(count), why));
    }
}

/// Whether a text has the format; formats that say nothing of texts, and unknown ones, all do.
fn has_format(text: &str, format: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<Timestamp>().is_ok(),
        "date" => text.len() == 10 && text.parse::<Date>().is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "cidr" => text.split_once('/').is_some_and(|(address, length)| {
            let most = match address.parse() {
                Ok(std::net::IpAddr::V4(_)) => 32,
                Ok(std::net::IpAddr::V6(_)) => 128,
                Err(_) => return false,
            };
            length.parse::<u8>().is_ok_and(|length| length <= most)
        }),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => uuid::Uuid::try_parse(text).is_ok(),
        "byte" => {
            use base64::Engine;
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        }
        _ => true,
    }
}
