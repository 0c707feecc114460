//! What a version of a definition says beside its schema: where replicas are, and which fields select. Pure.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::resource::field::{at, list, text};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};
use crate::resource::json_path::JsonPath;
use crate::resource::structural::Structural;
use crate::tree;

/// Selectable fields of a version (control-plane contract §9).
const SELECTABLE_MAX: usize = 8;
/// Characters of a value of the wrong type that are shown.
const SHOWN_MAX: usize = 1 << 10;

/// See the module. Of a built-in kind all is empty.
#[derive(Default)]
pub(crate) struct Defined {
    /// Which definition the kind was made of, as it was then; 0 for built-in kinds.
    pub(crate) form: u64,
    /// Which selectable fields those are: each version has its own. 0 where nothing but names selects.
    pub(crate) selects_as: u64,
    /// Where the scale subresource finds what it shows.
    pub(crate) scale: Option<ScalePaths>,
    selectable: Box<[(Box<str>, JsonPath)]>,
}

/// Where an object has its number of replicas, and what selects them.
#[derive(Clone)]
pub(crate) struct ScalePaths {
    /// As they were written, for messages.
    pub(crate) spec_text: Box<str>,
    status_text: Box<str>,
    selector_text: Box<str>,
    pub(crate) spec: Box<[Box<str>]>,
    pub(crate) status: Box<[Box<str>]>,
    pub(crate) selector: Option<Box<[Box<str>]>>,
}

impl Defined {
    /// What a version says.
    pub(super) fn read(version: &Value, form: u64) -> Self {
        let fields = list(version, &["selectableFields"]).iter();
        let field = |one: &Value| {
            let path = text(one, &["jsonPath"]);
            let name = path.strip_prefix('.').unwrap_or(path);
            Some((name.into(), JsonPath::parse(path).ok()?))
        };
        let scale = at(version, &["subresources", "scale"]);
        let selectable: Box<[_]> = fields.take(SELECTABLE_MAX).filter_map(field).collect();
        let mut hasher = DefaultHasher::new();
        (form, text(version, &["name"])).hash(&mut hasher);
        let selects_as = match selectable.is_empty() {
            true => 0,
            false => hasher.finish().max(1),
        };
        Self {
            form,
            selects_as,
            scale: scale.is_object().then(|| ScalePaths::read(scale)),
            selectable,
        }
    }

    /// Whether a field selector may name the label.
    pub(crate) fn selects(&self, label: &str) -> bool {
        self.selectable.iter().any(|(name, _)| **name == *label)
    }

    /// Whether anything but names selects.
    pub(crate) fn has_selectable(&self) -> bool {
        !self.selectable.is_empty()
    }

    /// The selectable fields of an object in the form of the version.
    pub(crate) fn selectable(&self, object: &Value) -> Vec<(Cow<'static, str>, String)> {
        let shown = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let field = |(name, path): &(Box<str>, JsonPath)| {
            let found = path.find(object);
            (
                Cow::Owned(name.to_string()),
                found.first().map_or_else(String::new, |value| shown(value)),
            )
        };
        self.selectable.iter().map(field).collect()
    }
}

impl ScalePaths {
    fn read(scale: &Value) -> Self {
        let steps = |text: &str| -> Box<[Box<str>]> {
            let text = text.strip_prefix('.').unwrap_or(text);
            text.split('.').map(Box::from).collect()
        };
        let spec = text(scale, &["specReplicasPath"]);
        let status = text(scale, &["statusReplicasPath"]);
        let selector = text(scale, &["labelSelectorPath"]);
        Self {
            spec_text: spec.into(),
            status_text: status.into(),
            selector_text: selector.into(),
            spec: steps(spec),
            status: steps(status),
            selector: (!selector.is_empty()).then(|| steps(selector)),
        }
    }
}

/// What is at a path; `None` if nothing is.
///
/// # Errors
/// Something on the way is no object.
fn nested<'v>(object: &'v Value, path: &[Box<str>]) -> Result<Option<&'v Value>, String> {
    let mut found = object;
    for (i, step) in path.iter().enumerate() {
        let Some(map) = found.as_object() else {
            let way = path.get(..i).unwrap_or_default().join(".");
            return match found {
                Value::Null => Ok(None),
                found => Err(accessor_error(&way, found, "map[string]interface {}")),
            };
        };
        match map.get(&**step) {
            Some(value) => found = value,
            None => return Ok(None),
        }
    }
    Ok(Some(found))
}

/// In the words of upstream, which names the types of its language.
fn accessor_error(path: &str, found: &Value, wanted: &str) -> String {
    let own = tree::go_type(found);
    let shown: String = match found {
        Value::Null => own.to_owned(),
        Value::String(text) => text.chars().take(SHOWN_MAX).collect(),
        found => found.to_string().chars().take(SHOWN_MAX).collect(),
    };
    format!(".{path} accessor error: {shown} is of the type {own}, expected {wanted}")
}

impl ScalePaths {
    /// What is wrong with what an object has at these paths: a number of replicas is one wherever it is written.
    pub(super) fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        for (text, path) in [(&self.spec_text, &self.spec), (&self.status_text, &self.status)] {
            let why = match nested(object, path) {
                Ok(None) => continue,
                Ok(Some(value)) => match value.as_i64() {
                    Some(number) if number < 0 => Err((number, "should be a non-negative integer".to_owned())),
                    Some(number) if number > i64::from(i32::MAX) => {
                        Err((number, format!("should be less than or equal to {}", i32::MAX)))
                    }
                    Some(_) => Ok(()),
                    None => Err((0, accessor_error(&path.join("."), value, "int64"))),
                },
                Err(why) => Err((0, why)),
            };
            if let Err((number, why)) = why {
                errors.push(FieldError::invalid(&**text, number, why));
            }
        }
        let Some(path) = &self.selector else { return };
        let why = match nested(object, path) {
            Ok(Some(value)) if !value.is_string() => accessor_error(&path.join("."), value, "string"),
            Ok(_) => return,
            Err(why) => why,
        };
        errors.push(FieldError::invalid(&*self.selector_text, "", why));
    }
}

/// What is wrong with a version's scale subresource.
pub(crate) fn validate_scale(errors: &mut FieldErrors, scale: &Value, path: &str) {
    let paths = [
        (
            "specReplicasPath",
            true,
            &[".spec."][..],
            "should be a json path under .spec",
        ),
        (
            "statusReplicasPath",
            true,
            &[".status."],
            "should be a json path under .status",
        ),
        (
            "labelSelectorPath",
            false,
            &[".spec.", ".status."],
            "should be a json path under either .spec or .status",
        ),
    ];
    for (key, is_required, starts, why) in paths {
        let (value, path) = (text(scale, &[key]), format!("{path}.{key}"));
        if value.is_empty() {
            if is_required {
                errors.push(FieldError::required(path, ""));
            }
        } else if !value.starts_with('.') {
            let why = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(path, value, why));
        } else if !starts.iter().any(|start| value.starts_with(start)) {
            errors.push(FieldError::invalid(path, value, why));
        }
    }
}

/// What is wrong with a version's selectable fields.
pub(crate) fn validate_selectable(errors: &mut FieldErrors, fields: &[Value], schema: &Structural, path: &str) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, field) in fields.iter().enumerate().take(100) {
        let (value, path) = (text(field, &["jsonPath"]), format!("{path}[{i}].jsonPath"));
        if value.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let found = match schema.at_path(value, false) {
            Ok((_, found)) => found,
            Err(why) => {
                let why = format!("is an invalid path: {why}");
                errors.push(FieldError::invalid(path, value, why));
                continue;
            }
        };
        if value == ".metadata" || value.starts_with(".metadata.") {
            let why = "must not point to fields in metadata";
            errors.push(FieldError::invalid(path.clone(), value, why));
        }
        if !found.is_selectable() {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(FieldError::invalid(path.clone(), value, why));
        }
        match seen.contains(&value) {
            true => errors.push(FieldError::new(path, FieldErrorKind::Duplicate, value.into(), "")),
            false => seen.push(value),
        }
    }
    if seen.len() > SELECTABLE_MAX || fields.len() > 100 {
        let why = format!("must have at most {SELECTABLE_MAX} items");
        errors.push(FieldError::new(path, FieldErrorKind::TooMany, fields.len().into(), why));
    }
}
