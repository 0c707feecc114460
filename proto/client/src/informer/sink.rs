//! From the text of lists and events to the objects of one kind in their store.
//!
//! [`Plain`] is the one part of an informer that there is for each kind; where objects come by way of trees there is none.

use super::store::Held;
use super::{Key, Object, Progress, Shared, text};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ObjectList, Status, WatchEvent};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;

/// What an event said.
pub(super) enum Event {
    /// Everything up to this revision has been seen.
    Seen(Option<String>),
    /// The watch cannot go on.
    Error(Box<Status>),
}

/// Where objects go.
pub(super) trait Sink: Send + Sync {
    /// How far the copy has come.
    fn progress(&self) -> &watch::Sender<Progress>;

    /// Holds exactly what is in the list of this text, which is of the revision returned.
    ///
    /// # Errors
    /// If it is no list of such objects. A copy is as before then; who keeps none has been told of those in front of what cannot be read.
    fn replace(&self, list: &str) -> Result<String, serde_json::Error>;

    /// Does what the event of this text says.
    ///
    /// # Errors
    /// If it is no event of such an object; nothing has changed then.
    fn event(&self, text: &str) -> Result<Event, serde_json::Error>;
}

impl Shared {
    fn put(&self, object: Held) -> Event {
        let seen = object.metadata().resource_version.clone();
        self.store.put(object);
        Event::Seen(seen)
    }

    fn remove(&self, object: &ObjectMeta) -> Event {
        self.store.remove(&Key::named(object));
        Event::Seen(object.resource_version.clone())
    }
}

/// The object without room for more: what is read from a text has some in each of its lists (of a running pod that is a quarter of all it
/// takes), a copy has none.
fn fitted<K: Object>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object.clone()
}

/// Objects read straight from the text.
pub(super) struct Plain<K> {
    pub(super) shared: Arc<Shared>,
    /// What is kept of an object.
    pub(super) trim: fn(K) -> K,
}

impl<K: Object> Sink for Plain<K> {
    fn progress(&self) -> &watch::Sender<Progress> {
        &self.shared.progress
    }

    fn replace(&self, list: &str) -> Result<String, serde_json::Error> {
        let take = |object| Arc::new(fitted((self.trim)(object))) as Held;
        let Some((revision, objects)) = text::parts(list) else {
            let list: ObjectList<K> = serde_json::from_str(list)?;
            self.shared.store.replace(list.items.into_iter().map(take).collect());
            return Ok(list.metadata.resource_version.unwrap_or_default());
        };
        // One after the other: of each is kept less than is read.
        let read = |object: &&str| serde_json::from_str(&text::without_owners(object)).map(take);
        let kept: Result<Vec<Held>, _> = objects.iter().map(read).collect();
        self.shared.store.replace(kept?);
        Ok(revision)
    }

    fn event(&self, text: &str) -> Result<Event, serde_json::Error> {
        Ok(match serde_json::from_str(text)? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.shared.put(Arc::new(fitted((self.trim)(object))))
            }
            WatchEvent::Deleted(object) => self.shared.remove(object.meta()),
            WatchEvent::Bookmark(bookmark) => Event::Seen(Some(bookmark.metadata.resource_version)),
            WatchEvent::Error(status) => Event::Error(status),
        })
    }
}

/// What makes an object of a tree.
pub type Read<K> = fn(Value) -> Result<K, serde_json::Error>;

/// Makes a tree the object that is kept of it.
type Keep = Box<dyn Fn(Value) -> Result<Held, serde_json::Error> + Send + Sync>;

/// Objects read by way of a tree, one after the other: see [`crate::tree`].
pub(super) struct Trees {
    shared: Arc<Shared>,
    keep: Keep,
}

impl Trees {
    /// Of what `read` makes of a tree is kept what `trim` leaves.
    pub(super) fn new<K: Object>(shared: Arc<Shared>, read: Read<K>, trim: fn(K) -> K) -> Self {
        let keep = move |tree| {
            let mut object = trim(read(tree)?);
            object.meta_mut().managed_fields = None;
            Ok(Arc::new(object) as Held)
        };
        Self {
            shared,
            keep: Box::new(keep),
        }
    }
}

impl Sink for Trees {
    fn progress(&self) -> &watch::Sender<Progress> {
        &self.shared.progress
    }

    fn replace(&self, list: &str) -> Result<String, serde_json::Error> {
        let mut objects = Vec::new();
        let revision = read_list(list, &mut |tree| {
            objects.push((self.keep)(tree)?);
            Ok(())
        })?;
        self.shared.store.replace(objects);
        Ok(revision)
    }

    fn event(&self, text: &str) -> Result<Event, serde_json::Error> {
        Ok(match read_event(text)? {
            WatchEvent::Added(tree) | WatchEvent::Modified(tree) => self.shared.put((self.keep)(tree)?),
            WatchEvent::Deleted(tree) => self.shared.remove((self.keep)(tree)?.metadata()),
            WatchEvent::Bookmark(bookmark) => Event::Seen(Some(bookmark.metadata.resource_version)),
            WatchEvent::Error(status) => Event::Error(status),
        })
    }
}

fn read_event(text: &str) -> Result<WatchEvent<Value>, serde_json::Error> {
    serde_json::from_str(text)
}

/// Takes each object of a list, so that no more than one of them is a tree at a time.
type Take<'a> = dyn FnMut(Value) -> Result<(), serde_json::Error> + 'a;

/// Gives the objects of a list to `take`; the list's revision.
fn read_list(text: &str, take: &mut Take) -> Result<String, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let revision = reader.deserialize_map(List(take))?;
    reader.end()?;
    Ok(revision)
}

/// Of a list's metadata, what is needed.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    #[serde(rename = "resourceVersion")]
    pub(super) resource_version: Option<String>,
}

struct List<'a, 'b>(&'a mut Take<'b>);

impl<'de> Visitor<'de> for List<'_, '_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<String, A::Error> {
        let (mut revision, mut listed) = (None, false);
        while let Some(name) = members.next_key::<String>()? {
            match name.as_str() {
                "metadata" => revision = members.next_value::<Metadata>()?.resource_version,
                "items" => {
                    members.next_value_seed(Items(self.0))?;
                    listed = true;
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        match listed {
            true => Ok(revision.unwrap_or_default()),
            false => Err(A::Error::missing_field("items")),
        }
    }
}

struct Items<'a, 'b>(&'a mut Take<'b>);

impl<'de> DeserializeSeed<'de> for Items<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        // Go writes a list of nothing as null.
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(tree) = items.next_element()? {
            (self.0)(tree).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::store::known;
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    fn read(text: &str) -> Result<(String, Vec<Value>), String> {
        let mut taken = Vec::new();
        let revision = read_list(text, &mut |tree| {
            taken.push(tree);
            Ok(())
        });
        revision.map(|revision| (revision, taken)).map_err(|e| e.to_string())
    }

    #[test]
    fn a_list_may_have_its_members_in_any_order() {
        let whole = |objects: &[i32]| Ok(("7".to_owned(), objects.iter().map(|n| json!(n)).collect()));
        for (text, expected) in [
            (
                r#"{"kind":"L","metadata":{"resourceVersion":"7","x":[]},"items":[1,2]}"#,
                whole(&[1, 2]),
            ),
            (
                r#"{"items":[2],"apiVersion":"v1","metadata":{"resourceVersion":"7"}}"#,
                whole(&[2]),
            ),
            (r#"{"items":null,"metadata":{"resourceVersion":"7"}}"#, whole(&[])),
            (r#"{"items":[]}"#, Ok((String::new(), Vec::new()))),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for (text, why) in [
            ("{}", "missing field `items`"),
            (r#"{"items":{}}"#, "expected a sequence"),
            (r#"{"items":[]} x"#, "trailing characters"),
            (r#"{"items":["#, "EOF"),
            (
                r#"{"items":[],"metadata":{"resourceVersion":7}}"#,
                "invalid type: integer `7`",
            ),
            ("[]", "expected a list of objects"),
            ("busy", "expected value"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        let refused = read_list(r#"{"items":[1]}"#, &mut |_| {
            Err(serde_json::Error::custom("not this one"))
        });
        assert!(refused.unwrap_err().to_string().contains("not this one"));
    }

    #[test]
    fn of_lists_and_events_is_kept_what_the_trim_leaves() {
        let object = |name: &str| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
                "metadata": {"name": name, "namespace": "default", "resourceVersion": "7"}})
        };
        let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "7"},
            "items": [object("listed")]});
        let event = json!({"type": "ADDED", "object": object("told")});
        let trim = |map: ConfigMap| ConfigMap { data: None, ..map };
        for by_trees in [false, true] {
            let shared = Arc::new(Shared {
                store: super::super::Store::default(),
                progress: watch::Sender::new(Progress::default()),
            });
            let to = Arc::clone(&shared);
            let sink: Box<dyn Sink> = match by_trees {
                true => Box::new(Trees::new(to, serde_json::from_value, trim)),
                false => Box::new(Plain { shared: to, trim }),
            };
            assert_eq!(sink.replace(&list.to_string()).unwrap(), "7");
            assert!(matches!(sink.event(&event.to_string()), Ok(Event::Seen(_))));
            let kept: Vec<_> = shared
                .store
                .list()
                .into_iter()
                .map(|map| known::<ConfigMap>(map).data.clone())
                .collect();
            assert_eq!(kept, [None, None], "by trees: {by_trees}");
        }
    }

    #[test]
    fn what_is_kept_has_no_room_for_more() {
        let text = r#"{"metadata": {"finalizers": ["a"], "managedFields": [{"manager": "x"}]}}"#;
        let read: ConfigMap = serde_json::from_str(text).unwrap();
        let room = |object: &ConfigMap| object.metadata.finalizers.as_ref().unwrap().capacity();
        assert!(room(&read) > 1, "or nothing is to be gained");
        let kept = fitted(read);
        assert_eq!((room(&kept), kept.metadata.managed_fields), (1, None));
    }
}
