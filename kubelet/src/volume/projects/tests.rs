//! Volumes of pods over a file system that pretends to count projects.

use super::*;
use crate::host::project::fake::FakeQuotas;
use crate::volume::tests::{Bench, bench_of};
use crate::volume::{VolumeSettings, Volumes};
use k8s_openapi::api::core::v1::Pod;

const DISK: &str = "volumes/kubernetes.io~empty-dir/disk";

struct Node {
    bench: Bench,
    etc: tempfile::TempDir,
    quotas: Arc<FakeQuotas>,
    volumes: Volumes,
}

impl Node {
    fn new() -> Self {
        let bench = bench_of(|_| async { Err(io::Error::from(io::ErrorKind::ConnectionRefused)) });
        let etc = tempfile::tempdir().expect("temp dir");
        let volumes = bench.volumes.clone();
        let mut node = Self {
            bench,
            etc,
            quotas: Arc::default(),
            volumes,
        };
        node.restart();
        node
    }

    /// The next kubelet, with nothing in mind.
    fn restart(&mut self) {
        let inner = &self.bench.volumes.inner;
        let settings = VolumeSettings {
            projects: Projects::new(self.quotas.clone(), self.etc.path()),
            ..inner.settings.clone()
        };
        let (mounter, objects, clock) = (inner.mounter.clone(), inner.objects.clone(), inner.clock.clone());
        self.volumes = Volumes::new(settings, mounter, objects, clock);
    }

    /// Sets a pod's volumes up; where its first one is.
    async fn start(&self, pod: &Pod) -> PathBuf {
        self.volumes.ensure(pod).await.expect("its volumes");
        self.volumes.pod_dir(&"u-1".into()).join(DISK)
    }

    fn list(&self, name: &str) -> String {
        fs::read_to_string(self.etc.path().join(name)).unwrap_or_default()
    }

    fn bytes(&self, path: &Path) -> u64 {
        let counted = self.volumes.projects().count(path, &AtomicBool::new(false));
        counted.expect("counted").bytes
    }
}

/// Pods' volumes; their users are their own unless `shares` them with the node.
fn own_users(disks: usize) -> Pod {
    let names = (0..disks).map(|number| {
        if number == 0 {
            "disk".to_owned()
        } else {
            format!("disk{number}")
        }
    });
    let all: Vec<String> = names.collect();
    let volumes: Vec<String> = all
        .iter()
        .map(|name| format!(r#"{{"name":"{name}","emptyDir":{{}}}}"#))
        .collect();
    let mounts: Vec<String> = all
        .iter()
        .map(|name| format!(r#"{{"name":"{name}","mountPath":"/{name}"}}"#))
        .collect();
    let text = format!(
        r#"{{"metadata":{{"name":"web","namespace":"shop","uid":"u-1"}},"spec":{{"hostUsers":false,"volumes":[{},{{"name":"mem","emptyDir":{{"medium":"Memory"}}}}],
        "containers":[{{"name":"c","volumeMounts":[{},{{"name":"mem","mountPath":"/mem"}}]}}]}}}}"#,
        volumes.join(","),
        mounts.join(",")
    );
    serde_json::from_str(&text).expect("test pod decodes")
}

fn inode(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).expect("there").ino()
}

#[tokio::test]
async fn a_volume_is_counted_by_the_file_system_from_its_start_to_its_end() {
    let mut node = Node::new();
    let pod = own_users(1);
    let disk = node.start(&pod).await;
    let line = format!("{FIRST}:{}\n", disk.display());
    assert_eq!(
        (node.list("projects"), node.list("projid")),
        (line.clone(), format!("volume{FIRST}:{FIRST}\n"))
    );
    {
        let mut state = node.quotas.state();
        assert_eq!(
            (&state.of, &state.limits),
            (&[(inode(&disk), FIRST)].into(), &[(FIRST, NO_LIMIT)].into())
        );
        let used = ProjectUse {
            bytes: 5 << 30,
            inodes: 9,
        };
        state.used.insert(FIRST, used);
    }
    let counted = |node: &Node| {
        node.volumes
            .projects()
            .count(&disk, &AtomicBool::new(true))
            .expect("counted")
    };
    let expected = TreeUsage {
        bytes: 5 << 30,
        inodes: 9,
        ..TreeUsage::default()
    };
    assert_eq!(counted(&node), expected, "at once, and nobody walks");
    node.restart();
    assert_eq!(
        counted(&node),
        expected,
        "by the next kubelet, before it looked at any pod"
    );
    node.start(&pod).await;
    assert_eq!((counted(&node), node.list("projects")), (expected, line));
    node.volumes.release(&"u-1".into()).await.expect("released");
    assert_eq!(
        (node.list("projects"), node.list("projid")),
        (String::new(), String::new())
    );
    assert!(node.quotas.state().limits.is_empty() && !disk.exists());
}

#[tokio::test]
async fn volumes_of_pods_with_the_nodes_users_have_no_project() {
    let node = Node::new();
    let mut shares = own_users(1);
    shares.spec.as_mut().expect("a spec").host_users = None;
    node.start(&shares).await;
    assert!(node.quotas.state().of.is_empty());
    assert_eq!(
        fs::read_dir(node.etc.path()).expect("there").count(),
        0,
        "no list is made"
    );
}

#[tokio::test]
async fn what_the_file_system_does_not_count_is_counted_file_by_file() {
    for (uncounted, refuses, listed) in [(true, false, ""), (false, true, "")] {
        let node = Node::new();
        {
            let mut state = node.quotas.state();
            (state.uncounted, state.refuses) = (uncounted, refuses);
        }
        let disk = node.start(&own_users(1)).await;
        fs::write(disk.join("file"), vec![1; 1 << 20]).expect("written");
        assert!(node.bytes(&disk) >= 1 << 20);
        assert_eq!(
            (node.list("projects").as_str(), node.list("projid").as_str()),
            (listed, listed)
        );
    }
    // One that has a project is, too, once that is not counted any more, or the directory has another.
    let node = Node::new();
    let disk = node.start(&own_users(1)).await;
    fs::write(disk.join("file"), vec![1; 1 << 20]).expect("written");
    assert_eq!(node.bytes(&disk), 0);
    node.quotas.state().uncounted = true;
    assert!(node.bytes(&disk) >= 1 << 20);
    node.quotas.state().uncounted = false;
    node.quotas.state().of.insert(inode(&disk), 7);
    assert!(node.bytes(&disk) >= 1 << 20);
    node.quotas.state().of.insert(inode(&disk), FIRST);
    node.quotas.state().used.remove(&FIRST);
    assert!(node.bytes(&disk) >= 1 << 20, "not even the directory was counted");
}

#[tokio::test]
async fn what_is_in_a_directory_already_keeps_it_without_a_project() {
    let node = Node::new();
    let disk = node.start(&own_users(1)).await;
    let pods = node.volumes.inner.settings.root_dir.join("pods");
    let other = pods.join("u-2").join(DISK);
    fs::create_dir_all(other.join("old")).expect("made");
    node.volumes.projects().assign(&pods, &other);
    assert_eq!(node.quotas.state().of.len(), 1);
    assert_eq!(node.list("projects"), format!("{FIRST}:{}\n", disk.display()));
}

#[tokio::test]
async fn projects_of_others_are_passed_over_and_lines_of_volumes_that_are_gone_go() {
    let node = Node::new();
    let pods = node.volumes.inner.settings.root_dir.join("pods");
    let gone = pods.join("u-9").join(DISK);
    let lines = format!("7:/srv\n{}:/data\n{}:{}\n", FIRST, FIRST + 1, gone.display());
    fs::write(node.etc.path().join("projects"), lines).expect("written");
    let used = ProjectUse { bytes: 1, inodes: 1 };
    node.quotas.state().used.insert(FIRST + 2, used);
    let disk = node.start(&own_users(1)).await;
    // That of the volume that is gone has nothing: it is free.
    let expected = format!("7:/srv\n{}:/data\n{}:{}\n", FIRST, FIRST + 1, disk.display());
    assert_eq!(node.list("projects"), expected);
    node.volumes.release(&"u-1".into()).await.expect("released");
    for id in FIRST..FIRST + 200 {
        node.quotas.state().used.insert(id, used);
    }
    node.start(&own_users(1)).await;
    assert_eq!(
        node.list("projects"),
        format!("7:/srv\n{FIRST}:/data\n"),
        "the search ends"
    );
}

#[tokio::test]
async fn who_died_in_between_is_followed() {
    let node = Node::new();
    let disk = node.volumes.pod_dir(&"u-1".into()).join(DISK);
    let line = format!("{}:{}\n", FIRST + 4, disk.display());
    fs::write(node.etc.path().join("projects"), &line).expect("written");
    // The directory is there, has no project yet, and the volume is not ready.
    fs::create_dir_all(&disk).expect("made");
    node.start(&own_users(1)).await;
    assert_eq!(node.quotas.state().of, [(inode(&disk), FIRST + 4)].into());
    assert_eq!(node.list("projects"), line);
}

#[tokio::test]
async fn a_pod_has_so_many_projects_and_its_other_volumes_none() {
    let node = Node::new();
    node.start(&own_users(OF_A_POD_MAX + 3)).await;
    assert_eq!(node.list("projects").lines().count(), OF_A_POD_MAX);
    assert_eq!(node.quotas.state().of.len(), OF_A_POD_MAX);
    node.volumes.release(&"u-1".into()).await.expect("released");
    assert_eq!(node.list("projects"), "");
}

#[tokio::test]
async fn lists_that_cannot_be_used_stay_and_keep_no_volume() {
    let node = Node::new();
    std::os::unix::fs::symlink("/dev/null", node.etc.path().join("projects")).expect("link");
    let disk = node.start(&own_users(1)).await;
    fs::write(disk.join("file"), vec![1; 1 << 20]).expect("written");
    assert!(node.bytes(&disk) >= 1 << 20 && node.quotas.state().of.is_empty());
    node.volumes.release(&"u-1".into()).await.expect("released");
    let told = node
        .volumes
        .projects()
        .0
        .as_ref()
        .map(|inner| locked(&inner.told).clone());
    assert_eq!(told, Some([Hindrance::Lists].into()));
}
