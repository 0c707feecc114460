//! The store over real members: what every backend must do, and what becomes of reads, writes and watches when members die.

mod faults;
mod history;
mod lifetimes;
mod lost;
mod slow;

use crate::keys::Keys;
use crate::testing::Cluster;
use crate::{Etcd, OpenError, Options, TlsFiles, compactor};
use bytes::Bytes;
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use store::{Expect, Step, Steps, Store, StoreError, conformance};

/// Beyond it something hangs.
const LONG: Duration = Duration::from_secs(120);

async fn open(cluster: &Cluster) -> Arc<Etcd> {
    Arc::new(Etcd::open(cluster.options()).await.unwrap())
}

async fn next(steps: &mut Steps) -> Result<Step, StoreError> {
    let next = tokio::time::timeout(LONG, steps.next()).await;
    next.expect("a watch that tells something")
        .expect("it tells why it ends")
}

#[tokio::test]
async fn one_member_conforms() {
    let cluster = Cluster::start(1);
    conformance::all(open(&cluster).await).await;
}

#[tokio::test]
async fn three_members_conform() {
    let cluster = Cluster::start(3);
    conformance::all(open(&cluster).await).await;
}

/// More than one page, and what others keep in the same etcd is neither read nor in the way.
#[tokio::test]
async fn pages_are_of_one_revision_and_others_keys_are_passed_over() {
    let cluster = Cluster::start(1);
    let ours = open(&cluster).await;
    let others = Etcd::open(Options {
        prefix: "/elsewhere".to_owned(),
        ..cluster.options()
    });
    let others = others.await.unwrap();
    let base = ours.current_revision().await.unwrap();
    let mut steps = ours.follow(base).await.unwrap();
    for number in 0..1100 {
        let key = format!("/registry/a/{number:04}");
        ours.put(&key, Bytes::from_static(b"v"), Expect::Absent).await.unwrap();
    }
    let foreign = others.put("/registry/a/x", Bytes::from_static(b"o"), Expect::Absent);
    let foreign = foreign.await.unwrap();
    let (revision, records) = ours.range("").await.unwrap();
    assert_eq!((revision, records.len()), (foreign, 1100));
    let (_, records) = others.range("").await.unwrap();
    assert_eq!((records.len(), &*records[0].key), (1, "/registry/a/x"));
    // The newest revision is theirs, and is reached all the same.
    let mut seen = 0;
    loop {
        let step = next(&mut steps).await.unwrap();
        seen += step.changes.len();
        if step.revision == foreign {
            break;
        }
    }
    assert_eq!(seen, 1100);
}

/// As when a lease of upstream's expires: one revision, several keys.
#[tokio::test]
async fn several_changes_of_one_revision_are_one_step() {
    use proto::etcd::request_op::Request;
    use proto::etcd::{DeleteRangeRequest, RequestOp, TxnRequest};
    let cluster = Cluster::start(1);
    let etcd = open(&cluster).await;
    let mut newest = 0;
    for number in 0..500 {
        let key = format!("/registry/events/{number:03}");
        newest = etcd.put(&key, Bytes::from_static(b"v"), Expect::Absent).await.unwrap();
    }
    let mut steps = etcd.follow(newest).await.unwrap();
    let (key, range_end) = Keys::under("/registry").range_of("/registry/events/");
    let delete = DeleteRangeRequest { key, range_end };
    let request = TxnRequest {
        success: vec![RequestOp {
            request: Some(Request::RequestDeleteRange(delete)),
        }],
        ..TxnRequest::default()
    };
    let end = tokio::time::Instant::now() + LONG;
    assert!(
        etcd.rpc
            .txn_once(request, end)
            .await
            .is_ok_and(|answer| answer.succeeded)
    );
    let step = next(&mut steps).await.unwrap();
    assert_eq!((step.revision, step.changes.len()), (newest + 1, 500));
    assert!(
        step.changes
            .iter()
            .all(|change| change.value.is_none() && change.revision == newest + 1)
    );
}

#[tokio::test]
async fn history_is_compacted_an_interval_later_by_one_of_all() {
    let cluster = Cluster::start(1);
    let (first, second) = (open(&cluster).await, open(&cluster).await);
    let put = |key: &'static str| first.put(key, Bytes::from_static(b"v"), Expect::Absent);
    let old = put("/registry/a/1").await.unwrap();
    let known = compactor::round(&first.rpc, compactor::Known::default()).await;
    let late = compactor::round(&second.rpc, compactor::Known::default()).await;
    assert!(first.watch("/registry/", old).await.is_ok());
    put("/registry/a/2").await.unwrap();
    compactor::round(&first.rpc, known).await;
    let told = |etcd: Arc<Etcd>| async move { next(&mut etcd.watch("/registry/", old).await.unwrap()).await };
    let refused = told(Arc::clone(&first)).await;
    let Err(StoreError::Compacted { wanted, oldest }) = refused else {
        panic!("{refused:?}");
    };
    assert!(wanted == old && oldest > old, "{oldest}");
    // Whoever came second knows it, and compacts no more than that.
    compactor::round(&second.rpc, late).await;
    let again = told(second).await;
    assert!(
        matches!(again, Err(StoreError::Compacted { oldest: now, .. }) if now == oldest),
        "{again:?}"
    );
}

#[tokio::test]
async fn a_full_database_is_told_in_etcds_words_and_can_be_read() {
    let cluster = Cluster::start_with(1, &["--quota-backend-bytes", "4194304"]);
    let etcd = open(&cluster).await;
    etcd.note_form().await.unwrap();
    let large = Bytes::from(vec![b' '; 512 << 10]);
    let mut refused = None;
    for number in 0..64 {
        let key = format!("/registry/a/{number}");
        if let Err(error) = etcd.put(&key, large.clone(), Expect::Absent).await {
            refused = Some(error);
            break;
        }
    }
    let refused = refused.expect("64 times half a megabyte do not fit");
    assert!(matches!(refused, StoreError::Refused(_)), "{refused:?}");
    assert_eq!(refused.to_string(), "etcdserver: mvcc: database space exceeded");
    let (_, records) = etcd.range("/registry/a/").await.unwrap();
    assert!(!records.is_empty());
    let size = etcd.sizes().boxed().next().await;
    assert!(size.is_some_and(|size| size > 2 << 20), "{size:?}");
    // Whoever is started now reads, too.
    let late = open(&cluster).await;
    late.note_form().await.unwrap();
    assert_eq!(late.range("/registry/a/").await.unwrap().1, records);
    // Deletions go on.
    etcd.delete(&records[0].key, records[0].modified).await.unwrap();
}

#[tokio::test]
async fn what_is_wrong_is_named_by_flag() {
    let with = |servers: &[&str], tls: TlsFiles| Options {
        servers: servers.iter().map(|server| (*server).to_owned()).collect(),
        tls,
        prefix: String::new(),
        compaction_interval: None,
        deadlines: crate::Deadlines {
            start: Duration::from_millis(300),
            ..crate::Deadlines::default()
        },
    };
    let error = async |options: Options| {
        Etcd::open(options)
            .await
            .err()
            .map(|error: OpenError| error.to_string())
    };
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| Some(directory.path().join(name));
    std::fs::write(directory.path().join("empty"), "").unwrap();
    let nowhere = format!("unix://{}/none", directory.path().display());
    for (options, parts) in [
        (with(&[], TlsFiles::default()), vec!["--etcd-servers names no server"]),
        (
            with(&["http://a"], TlsFiles::default()),
            vec!["--etcd-servers: http://a: it names no port"],
        ),
        (
            with(&["https://a:1"], TlsFiles::default()),
            vec!["--etcd-cafile must be given"],
        ),
        (
            with(
                &["https://a:1"],
                TlsFiles {
                    ca: file("gone"),
                    ..TlsFiles::default()
                },
            ),
            vec!["--etcd-cafile", "/gone"],
        ),
        (
            with(
                &["https://a:1"],
                TlsFiles {
                    ca: file("empty"),
                    ..TlsFiles::default()
                },
            ),
            vec!["/empty: there is no certificate in it"],
        ),
        (
            with(&[&nowhere], TlsFiles::default()),
            vec!["no server of --etcd-servers answers", &nowhere, "No such file"],
        ),
    ] {
        let error = error(options).await.expect("refused");
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}
