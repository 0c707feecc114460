//! `metadata.managedFields`: who owns which fields. Reading what clients send, bounding it, sorting it as upstream does. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field_set::FieldSet;

/// Most entries of updates; older ones become one ([`OLD_UPDATES`]).
const UPDATES_MAX: usize = 10;
/// The manager of what updates longer ago set.
const OLD_UPDATES: &str = "ancient-changes";

/// How a manager came to own its fields. Sorted as upstream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    /// By applying a configuration that names them.
    Apply,
    /// By changing them.
    Update,
}

impl Operation {
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
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) manager: Manager,
    /// Of the last change of fields.
    pub(super) time: Option<String>,
    pub(super) fields: FieldSet,
}

/// The entries of an object, none of which is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Entries(pub(super) Vec<Entry>);

impl Entries {
    /// Reads what has been stored.
    pub(super) fn stored(list: Value) -> Self {
        Self::read(list, |fields| Some(FieldSet::stored(fields))).unwrap_or_default()
    }

    /// Reads what a client sent; `None` if any of it is not valid.
    pub(super) fn sent(list: Value) -> Option<Self> {
        Self::read(list, |fields| FieldSet::parse(&fields).ok())
    }

    fn read(list: Value, fields: impl Fn(Value) -> Option<FieldSet>) -> Option<Self> {
        let Value::Array(list) = list else { return None };
        let mut all = Self(Vec::with_capacity(list.len()));
        for entry in list {
            let Value::Object(mut entry) = entry else { return None };
            let mut text = |key: &str| match entry.remove(key) {
                Some(Value::String(text)) => text,
                _ => String::new(),
            };
            let operation = match text("operation").as_str() {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return None,
            };
            let manager = Manager {
                name: text("manager"),
                operation,
                api_version: text("apiVersion"),
                subresource: text("subresource"),
            };
            if manager.api_version.is_empty() || text("fieldsType") != "FieldsV1" {
                return None;
            }
            let time = Some(text("time")).filter(|time| !time.is_empty());
            let fields = fields(entry.remove("fieldsV1").unwrap_or_default())?;
            all.remove(&manager);
            all.0.push(Entry { manager, time, fields });
        }
        all.drop_empty();
        Some(all)
    }

    /// The list as objects carry it; `None` if there is none.
    pub(super) fn into_value(mut self) -> Option<Value> {
        self.drop_empty();
        if self.0.is_empty() {
            return None;
        }
        self.0.sort_by(|one, other| place(one).cmp(&place(other)));
        Some(self.0.into_iter().map(written).collect())
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
        all.fold(FieldSet::default(), |owned, entry| owned.united(&entry.fields))
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
        let fields = older.map_or_else(FieldSet::default, |older| older.fields);
        self.0.push(Entry {
            manager: bucket,
            time: newer.time,
            fields: fields.united(&newer.fields),
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

fn written(entry: Entry) -> Value {
    let Entry { manager, time, fields } = entry;
    let texts = [
        ("manager", manager.name),
        ("operation", manager.operation.text().to_owned()),
        ("apiVersion", manager.api_version),
        ("subresource", manager.subresource),
        ("time", time.unwrap_or_default()),
        ("fieldsType", "FieldsV1".to_owned()),
    ];
    let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
    let mut entry: Map<String, Value> = texts.map(|(key, text)| (key.to_owned(), Value::from(text))).collect();
    entry.insert("fieldsV1".to_owned(), fields.into_value());
    Value::Object(entry)
}
