//! `metadata.managedFields`: who owns which fields. Reading what clients send, bounding it, sorting it as upstream does. Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::field_set::FieldSet;
use super::name::{NAME_MAX_BYTES, check_name_at};
use crate::json_text;
use crate::resource::field_error::{FieldError, FieldErrorKind};

/// Most entries of updates; older ones become one ([`OLD_UPDATES`]).
const UPDATES_MAX: usize = 10;
/// Most entries that are taken from a request: each is looked for among all others.
const SENT_MAX: usize = 1000;
/// Most managers that apply one object: they stay for as long as they own anything, and whoever writes asks each.
const APPLIERS_MAX: usize = 1000;
/// Longest subresource and API version, in bytes.
const TEXT_MAX_BYTES: usize = 256;
/// The manager of what updates longer ago set.
const OLD_UPDATES: &str = "ancient-changes";

/// Most problems that are named.
const PROBLEMS_MAX: usize = 100;

/// The one form of sets of fields there is.
const FIELDS_TYPE: &str = "FieldsV1";

/// How a manager came to own its fields. Sorted as upstream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    /// By applying a configuration that names them.
    Apply,
    /// By changing them.
    Update,
}

impl Operation {
    fn read(text: &str) -> Option<Self> {
        match text {
            "Apply" => Some(Self::Apply),
            "Update" => Some(Self::Update),
            _ => None,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Who an entry belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manager {
    pub(super) name: String,
    pub(super) operation: Operation,
    /// What the fields' names refer to. Appliers keep their entry when they go to another version.
    pub(super) api_version: String,
    /// Empty for the main endpoint.
    pub(super) subresource: String,
}

impl Manager {
    /// Whether both have one entry.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.name == other.name
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// Whether errors may name it; clients' managers are refused otherwise ([`problems`]).
    fn is_bounded(&self) -> bool {
        self.name.len() <= NAME_MAX_BYTES
            && self.subresource.len() <= TEXT_MAX_BYTES
            && self.api_version.len() <= TEXT_MAX_BYTES
    }

    /// As conflicts name it.
    pub(super) fn shown(&self) -> String {
        let mut text = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

/// One entry.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) manager: Manager,
    /// Of the last change of fields.
    pub(super) time: Option<String>,
    pub(super) fields: Fields,
}

/// The fields of an entry: as they are stored, until somebody changes them.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    /// FieldsV1 of our own writing; what is in `set` does not count as long as there is one.
    stored: Option<Box<str>>,
    set: FieldSet,
}

impl From<FieldSet> for Fields {
    fn from(set: FieldSet) -> Self {
        Self { stored: None, set }
    }
}

impl Fields {
    fn stored(text: &str) -> Self {
        Self {
            stored: Some(text.into()),
            set: FieldSet::default(),
        }
    }

    /// The set, to be changed.
    pub(super) fn set(&mut self) -> &mut FieldSet {
        if let Some(text) = self.stored.take() {
            self.set = read(&text);
        }
        &mut self.set
    }

    /// The set.
    pub(super) fn to_set(&self) -> FieldSet {
        match &self.stored {
            Some(text) => read(text),
            None => self.set.clone(),
        }
    }

    fn is_empty(&self) -> bool {
        match &self.stored {
            Some(text) => &**text == "{}",
            None => self.set.is_empty(),
        }
    }

    /// Whether any of the fields is in it.
    pub(super) fn meets(&self, fields: &FieldSet) -> bool {
        match &self.stored {
            Some(text) => fields.count_in(text) > 0,
            None => self.set.meets(fields),
        }
    }

    /// Whether all the fields are in it.
    pub(super) fn covers(&self, fields: &FieldSet) -> bool {
        match &self.stored {
            Some(text) => fields.count_in(text) == fields.count(),
            None => self.set.covers(fields),
        }
    }

    /// Takes the fields out.
    pub(super) fn lose(&mut self, fields: &FieldSet) {
        if self.meets(fields) {
            self.set().subtract(fields);
        }
    }

    /// Puts the fields in.
    pub(super) fn gain(&mut self, fields: &FieldSet) {
        if !self.covers(fields) {
            self.set().unite(fields);
        }
    }
}

/// The set whose text was stored.
fn read(text: &str) -> FieldSet {
    FieldSet::stored(serde_json::from_str(text).unwrap_or_default())
}

/// The entries of an object, none of which is empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries(pub(super) Vec<Entry>);

impl Entries {
    /// Reads the text of what has been stored, but for managers that no client may have.
    pub(super) fn stored(list: &str) -> Self {
        let all = json_text::items(list).filter_map(stored);
        Self(all.filter(|entry| entry.manager.is_bounded()).collect())
    }

    /// Reads what a client sent; `None` if any of it is not valid, or if it is more than [`SENT_MAX`]. Managers are checked when all
    /// else of the object is ([`problems`]).
    pub(super) fn sent(list: &Value) -> Option<Self> {
        let list = list.as_array().filter(|list| list.len() <= SENT_MAX)?;
        let mut all = Self(Vec::with_capacity(list.len()));
        for entry in list {
            let entry = entry.as_object()?;
            let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or("");
            let manager = Manager {
                name: text("manager").to_owned(),
                operation: Operation::read(text("operation"))?,
                api_version: text("apiVersion").to_owned(),
                subresource: text("subresource").to_owned(),
            };
            let is_version = (1..=TEXT_MAX_BYTES).contains(&manager.api_version.len());
            if !is_version || text("fieldsType") != FIELDS_TYPE {
                return None;
            }
            let time = Some(text("time").to_owned()).filter(|time| !time.is_empty());
            let fields = FieldSet::parse(entry.get("fieldsV1").unwrap_or(&Value::Null)).ok()?;
            all.remove(&manager);
            all.0.push(Entry {
                manager,
                time,
                fields: fields.into(),
            });
        }
        all.drop_empty();
        Some(all)
    }

    /// The list as text, as objects carry it: sorted as upstream does, keys in their order; `None` if there is none.
    pub(super) fn into_text(mut self) -> Option<String> {
        self.drop_empty();
        if self.0.is_empty() {
            return None;
        }
        self.0.sort_by(|one, other| place(one).cmp(&place(other)));
        let mut text = String::with_capacity(self.0.len() * 512);
        for entry in &self.0 {
            text.push(if text.is_empty() { '[' } else { ',' });
            write(&mut text, entry);
        }
        text.push(']');
        Some(text)
    }

    /// Whether both differ in times at most.
    pub(super) fn same_but_for_times(&self, other: &Self) -> bool {
        let same = |(one, other): (&Entry, &Entry)| {
            one.manager == other.manager && one.fields.to_set() == other.fields.to_set()
        };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same)
    }

    pub(super) fn drop_empty(&mut self) {
        self.0.retain(|entry| !entry.fields.is_empty());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get_mut(&mut self, manager: &Manager) -> Option<&mut Entry> {
        self.0.iter_mut().find(|entry| entry.manager.is(manager))
    }

    pub(super) fn remove(&mut self, manager: &Manager) -> Option<Entry> {
        let at = self.0.iter().position(|entry| entry.manager.is(manager))?;
        Some(self.0.remove(at))
    }

    /// All fields that somebody owns.
    pub(super) fn owned(&self) -> FieldSet {
        let all = self.0.iter();
        all.fold(FieldSet::default(), |owned, entry| owned.united(&entry.fields.to_set()))
    }

    /// Makes one entry of the oldest updates (of each API version) when there are more than [`UPDATES_MAX`].
    pub(super) fn bound_updates(&mut self) {
        let is_update = |entry: &&Entry| entry.manager.operation == Operation::Update;
        let mut count = self.0.iter().filter(is_update).count();
        if count <= UPDATES_MAX {
            return;
        }
        let mut updates: Vec<&Entry> = self.0.iter().filter(is_update).collect();
        updates.sort_by(|one, other| place(one).cmp(&place(other)));
        let oldest: Vec<Manager> = updates.into_iter().map(|entry| entry.manager.clone()).collect();
        let mut first_of: BTreeMap<String, Manager> = BTreeMap::new();
        for manager in oldest {
            if count <= UPDATES_MAX {
                return;
            }
            match first_of.get(&manager.api_version) {
                None => {
                    first_of.insert(manager.api_version.clone(), manager);
                }
                Some(first) => {
                    self.fold(first, &manager);
                    count -= 1;
                }
            }
        }
    }

    /// Puts the two entries into the one of old updates; the second is the later one.
    fn fold(&mut self, first: &Manager, second: &Manager) {
        let bucket = Manager {
            name: OLD_UPDATES.to_owned(),
            operation: Operation::Update,
            api_version: second.api_version.clone(),
            subresource: String::new(),
        };
        let Some(newer) = self.remove(second) else { return };
        let older = self.remove(&bucket).or_else(|| self.remove(first));
        let mut fields = older.map(|older| older.fields).unwrap_or_default();
        fields.set().unite(&newer.fields.to_set());
        self.0.push(Entry {
            manager: bucket,
            time: newer.time,
            fields,
        });
    }
}

/// What entries are sorted by.
fn place(entry: &Entry) -> (Operation, Option<&str>, &str, &str, &str) {
    let manager = &entry.manager;
    let time = entry.time.as_deref();
    (
        manager.operation,
        time,
        &manager.name,
        &manager.api_version,
        &manager.subresource,
    )
}

/// What is wrong with the managers of a list that is to be stored. Upstream counts none of them.
pub fn problems(list: Option<&str>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut appliers = 0;
    for (i, entry) in json_text::items(list.unwrap_or("[]")).enumerate() {
        for (key, value) in json_text::members(entry) {
            let path = || format!("metadata.managedFields[{i}].{key}");
            match key {
                "manager" => errors.extend(check_name_at(&path(), &json_text::string(value))),
                "operation" if json_text::string(value) == Operation::Apply.text() => appliers += 1,
                "subresource" if json_text::string(value).len() > TEXT_MAX_BYTES => {
                    let detail = format!("may not be more than {TEXT_MAX_BYTES} bytes");
                    errors.push(FieldError::new(path(), FieldErrorKind::TooLong, Value::Null, detail));
                }
                _ => {}
            }
        }
        if errors.len() >= PROBLEMS_MAX {
            break;
        }
    }
    if appliers > APPLIERS_MAX {
        let detail = format!("must have at most {APPLIERS_MAX} items that apply");
        let path = "metadata.managedFields".to_owned();
        errors.push(FieldError::new(path, FieldErrorKind::TooMany, appliers.into(), detail));
    }
    errors
}

fn stored(entry: &str) -> Option<Entry> {
    let mut manager = Manager {
        name: String::new(),
        operation: Operation::Update,
        api_version: String::new(),
        subresource: String::new(),
    };
    let (mut time, mut fields) = (None, None);
    for (key, value) in json_text::members(entry) {
        let string = || json_text::string(value).into_owned();
        match key {
            "manager" => manager.name = string(),
            "operation" => manager.operation = Operation::read(&json_text::string(value))?,
            "apiVersion" => manager.api_version = string(),
            "subresource" => manager.subresource = string(),
            "time" => time = Some(string()),
            "fieldsV1" => fields = Some(Fields::stored(value)),
            _ => {}
        }
    }
    Some(Entry {
        manager,
        time,
        fields: fields?,
    })
}

fn write(out: &mut String, entry: &Entry) {
    let Entry { manager, time, fields } = entry;
    // In the order of the alphabet, as all that is stored.
    let before = [
        ("apiVersion", manager.api_version.as_str()),
        ("fieldsType", FIELDS_TYPE),
    ];
    let after = [
        ("manager", manager.name.as_str()),
        ("operation", manager.operation.text()),
        ("subresource", &manager.subresource),
        ("time", time.as_deref().unwrap_or("")),
    ];
    out.push('{');
    for (key, value) in before {
        string(out, key, value);
        out.push(',');
    }
    out.push_str("\"fieldsV1\":");
    match &fields.stored {
        Some(text) => out.push_str(text),
        None => fields.set.write(out),
    }
    for (key, value) in after.into_iter().filter(|(_, value)| !value.is_empty()) {
        out.push(',');
        string(out, key, value);
    }
    out.push('}');
}

/// A member of an object whose value is a string.
fn string(out: &mut String, key: &str, value: &str) {
    // Writing to a string cannot fail.
    let _ = match value.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        true => write!(out, "\"{key}\":{}", Value::from(value)),
        false => write!(out, "\"{key}\":\"{value}\""),
    };
}
