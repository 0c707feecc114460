use super::*;
use crate::cgroup::{CgroupDriver, CgroupSettings, Cgroups};
use crate::parts::Dependencies;
use crate::parts::testing::{context, dependencies};
use crate::pod::spec::testing::pod;
use crate::pod::view::Life;
use crate::runtime::fake::FakeRuntime;
use crate::runtime::observed::{ObservedPod, ObservedSandbox};
use client::Clock;
use std::fs;

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("parent")).expect("dirs");
    fs::write(path, text).expect("file");
}

const POD: &str = "tree/kubepods/besteffort/podu-1";

/// A machine with a unified tree, in which one pod has a sandbox and a container.
fn machine(root: &Path) {
    put(root, "tree/cgroup.controllers", "cpu memory pids\n");
    put(
        root,
        "proc/meminfo",
        "MemTotal: 100 kB\nMemFree: 10 kB\nSwapTotal: 0 kB\n",
    );
    put(root, "proc/stat", "cpu  10 1 5 1000 50 2 3 4 0 0\nbtime 1700000000\n");
    put(root, "proc/self/cgroup", "0::/system.slice/kubelet.service\n");
    put(root, "proc/71/net/dev", "  eth0: 9 8 7 6 5 4 3 2 1 2 3 4 5 6 7 8\n");
    put(root, "tree/system.slice/kubelet.service/memory.current", "5\n");
    put(root, "tree/system.slice/memory.current", "6\n");
    for (path, cpu, memory) in [
        ("tree/kubepods", 50, 500),
        ("tree/kubepods/besteffort", 40, 400),
        (POD, 30, 300),
        (&format!("{POD}/s1"), 1, 10),
        (&format!("{POD}/main-1"), 20, 200),
    ] {
        put(root, &format!("{path}/cpu.stat"), &format!("usage_usec {cpu}\n"));
        put(root, &format!("{path}/memory.current"), &format!("{memory}\n"));
    }
    put(root, &format!("{POD}/s1/cgroup.procs"), "71\n");
    put(root, &format!("{POD}/main-1/cgroup.procs"), "72\n73\n");
}

fn parts(root: &Path) -> Arc<Parts> {
    let runtime = FakeRuntime::new(Arc::new(Fixed), 0);
    let mut given: Dependencies = dependencies(root, context(), Arc::new(runtime), Arc::new(Fixed));
    given.context.root_dir = root.join("kubelet");
    given.context.cgroups.per_qos = true;
    let settings = CgroupSettings::with_defaults(given.context.cgroups.clone());
    given.cgroups = Cgroups::open(root.join("tree"), root.join("no-bus"), settings).expect("a tree");
    given.settings.machine = Roots {
        proc: root.join("proc"),
        sys: root.join("sys"),
        etc: root.join("etc"),
    };
    given.settings.system_cgroup = Some("/system.slice".to_owned());
    let (parts, _sink, _) = Parts::new(given);
    assert_eq!(parts.context.cgroups.driver, CgroupDriver::Cgroupfs);
    parts
}

fn publish(parts: &Parts) {
    let at = Timestamp::UNIX_EPOCH;
    let sandbox = ObservedSandbox {
        id: "s1".into(),
        pod: "u-1".into(),
        name: "web".to_owned(),
        namespace: "shop".to_owned(),
        attempt: 0,
        ready: true,
        created_at: at,
        ips: Vec::new(),
        host_network: false,
        handler: String::new(),
    };
    let container = |name, state| crate::server::tests::container(name, state, Path::new("/none"), 1);
    let observed = ObservedPod {
        uid: "u-1".into(),
        sandboxes: vec![sandbox],
        containers: vec![
            container("main", ContainerState::Running),
            container("gone", ContainerState::Running),
            container("over", ContainerState::Exited),
        ],
    };
    let snapshot = PodSnapshot {
        pod: Arc::new(pod(r#"{"containers":[{"name":"main"}]}"#)),
        status: Arc::default(),
        observed: Arc::new(observed),
        active: true,
        ended: false,
        life: Life::default(),
    };
    parts.pods.publish("u-1".into(), snapshot);
}

/// The kernel's files are read as they are, by either version's reader: this is of what is looked at.
#[tokio::test(start_paused = true)]
async fn everything_that_is_there_is_looked_at_and_what_is_not_is_absent() {
    let dir = tempfile::tempdir().expect("temp dir");
    machine(dir.path());
    let parts = parts(dir.path());
    publish(&parts);
    let look = parts.stats.look(&parts, Depth::Everything).await;
    assert!(!look.failed);
    assert_eq!(look.node.available, Some(10 << 10));
    let system: Vec<_> = look
        .system
        .iter()
        .map(|(name, group)| (*name, group.id.as_str()))
        .collect();
    assert_eq!(
        system,
        [
            ("kubelet", "/system.slice/kubelet.service"),
            ("misc", "/system.slice"),
            ("pods", "/kubepods")
        ]
    );
    let started = |name: &str| look.system.iter().find(|(of, _)| *of == name)?.1.started;
    assert_eq!(
        started("kubelet"),
        Some(Timestamp::UNIX_EPOCH),
        "as long ago as it began"
    );
    let made = Timestamp::try_from(std::time::SystemTime::now()).expect("a time");
    let made = started("pods").map(|at| made.duration_since(at).as_secs());
    assert!(made.is_some_and(|ago| (0..3600).contains(&ago)), "{made:?}");
    assert_eq!(look.pods[0].own.as_ref().and_then(|own| own.started), None);
    let classes: Vec<_> = look.classes.iter().map(|group| group.id.as_str()).collect();
    assert_eq!(classes, ["/kubepods/besteffort"]);
    let [pod] = &look.pods[..] else { panic!("one pod") };
    let used = |group: &Group| (group.id.clone(), group.numbers.memory.usage);
    let base = "/kubepods/besteffort/podu-1";
    assert_eq!(pod.own.as_ref().map(used), Some((base.to_owned(), Some(300))));
    assert_eq!(pod.sandbox.as_ref().map(used), Some((format!("{base}/s1"), Some(10))));
    let containers: Vec<_> = pod
        .containers
        .iter()
        .map(|(place, group)| (*place, used(group)))
        .collect();
    assert_eq!(containers, [(0, (format!("{base}/main-1"), Some(200)))]);
    assert_eq!(pod.containers[0].1.numbers.tasks.processes, Some(2));
    assert_eq!(
        pod.interfaces.iter().map(|of| of.received.bytes).collect::<Vec<_>>(),
        [9]
    );
}

#[tokio::test(start_paused = true)]
async fn a_look_is_shared_for_a_second_and_rates_are_between_looks() {
    let dir = tempfile::tempdir().expect("temp dir");
    machine(dir.path());
    let parts = parts(dir.path());
    publish(&parts);
    let look = |depth| parts.stats.look(&parts, depth);
    let (first, second) = futures::future::join(look(Depth::Summary), look(Depth::Load)).await;
    assert!(Arc::ptr_eq(&first, &second));
    assert!(
        first.pods[0].own.as_ref().is_some_and(|own| own.rate.is_none()),
        "nothing to compare with yet"
    );
    let deeper = look(Depth::Everything).await;
    assert!(!Arc::ptr_eq(&first, &deeper), "that has less than is asked for");
    put(dir.path(), &format!("{POD}/cpu.stat"), "usage_usec 20000030\n");
    tokio::time::advance(Duration::from_secs(10)).await;
    let later = look(Depth::Load).await;
    let rate = later.pods[0].own.as_ref().and_then(|own| own.rate);
    assert_eq!(rate, Some(2_000_000_000), "20 seconds of CPU time in 10");
    assert_eq!(later.node_rate, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_does_not_answer_is_waited_for_in_vain_no_longer_than_the_deadline() {
    let dir = tempfile::tempdir().expect("temp dir");
    machine(dir.path());
    let runtime = FakeRuntime::new(Arc::new(Fixed), 0);
    runtime.next("ListContainerStats", crate::runtime::fake::Mishap::Hang);
    let mut given = dependencies(dir.path(), context(), Arc::new(runtime), Arc::new(Fixed));
    given.context.root_dir = dir.path().join("kubelet");
    let (parts, _sink, _) = Parts::new(given);
    let begun = Instant::now();
    assert_eq!(*parts.stats.told(&parts).await, None);
    assert!(begun.elapsed() <= DEADLINE + Duration::from_millis(1));
}

#[test]
fn a_runtime_that_takes_no_connections_holds_up_nobody() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("s");
    let address = UnixAddr::new(&path).expect("an address");
    let socket =
        || sys::socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_NONBLOCK, None).expect("a socket");
    let listening = socket();
    sys::bind(listening.as_raw_fd(), &address).expect("bound");
    sys::listen(&listening, sys::Backlog::new(1).expect("a length")).expect("listens");
    assert_eq!(listener(&path), i32::try_from(std::process::id()).ok());
    let queued: Vec<_> = std::iter::repeat_with(socket)
        .take_while(|socket| sys::connect(socket.as_raw_fd(), &address).is_ok())
        .take(64)
        .collect();
    assert!(queued.len() < 64, "its queue is full");
    let (told, answer) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(listener(&path)));
    assert_eq!(answer.recv_timeout(Duration::from_secs(60)), Ok(None));
}

#[tokio::test]
async fn a_look_nobody_waits_for_ends_before_the_next_pod() {
    let dir = tempfile::tempdir().expect("temp dir");
    machine(dir.path());
    let parts = parts(dir.path());
    publish(&parts);
    let looked = |given_up: bool| {
        let job = Job {
            depth: Depth::Load,
            began: Timestamp::UNIX_EPOCH,
            pods: parts.pods.list(),
            trees: parts.stats.trees.clone(),
            naming: parts.stats.naming.clone(),
            roots: parts.stats.roots.clone(),
            socket: None,
            misc: None,
        };
        let look = job.run(
            Timestamp::UNIX_EPOCH,
            &mut Opened::default(),
            &AtomicBool::new(given_up),
        );
        (look.pods.len(), look.failed)
    };
    assert_eq!((looked(false), looked(true)), ((1, false), (0, true)));
}
