//! Who owns what after a create, an update or a patch that is none of server-side apply's: what changed is the writer's alone, what is
//! gone is nobody's. Pure.

use jiff::Timestamp;
use serde_json::Value;

use super::compare::{Comparison, compare};
use super::entry::{Entries, Entry, Manager, Operation};
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

/// An object as it was before a write, and the list of its owners: what `metadata.managedFields` has, as text. Objects
/// are without it here.
#[derive(Clone, Copy, Debug)]
pub struct Live<'a> {
    /// The object.
    pub object: &'a Value,
    /// Its managedFields, of our own writing; `None` if it has none.
    pub owners: Option<&'a str>,
}

/// The managedFields that `new` has after this write over `live` (`None` for a new object), as text. `new` is what is to be stored
/// as far as the request decides it; its own managedFields are taken off it and, if the request may set them, replace those
/// of `live`, and an empty list (or one empty entry) ends the tracking until somebody applies.
pub fn track(
    typing: Typing<'_>,
    scope: Scope,
    live: Option<Live<'_>>,
    new: &mut Value,
    writer: &Writer<'_>,
) -> Option<String> {
    let stored = live.and_then(|live| live.owners);
    let sent = take(new).filter(|_| writer.subresource.is_empty());
    let start = match sent {
        Some(sent) if stored != Some(sent.to_string().as_str()) => sent_entries(&sent),
        _ => None,
    };
    let is_untracked = match &start {
        Some(entries) => entries.is_empty(),
        None => stored.is_none(),
    };
    if is_untracked && live.is_some() {
        return None;
    }
    let found = compare(typing, scope, live.map(|live| live.object), new);
    match start {
        None if found.is_empty() => stored.map(str::to_owned),
        None => updated(Entries::stored(stored.unwrap_or("[]")), &found, writer).into_text(),
        Some(entries) => updated(entries, &found, writer).into_text(),
    }
}

/// What a request says of the owners; `None` if that is nothing: clients that do not know managedFields send anything.
fn sent_entries(sent: &Value) -> Option<Entries> {
    let is_reset = match sent.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(serde_json::Map::is_empty),
        _ => false,
    };
    match is_reset {
        true => Some(Entries::default()),
        false => Entries::sent(sent).filter(|entries| !entries.is_empty()),
    }
}

/// The entries after a change that `writer` made.
pub(super) fn updated(mut entries: Entries, found: &Comparison, writer: &Writer<'_>) -> Entries {
    let own = writer.manager(Operation::Update);
    let Comparison { changed, removed } = found;
    for entry in &mut entries.0 {
        if !entry.manager.is(&own) {
            entry.fields.lose(changed);
        }
        entry.fields.lose(removed);
    }
    if !changed.is_empty() {
        let time = Some(writer.time());
        match entries.get_mut(&own) {
            Some(entry) => {
                entry.time = time;
                entry.fields.gain(changed);
            }
            None => entries.0.push(Entry {
                manager: own,
                time,
                fields: changed.clone().into(),
            }),
        }
    }
    entries.drop_empty();
    entries.bound_updates();
    entries
}

/// Takes managedFields off the object.
pub fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Puts managedFields, given as text, onto the object.
pub fn put(object: &mut Value, owners: Option<&str>) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let list = owners.and_then(|list| serde_json::from_str(list).ok());
    if let (Some(metadata), Some(list)) = (metadata, list) {
        metadata.insert("managedFields".to_owned(), list);
    }
}

/// The owners of `new`: those of `old` if nothing else is different, and they are but for their times, so that a write of nothing
/// stays one.
pub fn settled(new: &Value, owners: Option<String>, old: Live<'_>) -> Option<String> {
    let (Some(sent), Some(stored)) = (owners.as_deref(), old.owners) else {
        return owners;
    };
    let is_same = sent != stored
        && same_objects(new, old.object)
        && Entries::stored(sent).same_but_for_times(&Entries::stored(stored));
    match is_same {
        true => Some(stored.to_owned()),
        false => owners,
    }
}

/// Whether two objects are one but for what no request sets.
fn same_objects(one: &Value, other: &Value) -> bool {
    same_members(one, other, &["metadata", "kind", "apiVersion"])
        && same_members(&one["metadata"], &other["metadata"], &["resourceVersion", "selfLink"])
}

fn same_members(one: &Value, other: &Value, except: &[&str]) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else {
        return one == other;
    };
    let counted = |name: &&String| !except.contains(&name.as_str());
    one.keys().filter(counted).count() == other.keys().filter(counted).count()
        && one.keys().filter(counted).all(|name| one.get(name) == other.get(name))
}
