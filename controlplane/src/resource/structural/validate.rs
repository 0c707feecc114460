//! What is wrong with a tree, in upstream's words. Pure.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value};

use super::judge::{Judge, Path};
use super::tree::is_meta;
use super::{Form, Rules, Structural, Unique};
use crate::cel::time;
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};
use crate::resource::name;

/// What errors of `allOf` and its kind are told of: upstream knows no path there.
const NO_PATH: &str = "<nil>";
/// Bytes of text that are read or compared in the time of a step.
const BYTES_PER_STEP: u64 = 16;
/// Likewise of text that is made of a member, hashed and kept.
const WRITTEN_PER_STEP: u64 = 4;
/// Allowed values that are named: more than an explanation has room for.
const ALLOWED_SHOWN: usize = 4 << 10;

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
    pub(super) fn name(self) -> &'static str {
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
    /// Everything wrong with an object but what every kind's metadata must be. Work is taken off `work_left`; once that is 0 nothing
    /// more is looked at.
    pub(in crate::resource) fn validate_object(&self, object: &Value, work_left: &mut u64, errors: &mut FieldErrors) {
        if let Some(why) = &self.unusable {
            let why = format!("the schema of its definition cannot be used: {why}");
            errors.push(FieldError::forbidden(NO_PATH, why));
            return;
        }
        let mut judge = Judge::telling(errors, work_left);
        self.validate(object, &Path::ROOT, &mut judge);
        self.validate_embedded(object, &Path::ROOT, &mut judge);
        if *work_left == 0 {
            let why = "the object and the schema of its definition take more work to validate than this server does for one object";
            errors.push(FieldError::forbidden(NO_PATH, why));
        }
    }

    /// What is wrong with the value at `path`.
    pub(super) fn validate(&self, value: &Value, path: &Path<'_>, judge: &mut Judge<'_>) {
        if judge.is_done() || !judge.spend(1) || (value.is_null() && (self.nullable || self.form == Form::Any)) {
            return;
        }
        if !self.form.takes(value) {
            let found = type_of(value);
            judge.fail(|| {
                let why = format!("{path} in body must be of type {}: {found:?}", self.form.name());
                let found = Value::from(found);
                FieldError::new(path.to_string(), FieldErrorKind::TypeInvalid, found, why)
            });
            return;
        }
        match value {
            Value::Object(map) => {
                for (key, member) in map {
                    let is_meta = path.is_root() && is_meta(key);
                    let values = self.values.as_deref().filter(|_| !is_meta);
                    if let Some(schema) = self.properties.get(key.as_str()).or(values) {
                        schema.validate(member, &path.key(key), judge);
                    }
                }
            }
            Value::Array(members) => {
                if let Some(items) = &self.items {
                    for (i, member) in members.iter().enumerate() {
                        items.validate(member, &path.index(i), judge);
                    }
                }
            }
            _ => {}
        }
        if let Some(rules) = &self.rules {
            rules.validate(value, path, judge);
        }
    }
}

impl Rules {
    fn validate(&self, value: &Value, path: &Path<'_>, judge: &mut Judge<'_>) {
        if let Some(allowed) = &self.allowed
            && judge.spend(allowed.len() as u64)
            && !allowed.contains(value)
        {
            judge.fail(|| not_allowed(value, allowed, path));
        }
        if judge.is_done() {
            return;
        }
        match value {
            Value::String(text) => self.text(text, path, judge),
            Value::Number(_) => self.number(value, path, judge),
            Value::Array(members) => self.members(members, path, judge),
            Value::Object(map) => self.fields(map, path, judge),
            _ => {}
        }
        self.junctors(value, path, judge);
    }

    fn fields(&self, map: &Map<String, Value>, path: &Path<'_>, judge: &mut Judge<'_>) {
        for name in self.required.iter().filter(|name| !map.contains_key(&***name)) {
            if judge.is_done() || !judge.spend(1) {
                return;
            }
            judge.fail(|| FieldError::required(path.key(name).to_string(), ""));
        }
        let (count, bounds) = (map.len() as u64, &self.properties);
        if let Some(least) = bounds.0.filter(|least| count < *least) {
            judge.fail(|| {
                let why = format!("{path} in body should have at least {least} properties");
                FieldError::invalid(path.to_string(), count, why)
            });
        }
        too_many(count, bounds.1, path, judge);
    }

    fn text(&self, text: &str, path: &Path<'_>, judge: &mut Judge<'_>) {
        if !judge.spend(text.len() as u64 / BYTES_PER_STEP) {
            return;
        }
        let invalid = |why: String| FieldError::invalid_value(path.to_string(), &Value::from(text), why);
        let length = text.chars().count() as u64;
        if let Some(least) = self.length.0.filter(|least| length < *least) {
            judge.fail(|| invalid(format!("{path} in body should be at least {least} chars long")));
        }
        if let Some(pattern) = &self.pattern
            && judge.spend(pattern.steps(text.len()))
            && !pattern.regex.is_match(text)
        {
            judge.fail(|| invalid(format!("{path} in body should match '{}'", pattern.text)));
        }
        if let Some(format) = self.format.as_deref().filter(|format| !has_format(text, format)) {
            judge.fail(|| {
                let why = format!("{path} in body must be of type {format}: {text:?}");
                let text = Value::from(text);
                FieldError::new(path.to_string(), FieldErrorKind::TypeInvalid, text, why)
            });
        }
        if let Some(most) = self.length.1.filter(|most| length > *most) {
            judge.fail(|| {
                let why = format!("may not be more than {most} bytes");
                FieldError::new(path.to_string(), FieldErrorKind::TooLong, Value::Null, why)
            });
        }
    }

    fn number(&self, value: &Value, path: &Path<'_>, judge: &mut Judge<'_>) {
        let number = value.as_f64().unwrap_or_default();
        let mut invalid = |why: std::fmt::Arguments<'_>| {
            judge.fail(|| {
                FieldError::invalid(
                    path.to_string(),
                    value.clone(),
                    format!("{path} in body should be {why}"),
                )
            });
        };
        match self.minimum {
            Some((bound, true)) if number <= bound => invalid(format_args!("greater than {bound}")),
            Some((bound, false)) if number < bound => invalid(format_args!("greater than or equal to {bound}")),
            _ => {}
        }
        match self.maximum {
            Some((bound, true)) if number >= bound => invalid(format_args!("less than {bound}")),
            Some((bound, false)) if number > bound => invalid(format_args!("less than or equal to {bound}")),
            _ => {}
        }
        if let Some(of) = self.multiple_of.filter(|of| *of != 0.0 && (number / of).fract() != 0.0) {
            invalid(format_args!("a multiple of {of}"));
        }
        let fits = match self.format.as_deref() {
            Some("int32") => number.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number),
            Some("int64") => value.as_i64().is_some() || value.is_f64(),
            _ => true,
        };
        if let Some(format) = self.format.as_deref().filter(|_| !fits) {
            judge.fail(|| {
                let why = format!("{path} in body must be of type {format}: \"{value}\"");
                FieldError::new(path.to_string(), FieldErrorKind::TypeInvalid, value.clone(), why)
            });
        }
    }

    fn members(&self, members: &[Value], path: &Path<'_>, judge: &mut Judge<'_>) {
        let count = members.len() as u64;
        if let Some(least) = self.items.0.filter(|least| count < *least) {
            judge.fail(|| {
                let why = format!("{path} in body should have at least {least} items");
                FieldError::invalid(path.to_string(), count, why)
            });
        }
        too_many(count, self.items.1, path, judge);
        let Some(unique) = &self.unique else { return };
        let mut seen = HashSet::new();
        for (i, member) in members.iter().enumerate() {
            let shown = match unique {
                Unique::Set => Cow::Borrowed(member),
                Unique::Keys(keys) => {
                    let pairs = keys
                        .iter()
                        .filter_map(|key| Some((key.to_string(), member.get(&**key)?.clone())));
                    Cow::Owned(Value::Object(pairs.collect()))
                }
            };
            let text = shown.to_string();
            if judge.is_done() || !judge.spend(1 + text.len() as u64 / WRITTEN_PER_STEP) {
                return;
            }
            if !seen.insert(text) {
                let path = path.index(i);
                judge.fail(|| FieldError::new(path.to_string(), FieldErrorKind::Duplicate, shown.into_owned(), ""));
            }
        }
    }

    fn junctors(&self, value: &Value, path: &Path<'_>, judge: &mut Judge<'_>) {
        for schema in &self.all_of {
            schema.validate(value, path, judge);
        }
        let takes =
            |schema: &Structural, judge: &mut Judge<'_>| judge.agrees(|quiet| schema.validate(value, path, quiet));
        let is_any = self.any_of.is_empty() || self.any_of.iter().any(|schema| takes(schema, judge));
        let taking = self.one_of.iter().filter(|schema| takes(schema, judge)).count();
        let is_not = self.not.as_ref().is_some_and(|not| takes(not, judge));
        if judge.is_exhausted() {
            return;
        }
        let mut failed = |why: &str| {
            judge.fail(|| FieldError::invalid(NO_PATH, "", format!("{:?} must {why}", path.to_string())));
        };
        if !is_any {
            failed("validate at least one schema (anyOf)");
        }
        match taking {
            _ if self.one_of.is_empty() => {}
            1 => {}
            0 => failed("validate one and only one schema (oneOf). Found none valid"),
            many => failed(&format!(
                "validate one and only one schema (oneOf). Found {many} valid alternatives"
            )),
        }
        if is_not {
            failed("not validate the schema (not)");
        }
    }
}

/// Names what is allowed, as much of it as can be shown.
fn not_allowed(value: &Value, allowed: &[Value], path: &Path<'_>) -> FieldError {
    let shown = |one: &Value| one.as_str().map_or_else(|| one.to_string(), str::to_owned);
    let allowed: Vec<String> = allowed.iter().take(ALLOWED_SHOWN).map(shown).collect();
    let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
    FieldError::not_supported(path.to_string(), value.clone(), &allowed)
}

fn too_many(count: u64, most: Option<u64>, path: &Path<'_>, judge: &mut Judge<'_>) {
    if let Some(most) = most.filter(|most| count > *most) {
        let why = format!("must have at most {most} items");
        judge.fail(|| FieldError::new(path.to_string(), FieldErrorKind::TooMany, Value::from(count), why));
    }
}

/// Whether a text is a UUID of the version, with its hyphens or without any; one of 4 or 5 is of the variant of RFC 4122.
fn is_uuid(text: &str, version: &str) -> bool {
    let is_form = matches!(text.len(), 32 | 36) && text.starts_with(|c: char| c.is_ascii_hexdigit());
    let Some(id) = uuid::Uuid::try_parse(text).ok().filter(|_| is_form) else {
        return false;
    };
    let digits = id.simple().to_string();
    let is_variant = !matches!(version, "4" | "5") || digits[16..].starts_with(['8', '9', 'a', 'b']);
    digits[12..].starts_with(version) && is_variant
}

/// Whether a text is an address of 6, 8 or 20 bytes: in pairs of digits with colons or hyphens, or in fours with dots.
fn is_mac(text: &str) -> bool {
    let parts = |sign: char, digits: usize| {
        let is_part = |part: &str| part.len() == digits && part.bytes().all(|digit| digit.is_ascii_hexdigit());
        let count = text.split(sign).count() * digits;
        text.split(sign).all(is_part) && matches!(count, 12 | 16 | 40)
    };
    text.len() < 60 && (parts(':', 2) || parts('-', 2) || parts('.', 4))
}

/// Whether a text has the format; formats that say nothing of texts, and unknown ones, all do.
fn has_format(text: &str, format: &str) -> bool {
    match format {
        "date-time" | "datetime" => time::is_date_time(text),
        "date" => time::is_date(text),
        "duration" => time::lenient_duration(text).is_some(),
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
        "uuid" => is_uuid(text, ""),
        "uuid3" => is_uuid(text, "3"),
        "uuid4" => is_uuid(text, "4"),
        "uuid5" => is_uuid(text, "5"),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        }
        "mac" => is_mac(text),
        "k8s-short-name" => name::dns1123_label(text).is_empty(),
        "k8s-long-name" => name::dns1123_subdomain(text).is_empty(),
        "byte" => {
            use base64::Engine;
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        }
        _ => true,
    }
}
