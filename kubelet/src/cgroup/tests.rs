//! Both hierarchies on temporary trees. A plain directory keeps whatever file is written, so each tree is given the
//! files a kernel would make.

use super::systemd::testing::FakeSystemd;
use super::*;
use crate::pod::spec::testing::pod;
use std::fs;
use std::path::Path;

const NOWHERE: &str = "/nonexistent";
const BURSTABLE: &str =
    r#"{"containers":[{"name":"c","resources":{"requests":{"cpu":"500m"},"limits":{"cpu":"1","memory":"64Mi"}}}]}"#;

fn settings() -> CgroupSettings {
    CgroupSettings {
        naming: CgroupNaming {
            driver: CgroupDriver::Cgroupfs,
            root: "/skiff".into(),
            per_qos: true,
        },
        cpu_cfs_quota: true,
        exclusive_cpus: false,
        cpu_cfs_period_us: 100_000,
        pod_pids_limit: 50,
        node_limits: Some(NodeLimits {
            memory: 1 << 30,
            cpu_milli: 2000,
            pids: None,
        }),
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path.as_ref()).unwrap_or_else(|e| panic!("{}: {e}", path.as_ref().display()))
}

fn v1_mount() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("temp dir");
    for tree in ["cpu,cpuacct", "memory", "pids", "cpuset", "systemd", "unified"] {
        fs::create_dir(dir.path().join(tree)).expect("tree");
    }
    std::os::unix::fs::symlink("cpu,cpuacct", dir.path().join("cpu")).expect("link");
    fs::write(dir.path().join("cpuset/cpuset.cpus"), "0-3\n").expect("cpus");
    fs::write(dir.path().join("cpuset/cpuset.mems"), "0\n").expect("mems");
    dir
}

#[tokio::test]
async fn a_process_is_found_in_a_container_below_its_pod() {
    let mount = v1_mount();
    let cgroups = Cgroups::open(mount.path(), NOWHERE, settings()).expect("open");
    cgroups.setup().await.expect("setup");
    let pod = pod(BURSTABLE);
    cgroups.ensure_pod(&pod).await.expect("ensure");
    assert_eq!(cgroups.process(pod.clone()).await.expect("read"), None);
    let own = mount.path().join("memory/skiff/kubepods/burstable/podu-1");
    fs::write(own.join("cgroup.procs"), "").expect("written");
    let container = own.join("abc");
    fs::create_dir(&container).expect("made");
    fs::write(container.join("cgroup.procs"), "0\n4711\n4712\n").expect("written");
    assert_eq!(cgroups.process(pod).await.expect("read"), Some(4711));
}

#[tokio::test]
async fn v1_pod_has_its_limits_in_every_tree() {
    let mount = v1_mount();
    let cgroups = Cgroups::open(mount.path(), NOWHERE, settings()).expect("open");
    cgroups.setup().await.expect("setup");
    let pod = pod(BURSTABLE);
    let parent = cgroups.ensure_pod(&pod).await.expect("ensure");
    assert_eq!(parent.as_str(), "/skiff/kubepods/burstable/podu-1");
    let at = |tree: &str, file: &str| {
        read(
            mount
                .path()
                .join(tree)
                .join("skiff/kubepods/burstable/podu-1")
                .join(file),
        )
    };
    assert_eq!(at("cpu", "cpu.shares"), "512");
    assert_eq!(at("cpu", "cpu.cfs_quota_us"), "100000");
    assert_eq!(at("memory", "memory.limit_in_bytes"), (64 << 20).to_string());
    assert_eq!(at("pids", "pids.max"), "50");
    assert_eq!(at("cpuset", "cpuset.cpus"), "0-3");
    assert!(mount.path().join("systemd/skiff/kubepods/burstable/podu-1").is_dir());
    assert!(!mount.path().join("unified/skiff").exists());
    assert_eq!(
        read(mount.path().join("memory/skiff/kubepods/memory.limit_in_bytes")),
        (1 << 30).to_string()
    );
    assert_eq!(
        cgroups.list().await.expect("list"),
        BTreeSet::from([PodUid::from("u-1")])
    );
    cgroups.refresh_qos([&pod]).await.expect("refresh");
    assert_eq!(
        read(mount.path().join("cpu/skiff/kubepods/burstable/cpu.shares")),
        "512"
    );
}

#[tokio::test]
async fn v2_hands_controllers_down_and_writes_its_own_files() {
    let mount = tempfile::tempdir().expect("temp dir");
    fs::write(mount.path().join("cgroup.controllers"), "cpuset cpu io memory pids").expect("controllers");
    fs::write(mount.path().join("cgroup.subtree_control"), "").expect("control");
    let cgroups = Cgroups::open(mount.path(), NOWHERE, settings()).expect("open");
    cgroups.setup().await.expect("setup");
    cgroups.ensure_pod(&pod(BURSTABLE)).await.expect("ensure");
    assert_eq!(
        read(mount.path().join("cgroup.subtree_control")),
        "+cpu +cpuset +memory +pids"
    );
    let at = |file: &str| read(mount.path().join("skiff/kubepods/burstable/podu-1").join(file));
    assert_eq!(at("cpu.weight"), "20");
    assert_eq!(at("cpu.max"), "100000 100000");
    assert_eq!(at("memory.max"), (64 << 20).to_string());
}

#[tokio::test(start_paused = true)]
async fn release_removes_empty_cgroups_and_reports_occupied_ones() {
    let mount = v1_mount();
    let cgroups = Cgroups::open(mount.path(), NOWHERE, settings()).expect("open");
    let mut bare = settings();
    bare.node_limits = None;
    let path = mount.path().join("memory/skiff/kubepods/burstable/podu-1");
    fs::create_dir_all(path.join("left-by-a-container")).expect("dirs");
    cgroups.release_pod(&PodUid::from("u-1")).await.expect("release");
    assert!(!path.exists());
    cgroups.release_pod(&PodUid::from("u-1")).await.expect("again");

    // A file in a plain directory stands for a process: the directory cannot be removed.
    fs::create_dir_all(&path).expect("dirs");
    fs::write(path.join("occupied"), "").expect("file");
    let error = cgroups.release_pod(&PodUid::from("u-1")).await.expect_err("occupied");
    assert!(matches!(error, CgroupError::Remove { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_stays_in_a_pods_cgroup_is_ended_after_a_while() {
    let mount = v1_mount();
    let mut cgroups = Cgroups::open(mount.path(), NOWHERE, settings()).expect("open");
    let path = mount.path().join("memory/skiff/kubepods/burstable/podu-1");
    let container = path.join("forgotten");
    fs::create_dir_all(&container).expect("dirs");
    let occupied = container.join("cgroup.procs");
    fs::write(&occupied, "0\n4711\n").expect("procs");
    let (ended, file) = (Arc::new(std::sync::Mutex::new(Vec::new())), occupied.clone());
    let seen = ended.clone();
    let inner = Arc::get_mut(&mut cgroups.inner).expect("nobody else has it");
    inner.end = stray::End::by(move |pid, path| {
        seen.lock().expect("no panic").push((pid, path.to_owned()));
        // A plain directory goes only once it is empty.
        fs::remove_file(&file).expect("removed");
    });
    cgroups.release_pod(&PodUid::from("u-1")).await.expect("release");
    let ended = ended.lock().expect("no panic").clone();
    assert_eq!(ended, [(4711, "/skiff/kubepods/burstable/podu-1".to_owned())]);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_pod_is_killed_by_the_kernel_or_where_that_knows_no_way_one_by_one() {
    let mount = v2_mount();
    let mut cgroups = Cgroups::open(mount.path(), NOWHERE, settings()).expect("open");
    let path = mount.path().join("skiff/kubepods/burstable/podu-1");
    fs::create_dir_all(path.join("container")).expect("dirs");
    fs::write(path.join("container/cgroup.procs"), "4711\n4712\n").expect("procs");
    let ended = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = ended.clone();
    let inner = Arc::get_mut(&mut cgroups.inner).expect("nobody else has it");
    inner.end = stray::End::by(move |pid, _| seen.lock().expect("no panic").push(pid));
    let uid = PodUid::from("u-1");
    cgroups.kill_pod(&uid).await.expect("killed");
    assert_eq!(*ended.lock().expect("no panic"), [4711, 4712]);
    assert!(!path.join("cgroup.kill").exists(), "nothing is made");
    fs::write(path.join("cgroup.kill"), "").expect("a kernel that has it");
    cgroups.kill_pod(&uid).await.expect("killed");
    assert_eq!(read(path.join("cgroup.kill")), "1");
    assert_eq!(ended.lock().expect("no panic").len(), 2);
    cgroups.kill_pod(&PodUid::from("u-2")).await.expect("one that is gone");
}

#[tokio::test]
async fn without_cgroups_per_qos_nothing_is_touched() {
    let mut off = settings();
    off.naming.per_qos = false;
    let cgroups = Cgroups::open(NOWHERE, NOWHERE, off).expect("open");
    cgroups.setup().await.expect("setup");
    assert_eq!(cgroups.ensure_pod(&pod("{}")).await.expect("ensure").as_str(), "");
    cgroups.release_pod(&PodUid::from("u-1")).await.expect("release");
}

fn systemd_settings() -> CgroupSettings {
    let mut settings = settings();
    settings.naming.driver = CgroupDriver::Systemd;
    settings.naming.root = "/".into();
    settings
}

fn v2_mount() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("temp dir");
    fs::write(dir.path().join("cgroup.controllers"), "cpuset cpu io memory pids").expect("controllers");
    fs::write(dir.path().join("cgroup.subtree_control"), "").expect("control");
    dir
}

#[test]
fn without_systemd_its_driver_is_refused_with_what_to_set() {
    let error = Cgroups::open("/sys/fs/cgroup", NOWHERE, systemd_settings()).expect_err("refused");
    let text = error.to_string();
    assert!(
        text.contains("/nonexistent") && text.contains("cgroupDriver: cgroupfs"),
        "{text}"
    );
}

#[tokio::test]
async fn systemd_makes_slices_before_files_are_written_and_stops_empty_ones_alone() {
    let mount = v2_mount();
    let systemd = FakeSystemd::start();
    let cgroups = Cgroups::open(mount.path(), systemd.socket(), systemd_settings()).expect("open");
    cgroups.setup().await.expect("setup");
    let pod = pod(BURSTABLE);
    let parent = cgroups.ensure_pod(&pod).await.expect("ensure");
    assert_eq!(parent.as_str(), "kubepods-burstable-podu_1.slice");
    let path = mount
        .path()
        .join("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice");
    assert_eq!(read(path.join("memory.max")), (64 << 20).to_string());
    assert_eq!(read(path.join("cpu.max")), "100000 100000");
    cgroups.ensure_pod(&pod).await.expect("again");
    assert_eq!(
        systemd.take_calls(),
        [
            "StartTransientUnit kubepods.slice",
            "StartTransientUnit kubepods-burstable.slice",
            "StartTransientUnit kubepods-besteffort.slice",
            "StartTransientUnit kubepods-burstable-podu_1.slice",
            "StartTransientUnit kubepods-burstable-podu_1.slice",
            "SetUnitProperties kubepods-burstable-podu_1.slice",
        ]
    );
    assert_eq!(
        cgroups.list().await.expect("list"),
        BTreeSet::from([PodUid::from("u-1")])
    );

    // A kernel's directory goes with its files; a plain one must be emptied first.
    for file in fs::read_dir(&path).expect("dir") {
        fs::remove_file(file.expect("file").path()).expect("remove");
    }
    fs::write(path.join("cgroup.procs"), "17\n").expect("procs");
    let error = cgroups.release_pod(&PodUid::from("u-1")).await.expect_err("occupied");
    assert!(matches!(error, CgroupError::Remove { .. }), "{error}");
    assert_eq!(systemd.take_calls(), [""; 0]);
    fs::remove_file(path.join("cgroup.procs")).expect("remove");
    cgroups.release_pod(&PodUid::from("u-1")).await.expect("release");
    assert_eq!(systemd.take_calls(), ["StopUnit kubepods-burstable-podu_1.slice"]);
    assert!(!path.exists());
    cgroups.release_pod(&PodUid::from("u-1")).await.expect("again");
    assert_eq!(systemd.take_calls(), [""; 0]);
}
