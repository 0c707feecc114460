mod changes;
mod claims;
mod ephemeral;
mod hooks;
mod interrupted;
mod resize;
mod restart_all;

use super::*;
use crate::id::ContainerId;
use crate::pod::backoff::Crash;
use crate::pod::memory::ReadyImage;
use crate::pod::operation::StopReason;
use crate::pod::state::Cause;
use crate::pod::testing::{at, container, observed, pod, sidecar};
use crate::probe::outcome::{Kind as ProbeKind, Outcome};
use crate::runtime::ImageInfo;
use crate::runtime::observed::{ContainerState, ObservedPod};
use k8s_openapi::api::core::v1::Probe;
use std::time::Duration;

/// One situation, with defaults that suit most tests: prepared, volumes there, images there, nothing in flight.
struct Case {
    pod: Pod,
    present: bool,
    state: PodState,
    observed: ObservedPod,
    outcomes: Outcomes,
    in_flight: BTreeMap<Key, InFlight>,
    memory: Memory,
    garbage: Garbage,
    now: i64,
}

impl Case {
    fn new(pod: Pod, observed: ObservedPod) -> Self {
        let ready = |c: &k8s_openapi::api::core::v1::Container| {
            (
                c.name.clone(),
                ReadyImage {
                    reference: c.image.clone().unwrap_or_default(),
                    image: ImageInfo {
                        id: "sha256:1".into(),
                        ..ImageInfo::default()
                    },
                },
            )
        };
        let images = pod_object::containers(&pod).map(|(_, c)| ready(c));
        let ephemerals = pod_object::ephemerals(&pod).iter().map(pod_object::of_ephemeral);
        let images = images.chain(ephemerals.map(|c| ready(&c))).collect();
        let memory = Memory {
            prepared: true,
            volumes_ready: true,
            images,
            ..Memory::default()
        };
        Self {
            pod,
            present: true,
            state: PodState::Syncing,
            observed,
            outcomes: Outcomes::default(),
            in_flight: BTreeMap::new(),
            memory,
            garbage: Garbage::default(),
            now: 100,
        }
    }

    fn terminating(mut self, since: i64, grace_seconds: i64) -> Self {
        self.state = PodState::Syncing;
        self.pod.metadata.deletion_grace_period_seconds = Some(grace_seconds);
        self.state.terminate(Cause::Deleted, &self.pod, None, at(since));
        self
    }

    fn in_flight(mut self, key: Key, grace_ends: Option<i64>) -> Self {
        self.in_flight.insert(
            key,
            InFlight {
                grace_ends: grace_ends.map(at),
            },
        );
        self
    }

    fn plan(&self) -> Plan {
        plan(&Inputs {
            pod: &self.pod,
            present: self.present,
            state: &self.state,
            observed: Some(&self.observed),
            outcomes: &self.outcomes,
            in_flight: &self.in_flight,
            memory: &self.memory,
            network_ready: true,
            start_time: Some(at(0)),
            crash: Bounds::crash_loop(Duration::from_secs(300)),
            garbage: &self.garbage,
            now: at(self.now),
        })
    }

    /// The plan in short words.
    fn words(&self) -> Vec<String> {
        let plan = self.plan();
        let mut words: Vec<String> = plan.operations.iter().map(word).collect();
        words.extend(plan.advance.map(|advance| format!("=> {advance:?}")));
        words
    }
}

fn word(operation: &Operation) -> String {
    match operation {
        Operation::Prepare => "prepare".into(),
        Operation::Resize => "resize".into(),
        Operation::Volumes => "volumes".into(),
        Operation::StartSandbox { attempt } => format!("sandbox {attempt}"),
        Operation::PrepareImage { container, .. } => format!("image {container}"),
        Operation::StartContainer {
            container,
            restart_count,
            ..
        } => {
            let count = restart_count.map_or("?".into(), |count| count.to_string());
            format!("start {container} {count}")
        }
        Operation::PostStart { id, .. } => format!("post-start {id}"),
        Operation::PreStop { id, grace_seconds, .. } => format!("pre-stop {id} {grace_seconds}"),
        Operation::StopContainer { id, grace_seconds, .. } => format!("stop {id} {grace_seconds}"),
        Operation::StopSandbox { id } => format!("stop-sandbox {id}"),
        Operation::RemoveContainer { id, .. } => format!("remove {id}"),
        Operation::RemoveSandbox { id } => format!("remove-sandbox {id}"),
        Operation::ReleaseVolumes => "release-volumes".into(),
        Operation::ReleaseCgroup => "release-cgroup".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn check(name: &str, case: &Case, expected: &[&str]) {
    assert_eq!(case.words(), expected, "{name}");
}

#[test]
fn a_new_pod_starts_everything_that_can_overlap() {
    let mut case = Case::new(pod("p").build(), observed("p").build());
    case.memory = Memory::default();
    check("cgroup and image first", &case, &["prepare", "image c"]);
    case.memory.prepared = true;
    check(
        "then volumes and sandbox beside the image",
        &case,
        &["volumes", "sandbox 0", "image c"],
    );

    let mut case = Case::new(pod("p").build(), observed("p").sandbox(true).build());
    check("all there", &case, &["start c ?"]);
    case.memory.volumes_ready = false;
    check("no start before the volumes", &case, &["volumes"]);
    case.memory.volumes_ready = true;
    case.memory.images.clear();
    check("no start before the image", &case, &["image c"]);
    case.memory.stale = true;
    check("no act on an old look", &case, &["observe"]);
}

#[test]
fn without_a_look_nothing_is_done() {
    let case = Case::new(pod("p").build(), observed("p").build());
    let inputs = Inputs {
        pod: &case.pod,
        present: true,
        state: &case.state,
        observed: None,
        outcomes: &case.outcomes,
        in_flight: &case.in_flight,
        memory: &case.memory,
        network_ready: true,
        start_time: None,
        crash: Bounds::crash_loop(Duration::from_secs(300)),
        garbage: &case.garbage,
        now: at(0),
    };
    assert_eq!(plan(&inputs).operations, [Operation::Observe]);
}

#[test]
fn a_network_that_is_down_holds_back_pods_that_need_it() {
    let case = Case::new(pod("p").build(), observed("p").build());
    let words = |pod: &Pod| {
        let plan = plan(&Inputs {
            pod,
            present: true,
            state: &PodState::Syncing,
            observed: Some(&case.observed),
            outcomes: &case.outcomes,
            in_flight: &case.in_flight,
            memory: &case.memory,
            network_ready: false,
            start_time: None,
            crash: Bounds::crash_loop(Duration::from_secs(300)),
            garbage: &case.garbage,
            now: at(0),
        });
        plan.operations.iter().map(word).collect::<Vec<_>>()
    };
    assert!(words(&case.pod).is_empty());
    let mut host = case.pod.clone();
    host.spec.as_mut().expect("spec").host_network = Some(true);
    assert_eq!(words(&host), ["sandbox 0"]);
}

#[test]
fn containers_start_one_after_the_other_in_order() {
    let two = || pod("p").with(container("a")).with(container("b")).build();
    let case = Case::new(two(), observed("p").sandbox(true).build());
    check("first", &case, &["start a ?"]);
    let case = Case::new(two(), observed("p").sandbox(true).build()).in_flight(Key::Start("a".into()), None);
    check("second waits for the first's start", &case, &[]);
    let case = Case::new(two(), observed("p").sandbox(true).running("a").build());
    check("then it starts", &case, &["start b ?"]);
    let mut case = Case::new(two(), observed("p").sandbox(true).build());
    case.memory.images.remove("a");
    check("second waits for the first's image", &case, &["image a"]);
    case.memory
        .image_failed(&container("a"), "ErrImagePull", "no".into(), at(100));
    check("but not for one that cannot be had", &case, &["start b ?"]);
}

#[test]
fn restart_policies() {
    let run = |policy: &str, code| {
        Case::new(
            pod("p").policy(policy).build(),
            observed("p").sandbox(true).exited("c", code, 50).build(),
        )
    };
    check("always", &run("Always", 0), &["start c 1"]);
    check("on failure, failed", &run("OnFailure", 1), &["start c 1"]);
    check("on failure, well", &run("OnFailure", 0), &["=> Complete"]);
    check("never", &run("Never", 1), &["=> Complete"]);
    let two = pod("p")
        .policy("Never")
        .with(container("a"))
        .with(container("b"))
        .build();
    let one_ended = observed("p").sandbox(true).exited("a", 1, 50).running("b").build();
    check("the other one goes on", &Case::new(two, one_ended), &[]);
}

#[test]
fn a_crash_loop_waits_and_says_so() {
    let seen = observed("p").sandbox(true).exited("c", 1, 95).build();
    let mut case = Case::new(pod("p").build(), seen);
    let key = crash::key(&container("c"));
    case.memory.crashes.insert(
        "c".into(),
        Crash {
            key,
            wait: Duration::from_secs(20),
            updated: at(90),
        },
    );
    let plan = case.plan();
    assert_eq!(plan.operations, []);
    assert_eq!(plan.wake_at, Some(at(115)));
    let waiting = &plan.waiting["c"];
    assert_eq!(waiting.reason, "CrashLoopBackOff");
    assert_eq!(
        waiting.message,
        "back-off 20s restarting failed container=c pod=p_ns(p)"
    );
    case.now = 115;
    check("then it starts", &case, &["start c 1"]);
}

#[test]
fn a_failed_pull_is_told_as_itself_then_as_a_back_off() {
    let mut case = Case::new(pod("p").build(), observed("p").sandbox(true).build());
    case.memory.images.clear();
    case.memory
        .image_failed(&container("c"), "ErrImagePull", "no such thing".into(), at(100));
    let plan = case.plan();
    assert_eq!(plan.waiting["c"].reason, "ErrImagePull");
    assert_eq!(plan.wake_at, Some(at(102)));
    case.now = 105;
    let plan = case.plan();
    assert_eq!(plan.waiting["c"].reason, "ImagePullBackOff");
    assert_eq!(
        plan.waiting["c"].message,
        "Back-off pulling image \"img\": ErrImagePull: no such thing"
    );
    assert_eq!(plan.wake_at, Some(at(110)));
    case.now = 110;
    check("tried again", &case, &["image c"]);
}

#[test]
fn whatever_a_pull_fails_at_it_backs_off() {
    for (reason, backs_off) in [
        ("ErrImagePull", true),
        ("RegistryUnavailable", true),
        ("SignatureValidationFailed", true),
        ("InvalidImageName", false),
        ("ErrImageNeverPull", false),
        ("ImageInspectError", false),
    ] {
        let mut case = Case::new(pod("p").build(), observed("p").sandbox(true).build());
        case.memory.images.clear();
        case.memory.image_failed(&container("c"), reason, "why".into(), at(100));
        case.now = 105;
        let told = case.plan().waiting["c"].clone();
        let expected = match backs_off {
            true => (
                "ImagePullBackOff",
                format!("Back-off pulling image \"img\": {reason}: why"),
            ),
            false => (reason, "why".to_owned()),
        };
        assert_eq!((told.reason.as_str(), told.message), expected);
    }
}

#[test]
fn init_containers_run_in_order_before_the_rest() {
    let p = || pod("p").init(container("i")).init(container("j")).build();
    let seen = || observed("p").sandbox(true);
    check("first", &Case::new(p(), seen().build()), &["start i ?"]);
    check("wait", &Case::new(p(), seen().running("i").build()), &[]);
    check(
        "second",
        &Case::new(p(), seen().exited("i", 0, 9).build()),
        &["start j ?"],
    );
    check(
        "failed again",
        &Case::new(p(), seen().exited("i", 1, 9).build()),
        &["start i 1"],
    );
    let done = seen().exited("i", 0, 9).exited("j", 0, 9);
    check("then the rest", &Case::new(p(), done.build()), &["start c ?"]);
    let lost = seen().running("c");
    check(
        "what is lost below a running pod is not run again",
        &Case::new(p(), lost.build()),
        &[],
    );
    let never = pod("p").policy("Never").init(container("i")).build();
    check(
        "failed for good",
        &Case::new(never, seen().exited("i", 1, 9).build()),
        &["=> Complete"],
    );
    let anew = observed("p")
        .sandbox(false)
        .exited("i", 0, 5)
        .exited("j", 0, 6)
        .exited("c", 0, 7)
        .sandbox(true);
    let words = Case::new(p(), anew.build()).words();
    assert_eq!(
        words[0], "start i 1",
        "a new sandbox initialises anew, with the count carried on: {words:?}"
    );
}

#[test]
fn sidecars_gate_by_their_startup_and_outlive_initialisation() {
    let p = || pod("p").init(sidecar("s")).init(container("i")).build();
    let seen = || observed("p").sandbox(true);
    check("sidecar first", &Case::new(p(), seen().build()), &["start s ?"]);
    check(
        "running is started without a probe",
        &Case::new(p(), seen().running("s").build()),
        &["start i ?"],
    );
    let probed = || {
        let mut s = sidecar("s");
        s.startup_probe = Some(Probe::default());
        pod("p").init(s).init(container("i")).build()
    };
    let mut case = Case::new(probed(), seen().running("s").build());
    check("not started yet", &case, &[]);
    case.outcomes
        .set("s", ProbeKind::Startup, &ContainerId::from("s0"), Outcome::Success);
    check("started", &case, &["start i ?"]);
    let crashed = seen().exited("i", 0, 3).running("c").exited("s", 1, 50);
    check(
        "restarted beside the others",
        &Case::new(p(), crashed.build()),
        &["start s 1"],
    );
    let done = pod("p").policy("Never").init(sidecar("s")).build();
    let over = seen().running("s").exited("c", 0, 50);
    check(
        "never keeps the pod alive",
        &Case::new(done, over.build()),
        &["=> Complete"],
    );
}

#[test]
fn running_containers_are_stopped_for_a_reason_and_restarted() {
    let mut changed = pod("p").grace(9).build();
    changed.spec.as_mut().expect("spec").containers[0].image = Some("other".into());
    let case = Case::new(changed, observed("p").sandbox(true).running("c").build());
    let plan = case.plan();
    let Operation::StopContainer {
        reason, grace_seconds, ..
    } = &plan.operations[0]
    else {
        panic!("{plan:?}")
    };
    assert_eq!((reason, *grace_seconds), (&StopReason::Changed, 9));

    let mut c = container("c");
    c.liveness_probe = Some(Probe {
        termination_grace_period_seconds: Some(4),
        ..Probe::default()
    });
    let mut case = Case::new(
        pod("p").with(c).build(),
        observed("p").sandbox(true).running("c").build(),
    );
    check("alive", &case, &[]);
    case.outcomes
        .set("c", ProbeKind::Liveness, &ContainerId::from("c0"), Outcome::Failure);
    check("dead", &case, &["stop c0 4"]);

    let never = pod("p").policy("Never").build();
    let mut case = Case::new(never, observed("p").sandbox(true).exited("c", 137, 90).build());
    case.memory.restart_wanted.insert("c".into());
    check("stopped in order to be restarted", &case, &["start c 1"]);
}

#[test]
fn a_broken_sandbox_is_replaced_after_everything_in_it_stopped() {
    let p = || pod("p").grace(7).build();
    let broken = || observed("p").sandbox(false);
    check(
        "containers first",
        &Case::new(p(), broken().running("c").build()),
        &["stop c0 7"],
    );
    let mut case = Case::new(p(), broken().exited("c", 137, 90).build());
    check("then the sandbox", &case, &["stop-sandbox s0"]);
    case.memory.stopped_sandboxes.insert("s0".into());
    check("then a new one", &case, &["sandbox 1"]);
    case.memory.sandbox_attempt_min = 4;
    check("above reserved names", &case, &["sandbox 4"]);
    let doubled = observed("p").sandbox(true).sandbox(true).build();
    check(
        "two are one too many",
        &Case::new(p(), doubled),
        &["stop-sandbox s0", "start c ?"],
    );
    let late = observed("p").sandbox(true).running("c").sandbox(true).build();
    check(
        "the one that is lived in stays",
        &Case::new(p(), late),
        &["stop-sandbox s1"],
    );
    let never = pod("p").policy("Never").build();
    let lost = broken().exited("c", 255, 90).build();
    check(
        "what is never restarted gets no new sandbox",
        &Case::new(never, lost),
        &["=> Complete"],
    );
}

#[test]
fn a_pod_that_never_restarts_is_not_run_again_from_its_start() {
    let never = || pod("p").policy("Never").init(container("i"));
    let lost = || observed("p").sandbox(false).exited("i", 0, 90).build();
    let name = "its init containers would run again";
    check(name, &Case::new(never().build(), lost()), &["=> Complete"]);
    let mut nothing_made = Case::new(never().build(), observed("p").sandbox(false).build());
    nothing_made.memory.stopped_sandboxes.insert("s0".into());
    check("nothing ran yet", &nothing_made, &["sandbox 1"]);
    let being_made = Case::new(never().build(), lost()).in_flight(Key::Sandbox, None);
    check("its sandbox is being made", &being_made, &["sandbox 0"]);
    let sidecar = never().init(sidecar("s")).build();
    check("a sidecar is no reason", &Case::new(sidecar, lost()), &["=> Complete"]);
    let mut own = container("c");
    own.restart_policy = Some("OnFailure".into());
    let mut own = Case::new(never().with(own).build(), lost());
    own.memory.stopped_sandboxes.insert("s0".into());
    check("a container may restart", &own, &["sandbox 1"]);
}

#[test]
fn dead_containers_are_kept_one_per_name() {
    let seen = observed("p")
        .sandbox(true)
        .exited("c", 1, 10)
        .exited("c", 1, 20)
        .exited("c", 1, 30)
        .running("c")
        .build();
    check(
        "older ones go",
        &Case::new(pod("p").build(), seen),
        &["remove c1", "remove c0"],
    );
    let old = observed("p").sandbox(false).sandbox(true).running("c").build();
    check(
        "an old empty sandbox goes",
        &Case::new(pod("p").build(), old),
        &["remove-sandbox s0"],
    );
}

#[test]
fn the_end_goes_in_order() {
    let seen = || observed("p").sandbox(true);
    let end = |seen: ObservedPod| Case::new(pod("p").build(), seen).terminating(100, 30);
    check("containers", &end(seen().running("c").build()), &["stop c0 30"]);
    let stopping = end(seen().running("c").build()).in_flight(Key::Stop("c0".into()), Some(130));
    check("being stopped", &stopping, &[]);
    let mut stopping = end(seen().running("c").build()).in_flight(Key::Stop("c0".into()), Some(130));
    stopping
        .state
        .terminate(Cause::Removed, &stopping.pod, Some(5), at(100));
    check("with less grace", &stopping, &["stop c0 5"]);
    check(
        "then the sandbox",
        &end(seen().exited("c", 0, 101).build()),
        &["stop-sandbox s0"],
    );
    let starting = end(seen().build()).in_flight(Key::Start("d".into()), None);
    check("not under a start", &starting, &[]);
    let mut case = end(observed("p").sandbox(false).exited("c", 0, 101).build());
    check(
        "a sandbox that died may still hold its address",
        &case,
        &["stop-sandbox s0"],
    );
    case.memory.stopped_sandboxes.insert("s0".into());
    check("stopped", &case, &["=> Stopped"]);
    case.state.stopped();
    check("volumes", &case, &["release-volumes"]);
    case.memory.volumes_released = true;
    check("cgroup", &case, &["release-cgroup"]);
    case.memory.cgroup_released = true;
    check("released", &case, &["=> Released"]);
    case.state.released();
    check("kept for its logs", &case, &[]);
    case.present = false;
    check("object gone", &case, &["remove-sandbox s0"]);
    case.observed = observed("p").build();
    check("directories", &case, &["purge"]);
    case.memory.purged = true;
    check("over", &case, &["=> Finished"]);
}

#[test]
fn a_late_stop_has_what_is_left_of_the_grace() {
    let mut case = Case::new(pod("p").build(), observed("p").sandbox(true).running("c").build()).terminating(100, 30);
    case.now = 120;
    check("the rest", &case, &["stop c0 10"]);
    case.now = 200;
    check("the floor", &case, &["stop c0 2"]);
}

#[test]
fn sidecars_end_last_and_in_reverse() {
    let p = pod("p").init(sidecar("a")).init(sidecar("b")).build();
    let seen = || observed("p").sandbox(true);
    let end = |seen: ObservedPod| Case::new(p.clone(), seen).terminating(100, 30);
    check(
        "regular first",
        &end(seen().running("a").running("b").running("c").build()),
        &["stop c0 30"],
    );
    check(
        "then the last sidecar",
        &end(seen().running("a").running("b").build()),
        &["stop b0 30"],
    );
    check(
        "then the first",
        &end(seen().running("a").exited("b", 0, 101).build()),
        &["stop a0 30"],
    );
}

#[test]
fn the_active_deadline_ends_the_pod() {
    let mut p = pod("p").build();
    p.spec.as_mut().expect("spec").active_deadline_seconds = Some(150);
    let mut case = Case::new(p, observed("p").sandbox(true).running("c").build());
    assert_eq!(case.plan().wake_at, Some(at(150)));
    case.now = 150;
    check("over", &case, &["=> DeadlineExceeded"]);
}

#[test]
fn what_failed_is_tried_again_later() {
    let mut case = Case::new(pod("p").build(), observed("p").build());
    case.memory.failed(&Key::Sandbox, at(100));
    let plan = case.plan();
    assert!(plan.operations.is_empty());
    assert_eq!(plan.wake_at, Some(at(100) + jiff::SignedDuration::from_millis(500)));
    case.now = 101;
    check("again", &case, &["sandbox 0"]);
}

#[test]
fn a_created_container_that_never_started_is_replaced_by_the_next_attempt() {
    let seen = observed("p")
        .sandbox(true)
        .container("c", ContainerState::Created, 0, 0)
        .build();
    check("next attempt", &Case::new(pod("p").build(), seen), &["start c 1"]);
}
