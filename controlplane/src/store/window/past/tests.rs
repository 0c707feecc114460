//! Windows over a store that has been opened again.

use super::*;
use crate::store::disk::Disk;
use crate::store::window::{ResourceWindow, RevisionError, Window};
use crate::store::{Expect, Store};
use bytes::Bytes;
use futures::StreamExt;
use std::path::Path;

const PODS: &str = "/registry/pods/";

/// What an event says: its revision, the key, the value before and after.
type Told = (Revision, String, Option<Bytes>, Option<Bytes>);

async fn open(directory: &Path) -> (Arc<Disk>, Window) {
    let disk = Arc::new(Disk::open(directory).unwrap());
    let window = Window::open(disk.clone()).await.unwrap();
    (disk, window)
}

async fn close(disk: Arc<Disk>, window: Window) {
    drop(window);
    Disk::close_when_alone(disk).await;
}

/// Puts or deletes keys in turn; the last revision.
async fn write(disk: &Disk, count: u64, start: u64) -> Revision {
    let mut last = 0;
    for number in start..start + count {
        let place = ["pods", "secrets"][usize::from(number % 3 == 0)];
        let key = format!("/registry/{place}/{}", number * 7 % 5);
        let (_, found) = disk.range(&key).await.unwrap();
        let value = Bytes::from(format!("{{\"n\":{number}}}"));
        last = match found.first() {
            Some(found) if number % 4 == 0 => disk.delete(&key, found.modified).await.unwrap(),
            Some(found) => disk.put(&key, value, Expect::At(found.modified)).await.unwrap(),
            None => disk.put(&key, value, Expect::Absent).await.unwrap(),
        };
    }
    last
}

async fn told(resource: &Arc<ResourceWindow>, after: Revision, until: Revision) -> Vec<Told> {
    resource.reach(until).await.unwrap();
    let mut events = Box::pin(resource.watch(after).unwrap());
    let mut told = Vec::new();
    while let Some(Some(event)) = futures::FutureExt::now_or_never(events.next()) {
        let key = event.old.as_ref().or(event.new.as_ref()).unwrap().key.to_string();
        let raw = |stored: &Option<Arc<Stored>>| stored.as_ref().map(|stored| stored.raw());
        told.push((event.revision, key, raw(&event.old), raw(&event.new)));
    }
    told
}

#[tokio::test]
async fn a_watch_goes_on_across_restarts_as_if_there_had_been_none() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, window) = open(directory.path()).await;
    let pods = window.resource(PODS);
    let newest = write(&disk, 60, 0).await;
    let first = 10;
    let before = told(&pods, first, newest).await;
    let creations: Vec<Revision> = pods.cached().objects.values().map(|stored| stored.created).collect();
    let earlier = pods.at(first).unwrap().objects;
    drop(pods);
    close(disk, window).await;

    let (disk, window) = open(directory.path()).await;
    let pods = window.resource(PODS);
    assert_eq!(told(&pods, first, newest).await, before);
    let created = pods
        .cached()
        .objects
        .values()
        .map(|stored| stored.created)
        .collect::<Vec<_>>();
    assert_eq!(created, creations);
    assert!(pods.at(first).unwrap().objects == earlier, "the past reads as it was");
    // Claimed after more has been written, which nobody had claimed either.
    let newer = write(&disk, 30, 60).await;
    pods.reach(newer).await.unwrap();
    let secrets = window.resource("/registry/secrets/");
    let since = told(&secrets, first, newer).await;
    drop((pods, secrets));
    close(disk, window).await;

    let (disk, window) = open(directory.path()).await;
    let secrets = window.resource("/registry/secrets/");
    assert_eq!(told(&secrets, first, newer).await, since);
    assert!(since.len() > 20 && since.iter().any(|(.., new)| new.is_none()));
    drop(secrets);
    close(disk, window).await;
    for name in ["past.newer", "past.older"] {
        let _ = std::fs::remove_file(directory.path().join(name));
    }
    let (_disk, window) = open(directory.path()).await;
    let gone = window.resource(PODS).cursor(newer - 1).err();
    assert_eq!(
        gone,
        Some(RevisionError::Gone {
            wanted: newer - 1,
            oldest: newer
        })
    );
}

fn record(key: &str, modified: Revision) -> Record {
    Record {
        key: Arc::from(key),
        value: Bytes::new(),
        created: 1,
        modified,
    }
}

fn replaced(revision: Revision, key: &str, is_deletion: bool, old: Option<Revision>) -> Replaced {
    Replaced {
        revision,
        key: Arc::from(key),
        is_deletion,
        old: old.map(|modified| record(key, modified)),
    }
}

#[test]
fn only_what_leads_to_the_records_is_believed() {
    let good = [
        replaced(5, "/a", false, Some(2)),
        replaced(6, "/b", false, None),
        replaced(7, "/a", true, Some(5)),
        replaced(8, "/b", false, Some(6)),
    ];
    let records = [record("/b", 8), record("/c", 3)];
    assert!(leads_to(&good, 8, &records));
    assert!(!leads_to(&good, 9, &records), "something has been written since");
    assert!(!leads_to(&good, 8, &[record("/c", 3)]), "what was written is not there");
    assert!(
        !leads_to(&good, 8, &[record("/b", 6), record("/c", 3)]),
        "it is another write's"
    );
    let more = [record("/a", 5), record("/b", 8)];
    assert!(!leads_to(&good, 8, &more), "what was deleted is there");
    let mut torn = good.clone();
    torn[2] = replaced(7, "/a", true, Some(4));
    assert!(!leads_to(&torn, 8, &records), "a write is missing between");
    assert!(!leads_to(&[], 8, &records));
    let deletion = [replaced(8, "/a", true, Some(2))];
    assert!(leads_to(&deletion, 8, &[]));
    assert!(
        !leads_to(&deletion, 8, &[record("/a", 2)]),
        "what was deleted is there as it was"
    );
    let later = [replaced(8, "/a", true, Some(9))];
    assert!(!leads_to(&later, 8, &[]), "it took the place of what was written later");
}
