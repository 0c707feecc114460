use super::*;
use crate::allocation::decide::Pending;
use crate::id::ContainerId;
use crate::pod::resize::Applied;
use crate::pod::testing::{at, container, observed, pod, sidecar};
use crate::probe::outcome::{Kind as ProbeKind, Outcome};
use crate::runtime::observed::ObservedPod;
use k8s_openapi::api::core::v1::{PodReadinessGate, Probe};

struct Case {
    pod: Pod,
    previous: PodStatus,
    state: PodState,
    observed: ObservedPod,
    outcomes: Outcomes,
    waiting: BTreeMap<String, Waiting>,
    starting: BTreeSet<String>,
    applied: Applied,
    pending: Option<Pending>,
    stop_signals: bool,
    resizing: bool,
    now: i64,
}

impl Case {
    fn new(pod: Pod, observed: ObservedPod) -> Self {
        Self {
            pod,
            previous: PodStatus::default(),
            state: PodState::Syncing,
            observed,
            outcomes: Outcomes::default(),
            waiting: BTreeMap::new(),
            starting: BTreeSet::new(),
            applied: Applied::default(),
            pending: None,
            resizing: false,
            stop_signals: true,
            now: 100,
        }
    }

    fn ended(mut self, cause: Cause) -> Self {
        self.state.terminate(cause, &self.pod, None, at(90));
        self.state.stopped();
        self
    }

    fn waits(mut self, name: &str, reason: &str) -> Self {
        self.waiting.insert(
            name.into(),
            Waiting {
                reason: reason.into(),
                message: "why".into(),
            },
        );
        self
    }

    fn was(mut self, phase: &str) -> Self {
        self.previous.phase = Some(phase.into());
        self
    }

    fn status(&self) -> PodStatus {
        status(&Inputs {
            pod: &self.pod,
            previous: &self.previous,
            state: &self.state,
            observed: &self.observed,
            outcomes: &self.outcomes,
            waiting: &self.waiting,
            starting: &self.starting,
            recursive_read_only: true,
            stop_signals: self.stop_signals,
            resize: &Resize {
                applied: &self.applied,
                pending: self.pending.as_ref(),
                in_progress: self.resizing,
                given: None,
                error: None,
            },
            runtime_name: "containerd",
            host_ips: &["192.168.0.1".to_owned()],
            now: at(self.now),
        })
    }

    fn phase(&self) -> String {
        self.status().phase.expect("a phase")
    }
}

fn conditions(status: &PodStatus) -> Vec<String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let all = status.conditions.iter().flatten();
    all.map(|c| {
        format!("{}={} {} {}", c.type_, c.status, text(&c.reason), text(&c.message))
            .trim_end()
            .to_owned()
    })
    .collect()
}

#[test]
fn phases() {
    let seen = || observed("p").sandbox(true);
    let never = || pod("p").policy("Never").build();
    let cases: Vec<(&str, Case, &str)> = vec![
        (
            "nothing yet",
            Case::new(pod("p").build(), observed("p").build()),
            "Pending",
        ),
        (
            "running",
            Case::new(pod("p").build(), seen().running("c").build()),
            "Running",
        ),
        (
            "one of two",
            Case::new(
                pod("p").with(container("a")).with(container("b")).build(),
                seen().running("a").build(),
            ),
            "Pending",
        ),
        (
            "crash loop",
            Case::new(pod("p").build(), seen().exited("c", 1, 5).build()).waits("c", "CrashLoopBackOff"),
            "Running",
        ),
        (
            "image",
            Case::new(pod("p").build(), seen().build()).waits("c", "ErrImagePull"),
            "Pending",
        ),
        (
            "ended well, not yet told",
            Case::new(never(), seen().exited("c", 0, 5).build()).was("Running"),
            "Running",
        ),
        (
            "told",
            Case::new(never(), seen().exited("c", 0, 5).build()).ended(Cause::Completed),
            "Succeeded",
        ),
        (
            "failed",
            Case::new(never(), seen().exited("c", 3, 5).build()).ended(Cause::Completed),
            "Failed",
        ),
        (
            "deleted while running",
            Case::new(pod("p").build(), seen().exited("c", 0, 5).build()).ended(Cause::Deleted),
            "Succeeded",
        ),
        (
            "deleted before it started",
            Case::new(pod("p").build(), observed("p").build()).ended(Cause::Deleted),
            "Failed",
        ),
        (
            "terminal stays",
            Case::new(never(), seen().running("c").build()).was("Failed"),
            "Failed",
        ),
        (
            "init runs",
            Case::new(pod("p").init(container("i")).build(), seen().running("i").build()),
            "Pending",
        ),
        (
            "init failed, again",
            Case::new(pod("p").init(container("i")).build(), seen().exited("i", 1, 5).build()),
            "Pending",
        ),
        (
            "init failed for good",
            Case::new(
                pod("p").policy("Never").init(container("i")).build(),
                seen().exited("i", 1, 5).build(),
            )
            .ended(Cause::Completed),
            "Failed",
        ),
        (
            "sidecar does not count",
            Case::new(
                pod("p").policy("Never").init(sidecar("s")).build(),
                seen().exited("s", 137, 7).exited("c", 0, 5).build(),
            )
            .ended(Cause::Completed),
            "Succeeded",
        ),
        (
            "the node ended it",
            Case::new(never(), seen().exited("c", 0, 5).build()).ended(Cause::Failed {
                reason: "Evicted".into(),
                message: "low".into(),
            }),
            "Failed",
        ),
    ];
    for (name, case, phase) in cases {
        assert_eq!(case.phase(), phase, "{name}");
    }
}

#[test]
fn conditions_of_a_pod_on_its_way() {
    let pending = Case::new(
        pod("p").with(container("a")).with(container("b")).build(),
        observed("p").build(),
    )
    .status();
    assert_eq!(
        conditions(&pending),
        [
            "PodReadyToStartContainers=False",
            "Initialized=True",
            "Ready=False ContainersNotReady containers with unready status: [a b]",
            "ContainersReady=False ContainersNotReady containers with unready status: [a b]",
            "PodScheduled=True",
        ]
    );
    assert!(
        pending
            .conditions
            .iter()
            .flatten()
            .all(|c| c.observed_generation == Some(1))
    );
    let running = Case::new(pod("p").build(), observed("p").sandbox(true).running("c").build()).status();
    assert_eq!(
        conditions(&running),
        [
            "PodReadyToStartContainers=True",
            "Initialized=True",
            "Ready=True",
            "ContainersReady=True",
            "PodScheduled=True"
        ]
    );
    let initializing = Case::new(
        pod("p").init(container("i")).build(),
        observed("p").sandbox(true).running("i").build(),
    )
    .status();
    assert_eq!(
        conditions(&initializing)[1],
        "Initialized=False ContainersNotInitialized containers with incomplete status: [i]"
    );
    let done = pod("p").policy("Never").build();
    let over = Case::new(done, observed("p").sandbox(false).exited("c", 0, 5).build())
        .ended(Cause::Completed)
        .status();
    assert_eq!(
        conditions(&over),
        [
            "PodReadyToStartContainers=False",
            "Initialized=True PodCompleted",
            "Ready=False PodCompleted",
            "ContainersReady=False PodCompleted",
            "PodScheduled=True",
        ]
    );
}

#[test]
fn a_pod_whose_containers_ran_stays_initialized_whatever_its_sidecars_do() {
    let initialized = |case: &Case| conditions(&case.status())[1].clone();
    let never = pod("p").policy("Never").init(sidecar("s")).build();
    let seen = observed("p")
        .sandbox(false)
        .exited("s", 137, 6)
        .exited("c", 1, 5)
        .build();
    assert_eq!(
        initialized(&Case::new(never, seen).ended(Cause::Completed)),
        "Initialized=True"
    );
    let mut slow = container("c");
    slow.startup_probe = Some(Probe::default());
    let slow = pod("p").init(sidecar("s")).with(slow).build();
    let restarting = observed("p").sandbox(true).exited("s", 1, 5).running("c").build();
    assert_eq!(initialized(&Case::new(slow.clone(), restarting)), "Initialized=True");
    let before = observed("p").sandbox(true).exited("s", 1, 5).build();
    let incomplete = "Initialized=False ContainersNotInitialized containers with incomplete status: [s]";
    assert_eq!(initialized(&Case::new(slow, before)), incomplete);
}

#[test]
fn foreign_conditions_stay_and_gates_count() {
    let mut p = pod("p").build();
    p.spec.as_mut().expect("spec").readiness_gates = Some(vec![PodReadinessGate {
        condition_type: "x/y".into(),
    }]);
    let mut case = Case::new(p, observed("p").sandbox(true).running("c").build());
    let ready = |case: &Case| {
        conditions(&case.status())
            .into_iter()
            .find(|c| c.starts_with("Ready="))
            .expect("Ready")
    };
    assert_eq!(
        ready(&case),
        "Ready=False ReadinessGatesNotReady corresponding condition of pod readiness gate \"x/y\" does not exist."
    );
    let gate = k8s_openapi::api::core::v1::PodCondition {
        type_: "x/y".into(),
        status: "True".into(),
        ..Default::default()
    };
    case.previous.conditions = Some(vec![gate]);
    assert_eq!(ready(&case), "Ready=True");
    assert!(conditions(&case.status()).contains(&"x/y=True".to_owned()));
}

#[test]
fn transition_times_move_only_when_a_status_flips() {
    let mut case = Case::new(pod("p").build(), observed("p").sandbox(true).build());
    let time = |status: &PodStatus, kind: &str| {
        let all = status.conditions.iter().flatten();
        all.clone()
            .find(|c| c.type_ == kind)
            .and_then(|c| c.last_transition_time.clone())
            .map(|t| t.0)
    };
    case.previous = case.status();
    case.now = 200;
    case.observed = observed("p").sandbox(true).running("c").build();
    let later = case.status();
    assert_eq!(time(&later, "Ready"), Some(at(200)));
    assert_eq!(time(&later, "Initialized"), Some(at(100)));
    assert_eq!(later.start_time, Some(Time(at(100))));
}

#[test]
fn an_unchanged_pod_has_an_equal_status() {
    let mut case = Case::new(
        pod("p").build(),
        observed("p").sandbox(true).exited("c", 1, 5).running("c").build(),
    );
    case.previous = case.status();
    case.now = 500;
    assert_eq!(case.status(), case.previous);
}

#[test]
fn container_statuses() {
    let seen = observed("p").sandbox(true).exited("c", 3, 50).running("c").build();
    let status = Case::new(pod("p").build(), seen).status();
    let c = &status.container_statuses.as_ref().expect("statuses")[0];
    assert_eq!((c.restart_count, c.ready, c.started), (1, true, Some(true)));
    assert_eq!(c.container_id.as_deref(), Some("containerd://c1"));
    assert_eq!((c.image.as_str(), c.image_id.as_str()), ("img", "sha256:1"));
    let last = c
        .last_state
        .as_ref()
        .and_then(|s| s.terminated.as_ref())
        .expect("last state");
    assert_eq!((last.exit_code, last.reason.as_deref()), (3, Some("Error")));
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.5"));
    assert_eq!(status.host_ip.as_deref(), Some("192.168.0.1"));
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
}

#[test]
fn a_crash_loop_shows_the_end_as_last_state() {
    let seen = observed("p").sandbox(true).exited("c", 3, 50).build();
    let status = Case::new(pod("p").build(), seen)
        .waits("c", "CrashLoopBackOff")
        .status();
    let c = &status.container_statuses.as_ref().expect("statuses")[0];
    let waiting = c.state.as_ref().and_then(|s| s.waiting.as_ref()).expect("waiting");
    assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
    assert!(c.last_state.as_ref().is_some_and(|s| s.terminated.is_some()));
    assert!(!c.ready);
}

#[test]
fn what_vanished_is_told_as_unknown() {
    let mut case = Case::new(pod("p").build(), observed("p").sandbox(true).running("c").build());
    case.previous = case.status();
    case.observed = observed("p").sandbox(true).build();
    let status = case.status();
    let c = &status.container_statuses.as_ref().expect("statuses")[0];
    let last = c
        .last_state
        .as_ref()
        .and_then(|s| s.terminated.as_ref())
        .expect("last state");
    assert_eq!(
        (last.reason.as_deref(), last.exit_code, c.restart_count),
        (Some("ContainerStatusUnknown"), 137, 1)
    );
}

#[test]
fn what_the_runtime_knows_nothing_of_is_told_by_what_it_was() {
    use crate::runtime::observed::ContainerState::Unknown;
    let lost = || observed("p").sandbox(true).container("c", Unknown, 0, 0).build();
    let mut case = Case::new(pod("p").build(), lost());
    let told = |case: &Case| {
        let status = &case.status().container_statuses.expect("statuses")[0];
        let state = status.state.clone().unwrap_or_default();
        let waits = state.waiting.and_then(|waiting| waiting.reason);
        waits
            .or(state.terminated.and_then(|end| end.message))
            .unwrap_or_default()
    };
    assert_eq!(told(&case), "ContainerCreating", "it never ran");
    case.observed = observed("p").sandbox(true).running("c").build();
    case.previous = case.status();
    case.observed = lost();
    let gone = "The container could not be located when the pod was terminated";
    assert_eq!(told(&case), gone);
    case.previous = case.status();
    assert_eq!(told(&case), gone, "and stays so");
}

#[test]
fn at_the_end_nothing_is_left_waiting() {
    let status = Case::new(pod("p").build(), observed("p").build())
        .ended(Cause::Deleted)
        .status();
    let c = &status.container_statuses.as_ref().expect("statuses")[0];
    let end = c
        .state
        .as_ref()
        .and_then(|s| s.terminated.as_ref())
        .expect("terminated");
    assert_eq!(
        (end.reason.as_deref(), end.exit_code),
        (Some("ContainerStatusUnknown"), 137)
    );
    assert_eq!(
        end.message.as_deref(),
        Some("The container could not be located when the pod was terminated")
    );
}

fn state_of(status: &ContainerStatus) -> String {
    let state = status.state.clone().unwrap_or_default();
    match (state.waiting, state.terminated) {
        (Some(waiting), _) => format!("waiting {}", waiting.reason.unwrap_or_default()),
        (_, Some(end)) => format!("terminated {} {}", end.reason.unwrap_or_default(), end.exit_code),
        _ => "running".to_owned(),
    }
}

/// Upstream's conformance case "should not start app containers and fail the pod if init containers fail on a RestartNever
/// pod".
#[test]
fn containers_that_never_had_their_turn_go_on_waiting() {
    let pod = pod("p")
        .policy("Never")
        .init(container("init1"))
        .init(container("init2"));
    let pod = pod.init(container("init3")).with(container("run1")).build();
    let seen = observed("p")
        .sandbox(true)
        .exited("init1", 0, 5)
        .exited("init2", 1, 6)
        .build();
    let before = Case::new(pod.clone(), seen.clone()).was("Pending").status();
    let after = Case::new(pod, seen).was("Pending").ended(Cause::Completed).status();
    for (status, phase) in [(&before, "Pending"), (&after, "Failed")] {
        assert_eq!(status.phase.as_deref(), Some(phase));
        let lists = [&status.init_container_statuses, &status.container_statuses];
        let states: Vec<String> = lists.into_iter().flatten().flatten().map(state_of).collect();
        assert_eq!(
            states,
            [
                "terminated Completed 0",
                "terminated Error 1",
                "waiting PodInitializing",
                "waiting PodInitializing"
            ],
            "{phase}"
        );
        let told = "Initialized=False ContainersNotInitialized containers with incomplete status: [init2 init3]";
        assert!(
            conditions(status).contains(&told.to_owned()),
            "{:?}",
            conditions(status)
        );
    }
}

#[test]
fn at_the_end_inits_that_began_and_what_comes_after_them_are_told_apart() {
    let with_init = || pod("p").init(container("i"));
    let states = |pod: Pod, seen: ObservedPod| {
        let status = Case::new(pod, seen).ended(Cause::Deleted).status();
        let lists = [status.init_container_statuses, status.container_statuses];
        lists
            .into_iter()
            .flatten()
            .flatten()
            .map(|c| state_of(&c))
            .collect::<Vec<_>>()
    };
    let unknown = "terminated ContainerStatusUnknown 137";
    let waiting = "waiting PodInitializing";
    assert_eq!(states(with_init().build(), observed("p").build()), [unknown, waiting]);
    let done = observed("p").sandbox(true).exited("i", 0, 5).build();
    assert_eq!(states(with_init().build(), done)[1], unknown, "its turn had come");
    let two = with_init().init(sidecar("s")).build();
    let first = observed("p").sandbox(true).exited("i", 0, 5).build();
    assert_eq!(states(two, first)[1..], [waiting, waiting]);
}

#[test]
fn default_waiting_reasons() {
    let reason = |pod: Pod| {
        let status = Case::new(pod, observed("p").build()).status();
        let c = status.container_statuses.expect("statuses").remove(0);
        c.state.and_then(|s| s.waiting).and_then(|w| w.reason).expect("waiting")
    };
    assert_eq!(reason(pod("p").build()), "ContainerCreating");
    assert_eq!(reason(pod("p").init(container("i")).build()), "PodInitializing");
}

#[test]
fn readiness_follows_the_probe() {
    let mut c = container("c");
    c.readiness_probe = Some(Probe::default());
    let mut case = Case::new(
        pod("p").with(c).build(),
        observed("p").sandbox(true).running("c").build(),
    );
    let ready = |case: &Case| case.status().container_statuses.expect("statuses")[0].ready;
    assert!(!ready(&case));
    case.outcomes
        .set("c", ProbeKind::Readiness, &ContainerId::from("c0"), Outcome::Success);
    assert!(ready(&case));
}

#[test]
fn a_rejected_pod_says_why() {
    let status = rejected(
        &pod("p").build(),
        "OutOfcpu",
        "Node didn't have enough resource: cpu",
        &[],
        at(0),
    );
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("OutOfcpu"));
    assert_eq!(
        status.message.as_deref(),
        Some("Pod was rejected: Node didn't have enough resource: cpu")
    );
}

#[test]
fn addresses_are_told_to_the_end() {
    let mut case = Case::new(pod("p").build(), observed("p").sandbox(true).running("c").build());
    case.previous = case.status();
    case.observed = observed("p").sandbox(false).exited("c", 0, 90).build();
    assert_eq!(
        case.status().pod_ip.as_deref(),
        Some("10.0.0.5"),
        "until the next sandbox has another"
    );
    let seen = std::mem::replace(&mut case.observed, observed("p").build());
    assert_eq!(case.status().pod_ip, None, "nothing of it is there");
    case.observed = seen;
    let case = case.ended(Cause::Deleted);
    assert_eq!(case.status().pod_ip.as_deref(), Some("10.0.0.5"));
}

#[test]
fn a_container_whose_post_start_hook_runs_is_not_told_as_running() {
    let mut case = Case::new(pod("p").build(), observed("p").sandbox(true).running("c").build());
    case.starting.insert("c".into());
    let status = case.status();
    let told = &status.container_statuses.as_ref().expect("statuses")[0];
    let waiting = told.state.as_ref().and_then(|state| state.waiting.as_ref());
    assert_eq!(waiting.and_then(|w| w.reason.as_deref()), Some("ContainerCreating"));
    assert_eq!((told.ready, told.started), (false, Some(false)));
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    let case = case.waits("c", "PostStartHookError");
    let statuses = case.status().container_statuses.expect("statuses");
    let waiting = statuses[0].state.as_ref().and_then(|state| state.waiting.as_ref());
    assert_eq!(waiting.and_then(|w| w.reason.as_deref()), Some("PostStartHookError"));
}

#[test]
fn stop_signals_are_shown_where_their_gate_is_on() {
    let mut running = observed("p").sandbox(true).running("c").build();
    running.containers[0].stop_signal = Some("SIGTERM".into());
    let mut bench = Case::new(pod("p").with(container("c")).build(), running);
    let shown = |bench: &Case| {
        let status = bench.status();
        status.container_statuses.unwrap_or_default()[0].stop_signal.clone()
    };
    assert_eq!(shown(&bench).as_deref(), Some("SIGTERM"));
    bench.stop_signals = false;
    assert_eq!(shown(&bench), None);
}
