use super::*;
use crate::Etcd;
use crate::testing::Cluster;
use futures::StreamExt;
use store::{Expect, Store};

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

async fn all(side: &Side) -> (Revision, Vec<Record>) {
    let found = std::sync::Mutex::new(Vec::new());
    let revision = side
        .read(|records| {
            found.lock().unwrap().extend(records);
            std::future::ready(Ok(()))
        })
        .await
        .unwrap();
    (revision, found.into_inner().unwrap())
}

#[test]
fn a_mark_is_read_as_it_was_written() {
    for (state, _) in STATES {
        let mark = Mark {
            id: "1f".to_owned(),
            state,
            text: "on its way to elsewhere".to_owned(),
        };
        assert_eq!(Mark::parse(&mark.bytes()), mark);
    }
    assert_eq!(Mark::parse(b"\xff").state, State::Copying, "nothing is done with it");
}

#[tokio::test]
async fn a_source_takes_no_writes_until_it_is_released_or_for_good() {
    let cluster = Cluster::start(1);
    let etcd = Etcd::open(cluster.options()).await.unwrap();
    let first = etcd.put("/registry/a/x", bytes("1"), Expect::Absent).await.unwrap();
    let mut side = Side::open(&cluster.options()).await.unwrap();
    let held = side.hold("1", "they move to a disk").await.unwrap();
    let mut second = Side::open(&cluster.options()).await.unwrap();
    assert!(second.hold("2", "twice").await.is_err(), "one move at a time");
    for refused in [
        etcd.put("/registry/a/y", bytes("1"), Expect::Absent).await,
        etcd.put("/registry/a/x", bytes("2"), Expect::At(first)).await,
        etcd.delete("/registry/a/x", first).await,
    ] {
        let Err(StoreError::ReadOnly(why)) = refused else {
            panic!("it is closed: {refused:?}");
        };
        assert_eq!(why, "they move to a disk");
    }
    let conflict = etcd.put("/registry/a/x", bytes("2"), Expect::Absent).await;
    assert!(matches!(conflict, Err(StoreError::Conflict { .. })), "as ever");
    let refused = Etcd::open(cluster.options()).await.err().unwrap().to_string();
    assert!(refused.ends_with("cannot be used: they move to a disk"), "{refused}");

    Side::release(held).await.unwrap();
    let second = etcd.put("/registry/a/x", bytes("2"), Expect::At(first)).await.unwrap();
    let held = side.hold("3", "they move to a disk").await.unwrap();
    let at = side.revision().await.unwrap();
    assert_eq!(side.count().await.unwrap(), 1, "the mark is no object");
    let (_, records) = all(&side).await;
    assert_eq!((records.len(), records[0].modified), (1, second));
    side.leave(held, "they are on a disk", (1, at)).await.unwrap();
    assert!(Etcd::open(cluster.options()).await.is_err());
    let refused = etcd.delete("/registry/a/x", second).await;
    assert!(matches!(refused, Err(StoreError::ReadOnly(why)) if why == "they are on a disk"));
    assert_eq!(side.mark().await.unwrap().unwrap().state, State::Gone);
}

/// Somebody who was too slow: the lease ended, and others have written.
#[tokio::test]
async fn a_source_that_was_open_meanwhile_is_not_left() {
    let cluster = Cluster::start(1);
    let mut side = Side::open(&cluster.options()).await.unwrap();
    let held = side.hold("1", "they move").await.unwrap();
    let id = held.lease.id;
    let revoked = side.rpc.lease(|mut client| async move {
        client
            .lease_revoke(proto::etcd::LeaseRevokeRequest { id })
            .await
            .map(drop)
    });
    revoked.await.unwrap();
    let why = side
        .leave(held, "they are elsewhere", (0, 1))
        .await
        .unwrap_err()
        .to_string();
    assert!(why.contains("opened to writes"), "{why}");
    assert_eq!(side.mark().await.unwrap(), None);
}

#[tokio::test]
async fn a_target_is_of_no_use_before_it_is_published_and_its_revisions_are_higher() {
    let cluster = Cluster::start(1);
    let mut side = Side::open(&cluster.options()).await.unwrap();
    side.begin("1", "they come from a disk", 5000, false).await.unwrap();
    let records: Vec<(String, Bytes)> = (0..250)
        .map(|number| (format!("/registry/a/{number:03}"), bytes("v")))
        .chain([("/skiff/private".to_owned(), Bytes::from(vec![7; 600 << 10]))])
        .collect();
    side.fill(&records).await.unwrap();
    let unfinished = Etcd::open(cluster.options()).await.err().unwrap().to_string();
    assert!(unfinished.ends_with("they come from a disk"), "{unfinished}");
    // Who comes after a kill finds it, and begins anew only if that is said.
    let mut again = Side::open(&cluster.options()).await.unwrap();
    assert_eq!(again.mark().await.unwrap().unwrap().state, State::Copying);
    assert!(again.begin("2", "again", 6000, false).await.is_err());
    again.begin("2", "again", 6000, true).await.unwrap();
    assert_eq!(again.count().await.unwrap(), 0);
    assert!(
        side.fill(&records).await.is_err(),
        "the first has nothing to say any more"
    );
    again.fill(&records).await.unwrap();
    let (revision, found) = all(&again).await;
    let found: Vec<(String, Bytes)> = found
        .into_iter()
        .map(|record| (record.key.to_string(), record.value))
        .collect();
    assert!(revision > 6000);
    assert_eq!((found.len(), &found[..250]), (251, &records[..250]));
    assert_eq!(found[250].0, "/skiff/private");
    again.whole("2", "all is there").await.unwrap();
    assert!(
        Etcd::open(cluster.options()).await.is_err(),
        "its source is still in use"
    );
    again.publish().await.unwrap();

    let etcd = Etcd::open(cluster.options()).await.unwrap();
    etcd.note_form().await.unwrap();
    let found = etcd.get("/registry/a/000").await.unwrap().unwrap();
    assert!(6000 < found.created && found.created == found.modified);
    let current = etcd.current_revision().await.unwrap();
    for before in [1, 5000, 6000] {
        let gone = etcd.watch("/registry/", before).await.err();
        assert!(matches!(gone, Some(StoreError::Compacted { .. })), "{before}: {gone:?}");
        let stale = etcd.put("/registry/a/000", bytes("w"), Expect::At(before)).await;
        assert!(matches!(stale, Err(StoreError::Conflict { current: Some(now), .. }) if now == found));
    }
    let mut steps = etcd.follow(current).await.unwrap();
    let next = etcd
        .put("/registry/a/000", bytes("w"), Expect::At(found.modified))
        .await
        .unwrap();
    assert_eq!(next, current + 1);
    let step = steps.next().await.unwrap().unwrap();
    assert_eq!((step.revision, step.changes[0].revision), (next, next));
    let full = Side::open(&cluster.options())
        .await
        .unwrap()
        .begin("3", "no", 1, true)
        .await;
    assert!(full.is_err(), "a cluster in use is no target");
    // And out of there.
    let side = Side::open(&cluster.options()).await.unwrap();
    assert_eq!(all(&side).await.0, next, "and it is remembered");
}

#[tokio::test]
async fn a_form_that_is_too_new_is_refused_by_name() {
    let cluster = Cluster::start(1);
    let etcd = Etcd::open(cluster.options()).await.unwrap();
    let newer = "written 9\nminimum-reader 9\nlater 1\n";
    etcd.put("/skiff/form", bytes(newer), Expect::Absent).await.unwrap();
    let noted = etcd.note_form().await.unwrap_err().to_string();
    assert!(noted.contains("know format 9"), "{noted}");
    let refused = Etcd::open(cluster.options()).await.err().unwrap().to_string();
    assert!(
        refused.starts_with("the objects under --etcd-prefix=/registry have to be read by binaries that know format 9"),
        "{refused}"
    );
}

/// Somebody who knows nothing of marks: a raw write beside our servers.
async fn raw(side: &Side, writes: Vec<RequestOp>) {
    let request = TxnRequest {
        success: writes,
        ..TxnRequest::default()
    };
    assert!(side.rpc.txn(request).await.unwrap().succeeded);
}

#[tokio::test]
async fn what_others_write_while_a_source_is_read_is_not_left_behind() {
    let cluster = Cluster::start(1);
    let etcd = Etcd::open(cluster.options()).await.unwrap();
    let first = etcd.put("/registry/a/x", bytes("1"), Expect::Absent).await.unwrap();
    etcd.put("/registry/a/y", bytes("1"), Expect::Absent).await.unwrap();
    let mut side = Side::open(&cluster.options()).await.unwrap();
    for writes in [
        vec![put(b"/registry/a/x".to_vec(), b"2".to_vec(), 0)],
        vec![put(b"/registry/a/z".to_vec(), b"1".to_vec(), 0)],
        vec![delete(b"/registry/a/z".to_vec(), Vec::new())],
        vec![
            delete(b"/registry/a/y".to_vec(), Vec::new()),
            put(b"/registry/a/w".to_vec(), b"1".to_vec(), 0),
        ],
    ] {
        let held = side.hold("1", "they move to a disk").await.unwrap();
        let at = side.revision().await.unwrap();
        let (_, records) = all(&side).await;
        raw(&side, writes).await;
        let left = side.leave(held, "they are on a disk", (records.len() as u64, at)).await;
        let why = left.unwrap_err().to_string();
        assert!(why.contains("by others while the objects were moved"), "{why}");
        assert_eq!(side.mark().await.unwrap(), None, "it is open again");
    }
    let gone = etcd.put("/registry/a/x", bytes("3"), Expect::At(first)).await;
    assert!(matches!(gone, Err(StoreError::Conflict { .. })), "{gone:?}");
    etcd.put("/registry/a/v", bytes("1"), Expect::Absent).await.unwrap();
}

/// Events of upstream's API server have leases, which end when they end.
#[tokio::test]
async fn what_goes_by_itself_is_no_write_of_others() {
    let cluster = Cluster::start(1);
    let mut side = Side::open(&cluster.options()).await.unwrap();
    let lease = Lease::grant(&side.rpc, LIFETIME).await.unwrap();
    let key = |name: &str| format!("/registry/events/a/{name}").into_bytes();
    raw(
        &side,
        vec![put(key("x"), Vec::new(), lease.id), put(key("y"), Vec::new(), 0)],
    )
    .await;
    let held = side.hold("1", "they move").await.unwrap();
    let at = side.revision().await.unwrap();
    assert_eq!(all(&side).await.1.len(), 2);
    lease.revoke().await.unwrap();
    side.check_unchanged((2, at)).await.unwrap();
    raw(&side, vec![delete(key("y"), Vec::new())]).await;
    assert!(side.check_unchanged((2, at)).await.is_err());
    assert!(side.leave(held, "they are on a disk", (2, at)).await.is_err());
}

/// Who has just come to a place that was empty a moment ago.
#[tokio::test]
async fn nothing_is_removed_where_there_was_no_mark() {
    let cluster = Cluster::start(1);
    let side = Side::open(&cluster.options()).await.unwrap();
    let request = |compare| TxnRequest {
        compare,
        ..TxnRequest::default()
    };
    let is_empty = async || {
        let conditions = side.keys.objects().map(none_in).into();
        side.rpc.txn(request(conditions)).await.unwrap().succeeded
    };
    assert!(is_empty().await);
    raw(
        &side,
        vec![
            put(side.keys.form(), Vec::new(), 0),
            put(side.keys.mark(), Vec::new(), 0),
        ],
    )
    .await;
    assert!(is_empty().await, "the notes are no objects");
    for key in ["/registry/a/x", "/registry/skiff/a", "/registry/skiff/n", "/registry/z"] {
        raw(&side, vec![put(key.as_bytes().to_vec(), Vec::new(), 0)]).await;
        assert!(!is_empty().await, "{key}");
        raw(&side, vec![delete(key.as_bytes().to_vec(), Vec::new())]).await;
        assert!(is_empty().await, "{key}");
    }
    // And so it is with what a move begins with: who was faster stays.
    let mut moving = Side::open(&cluster.options()).await.unwrap();
    raw(
        &side,
        vec![
            delete(side.keys.form(), Vec::new()),
            delete(side.keys.mark(), Vec::new()),
        ],
    )
    .await;
    moving.begin("1", "they come", 5000, false).await.unwrap();
    let first = moving.asked.lock().unwrap()[0].clone();
    raw(
        &side,
        vec![
            delete(side.keys.form(), Vec::new()),
            delete(side.keys.mark(), Vec::new()),
        ],
    )
    .await;
    raw(&side, vec![put(b"/registry/a/x".to_vec(), Vec::new(), 0)]).await;
    assert!(!side.rpc.txn(first).await.unwrap().succeeded);
    assert_eq!((side.count().await.unwrap(), moving.mark().await.unwrap()), (1, None));
}

/// A compaction waits for no reader.
#[tokio::test]
async fn a_source_is_read_to_the_end_though_its_history_is_compacted() {
    let cluster = Cluster::start(1);
    let side = Side::open(&cluster.options()).await.unwrap();
    let count = crate::pages::RECORDS.1 as usize + 1;
    for from in (0..count).step_by(100) {
        let writes = (from..count.min(from + 100)).map(|number| {
            let key = format!("/registry/a/{number:05}").into_bytes();
            put(key, b"1".to_vec(), 0)
        });
        raw(&side, writes.collect()).await;
    }
    let read = std::sync::Mutex::new(0);
    let (at, found) = (side.revision().await.unwrap(), &read);
    let side = &side;
    let revision = side.read(|records| async move {
        *found.lock().unwrap() += records.len();
        raw(side, vec![put(b"/others/x".to_vec(), Vec::new(), 0)]).await;
        side.rpc.compact(side.rpc.revision().await.unwrap()).await
    });
    assert_eq!(revision.await.unwrap(), at);
    assert_eq!(*read.lock().unwrap(), count);
    side.check_unchanged((count as u64, at)).await.unwrap();
    assert!(side.check_unchanged((count as u64, at - 1)).await.is_err());
}

/// One of several servers was forgotten: what it knows is of before the moves.
#[tokio::test]
async fn a_server_of_before_a_move_is_done_for() {
    let cluster = Cluster::start(1);
    let before = Etcd::open(cluster.options()).await.unwrap();
    before.note_form().await.unwrap();
    let silent = Etcd::open(cluster.options()).await.unwrap();
    let first = before.put("/registry/a/x", bytes("1"), Expect::Absent).await.unwrap();
    let mut steps = before.follow(first).await.unwrap();
    let mut side = Side::open(&cluster.options()).await.unwrap();
    let held = side.hold("1", "they move to a disk").await.unwrap();
    let at = side.revision().await.unwrap();
    side.leave(held, "they are on a disk", (1, at)).await.unwrap();
    // And back, changed.
    side.mark().await.unwrap();
    side.begin("2", "they come from a disk", 5000, true).await.unwrap();
    side.fill(&[("/registry/a/x".to_owned(), bytes("2"))]).await.unwrap();
    side.whole("2", "all is there").await.unwrap();
    side.publish().await.unwrap();

    // The marks are told of; nothing of what another move did, least of all that everything went.
    loop {
        match steps.next().await.unwrap() {
            Ok(step) => assert!(
                step.changes.iter().all(|change| change.key.starts_with("/skiff/")),
                "{step:?}"
            ),
            Err(error) => break assert!(matches!(error, StoreError::Unusable(_)), "{error:?}"),
        }
    }
    for server in [&before, &silent] {
        let refused = server.put("/registry/z", bytes("1"), Expect::Absent).await;
        assert!(
            matches!(&refused, Err(StoreError::ReadOnly(why)) if why.contains("has to be started again")),
            "{refused:?}"
        );
        let refused = server.put("/registry/a/x", bytes("3"), Expect::At(first)).await;
        assert!(matches!(&refused, Err(StoreError::ReadOnly(_))), "{refused:?}");
        assert!(server.over().await.contains("since a move of them"));
        for read in [
            server.get("/registry/a/x").await.map(drop),
            server.range("").await.map(drop),
            server.range("/registry/a/").await.map(drop),
            server.current_revision().await.map(drop),
            server.watch("/registry/", first).await.map(drop),
        ] {
            assert!(matches!(&read, Err(StoreError::Unusable(_))), "{read:?}");
        }
    }
    let after = Etcd::open(cluster.options()).await.unwrap();
    assert_eq!(&after.get("/registry/a/x").await.unwrap().unwrap().value[..], b"2");
    assert!(after.put("/registry/z", bytes("1"), Expect::Absent).await.unwrap() > 5000);
}

/// Who has nobody to tell it finds out when it lists.
#[tokio::test]
async fn a_server_of_before_a_move_lists_nothing_of_after_it() {
    let cluster = Cluster::start(1);
    let before = Etcd::open(cluster.options()).await.unwrap();
    let mut side = Side::open(&cluster.options()).await.unwrap();
    side.begin("2", "they come from a disk", 5000, false).await.unwrap();
    side.publish().await.unwrap();
    let listed = before.range("").await;
    assert!(
        matches!(&listed, Err(StoreError::Unusable(why)) if why.contains("since a move")),
        "{listed:?}"
    );
}

/// Two versions side by side: the newer one writes what the older does not know.
#[tokio::test]
async fn a_server_goes_on_beside_a_newer_one_as_far_as_it_reads_what_is_written() {
    let cluster = Cluster::start(1);
    let older = Etcd::open(cluster.options()).await.unwrap();
    older.note_form().await.unwrap();
    let first = older.put("/registry/a/x", bytes("1"), Expect::Absent).await.unwrap();
    let side = Side::open(&cluster.options()).await.unwrap();
    let notes = |text: &str| vec![put(side.keys.form(), text.as_bytes().to_vec(), 0)];
    // A newer one that has noted something else: nothing is in the way of either.
    raw(&side, notes("written 2\nminimum-reader 2\nof-a-newer-one 7\n")).await;
    let second = older.put("/registry/a/x", bytes("2"), Expect::At(first)).await.unwrap();
    older.put("/registry/a/y", bytes("1"), Expect::Absent).await.unwrap();
    older.delete("/registry/a/y", second + 1).await.unwrap();
    // One that writes another form, which is read by all: the older one reads, and leaves writing to those who know it.
    raw(&side, notes("written 3\nminimum-reader 2\n")).await;
    for refused in [
        older.put("/registry/a/x", bytes("3"), Expect::At(second)).await,
        older.put("/registry/a/z", bytes("1"), Expect::Absent).await,
        older.delete("/registry/a/x", second).await,
    ] {
        let Err(StoreError::ReadOnly(why)) = refused else {
            panic!("it does not know how: {refused:?}");
        };
        assert!(
            why.contains("are written in format 3, which is not the 2 this binary writes"),
            "{why}"
        );
    }
    assert_eq!(older.get("/registry/a/x").await.unwrap().unwrap().modified, second);
    assert_eq!(older.range("").await.unwrap().1.len(), 2);
    // All know it now, and it is taken back before anything was written: it goes on.
    raw(&side, notes("written 2\nminimum-reader 2\n")).await;
    let mut steps = older.follow(second).await.unwrap();
    older
        .put("/registry/a/x", bytes("3"), Expect::At(second))
        .await
        .unwrap();
    // One that writes what the older one cannot even read.
    raw(&side, notes("written 3\nminimum-reader 3\n")).await;
    let told = loop {
        if let Err(error) = steps.next().await.unwrap() {
            break error.to_string();
        }
    };
    assert!(
        told.contains("have to be read by binaries that know format 3"),
        "{told}"
    );
    assert_eq!(older.over().await, told);
    assert!(older.range("/registry/a/").await.is_err());
    assert!(Etcd::open(cluster.options()).await.is_err(), "nor does another");
}

/// What was asked of etcd and lost on the way is done in the end, when nobody waits for it any more: after each step all that came
/// before it is asked once more.
#[tokio::test]
async fn nothing_that_is_done_late_undoes_a_move() {
    let cluster = Cluster::start(1);
    let mut side = Side::open(&cluster.options()).await.unwrap();
    let again = async |side: &Side| {
        let before = (mark(&side.rpc, &side.keys).await.unwrap(), all(side).await.1);
        let asked = side.asked.lock().unwrap().clone();
        assert!(!asked.is_empty());
        for request in asked {
            // A lease that is over is refused as a whole.
            let _ = side.rpc.txn(request).await;
        }
        let after = (mark(&side.rpc, &side.keys).await.unwrap(), all(side).await.1);
        assert_eq!(before.0, after.0);
        let contents =
            |records: Vec<Record>| -> Vec<_> { records.into_iter().map(|one| (one.key, one.value)).collect() };
        assert_eq!(contents(before.1), contents(after.1));
    };
    side.begin("1", "they come from a disk", 5000, false).await.unwrap();
    again(&side).await;
    let records = ["/registry/a/x", "/registry/a/y"].map(|key| (key.to_owned(), bytes("1")));
    side.fill(&records).await.unwrap();
    again(&side).await;
    side.whole("1", "all is there").await.unwrap();
    again(&side).await;
    side.publish().await.unwrap();
    again(&side).await;
    assert_eq!(side.count().await.unwrap(), 2);
    // The cluster goes on, and leaves.
    let etcd = Etcd::open(cluster.options()).await.unwrap();
    etcd.put("/registry/a/z", bytes("1"), Expect::Absent).await.unwrap();
    let held = side.hold("2", "they move").await.unwrap();
    again(&side).await;
    Side::release(held).await.unwrap();
    again(&side).await;
    let held = side.hold("3", "they move").await.unwrap();
    let at = side.revision().await.unwrap();
    side.leave(held, "they are on a disk", (3, at)).await.unwrap();
    again(&side).await;
    // And comes back.
    side.begin("4", "they come back", 9000, true).await.unwrap();
    again(&side).await;
    side.fill(&records).await.unwrap();
    side.whole("4", "all is there").await.unwrap();
    side.publish().await.unwrap();
    again(&side).await;
    assert_eq!((side.count().await.unwrap(), side.mark().await.unwrap()), (2, None));
}
