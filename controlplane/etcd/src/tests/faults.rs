//! Members die in the middle: nothing acknowledged is lost, nothing is seen twice, and who cannot be served is told so.

use super::*;
use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use store::Revision;

/// What writers were told: key, value and revision.
type Acknowledged = Arc<Mutex<Vec<(String, String, Revision)>>>;

/// Makes one key after another and writes each once more, until told to stop.
async fn write(etcd: Arc<Etcd>, writer: usize, acknowledged: Acknowledged, stop: Arc<AtomicBool>) {
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let key = format!("/registry/w/{writer}-{number:05}");
        let mut expect = Expect::Absent;
        for step in ["made", "changed"] {
            // Everybody writes something of its own.
            let value = format!("{step} {key}");
            match etcd.put(&key, Bytes::from(value.clone()), expect).await {
                Ok(revision) => {
                    expect = Expect::At(revision);
                    let mut acknowledged = acknowledged.lock().unwrap();
                    acknowledged.push((key.clone(), value, revision));
                }
                // Not known: the key is left alone.
                Err(StoreError::OutcomeUnknown(_) | StoreError::Unavailable(_)) => break,
                Err(error) => panic!("nobody else writes {key}: {error}"),
            }
        }
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let came = tokio::time::timeout(LONG, wait).await;
    assert!(came.is_ok(), "{what} did not come about");
}

/// Follows as the window does: on elsewhere after each failure.
async fn follow(
    etcd: Arc<Etcd>,
    mut at: Revision,
    to: tokio::sync::watch::Receiver<Revision>,
) -> Vec<(Revision, String)> {
    let mut seen = Vec::new();
    while at < *to.borrow() {
        let Ok(mut steps) = etcd.follow(at).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        while at < *to.borrow() {
            let Ok(step) = next(&mut steps).await else { break };
            assert!(step.revision > at, "no step goes back");
            at = step.revision;
            seen.extend(
                step.changes
                    .into_iter()
                    .map(|change| (change.revision, change.key.to_string())),
            );
        }
    }
    seen
}

/// The first step after a revision, of whichever member tells it.
async fn first_step(etcd: &Etcd, after: Revision) -> Step {
    let asking = async {
        loop {
            if let Ok(mut steps) = etcd.follow(after).await
                && let Ok(step) = next(&mut steps).await
            {
                return step;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, asking)
        .await
        .expect("a member that tells it")
}

#[tokio::test]
async fn leaders_die_under_writes_and_nothing_acknowledged_is_lost() {
    let mut cluster = Cluster::start(3);
    let etcd = open(&cluster).await;
    let base = etcd.current_revision().await.unwrap();
    let (acknowledged, stop) = (Acknowledged::default(), Arc::new(AtomicBool::new(false)));
    let (end, ends) = tokio::sync::watch::channel(Revision::MAX);
    let follower = tokio::spawn(follow(Arc::clone(&etcd), base, ends));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (acknowledged, stop) = (Arc::clone(&acknowledged), Arc::clone(&stop));
            tokio::spawn(write(Arc::clone(&etcd), writer, acknowledged, stop))
        })
        .collect();
    let count = || acknowledged.lock().unwrap().len();
    for _ in 0..3 {
        let before = count();
        until("writes", || count() >= before + 100).await;
        let leader = cluster.leader().await;
        cluster.kill(leader);
        let before = count();
        until("writes without the old leader", || count() >= before + 100).await;
        cluster.revive(leader);
    }
    stop.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    let last = etcd.put("/registry/last", Bytes::new(), Expect::Absent).await.unwrap();
    end.send_replace(last);
    // For a follower that waits for more already.
    etcd.put("/registry/wake", Bytes::new(), Expect::Absent).await.unwrap();
    let (revision, records) = etcd.range("/registry/w/").await.unwrap();
    assert!(revision >= last, "a read is no older than what was acknowledged");
    let there: BTreeMap<&str, _> = records.iter().map(|record| (&*record.key, record)).collect();
    let acknowledged = acknowledged.lock().unwrap().clone();
    let revisions: HashSet<Revision> = acknowledged.iter().map(|(_, _, revision)| *revision).collect();
    assert_eq!(revisions.len(), acknowledged.len(), "no two writes have one revision");
    for (key, value, revision) in &acknowledged {
        let record = there.get(&**key).unwrap_or_else(|| panic!("{key} is lost"));
        // The creation is written over by a change that may have been done without being acknowledged.
        let is_it = record.modified == *revision && record.value == value.as_bytes();
        assert!(
            is_it || record.modified > *revision && value.starts_with("made"),
            "{key} at {revision}"
        );
    }
    let seen = tokio::time::timeout(LONG, follower).await.unwrap().unwrap();
    assert!(
        seen.windows(2).all(|pair| pair[0].0 < pair[1].0),
        "each is seen once and in order"
    );
    let seen: HashSet<(Revision, String)> = seen.into_iter().collect();
    for (key, _, revision) in &acknowledged {
        assert!(
            seen.contains(&(*revision, key.clone())),
            "{key} at {revision} is not seen"
        );
    }
}

#[tokio::test]
async fn without_a_quorum_requests_end_in_upstreams_words() {
    let mut cluster = Cluster::start(3);
    let options = Options {
        deadlines: crate::Deadlines {
            request: Duration::from_secs(2),
            ..cluster.options().deadlines
        },
        ..cluster.options()
    };
    let patient = open(&cluster).await;
    let etcd = Etcd::open(options).await.unwrap();
    let made = patient
        .put("/registry/a", Bytes::from_static(b"1"), Expect::Absent)
        .await
        .unwrap();
    cluster.kill(0);
    cluster.kill(1);
    let read = etcd.current_revision().await.unwrap_err();
    assert!(matches!(read, StoreError::Unavailable(_)), "{read:?}");
    assert!(read.to_string().starts_with("etcdserver: request timed out"), "{read}");
    let written = etcd
        .put("/registry/a", Bytes::from_static(b"2"), Expect::At(made))
        .await;
    let written = written.unwrap_err();
    assert!(
        matches!(written, StoreError::OutcomeUnknown(_) | StoreError::Unavailable(_)),
        "{written:?}"
    );
    assert!(
        written.to_string().starts_with("etcdserver: request timed out"),
        "{written}"
    );
    cluster.revive(0);
    let answer = async {
        loop {
            if let Ok((_, records)) = patient.range("/registry/a").await {
                return records;
            }
        }
    };
    let records = tokio::time::timeout(LONG, answer).await.unwrap();
    assert!(records[0].value == "1" || records[0].value == "2");
}

#[tokio::test]
async fn a_watch_of_a_member_that_dies_ends_with_its_name_and_goes_on_elsewhere() {
    let mut cluster = Cluster::start(3);
    let etcd = open(&cluster).await;
    let base = etcd.current_revision().await.unwrap();
    // The watch is at the member that is asked first.
    let (asked, _) = etcd.rpc.watch_client();
    let mut steps = etcd.follow(base).await.unwrap();
    let first = etcd
        .put("/registry/a", Bytes::from_static(b"1"), Expect::Absent)
        .await
        .unwrap();
    assert_eq!(next(&mut steps).await.unwrap().revision, first);
    cluster.kill(asked);
    let ended = next(&mut steps).await.unwrap_err();
    assert!(
        matches!(&ended, StoreError::Unavailable(text) if text.contains(&format!("localhost:{}1", asked + 1))),
        "{ended}"
    );
    // No creation: it may have been the leader, and one that went with it is not sent again.
    let second = etcd
        .put("/registry/a", Bytes::from_static(b"2"), Expect::At(first))
        .await
        .unwrap();
    let step = first_step(&etcd, first).await;
    assert_eq!((step.revision, &*step.changes[0].key), (second, "/registry/a"));
}

/// The answer to a write is lost: it was done, and is found, also when others have written over it since.
#[tokio::test]
async fn a_write_whose_answer_was_lost_is_found() {
    use crate::settle::settle;
    use crate::txn::Write;
    let cluster = Cluster::start(1);
    let etcd = open(&cluster).await;
    let (one, two) = (Bytes::from_static(b"1"), Bytes::from_static(b"2"));
    let before = etcd.current_revision().await.unwrap();
    let made = etcd.put("/registry/a", one.clone(), Expect::Absent).await.unwrap();
    let changed = etcd.put("/registry/a", two.clone(), Expect::At(made)).await.unwrap();
    let mut current = proto::etcd::KeyValue {
        mod_revision: changed as i64,
        ..proto::etcd::KeyValue::default()
    };
    let end = tokio::time::Instant::now() + LONG;
    let key = b"/registry/a";
    let found = settle(&etcd.rpc, key, Write::Put(&one), (before, true), Some(&current), end).await;
    assert_eq!(found.unwrap(), Some(made), "made, and changed by somebody since");
    let found = settle(&etcd.rpc, key, Write::Put(&two), (made, false), Some(&current), end).await;
    assert_eq!(found.unwrap(), Some(changed));
    let found = settle(&etcd.rpc, key, Write::Put(&one), (made, false), Some(&current), end).await;
    assert_eq!(found.unwrap(), None, "somebody else was faster");
    let gone = etcd.delete("/registry/a", changed).await.unwrap();
    let found = settle(&etcd.rpc, key, Write::Delete, (changed, false), None, end).await;
    assert!(
        matches!(found, Err(StoreError::OutcomeUnknown(_))),
        "anybody's: {found:?}"
    );
    let again = etcd.put("/registry/a", two.clone(), Expect::Absent).await.unwrap();
    current.mod_revision = again as i64;
    let found = settle(&etcd.rpc, key, Write::Put(&two), (gone, true), Some(&current), end).await;
    assert_eq!(found.unwrap(), Some(again));
    etcd.compact(again).await.unwrap();
    let lost = settle(&etcd.rpc, key, Write::Delete, (changed, false), None, end).await;
    assert!(matches!(lost, Err(StoreError::OutcomeUnknown(_))), "{lost:?}");
}

/// One member has lost everything and stays away; the others serve. A reader that does not read while history is compacted away
/// gets all there is, or a part and why there is no more; who comes afterwards is refused.
#[tokio::test]
async fn two_of_three_serve_and_a_compaction_leaves_readers_no_gap() {
    let mut cluster = Cluster::start(3);
    let etcd = open(&cluster).await;
    let base = etcd.current_revision().await.unwrap();
    // A creation may be on its way to the member that goes, and then nobody can say what became of it; a write over a revision
    // is repeated.
    let mut at = etcd
        .put("/registry/a", Bytes::from_static(b"0"), Expect::Absent)
        .await
        .unwrap();
    let leader = cluster.leader().await;
    cluster.wipe((leader + 1) % 3);
    // Whoever asks first finds out, and asks another.
    etcd.current_revision().await.unwrap();
    // A reader that does not read meanwhile.
    let mut steps = etcd.follow(base).await.unwrap();
    let large = Bytes::from(vec![b' '; 256 << 10]);
    for _ in 0..100 {
        at = etcd.put("/registry/a", large.clone(), Expect::At(at)).await.unwrap();
    }
    etcd.compact(at).await.unwrap();
    let mut reached = base;
    let refused = loop {
        match next(&mut steps).await {
            Ok(step) => {
                for change in &step.changes {
                    assert_eq!(change.revision, reached + 1, "no gap");
                    reached = change.revision;
                }
                if reached == at {
                    break None;
                }
            }
            Err(error) => break Some(error),
        }
    };
    // Everything up to somewhere, and then why there is no more: never a gap.
    let is_told = refused
        .as_ref()
        .is_none_or(|error| matches!(error, StoreError::Compacted { .. } | StoreError::Unavailable(_)));
    assert!(is_told, "{refused:?}");
    let again = next(&mut etcd.follow(base).await.unwrap()).await;
    assert!(
        matches!(again, Err(StoreError::Compacted { oldest, .. }) if oldest == at),
        "{again:?}"
    );
}
