//! Both hierarchies on temporary trees. A plain directory keeps whatever file is written, so each tree is given the
//! files a kernel would make.

mod huge_pages;

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
        cpu_cfs_period_us: 100_000,
        pod_pids_limit: 50,
        huge_page_sizes: Vec::new(),
        node_limits: Some(NodeLimits {
            enforced: true,
            memory: 1 << 30,
            cpu_milli: 2000,
            pids: Some(1000),
            ..NodeLimits::default()
        }),
        reserved: Vec::new(),
        memory_qos: None,
        qos_reserved_percent: None,
    }
}

fn nobody() -> Unbounded {
    Unbounded::default()
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
async fn v1_pod_has_its_limits_in_every_tree() {
    let mount = v1_mount();
    let cgroups = Cgroups::open(mount.path(), NOWHERE, settings()).expect("open");
    cgroups.setup().await.expect("setup");
    let pod = pod(BURSTABLE);
    let parent = cgroups.ensure_pod(&pod, nobody()).await.expect("ensure");
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
    cgroups.ensure_pod(&pod(BURSTABLE), nobody()).await.expect("ensure");
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
    assert_eq!(
        cgroups.ensure_pod(&pod("{}"), nobody()).await.expect("ensure").as_str(),
        ""
    );
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
    let parent = cgroups.ensure_pod(&pod, nobody()).await.expect("ensure");
    assert_eq!(parent.as_str(), "kubepods-burstable-podu_1.slice");
    let path = mount
        .path()
        .join("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice");
    assert_eq!(read(path.join("memory.max")), (64 << 20).to_string());
    assert_eq!(read(path.join("cpu.max")), "100000 100000");
    cgroups.ensure_pod(&pod, nobody()).await.expect("again");
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

fn put(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, text).expect("written");
}

fn system(cgroup: &str) -> ReservedCgroup {
    ReservedCgroup {
        whose: Whose::System,
        compressible: false,
        cgroup: cgroup.into(),
        cpu_milli: Some(500),
        memory: Some(1 << 20),
        pids: Some(100),
    }
}

async fn held(cgroups: &Cgroups) -> Vec<Result<String, String>> {
    let mut told = Vec::new();
    for part in cgroups.parts() {
        let result = cgroups.hold(&part).await;
        told.push(
            result
                .map(|()| part.held())
                .map_err(|error| part.failed(&error.to_string())),
        );
    }
    told
}

#[tokio::test]
async fn parts_of_the_node_are_held_once_there_is_room() {
    let mount = v2_mount();
    let top = mount.path().join("skiff/kubepods");
    // Of a kubelet before this one, which enforced nothing.
    put(top.join("memory.current"), "2147483648\n");
    put(top.join("memory.max"), "max\n");
    put(mount.path().join("system/cgroup.controllers"), "cpu memory pids\n");
    let cgroups = Cgroups::open(
        mount.path(),
        NOWHERE,
        CgroupSettings {
            reserved: vec![system("/system/")],
            ..settings()
        },
    )
    .expect("open");
    cgroups.setup().await.expect("setup");
    assert_eq!(read(top.join("memory.max")), "max\n", "what is there keeps its limits");
    let why = "Failed to update Node Allocatable Limits [\"skiff\" \"kubepods\"]: 2147483648 bytes of memory are in use in \
               /skiff/kubepods, more than the new limit 1073741824";
    let system = "Updated limits on system reserved cgroup /system/";
    assert_eq!(held(&cgroups).await, [Err(why.to_owned()), Ok(system.to_owned())]);
    let of_system = |file: &str| read(mount.path().join("system").join(file));
    assert_eq!(
        (of_system("cpu.weight"), of_system("memory.max"), of_system("pids.max")),
        ("20".into(), (1 << 20).to_string(), "100".into())
    );
    // Cache that can go at once is none that is in use.
    put(top.join("memory.stat"), "anon 1\ninactive_file 2147480000\n");
    let pods = "Updated Node Allocatable limit across pods";
    assert_eq!(held(&cgroups).await, [Ok(pods.to_owned()), Ok(system.to_owned())]);
    let of_pods = |file: &str| read(top.join(file));
    assert_eq!(
        (of_pods("cpu.weight"), of_pods("memory.max"), of_pods("pids.max")),
        ("79".into(), (1 << 30).to_string(), "1000".into())
    );
    assert_eq!(cgroups.memory_limit(), Some(1 << 30));
    assert_eq!(cgroups.limit_events(), Some(top.join("memory.events.local")));
}

#[tokio::test]
async fn a_reserved_cgroup_that_is_not_there_is_refused_by_its_field() {
    let (v1, v2) = (v1_mount(), v2_mount());
    fs::create_dir(v1.path().join("memory/system")).expect("made");
    put(v2.path().join("system/cgroup.controllers"), "memory\n");
    let refused = |mount: &Path, cgroup: &str| {
        let settings = CgroupSettings {
            reserved: vec![system(cgroup)],
            ..settings()
        };
        let cgroups = Cgroups::open(mount, NOWHERE, settings).expect("open");
        async move { cgroups.setup().await.expect_err("refused").to_string() }
    };
    let make = "make it, or take system-reserved out of enforceNodeAllocatable";
    assert_eq!(
        refused(v2.path(), "/absent").await,
        format!("systemReservedCgroup: cgroup \"/absent\" does not exist: {make}")
    );
    for (mount, lacking) in [(v1.path(), "cpu, pids"), (v2.path(), "cpu, pids")] {
        assert_eq!(
            refused(mount, "/system").await,
            format!("systemReservedCgroup: cgroup \"/system\" does not exist among those of {lacking}: {make}")
        );
        assert!(
            !mount.join("skiff").exists() && !mount.join("memory/skiff").exists(),
            "nothing is made"
        );
    }
}

#[tokio::test]
async fn classes_follow_their_pods_and_are_left_alone_otherwise() {
    let mount = v2_mount();
    let systemd = FakeSystemd::start();
    let settings = CgroupSettings {
        memory_qos: Some(MemoryQos {
            factor: 0.9,
            reserves: true,
            allocatable: 1 << 30,
            page: 4096,
        }),
        qos_reserved_percent: Some(100),
        node_limits: Some(NodeLimits {
            allocatable_memory: 1 << 30,
            ..NodeLimits::default()
        }),
        ..systemd_settings()
    };
    let cgroups = Cgroups::open(mount.path(), systemd.socket(), settings).expect("open");
    cgroups.setup().await.expect("setup");
    assert_eq!(cgroups.memory_limit(), None, "it is not enforced");
    assert_eq!(cgroups.limit_events(), None, "nobody is held to it");
    systemd.take_calls();
    let pod = pod(r#"{"containers":[{"name":"c","resources":{"requests":{"cpu":"500m","memory":"64Mi"}}}]}"#);
    let kept = cgroups.refresh_qos([&pod]).await.expect("refresh");
    assert_eq!((kept.min, kept.low), (0, 64 << 20));
    let top = mount.path().join("kubepods.slice");
    let burstable = top.join("kubepods-burstable.slice");
    let best_effort = top.join("kubepods-besteffort.slice");
    let of = |directory: &Path, file: &str| read(directory.join(file));
    assert_eq!(of(&top, "memory.min"), (64 << 20).to_string());
    assert_eq!(of(&burstable, "memory.low"), (64 << 20).to_string());
    assert_eq!(of(&burstable, "cpu.weight"), "20");
    assert_eq!(of(&burstable, "memory.max"), (1 << 30).to_string());
    assert_eq!(of(&best_effort, "memory.max"), ((1 << 30) - (64 << 20)).to_string());
    assert_eq!(systemd.take_calls().len(), 6, "three units, started or updated");
    cgroups.refresh_qos([&pod]).await.expect("again");
    assert_eq!(systemd.take_calls(), [""; 0], "nothing is to be done");
    // Somebody wrote there, and more is in use than is to be: it must not become more.
    put(best_effort.join("cpu.weight"), "100\n");
    put(best_effort.join("memory.current"), "2000000000\n");
    cgroups.refresh_qos([&pod]).await.expect("refresh");
    assert_eq!(of(&best_effort, "cpu.weight"), "1");
    assert_eq!(of(&best_effort, "memory.max"), "2000000000");
    cgroups.refresh_qos([]).await.expect("refresh");
    assert_eq!(
        (of(&top, "memory.min"), of(&burstable, "memory.low")),
        ("0".into(), "0".into())
    );
}

#[tokio::test]
async fn a_limit_that_the_kernel_rounded_is_not_written_again() {
    let mount = v2_mount();
    let settings = CgroupSettings {
        qos_reserved_percent: Some(100),
        node_limits: Some(NodeLimits {
            allocatable_memory: (1 << 30) + 1000,
            ..NodeLimits::default()
        }),
        ..settings()
    };
    let cgroups = Cgroups::open(mount.path(), NOWHERE, settings).expect("open");
    cgroups.setup().await.expect("setup");
    cgroups.refresh_qos([]).await.expect("refresh");
    let file = mount.path().join("skiff/kubepods/burstable/memory.max");
    assert_eq!(read(&file), ((1 << 30) + 1000).to_string());
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .expect("asked")
        .expect("told");
    for (told, after) in [
        // As a kernel tells it: left alone, or this would be written over.
        ((1 << 30), (1 << 30)),
        ((1 << 30) + page, (1 << 30) + 1000),
    ] {
        put(file.clone(), &format!("{told}\n"));
        cgroups.refresh_qos([]).await.expect("refresh");
        assert_eq!(read(&file).trim(), after.to_string());
    }
}

#[tokio::test]
async fn what_an_earlier_kubelet_kept_of_memory_goes_with_its_gate_and_with_its_field() {
    let mount = v2_mount();
    let top = mount.path().join("skiff/kubepods");
    put(top.join("besteffort/memory.max"), "0\n");
    put(top.join("memory.min"), "4096\n");
    put(top.join("burstable/memory.low"), "4096\n");
    put(top.join("burstable/cpu.weight"), "50\n");
    let cgroups = Cgroups::open(mount.path(), NOWHERE, settings()).expect("open");
    cgroups.setup().await.expect("setup");
    assert_eq!(
        (read(top.join("memory.min")), read(top.join("burstable/memory.low"))),
        ("0".into(), "0".into())
    );
    assert_eq!(
        read(top.join("burstable/cpu.weight")),
        "50\n",
        "its pods run, and are told later"
    );
    assert_eq!(
        read(top.join("besteffort/memory.max")),
        "max",
        "qosReserved is not set any more"
    );
}

#[tokio::test]
async fn a_value_the_kernel_refuses_is_told_with_its_file() {
    let mount = v1_mount();
    let cgroups = Cgroups::open(mount.path(), NOWHERE, settings()).expect("open");
    cgroups.setup().await.expect("setup");
    // A directory in place of the file stands for a kernel that says no.
    let file = mount.path().join("memory/skiff/kubepods/memory.limit_in_bytes");
    fs::remove_file(&file).expect("removed");
    fs::create_dir(&file).expect("made");
    let told = held(&cgroups).await;
    let why = told[0].as_ref().expect_err("refused");
    assert!(
        why.contains("memory.limit_in_bytes") && why.contains("1073741824"),
        "{why}"
    );
}
