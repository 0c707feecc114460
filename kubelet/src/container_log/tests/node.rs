//! The rotator of a node.

use super::*;

/// A node with one running container, whose runtime opens its log as told.
struct Node {
    world: Arc<Mutex<World>>,
    runtime: FakeRuntime,
    parts: Arc<Parts>,
    id: ContainerId,
}

impl Node {
    fn new() -> Self {
        let world = World::new();
        let clock = Arc::new(TokioClock::starting_at(at(0)));
        let runtime = FakeRuntime::new(clock.clone(), 1);
        let mut node = context();
        node.root_dir = world.dir.path().join("kubelet");
        node.pod_logs_dir = world.dir.path().to_owned();
        let given = dependencies(world.dir.path(), node, Arc::new(runtime.clone()), clock);
        let (parts, ..) = Parts::new(given);
        let mut seen = observed("p").sandbox(true).running("c").build();
        seen.containers[0].log_path = world.path("0.log").display().to_string();
        let id = seen.containers[0].id.clone();
        let snapshot = PodSnapshot {
            pod: Arc::new(pod("p").build()),
            status: Arc::default(),
            observed: Arc::new(seen),
            active: true,
            ended: false,
            life: Life::default(),
        };
        parts.pods.publish("p".into(), snapshot);
        let world = Arc::new(Mutex::new(world));
        let reopens = world.clone();
        runtime.reopens_by(move |_| reopens.lock().expect("a world").reopen());
        Self {
            world,
            runtime,
            parts,
            id,
        }
    }

    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().expect("a world")
    }

    fn start(&self, size_max: i64) -> (CancellationToken, tokio::task::JoinHandle<()>) {
        let rules = Rules {
            size_max: u64::try_from(size_max).ok(),
            files_max: 3,
            ..Rules::default()
        };
        let stop = CancellationToken::new();
        let running = Rotator::new(self.parts.clone(), rules).run(stop.clone());
        (stop, tokio::spawn(running))
    }

    /// What is found in the files, and what was written.
    fn lines(&self) -> (Vec<String>, Vec<String>) {
        let world = self.world();
        (world.lines(), world.expected())
    }

    fn calls(&self) -> usize {
        let call = format!("ReopenContainerLog {}", self.id);
        self.runtime.calls().iter().filter(|made| **made == call).count()
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..10_000 {
            if holds(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("never: {what}; {:?}", self.world().names());
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_grew_is_rotated_and_a_small_one_is_left() {
    let node = Node::new();
    let (stop, running) = node.start(1_000);
    node.world().write(10);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((node.calls(), node.world().names().len()), (0, 1));
    for round in 1..4 {
        node.world().write(200);
        node.until("rotated", |node| node.calls() == round).await;
    }
    node.until("all done", |node| node.world().names().len() == 3).await;
    assert_eq!(node.world().names()[0], "0.log");
    let (lines, expected) = node.lines();
    assert!(expected.ends_with(&lines), "{lines:?}");
    stop.cancel();
    running.await.expect("ended");
}

#[tokio::test(start_paused = true)]
async fn a_reopen_that_fails_is_tried_again_and_loses_nothing() {
    let node = Node::new();
    for _ in 0..3 {
        let error = RuntimeError::new("ReopenContainerLog", Code::Unknown, "no");
        node.runtime.next("ReopenContainerLog", Mishap::Fail(error));
    }
    node.world().write(300);
    let (stop, running) = node.start(1_000);
    node.until("rotated", |node| node.calls() == 4 && node.world().names().len() == 2)
        .await;
    node.world().write(1);
    let (lines, expected) = node.lines();
    assert_eq!(lines, expected);
    stop.cancel();
    running.await.expect("ended");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_lies_is_asked_less_and_less_until_it_tells_the_truth() {
    let node = Node::new();
    let reopens = node.world.clone();
    let lies = Arc::new(AtomicBool::new(true));
    let is_lie = lies.clone();
    node.runtime.reopens_by(move |_| {
        if !is_lie.load(Ordering::Relaxed) {
            reopens.lock().expect("a world").reopen();
        }
    });
    node.world().write(300);
    let (stop, running) = node.start(1_000);
    tokio::time::sleep(Duration::from_secs(600)).await;
    // After 1, 11, 21, 41 ... seconds.
    assert!((4..=8).contains(&node.calls()), "{}", node.calls());
    lies.store(false, Ordering::Relaxed);
    let before = node.calls();
    node.until("opened", |node| node.calls() > before).await;
    // And from the beginning, once it was seen to tell the truth.
    tokio::time::sleep(Duration::from_secs(60)).await;
    lies.store(true, Ordering::Relaxed);
    let before = node.calls();
    node.world().write(300);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!((3..=5).contains(&(node.calls() - before)), "{}", node.calls() - before);
    let (lines, expected) = node.lines();
    assert!(expected.ends_with(&lines));
    stop.cancel();
    running.await.expect("ended");
}

#[tokio::test(start_paused = true)]
async fn a_log_without_its_name_is_opened_anew_and_no_size_is_no_rotation() {
    let node = Node::new();
    node.world().write(300);
    let path = |name: &str| node.world().path(name);
    let (log, aside) = (path("0.log"), path("0.log.19700112-134000"));
    fs::rename(log, aside).expect("as a kubelet that died");
    let (stop, running) = node.start(1_000_000);
    node.until("opened", |node| node.calls() == 1).await;
    node.world().write(1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (lines, expected) = node.lines();
    assert_eq!((node.calls(), lines), (1, expected));
    stop.cancel();
    running.await.expect("ended");
    let (_, off) = node.start(-1);
    node.world().write(9_000);
    off.await.expect("it has nothing to do");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_would_follow_a_link_is_not_asked_to() {
    let node = Node::new();
    let root = node.world().dir.path().to_owned();
    fs::rename(root.join("ns_p_p/c"), root.join("moved")).expect("moved");
    fs::create_dir(root.join("etc")).expect("dir");
    symlink(root.join("etc"), root.join("ns_p_p/c")).expect("link");
    let (stop, running) = node.start(1_000);
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert_eq!(node.calls(), 0);
    stop.cancel();
    running.await.expect("ended");
}

/// Each pod's logs may be on a file system of their own. The clock stands still here, so that no deadline passes.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_logs_cannot_be_looked_at_holds_no_other_up() {
    let node = Node::new();
    node.world().write(100);
    let other = node.parts.context.pod_logs_dir.join("ns_a_a/c/0.log");
    let mut seen = observed("a").sandbox(true).running("c").build();
    seen.containers[0].log_path = other.display().to_string();
    seen.containers[0].id = "other".into();
    let mut snapshot = (*node.parts.pods.list()[0]).clone();
    (snapshot.pod, snapshot.observed) = (Arc::new(pod("a").build()), Arc::new(seen));
    node.parts.pods.publish("a".into(), snapshot);
    let mut rotator = Rotator::new(node.parts.clone(), Rules::default());
    let (end, hangs) = std::sync::mpsc::channel::<()>();
    let (begun, begins) = tokio::sync::oneshot::channel();
    let hung = rotator.looks.run("ns_a_a", move || {
        let _ = begun.send(());
        hangs.recv().is_ok()
    });
    let hung = tokio::spawn(hung);
    begins.await.expect("it hangs");
    let rotated = async {
        for _ in 0..1_000_000 {
            if node.world().names().len() > 1 {
                return end.send(()).expect("it goes on");
            }
            tokio::task::yield_now().await;
        }
        panic!("the other pod's log is not rotated");
    };
    let pass = async {
        rotator.pass(10).await;
        while rotator.tasks.join_next().await.is_some() {}
    };
    futures::future::join(pass, rotated).await;
    assert!(hung.await.expect("sound").is_ok_and(|went_on| went_on));
    assert_eq!(rotator.watched.len(), 2);
}
