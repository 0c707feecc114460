use super::*;
use crate::image::verification::PullSecret;

fn records() -> (tempfile::TempDir, Records) {
    let dir = tempfile::tempdir().expect("temp dir");
    let clock = Arc::new(client::TokioClock::starting_at(crate::pod::testing::at(0)));
    let records = Records::new(dir.path(), clock);
    (dir, records)
}

fn access(name: &str) -> Access {
    Access {
        kubernetes_secrets: vec![PullSecret {
            namespace: "ns".into(),
            name: name.into(),
            uid: "1".into(),
            credential_hash: "h".into(),
        }],
        ..Access::default()
    }
}

fn files(dir: &tempfile::TempDir, kind: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.path().join("image_manager").join(kind));
    entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

#[tokio::test]
async fn a_pull_leaves_a_record_that_another_kubelet_reads() {
    let (dir, records) = records();
    assert_eq!(records.known("r.io/a:1", "sha256:1").await, Known::default());
    let pull = records.begin("r.io/a:1").await.expect("written");
    assert!(records.known("r.io/a:1", "sha256:1").await.pulled_by_kubelet, "begun");
    pull.worked("sha256:1", access("s")).await.expect("written");
    assert!(files(&dir, "pulling").is_empty());
    let written = files(&dir, "pulled");
    assert!(
        written[0].ends_with(file_name("sha256:1")) && written.len() == 1,
        "{written:?}"
    );
    let text = fs::read_to_string(&written[0]).expect("read");
    assert_eq!(
        text,
        r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"1970-01-12T13:46:40Z","imageRef":"sha256:1","credentialMapping":{"r.io/a":{"kubernetesSecrets":[{"namespace":"ns","name":"s","uid":"1","credentialHash":"h"}]}}}"#
    );
    let again = Records::new(dir.path(), records.inner.clock.clone());
    let known = again.known("r.io/a:2", "sha256:1").await;
    assert_eq!(known.access.get("r.io/a"), Some(&access("s")), "over a restart");
    again
        .allow("r.io/b:1", "sha256:1", Access::of(None))
        .await
        .expect("written");
    assert_eq!(again.known("r.io/b:1", "sha256:1").await.access.len(), 2);
}

#[tokio::test]
async fn an_intent_stays_while_an_end_is_open() {
    let (dir, records) = records();
    let first = records.begin("a").await.expect("written");
    let second = records.begin("a").await.expect("written");
    first.failed().await;
    assert_eq!(files(&dir, "pulling").len(), 1, "the other runs");
    drop(second);
    records.begin("a").await.expect("written").failed().await;
    assert_eq!(files(&dir, "pulling").len(), 1, "one may have worked, nobody saw");
    let pull = records.begin("a").await.expect("written");
    pull.worked("sha256:1", Access::of(None)).await.expect("written");
    assert!(files(&dir, "pulling").is_empty());
    records.begin("b").await.expect("written").failed().await;
    assert!(files(&dir, "pulling").is_empty(), "nothing came of it");
}

/// Changes the one record there is as another kubelet might.
fn edit(dir: &tempfile::TempDir, change: impl FnOnce(&mut Value)) {
    let path = files(dir, "pulled").remove(0);
    let mut record = serde_json::from_slice(&fs::read(&path).expect("record")).expect("JSON");
    change(&mut record);
    fs::write(&path, record.to_string()).expect("write");
}

#[tokio::test]
async fn fields_of_a_newer_kubelet_are_passed_over_and_kept() {
    let (dir, records) = records();
    records.allow("r.io/a", "sha256:1", access("s")).await.expect("written");
    edit(&dir, |record| {
        record["newField"] = "kept".into();
        record["credentialMapping"]["r.io/a"]["newKind"] = serde_json::json!([{"x": 1}]);
        record["credentialMapping"]["r.io/a"]["kubernetesSecrets"][0]["newPart"] = 1.into();
    });
    assert_eq!(
        records.known("r.io/a", "sha256:1").await.access["r.io/a"].kubernetes_secrets,
        access("s").kubernetes_secrets
    );
    records.allow("r.io/b", "sha256:1", access("t")).await.expect("written");
    edit(&dir, |record| {
        assert_eq!(record["newField"], "kept");
        assert_eq!(record["credentialMapping"]["r.io/a"]["newKind"][0]["x"], 1);
    });
    assert_eq!(records.known("r.io/b", "sha256:1").await.access.len(), 2);
}

#[tokio::test]
async fn a_record_of_a_newer_version_gives_nobody_access_until_a_pull_does() {
    let (dir, records) = records();
    records.allow("r.io/a", "sha256:1", access("s")).await.expect("written");
    edit(&dir, |record| {
        record["apiVersion"] = "kubelet.config.k8s.io/v1alpha1".into()
    });
    assert_eq!(
        records.known("r.io/a", "sha256:1").await.access.len(),
        1,
        "an older one is read"
    );
    edit(&dir, |record| record["apiVersion"] = "kubelet.config.k8s.io/v9".into());
    let known = records.known("r.io/a", "sha256:1").await;
    assert!(known.pulled_by_kubelet && known.access.is_empty());
    let pull = records.begin("r.io/a").await.expect("written");
    pull.worked("sha256:1", access("t")).await.expect("written");
    assert_eq!(
        records.known("r.io/a", "sha256:1").await.access.get("r.io/a"),
        Some(&access("t"))
    );
    edit(&dir, |record| assert_eq!(record["apiVersion"], API_VERSION));
}

#[tokio::test]
async fn a_damaged_record_gives_nobody_access() {
    let (dir, records) = records();
    records
        .allow("r.io/a", "sha256:1", Access::of(None))
        .await
        .expect("written");
    fs::write(&files(&dir, "pulled")[0], "{").expect("write");
    let known = records.known("r.io/a", "sha256:1").await;
    assert!(known.pulled_by_kubelet && known.access.is_empty());
    records
        .allow("r.io/a", "sha256:1", access("s"))
        .await
        .expect("written anew");
    assert_eq!(
        records.known("r.io/a", "sha256:1").await.access.get("r.io/a"),
        Some(&access("s"))
    );
}

/// A disk that hangs is waited for a while, and holds no thread of those that never block: what counts pulls stays free.
#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_is_told_and_holds_nobody() {
    let (_dir, records) = records();
    let pull = records.begin("a").await.expect("written");
    let (go_on, hangs) = std::sync::mpsc::channel::<()>();
    let hung = records.files(move |_| Ok(hangs.recv().is_ok()));
    let passing = async {
        tokio::task::yield_now().await;
        drop(pull);
        tokio::time::advance(DEADLINE * 2).await;
    };
    let (hung, begun, known, ()) =
        futures::future::join4(hung, records.begin("b"), records.known("r.io/a", "sha256:1"), passing).await;
    assert_eq!(hung, Err(RecordError::Work(WorkError::Overdue)));
    assert_eq!(begun.err(), Some(RecordError::Work(WorkError::Overdue)));
    assert!(known.pulled_by_kubelet && known.access.is_empty(), "a pull verifies it");
    go_on.send(()).expect("it hung until now");
    assert!(records.begin("b").await.is_ok());
}

#[tokio::test]
async fn records_have_upstreams_names_and_those_of_earlier_kubelets_of_ours_count() {
    let (dir, records) = records();
    let known = async |image: &str| records.known(image, "sha256:1").await.access;
    records
        .allow("nginx:1", "sha256:1", access("s"))
        .await
        .expect("written");
    edit(&dir, |record| {
        let names = record["credentialMapping"].as_object_mut().expect("a map");
        assert_eq!(names.keys().collect::<Vec<_>>(), ["docker.io/library/nginx"]);
        // As it was written before, and as upstream writes it.
        let by = |name| serde_json::to_value(access(name)).expect("a tree");
        *record.pointer_mut("/credentialMapping").expect("there") =
            serde_json::json!({"nginx": by("s"), "me/app": by("t"), "docker.io/me/app": by("u")});
    });
    let names = ["docker.io/library/nginx", "docker.io/me/app"];
    assert_eq!(known("nginx").await.keys().collect::<Vec<_>>(), names);
    assert_eq!(known("nginx").await[names[1]].kubernetes_secrets.len(), 2, "one image");
    assert_eq!(known("nginx").await[names[0]], access("s"));
}
