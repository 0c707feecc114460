//! Files as kubelets leave them, and what becomes of them.

use super::*;
use crate::image::verification::{Access, Known};
use client::{Clock, SystemClock};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

struct Bench {
    dir: tempfile::TempDir,
    records: Records,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let records = Records::new(dir.path(), Arc::new(SystemClock));
        Self { dir, records }
    }

    fn path(&self, kind: &str, of: &str) -> PathBuf {
        self.dir.path().join("image_manager").join(kind).join(file_name(of))
    }

    /// Writes a file, as old as that.
    fn put(&self, path: &Path, text: &str, days: u64) {
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(path, text).expect("written");
        let written = SystemTime::now() - Duration::from_secs(days * 86400);
        let file = fs::File::options().write(true).open(path).expect("opened");
        file.set_modified(written).expect("set");
    }

    fn intent(&self, image: &str, days: u64) {
        let text = format!(r#"{{"kind":"ImagePullIntent","apiVersion":"{API_VERSION}","image":"{image}"}}"#);
        self.put(&self.path("pulling", image), &text, days);
    }

    async fn record(&self, reference: &str) {
        let written = self.records.allow("r.io/a:1", reference, Access::of(None)).await;
        written.expect("written");
    }

    fn count(&self, kind: &str) -> usize {
        let directory = self.dir.path().join("image_manager").join(kind);
        fs::read_dir(directory).map_or(0, Iterator::count)
    }
}

fn later() -> Timestamp {
    SystemClock.now() + SignedDuration::from_hours(1)
}

#[tokio::test]
async fn what_a_dead_kubelet_began_is_settled() {
    let bench = Bench::new();
    bench.intent("came:1", 0);
    bench.intent("lost:1", 2);
    let running = bench.records.begin("running:1").await.expect("written");
    let open = bench.records.open().await.expect("read");
    let mut images: Vec<_> = open.iter().map(|open| (open.image.as_str(), open.is_old)).collect();
    images.sort_unstable();
    assert_eq!(images, [("came:1", false), ("lost:1", true)]);
    bench.records.settle("came:1", Some("sha256:1")).await.expect("settled");
    bench.records.settle("lost:1", None).await.expect("settled");
    bench.records.settle("running:1", None).await.expect("left alone");
    let pulled = Known {
        pulled_by_kubelet: true,
        ..Known::default()
    };
    assert_eq!(bench.records.known("came:1", "sha256:1").await, pulled, "nobody's");
    assert_eq!((bench.count("pulling"), bench.count("pulled")), (1, 1));
    running.failed().await;
    assert_eq!(bench.count("pulling"), 0);
    // What is known is not forgotten for an intent beside it.
    bench.record("sha256:2").await;
    bench.intent("r.io/a:1", 0);
    bench
        .records
        .settle("r.io/a:1", Some("sha256:2"))
        .await
        .expect("settled");
    assert_eq!(bench.records.known("r.io/a:1", "sha256:2").await.access.len(), 1);
}

#[tokio::test]
async fn records_of_images_that_are_gone_go() {
    let bench = Bench::new();
    for reference in ["sha256:1", "sha256:2", "sha256:3"] {
        bench.record(reference).await;
    }
    let present: BTreeSet<String> = ["sha256:1".to_owned()].into();
    let early = Timestamp::UNIX_EPOCH;
    assert!(
        bench.records.stale(&present, early).await.expect("read").is_empty(),
        "written since"
    );
    let mut stale = bench.records.stale(&present, later()).await.expect("read");
    stale.sort_unstable();
    assert_eq!(stale, ["sha256:2", "sha256:3"]);
    bench.records.remove("sha256:2", early).await.expect("it changed since");
    assert_eq!(bench.count("pulled"), 3);
    bench.records.remove("sha256:2", later()).await.expect("removed");
    assert!(!bench.path("pulled", "sha256:2").exists() && bench.count("pulled") == 2);
}

#[tokio::test]
async fn damaged_files_harm_nothing_and_go_after_a_day() {
    let bench = Bench::new();
    let present = BTreeSet::new();
    for kind in ["pulling", "pulled"] {
        for (of, text, days) in [
            ("new", "{", 0),
            ("old", "{", 2),
            (
                "newer",
                r#"{"apiVersion":"kubelet.config.k8s.io/v9","image":"a","imageRef":"a"}"#,
                2,
            ),
        ] {
            bench.put(&bench.path(kind, of), text, days);
        }
        let directory = bench.dir.path().join("image_manager").join(kind);
        bench.put(&directory.join("notes"), "somebody's", 2);
        bench.put(&directory.join(format!("{}.tmp", file_name("half"))), "{", 0);
    }
    let large = "x".repeat(usize::try_from(super::super::BYTES_MAX).expect("fits") + 1);
    bench.put(&bench.path("pulled", "large"), &large, 2);
    let moved = fs::read_to_string({
        bench.record("sha256:1").await;
        bench.path("pulled", "sha256:1")
    });
    bench.put(&bench.path("pulled", "moved"), &moved.expect("read"), 2);
    assert_eq!(bench.records.open().await, Ok(vec![]));
    assert_eq!(
        bench.records.stale(&present, later()).await,
        Ok(vec!["sha256:1".to_owned()])
    );
    for kind in ["pulling", "pulled"] {
        for (of, stays) in [("new", true), ("old", false), ("newer", true)] {
            assert_eq!(bench.path(kind, of).exists(), stays, "{kind} {of}");
        }
    }
    assert_eq!((bench.count("pulling"), bench.count("pulled")), (3, 4));
    assert!(
        bench.records.known("a", "new").await.pulled_by_kubelet,
        "it may be somebody's"
    );
}

#[tokio::test]
async fn an_image_of_any_number_of_names_has_a_bounded_record() {
    let bench = Bench::new();
    let names = super::super::NAMES_MAX;
    let mapping: std::collections::BTreeMap<String, Access> = (0..names)
        .map(|number| (format!("r.io/{number}"), Access::of(None)))
        .collect();
    let full = serde_json::json!({"apiVersion": API_VERSION, "imageRef": "sha256:1", "credentialMapping": mapping});
    bench.put(&bench.path("pulled", "sha256:1"), &full.to_string(), 0);
    bench.record("sha256:1").await;
    let known = bench.records.known("r.io/a:1", "sha256:1").await;
    assert!(known.access.len() == names && !known.access.contains_key("r.io/a"));
}

#[tokio::test]
async fn a_record_of_an_image_that_came_back_stays() {
    let bench = Bench::new();
    let path = bench.path("pulled", "sha256:1");
    bench.record("sha256:1").await;
    let text = fs::read_to_string(&path).expect("a record");
    let mut record: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    record["lastUpdatedTime"] = "2020-01-01T00:00:00Z".into();
    fs::write(&path, record.to_string()).expect("written");
    let until = SystemClock.now();
    let stale = bench.records.stale(&BTreeSet::new(), until).await;
    assert_eq!(stale, Ok(vec!["sha256:1".to_owned()]));
    // Whoever pulls it now pulls it as before: nothing new, but that it is here.
    let pull = bench.records.begin("r.io/a:1").await.expect("written");
    pull.worked("sha256:1", Access::of(None)).await.expect("written");
    bench.records.remove("sha256:1", until).await.expect("it changed since");
    assert!(path.exists());
    let half = |text: &str, until: &str| is_before(text, until.parse().expect("a time"));
    assert!(
        !half("2020-01-01T00:00:00Z", "2020-01-01T00:00:00.9Z"),
        "after it, perhaps"
    );
    assert!(half("2020-01-01T00:00:00Z", "2020-01-01T00:00:01Z"));
}
