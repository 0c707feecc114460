//! Who owns what after a create, an update or a patch that is none of server-side apply's: what changed is the writer's alone, what is
//! gone is nobody's. Pure.

use jiff::Timestamp;
use serde_json::Value;

use super::compare::{Comparison, compare};
use super::entry::{Entries, Entry, Manager, Operation};
use super::field_set::FieldSet;
use super::scope::Scope;
use super::typing::Typing;

/// Who writes an object, and through which endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The field manager; `unknown` if it is empty.
    pub manager: &'a str,
    /// `v1`, or `group/version`, of the request.
    pub api_version: &'a str,
    /// Empty for the main endpoint.
    pub subresource: &'a str,
    /// The time of the write.
    pub now: Timestamp,
}

impl Writer<'_> {
    pub(super) fn manager(&self, operation: Operation) -> Manager {
        Manager {
            name: match self.manager {
                "" => "unknown".to_owned(),
                name => name.to_owned(),
            },
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
        }
    }

    /// The time as objects carry it.
    pub(super) fn time(&self) -> String {
        self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

/// Gives `new` the managedFields it has after this write over `live` (`None` for a new object). `new` is what is to be stored as far
/// as the request decides it; its own managedFields, if the request may set them, replace those of `live`, and an empty list
/// (or one empty entry) ends the tracking until somebody applies.
pub fn track(typing: Typing<'_>, scope: Scope, live: Option<&Value>, new: &mut Value, writer: &Writer<'_>) {
    let sent = take(new);
    let stored = live.map_or(&Value::Null, |live| &live["metadata"]["managedFields"]);
    let start = match sent {
        Some(sent) if writer.subresource.is_empty() && sent != *stored => Start::of(sent),
        Some(sent) if sent == *stored => Start::Stored(sent),
        _ => Start::Live,
    };
    let is_untracked = match &start {
        Start::Sent(entries) => entries.is_empty(),
        Start::Stored(_) | Start::Live => stored.is_null(),
    };
    if is_untracked && live.is_some() {
        return;
    }
    let found = compare(typing, scope, live, new);
    let entries = match start {
        Start::Sent(entries) => entries,
        Start::Stored(list) if found.is_empty() => return put(new, Some(list)),
        Start::Stored(list) => Entries::stored(list),
        Start::Live if found.is_empty() => return put(new, Some(stored.clone())),
        Start::Live => Entries::stored(stored.clone()),
    };
    put(new, updated(entries, found, writer).into_value());
}

/// Which entries a write begins with.
enum Start {
    /// Those the request carries, valid and not those of the live object.
    Sent(Entries),
    /// Those of the live object, as the request carries them.
    Stored(Value),
    /// Those of the live object.
    Live,
}

impl Start {
    fn of(sent: Value) -> Self {
        let is_reset = match sent.as_array().map(Vec::as_slice) {
            Some([]) => true,
            Some([only]) => only.as_object().is_some_and(serde_json::Map::is_empty),
            _ => false,
        };
        match is_reset {
            true => Self::Sent(Entries::default()),
            false => match Entries::sent(sent) {
                Some(entries) if !entries.is_empty() => Self::Sent(entries),
                // Clients that do not know managedFields send anything.
                _ => Self::Live,
            },
        }
    }
}

/// The entries after a change that `writer` made.
pub(super) fn updated(mut entries: Entries, found: Comparison, writer: &Writer<'_>) -> Entries {
    let own = writer.manager(Operation::Update);
    let Comparison { changed, removed } = found;
    for entry in &mut entries.0 {
        if !entry.manager.is(&own) {
            lose(&mut entry.fields, &changed);
        }
        lose(&mut entry.fields, &removed);
    }
    if !changed.is_empty() {
        let time = Some(writer.time());
        match entries.get_mut(&own) {
            Some(entry) => {
                entry.time = time;
                if !entry.fields.covers(&changed) {
                    entry.fields.unite(&changed);
                }
            }
            None => entries.0.push(Entry {
                manager: own,
                time,
                fields: changed,
            }),
        }
    }
    entries.drop_empty();
    entries.bound_updates();
    entries
}

fn lose(fields: &mut FieldSet, lost: &FieldSet) {
    if fields.meets(lost) {
        fields.subtract(lost);
    }
}

/// Takes managedFields off the object.
pub(super) fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Puts managedFields onto the object.
pub(super) fn put(object: &mut Value, list: Option<Value>) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    if let (Some(metadata), Some(list)) = (metadata, list.filter(|list| !list.is_null())) {
        metadata.insert("managedFields".to_owned(), list);
    }
}

/// Gives `new` the managedFields of `old` if nothing but their times is different, so that a write of nothing stays one.
pub fn keep_times_of_no_change(new: &mut Value, old: &Value) {
    let (sent, stored) = (&new["metadata"]["managedFields"], &old["metadata"]["managedFields"]);
    if sent == stored || !same_but_for_times(sent, stored) || !same_but_for_managed_fields(new, old) {
        return;
    }
    put(new, Some(stored.clone()));
}

fn same_but_for_times(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_array(), other.as_array()) else {
        return false;
    };
    let same = |(one, other): (&Value, &Value)| same_members(one, other, &["time"]);
    one.len() == other.len() && one.iter().zip(other).all(same)
}

fn same_but_for_managed_fields(one: &Value, other: &Value) -> bool {
    let metadata = ["managedFields", "resourceVersion", "selfLink"];
    same_members(one, other, &["metadata", "kind", "apiVersion"])
        && same_members(&one["metadata"], &other["metadata"], &metadata)
}

fn same_members(one: &Value, other: &Value, except: &[&str]) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else {
        return one == other;
    };
    let counted = |name: &&String| !except.contains(&name.as_str());
    one.keys().filter(counted).count() == other.keys().filter(counted).count()
        && one.keys().filter(counted).all(|name| one.get(name) == other.get(name))
}
