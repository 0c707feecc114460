//! What a write has done whose answer was lost, when its repetition finds its condition false.
//!
//! The first thing that happened to the key after the expected revision is what made the condition false: if it is what was to be
//! written, it was this write. Two writers of the very same bytes over the same revision cannot be told apart; objects have a UID and
//! most values something of their writer's. Deletions have nothing of theirs: whose one was is not known.

use crate::rpc::Rpc;
use crate::txn::Write;
use crate::watching::open;
use proto::etcd::event::EventType;
use proto::etcd::{Event, KeyValue};
use std::sync::Arc;
use store::{Revision, StoreError};
use tokio::time::Instant;

/// The revision of the write, if it was done; `None` if something else was.
pub(crate) async fn settle(
    rpc: &Arc<Rpc>,
    key: &[u8],
    write: Write<'_>,
    (before, is_creation): (Revision, bool),
    current: Option<&KeyValue>,
    end: Instant,
) -> Result<Option<Revision>, StoreError> {
    let reading = read(rpc, key, write, (before, is_creation), current);
    let unknown = |why: String| {
        Err(StoreError::OutcomeUnknown(format!(
            "whether the write was done is not known: {why}"
        )))
    };
    match tokio::time::timeout_at(end, reading).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => unknown(error.to_string()),
        Err(_) => unknown("etcdserver: request timed out".to_owned()),
    }
}

async fn read(
    rpc: &Arc<Rpc>,
    key: &[u8],
    write: Write<'_>,
    (before, is_creation): (Revision, bool),
    current: Option<&KeyValue>,
) -> Result<Option<Revision>, StoreError> {
    let last = current.map_or(0, |current| current.mod_revision as Revision);
    if (1..=before).contains(&last) {
        // Nothing has happened since.
        return Ok(None);
    }
    let mut watched = open(rpc, (key.to_vec(), Vec::new()), before).await?;
    loop {
        let events = watched.events().await?;
        for event in events {
            match judge(&event, write, (before, last), is_creation) {
                Seen::Ours(revision) => return Ok(Some(revision)),
                Seen::Others => return Ok(None),
                Seen::Anybodys => {
                    let why = "its key has been deleted, by this write or another".to_owned();
                    return Err(StoreError::OutcomeUnknown(why));
                }
                Seen::Nothing => {}
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Ours(Revision),
    Others,
    /// Done, by this write or another that cannot be told from it.
    Anybodys,
    /// Look at the next.
    Nothing,
}

/// One event of the key. A creation was expected to come some time after `before`, and until `last`, which is the revision of what
/// made the condition false; everything else right after it.
fn judge(event: &Event, write: Write<'_>, (before, last): (Revision, Revision), is_creation: bool) -> Seen {
    let Some(kv) = &event.kv else { return Seen::Nothing };
    let revision = kv.mod_revision as Revision;
    if revision <= before {
        return Seen::Nothing;
    }
    let is_deletion = event.r#type == i32::from(EventType::Delete);
    let is_ours = match write {
        Write::Put(value) => {
            let is_made = kv.create_revision == kv.mod_revision;
            !is_deletion && is_made == is_creation && kv.value == value[..]
        }
        Write::Delete if is_deletion => return Seen::Anybodys,
        Write::Delete => false,
    };
    if is_ours {
        return Seen::Ours(revision);
    }
    // The key may have been made and deleted by others before.
    let goes_on = is_creation && revision < last;
    if goes_on { Seen::Nothing } else { Seen::Others }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    /// A change at a revision of a key made at another one.
    fn event(revision: i64, made: i64, value: Option<&str>) -> Event {
        let kind = if value.is_some() {
            EventType::Put
        } else {
            EventType::Delete
        };
        Event {
            r#type: kind.into(),
            kv: Some(KeyValue {
                create_revision: made,
                mod_revision: revision,
                value: value.unwrap_or_default().as_bytes().to_vec(),
                ..KeyValue::default()
            }),
        }
    }

    #[test]
    fn the_first_thing_after_what_was_expected_tells() {
        let ours = Bytes::from_static(b"a");
        let seen = |event, write| judge(&event, write, (5, 7), false);
        let put = Write::Put(&ours);
        assert_eq!(seen(event(5, 2, Some("a")), put), Seen::Nothing, "before it");
        assert_eq!(seen(event(6, 2, Some("a")), put), Seen::Ours(6), "written over since");
        assert_eq!(seen(event(6, 2, Some("b")), put), Seen::Others);
        assert_eq!(
            seen(event(6, 0, None), put),
            Seen::Others,
            "another may be made of it, not ours"
        );
        assert_eq!(seen(event(6, 0, None), Write::Delete), Seen::Anybodys);
        assert_eq!(seen(event(6, 2, Some("b")), Write::Delete), Seen::Others);
    }

    #[test]
    fn a_creation_may_come_after_others_of_the_key() {
        let ours = Bytes::from_static(b"a");
        let seen = |event| judge(&event, Write::Put(&ours), (5, 9), true);
        assert_eq!(seen(event(6, 6, Some("b"))), Seen::Nothing);
        assert_eq!(seen(event(7, 6, Some("a"))), Seen::Nothing, "an update of others");
        assert_eq!(seen(event(8, 0, None)), Seen::Nothing);
        assert_eq!(seen(event(9, 9, Some("a"))), Seen::Ours(9));
        assert_eq!(seen(event(9, 9, Some("b"))), Seen::Others);
    }
}
