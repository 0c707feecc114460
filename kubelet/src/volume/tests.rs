//! Volumes on a temporary root with a pretended mount table.

use super::*;
use crate::host::FakeMounter;
use crate::pod::spec::testing::pod;
use crate::user_namespace::IdPool;
use client::SystemClock;
use std::os::unix::fs::PermissionsExt;

pub(super) struct Bench {
    root: tempfile::TempDir,
    mounter: Arc<FakeMounter>,
    pub(super) volumes: Volumes,
}

impl Bench {
    /// The same volumes with an empty memory.
    fn restarted(&self) -> Volumes {
        let inner = &self.volumes.inner;
        let (mounter, objects, clock) = (inner.mounter.clone(), inner.objects.clone(), inner.clock.clone());
        Volumes::new(inner.settings.clone(), mounter, objects, clock)
    }
}

/// Volumes over an API server that is not there: only what needs no object works.
fn bench() -> Bench {
    bench_of(|_| async { Err(io::Error::from(io::ErrorKind::ConnectionRefused)) })
}

/// Volumes over an API server that answers so.
pub(super) fn bench_of<A>(answer: fn(http::Request<kube::client::Body>) -> A) -> Bench
where
    A: Future<Output = io::Result<http::Response<kube::client::Body>>> + Send + 'static,
{
    let root = tempfile::tempdir().expect("temp dir");
    let mounter = Arc::new(FakeMounter::default());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let client = kube::Client::new(tower::service_fn(answer), "default");
    let settings = VolumeSettings {
        root_dir: root.path().to_owned(),
        host_ips: HostIps::fixed(vec![]),
        allocatable: NodeAllocatable {
            cpu_milli: 1000,
            memory: 1 << 20,
            ephemeral_storage: 0,
        },
        ids: IdPool {
            count: 2 * 65_536,
            ..IdPool::default()
        },
        projects: Projects::default(),
        metrics: crate::metrics::Metrics::new("n").volumes,
    };
    let objects = Arc::new(Objects::new(client, clock.clone(), 0));
    let volumes = Volumes::new(settings, mounter.clone(), objects, clock);
    Bench { root, mounter, volumes }
}

const SPEC: &str = r#"{"securityContext":{},"volumes":[{"name":"disk","emptyDir":{}},{"name":"mem","emptyDir":{"medium":"Memory","sizeLimit":"4Ki"}},
    {"name":"info","downwardAPI":{"items":[{"path":"labels","fieldRef":{"fieldPath":"metadata.labels"}}]}},{"name":"unused","gitRepo":{"repository":"x"}}],
    "containers":[{"name":"c","volumeMounts":[{"name":"disk","mountPath":"/d","subPath":"a/b"},{"name":"mem","mountPath":"/m"},{"name":"info","mountPath":"/i"}]}]}"#;

#[tokio::test]
async fn ensure_is_idempotent_and_release_leaves_nothing() {
    let bench = bench();
    bench.volumes.setup().await.expect("setup");
    let pod = pod(SPEC);
    let first = bench.volumes.ensure(&pod).await.expect("ensure");
    let dir = bench.root.path().join("pods/u-1");
    assert_eq!(
        first.keys().map(String::as_str).collect::<Vec<_>>(),
        ["disk", "info", "mem"]
    );
    assert_eq!(first["disk"].path, dir.join("volumes/kubernetes.io~empty-dir/disk"));
    assert!(first["info"].read_only && !first["disk"].read_only);
    assert_eq!(
        fs::read_to_string(first["info"].path.join("labels")).expect("file"),
        "app=\"web\""
    );
    assert!(dir.join("plugins/kubernetes.io~empty-dir/disk/ready").exists());
    let table = bench.mounter.table();
    assert_eq!(
        table.get(&first["mem"].path).map(String::as_str),
        Some("tmpfs size=4096,noswap")
    );

    fs::write(first["disk"].path.join("kept"), "x").expect("file");
    assert_eq!(bench.volumes.ensure(&pod).await.expect("again"), first);
    assert!(first["disk"].path.join("kept").exists());
    assert_eq!(bench.mounter.table(), table);
    assert_eq!(
        bench.volumes.list().await.expect("list"),
        BTreeSet::from([PodUid::from("u-1")])
    );

    bench.volumes.release(&PodUid::from("u-1")).await.expect("release");
    assert!(!dir.exists());
    assert!(bench.mounter.table().is_empty());
    bench.volumes.release(&PodUid::from("u-1")).await.expect("again");
}

#[tokio::test]
async fn it_is_tried_whether_memory_stays_out_of_swap() {
    let bench = bench();
    bench.volumes.setup().await.expect("setup");
    assert!(bench.volumes.stay_in_memory().await);
    bench.mounter.forget_noswap();
    assert!(!bench.volumes.stay_in_memory().await);
    assert!(bench.mounter.table().is_empty());
    assert!(!bench.root.path().join("noswap-trial").exists());
}

#[tokio::test]
async fn a_mount_that_stays_keeps_the_pods_directory() {
    let bench = bench();
    bench.volumes.setup().await.expect("setup");
    let volumes = bench.volumes.ensure(&pod(SPEC)).await.expect("ensure");
    fs::write(volumes["mem"].path.join("precious"), "x").expect("file");
    bench.mounter.hold(&volumes["mem"].path, true);
    let uid = PodUid::from("u-1");
    let error = bench.volumes.release(&uid).await.expect_err("mounted");
    assert!(error.to_string().contains("still mounted"), "{error}");
    assert!(volumes["mem"].path.join("precious").exists());
    bench.mounter.hold(&volumes["mem"].path, false);
    bench.volumes.release(&uid).await.expect("release");
    assert!(!bench.root.path().join("pods/u-1").exists());
}

#[tokio::test]
async fn what_a_container_planted_leads_no_teardown_out_of_the_volume() {
    let bench = bench();
    bench.volumes.setup().await.expect("setup");
    let volumes = bench.volumes.ensure(&pod(SPEC)).await.expect("ensure");
    let outside = bench.root.path().join("outside");
    fs::create_dir_all(outside.join("dir")).expect("dirs");
    fs::write(outside.join("dir/precious"), "x").expect("file");
    let info = &volumes["info"].path;
    let data = info.join("..data");
    let current = info.join(fs::read_link(&data).expect("a link"));
    fs::remove_file(&data).expect("unlinked");
    fs::remove_dir_all(&current).expect("removed");
    for planted in [&data, &current, &info.join("labels.d"), &info.join("..data_tmp")] {
        std::os::unix::fs::symlink(&outside, planted).expect("planted");
    }
    let disk = &volumes["disk"].path;
    std::os::unix::fs::symlink(outside.join("dir"), disk.join("link")).expect("planted");
    bench.volumes.release(&PodUid::from("u-1")).await.expect("release");
    assert!(!bench.root.path().join("pods/u-1").exists());
    assert!(outside.join("dir/precious").exists());
}

#[tokio::test]
async fn a_container_start_gets_its_files() {
    let bench = bench();
    let pod = pod(SPEC);
    let volumes = bench.volumes.ensure(&pod).await.expect("ensure");
    let request = ContainerFilesRequest {
        pod: PodUid::from("u-1"),
        container: "c".into(),
        restart_count: 0,
        log_directory: bench.root.path().join("logs/pod"),
        hosts: Some("127.0.0.1 x\n".into()),
        sub_paths: vec![SubPath {
            index: 0,
            volume: "disk".into(),
            path: "a/b".into(),
            read_only: false,
        }],
        volumes,
    };
    let files = bench
        .volumes
        .prepare_container(request.clone())
        .await
        .expect("prepared");
    let dir = bench.root.path().join("pods/u-1");
    assert_eq!(files.etc_hosts, Some(dir.join("etc-hosts")));
    assert_eq!(files.sub_paths[&0], dir.join("volume-subpaths/disk/c/0"));
    assert!(bench.mounter.table()[&files.sub_paths[&0]].ends_with("/disk/a/b"));
    let log = files.termination_log.clone().expect("a file");
    assert_eq!(fs::metadata(&log).expect("there").permissions().mode() & 0o777, 0o666);
    assert!(bench.root.path().join("logs/pod/c").is_dir());
    let again = bench.volumes.prepare_container(request).await.expect("prepared");
    assert_ne!(
        again.termination_log,
        Some(log),
        "each start has a message file of its own"
    );
}

async fn bound(bench: &Bench, volume: &str, path: &str) -> Result<String, String> {
    let volumes = bench.volumes.ensure(&pod(SPEC)).await.expect("ensure");
    let request = ContainerFilesRequest {
        pod: PodUid::from("u-1"),
        container: "c".into(),
        restart_count: 0,
        log_directory: bench.root.path().join("logs"),
        hosts: None,
        sub_paths: vec![SubPath {
            index: 0,
            volume: volume.into(),
            path: path.into(),
            read_only: false,
        }],
        volumes,
    };
    let prepared = bench.volumes.prepare_container(request).await;
    let files = prepared.map_err(|error| error.to_string())?;
    Ok(bench.mounter.table()[&files.sub_paths[&0]].clone())
}

#[tokio::test]
async fn sub_paths_follow_links_inside_their_volume_and_none_out_of_it() {
    let bench = bench();
    let volumes = bench.volumes.ensure(&pod(SPEC)).await.expect("ensure");
    let disk = &volumes["disk"].path;
    std::os::unix::fs::symlink("/etc", disk.join("evil")).expect("plant");
    fs::create_dir(disk.join("v2")).expect("dir");
    std::os::unix::fs::symlink("v2", disk.join("current")).expect("link");
    let inside = bound(&bench, "disk", "current").await.expect("followed");
    assert!(inside.ends_with("/disk/v2"), "{inside}");
    let error = bound(&bench, "disk", "evil").await.expect_err("refused");
    assert_eq!(
        error,
        "failed to prepare subPath for volumeMount \"disk\" of container \"c\": it is not within the volume path"
    );
    let written = bound(&bench, "info", "labels")
        .await
        .expect("a file of the kubelet's own");
    assert!(written.contains("/info/..20"), "{written}");
    let missing = bound(&bench, "info", "later").await.expect("made");
    assert!(missing.ends_with("/info/later"), "{missing}");
}

#[tokio::test(start_paused = true)]
async fn an_absent_api_server_is_an_error_after_a_deadline() {
    let bench = bench();
    let spec = r#"{"volumes":[{"name":"v","secret":{"secretName":"s"}}],"containers":[{"name":"c","volumeMounts":[{"name":"v","mountPath":"/v"}]}]}"#;
    let error = bench.volumes.ensure(&pod(spec)).await.expect_err("no server");
    assert_eq!(
        error.to_string(),
        "MountVolume.SetUp failed for volume \"v\" : failed to sync secret cache: timed out waiting for the condition"
    );
}

#[tokio::test]
async fn a_uid_that_names_no_directory_touches_nothing() {
    let bench = bench();
    bench.volumes.setup().await.expect("setup");
    let pod = pod(SPEC);
    bench.volumes.ensure(&pod).await.expect("ensure");
    let table = bench.mounter.table();
    for uid in ["", ".", "..", "u-1/volumes", "../pods", "/"] {
        let uid = PodUid::from(uid);
        let released = bench.volumes.release(&uid).await;
        assert!(matches!(released, Err(VolumeError::Uid(_))), "{uid:?} {released:?}");
        let ending = Ending {
            since: jiff::Timestamp::UNIX_EPOCH,
            grace_seconds: 1,
            storage_exceeded: None,
            failed: None,
        };
        assert!(bench.volumes.mark_ending(&uid, ending).await.is_err());
    }
    assert_eq!(bench.mounter.table(), table);
    assert!(bench.root.path().join("pods/u-1/volumes").is_dir());
}

#[tokio::test]
async fn a_hosts_file_a_container_has_blown_up_is_written_anew_and_not_read() {
    let bench = bench();
    bench.volumes.setup().await.expect("setup");
    let pod = pod(SPEC);
    let volumes = bench.volumes.ensure(&pod).await.expect("ensure");
    let request = ContainerFilesRequest {
        pod: PodUid::from("u-1"),
        container: "c".into(),
        restart_count: 0,
        log_directory: bench.root.path().join("logs"),
        hosts: Some("127.0.0.1 localhost\n".into()),
        sub_paths: vec![],
        volumes,
    };
    let path = bench.root.path().join("pods/u-1/etc-hosts");
    let read = || fs::read_to_string(&path).expect("a small file");
    bench.volumes.prepare_container(request.clone()).await.expect("made");
    // More than there is memory: who reads it fails or dies.
    let file = fs::OpenOptions::new().write(true).open(&path).expect("open");
    file.set_len(1 << 40).expect("a sparse file");
    let files = bench.volumes.prepare_container(request.clone()).await.expect("mended");
    assert_eq!(
        (files.etc_hosts.as_ref(), read().as_str()),
        (Some(&path), "127.0.0.1 localhost\n")
    );
    fs::write(&path, "127.0.0.1 elsewhere\n").expect("as long as it should be");
    bench.volumes.prepare_container(request.clone()).await.expect("mended");
    assert_eq!(read(), "127.0.0.1 localhost\n");
    fs::remove_file(&path).expect("removed");
    std::os::unix::fs::symlink("/dev/null", &path).expect("a link");
    assert!(
        bench.volumes.prepare_container(request).await.is_err(),
        "a link is not followed"
    );
}

#[tokio::test(start_paused = true)]
async fn only_volumes_that_are_not_mounted_are_called_so() {
    let bench = bench();
    bench.volumes.setup().await.expect("setup");
    let memory = bench.root.path().join("pods/u-1/volumes/kubernetes.io~empty-dir/mem");
    bench.mounter.hang(&memory);
    let passing = async {
        // Its directory is made just before it is mounted.
        while !memory.is_dir() {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(FILES_DEADLINE * 2).await;
    };
    let pod = pod(SPEC);
    let (ensured, ()) = futures::future::join(bench.volumes.ensure(&pod), passing).await;
    let text = ensured.expect_err("it hangs").to_string();
    bench.mounter.go_on();
    assert!(text.contains("unmounted volumes=[mem info],"), "{text}");
}

#[tokio::test]
async fn ids_are_a_pods_own_until_its_directory_is_gone_and_outlive_the_kubelet() {
    let bench = bench();
    bench.volumes.setup().await.expect("setup");
    let own = |uid: &str| {
        let meta = serde_json::json!({"metadata": {"uid": uid}});
        serde_json::from_value::<Pod>(meta).expect("a pod")
    };
    for uid in ["a", "b", "c"] {
        bench.volumes.prepare_pod_dirs(&own(uid)).await.expect("directories");
    }
    let ids = async |volumes: &Volumes, uid: &str| {
        let range = volumes.user_namespace(&uid.into()).await;
        range
            .map(|range| range.first / 65_536)
            .map_err(|error| error.to_string())
    };
    assert_eq!(ids(&bench.volumes, "a").await, Ok(1));
    assert_eq!(ids(&bench.volumes, "b").await, Ok(2));
    let next = bench.restarted();
    assert_eq!(ids(&next, "b").await, Ok(2), "from its file");
    let exhausted = "create user namespace: could not find an empty slot to allocate a user namespace";
    assert_eq!(ids(&next, "c").await, Err(exhausted.to_owned()));
    next.release(&"a".into()).await.expect("released");
    assert_eq!(ids(&next, "c").await, Ok(1));
    let pods = bench.root.path().join("pods");
    std::fs::write(pods.join("stray"), "").expect("written");
    bench.volumes.prepare_pod_dirs(&own("d")).await.expect("directories");
    std::fs::write(pods.join("d/userns"), "").expect("written");
    assert_eq!(
        ids(&bench.restarted(), "b").await,
        Ok(2),
        "what says nothing takes nothing"
    );
    // The rewrite of a file fails: who had these ids has them still.
    let held = bench.restarted();
    assert_eq!(ids(&held, "b").await, Ok(2));
    std::fs::remove_file(pods.join("b/userns")).expect("removed");
    std::fs::create_dir(pods.join("b/userns.new")).expect("in the way");
    assert!(ids(&held, "b").await.is_err());
    assert_eq!(
        ids(&held, "d").await,
        Err(exhausted.to_owned()),
        "they are nobody else's"
    );
}

#[tokio::test]
async fn a_file_that_tells_no_ids_stands_in_the_way_of_new_ones_alone() {
    let bench = bench();
    bench.volumes.setup().await.expect("setup");
    for uid in ["a", "b", "c"] {
        let meta = serde_json::json!({"metadata": {"uid": uid}});
        let pod = serde_json::from_value::<Pod>(meta).expect("a pod");
        bench.volumes.prepare_pod_dirs(&pod).await.expect("directories");
    }
    let first = bench.volumes.user_namespace(&"a".into()).await.expect("ids");
    let file = bench.root.path().join("pods/c/userns");
    fs::write(&file, "{}").expect("written");
    let next = bench.restarted();
    assert_eq!(next.user_namespace(&"a".into()).await.expect("its ids"), first);
    for uid in ["b", "c"] {
        let error = next.user_namespace(&uid.into()).await.expect_err("they could be any");
        assert!(
            error.to_string().starts_with(&format!("{}: ", file.display())),
            "{error}"
        );
    }
    fs::remove_file(&file).expect("removed");
    next.user_namespace(&"b".into()).await.expect("put right");
}
