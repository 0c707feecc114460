use super::*;
use crate::held::Pod;
use crate::scheduler::plugin::Plugin;
use proptest::prelude::*;
use serde_json::{Value, json};

fn info(name: &str, priority: i32, extra: Value) -> Arc<PodInfo> {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [], "priority": priority},
    });
    json_patch::merge(&mut value, &extra);
    let pod: Pod = serde_json::from_value(value).unwrap();
    Arc::new(PodInfo::new(Arc::new(pod)))
}

fn pop(queue: &mut PodQueue, now: Instant) -> Option<String> {
    queue.pop(now).map(|p| p.uid.clone())
}

const REFUSED: ScheduleFailure = ScheduleFailure::Unschedulable(PluginSet::NONE);

fn any_plugin() -> PluginSet {
    Plugin::ALL.into_iter().fold(PluginSet::NONE, PluginSet::with)
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test(start_paused = true)]
async fn priority_then_age() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    for (name, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", 5)] {
        queue.put(info(name, priority, json!({})), now);
    }
    let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue, now)).collect();
    assert_eq!(order, ["b", "d", "a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn gated_pods_wait_for_their_gates() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    let said = queue.put(info("a", 0, json!({"spec": {"schedulingGates": [{"name": "x"}]}})), now);
    assert_eq!(said, Some("UnschedulableAndUnresolvable"));
    assert_eq!(pop(&mut queue, now), None);
    assert_eq!(queue.next_due(), None);
    assert_eq!(queue.put(info("a", 0, json!({})), now), Some("Success"));
    assert_eq!(queue.put(info("a", 0, json!({})), now), None, "it has been asked");
    assert_eq!(pop(&mut queue, now).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn cycles_and_time_are_counted_from_when_a_pod_may_have_one() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    queue.put(info("a", 0, json!({"spec": {"schedulingGates": [{"name": "x"}]}})), now);
    assert_eq!(queue.tried("a"), None);
    queue.put(info("a", 0, json!({})), now + seconds(5));
    queue.put(info("a", 1, json!({})), now + seconds(7));
    for attempts in 1..4 {
        assert!(pop(&mut queue, now + seconds(1000 * u64::from(attempts))).is_some());
        let tried = Tried {
            attempts,
            since: now + seconds(5),
            waited_long: false,
        };
        assert_eq!(queue.tried("a"), Some(tried));
        assert_eq!(queue.decided(), 1);
        queue.fail("a", ScheduleFailure::Error, now + seconds(1000 * u64::from(attempts)));
    }
    assert_eq!(queue.decided(), 0);
}

#[tokio::test(start_paused = true)]
async fn unschedulable_pods_wait_for_help_or_five_minutes() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    queue.put(info("a", 0, json!({})), now);
    assert!(pop(&mut queue, now).is_some());
    queue.fail("a", REFUSED, now);
    assert_eq!(pop(&mut queue, now + seconds(100)), None);
    queue.wake(now + seconds(100), ("NodeAdd", any_plugin()), |_, _| false);
    assert_eq!(pop(&mut queue, now + seconds(100)), None);
    assert_eq!(queue.next_due(), Some(now + seconds(300)));
    assert!(pop(&mut queue, now + seconds(300)).is_some());
    queue.fail("a", REFUSED, now + seconds(300));
    queue.wake(now + seconds(310), ("NodeAdd", any_plugin()), |_, _| true);
    assert!(pop(&mut queue, now + seconds(310)).is_some());
}

#[tokio::test(start_paused = true)]
async fn help_during_evictions_is_not_lost() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    queue.put(info("a", 0, json!({})), now);
    assert!(pop(&mut queue, now).is_some());
    assert_eq!(queue.decided(), 1);
    queue.hold("a", PluginSet::NONE);
    assert_eq!(queue.decided(), 0, "others go for it: it has no node yet");
    queue.wake(now, ("NodeAdd", any_plugin()), |_, _| true);
    queue.release("a", now);
    assert!(queue.next_due().is_some_and(|due| due <= now + seconds(1)));
    assert!(pop(&mut queue, now + seconds(1)).is_some());
}

#[tokio::test(start_paused = true)]
async fn errors_back_off_exponentially_and_are_not_taken_early() {
    let mut now = Instant::now();
    let mut queue = PodQueue::default();
    queue.put(info("a", 0, json!({})), now);
    for want in [1, 2, 4, 8, 10, 10] {
        assert!(pop(&mut queue, now).is_some());
        queue.fail("a", ScheduleFailure::Error, now);
        assert_eq!(queue.next_due(), Some(now + seconds(want)));
        assert_eq!(pop(&mut queue, now + seconds(want) - Duration::from_millis(1)), None);
        now += seconds(want);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_scheduler_takes_helped_pods_early_but_active_ones_first() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    queue.put(info("helped", 9, json!({})), now);
    assert!(pop(&mut queue, now).is_some());
    queue.fail("helped", REFUSED, now);
    queue.wake(now, ("NodeAdd", any_plugin()), |_, _| true);
    queue.put(info("fresh", 0, json!({})), now);
    assert_eq!(pop(&mut queue, now).as_deref(), Some("fresh"));
    assert_eq!(pop(&mut queue, now).as_deref(), Some("helped"));
}

/// Whoever failed a moment earlier does not go before one that is more important.
#[tokio::test(start_paused = true)]
async fn of_those_taken_early_the_most_important_of_a_second_is_first() {
    let now = Instant::now();
    let after = |millis: u64| now + Duration::from_millis(millis);
    let mut queue = PodQueue::default();
    let all = [("next", 9, 1100), ("low", 0, 10), ("high", 5, 700), ("middle", 1, 5)];
    for (name, priority, failed) in all {
        queue.put(info(name, priority, json!({})), now);
        assert_eq!(pop(&mut queue, now).as_deref(), Some(name));
        queue.fail(name, REFUSED, after(failed));
    }
    queue.put(info("error", 9, json!({})), now);
    assert_eq!(pop(&mut queue, now).as_deref(), Some("error"));
    queue.fail("error", ScheduleFailure::Error, now);
    // The first window begins with the first of them.
    queue.wake(now, ("NodeAdd", any_plugin()), |_, _| true);
    let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue, now)).collect();
    assert_eq!(order, ["high", "middle", "low", "next"]);
    assert!(queue.early.is_empty() && queue.backoff.len() == 1);
}

/// Upstream's two counts: a pod that was refused often does not wait long for an error of the network, nor the other way about.
#[tokio::test(start_paused = true)]
async fn refusals_and_errors_are_counted_apart() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    queue.put(info("a", 0, json!({})), now);
    assert!(pop(&mut queue, now).is_some());
    let error = ScheduleFailure::Error;
    for (setback, wait) in [
        (REFUSED, 1),
        (REFUSED, 2),
        (REFUSED, 4),
        (error, 1),
        (error, 2),
        (REFUSED, 8),
        (error, 1),
    ] {
        queue.fail("a", setback, now);
        queue.wake(now, ("NodeAdd", any_plugin()), |_, _| true);
        assert_eq!(queue.next_due(), Some(now + seconds(wait)), "{setback:?}");
        assert_eq!(pop(&mut queue, now + seconds(wait)).as_deref(), Some("a"));
    }
    assert_eq!(queue.tried("a").map(|tried| tried.attempts), Some(8));
}

#[tokio::test(start_paused = true)]
async fn a_changed_pod_gets_another_cycle_and_a_removed_one_none() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    queue.put(info("a", 0, json!({})), now);
    assert!(pop(&mut queue, now).is_some());
    queue.fail("a", REFUSED, now);
    queue.put(info("a", 0, json!({"status": {"phase": "Pending"}})), now + seconds(20));
    assert_eq!(pop(&mut queue, now + seconds(20)), None, "status changes help nobody");
    queue.put(
        info("a", 0, json!({"spec": {"tolerations": [{"operator": "Exists"}]}})),
        now + seconds(20),
    );
    assert!(pop(&mut queue, now + seconds(20)).is_some());
    queue.remove("a");
    queue.fail("a", ScheduleFailure::Error, now);
    assert_eq!((pop(&mut queue, now + seconds(900)), queue.next_due()), (None, None));
}

#[tokio::test(start_paused = true)]
async fn only_those_refused_by_whom_it_concerns_are_asked() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    let by = |plugin| ScheduleFailure::Unschedulable(PluginSet::NONE.with(plugin));
    for (name, plugin) in [("fit", Plugin::NodeResourcesFit), ("apart", Plugin::InterPodAffinity)] {
        queue.put(info(name, 0, json!({})), now);
        assert!(pop(&mut queue, now).is_some());
        queue.fail(name, by(plugin), now);
    }
    let later = now + seconds(20);
    let concerns = PluginSet::NONE.with(Plugin::InterPodAffinity);
    queue.wake(later, ("NodeAdd", concerns), |pod, refused| {
        assert_eq!(
            (pod.uid.as_str(), refused),
            ("apart", concerns),
            "the other is not asked"
        );
        true
    });
    assert_eq!(pop(&mut queue, later).as_deref(), Some("apart"));
    assert_eq!(pop(&mut queue, later), None);
}

#[tokio::test(start_paused = true)]
async fn a_pod_for_which_others_are_evicted_waits_for_that() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    let fit = PluginSet::NONE.with(Plugin::NodeResourcesFit);
    queue.put(info("a", 0, json!({})), now);
    assert!(pop(&mut queue, now).is_some());
    queue.hold("a", fit);
    // The room is there before the evictions are all done.
    queue.wake(now, ("NodeAdd", any_plugin()), |_, refused| refused == fit);
    assert_eq!(pop(&mut queue, now + seconds(5)), None);
    queue.release("a", now + seconds(5));
    assert_eq!(
        pop(&mut queue, now + seconds(5)).as_deref(),
        Some("a"),
        "an idle scheduler takes it early"
    );
}

/// As upstream's queue: what wakes a pod makes it no younger, so that a stream of new pods does not keep it waiting.
#[tokio::test(start_paused = true)]
async fn who_waits_longest_is_next_whatever_woke_it_when() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    queue.put(info("first", 0, json!({})), now);
    assert!(pop(&mut queue, now).is_some());
    queue.fail("first", REFUSED, now);
    let later = now + seconds(50);
    queue.put(
        info("gated", 0, json!({"spec": {"schedulingGates": [{"name": "x"}]}})),
        later,
    );
    for name in ["second", "third"] {
        queue.put(info(name, 0, json!({})), later);
    }
    queue.put(info("gated", 0, json!({})), later);
    queue.wake(later, ("NodeAdd", any_plugin()), |_, _| true);
    assert_eq!(pop(&mut queue, later).as_deref(), Some("first"));
    queue.fail("first", ScheduleFailure::Error, later);
    let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue, later + seconds(9))).collect();
    assert_eq!(order, ["gated", "second", "third", "first"], "its turn is over");
}

#[tokio::test(start_paused = true)]
async fn who_lost_what_it_waited_for_has_another_cycle() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    queue.retry("nobody", now, "AssignedPodDelete");
    queue.put(info("a", 0, json!({})), now);
    assert!(pop(&mut queue, now).is_some());
    queue.fail("a", REFUSED, now);
    queue.retry("a", now, "AssignedPodDelete");
    assert_eq!(queue.next_due(), Some(now + seconds(1)));
    queue.retry("a", now, "AssignedPodDelete");
    assert_eq!(pop(&mut queue, now).as_deref(), Some("a"));
    // Also if it lost that while others were being evicted for it.
    queue.hold("a", PluginSet::NONE);
    queue.retry("a", now, "AssignedPodDelete");
    queue.release("a", now);
    assert_eq!(queue.next_due(), Some(now + seconds(2)));
}

/// Whoever refused them.
#[tokio::test(start_paused = true)]
async fn who_is_unschedulable_for_longest_is_due_first() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    for (name, plugin, since) in [
        ("early", Plugin::InterPodAffinity, 0),
        ("late", Plugin::NodeUnschedulable, 10),
        ("later", Plugin::NodeDeclaredFeatures, 20),
    ] {
        queue.put(info(name, 0, json!({})), now);
        assert!(pop(&mut queue, now).is_some());
        let refused = ScheduleFailure::Unschedulable(PluginSet::NONE.with(plugin));
        queue.fail(name, refused, now + seconds(since));
    }
    assert_eq!(queue.waiting()[2], ("unschedulable", 3));
    assert_eq!(queue.next_due(), Some(now + seconds(300)));
    assert_eq!(pop(&mut queue, now + seconds(300)).as_deref(), Some("early"));
    assert_eq!(queue.next_due(), Some(now + seconds(310)));
    queue.remove("late");
    assert_eq!(queue.next_due(), Some(now + seconds(320)));
}

#[derive(Clone, Debug)]
enum Step {
    Put { pod: usize, gated: bool },
    Pop,
    Fail { error: bool },
    Wake,
    Remove { pod: usize },
    Wait { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..6usize, any::<bool>()).prop_map(|(pod, gated)| Step::Put { pod, gated }),
        Just(Step::Pop),
        any::<bool>().prop_map(|error| Step::Fail { error }),
        Just(Step::Wake),
        (0..6usize).prop_map(|pod| Step::Remove { pod }),
        (0..400u64).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

/// Upstream's names of queues and events, once for each time that a pod comes into one.
#[tokio::test(start_paused = true)]
async fn pods_that_come_into_a_queue_are_counted_by_why_they_do() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    let of = |queue: &mut PodQueue, expected: &[(&'static str, &'static str, u64)]| {
        let entered: Vec<_> = queue.entered().collect();
        assert_eq!(entered, expected);
    };
    queue.put(info("a", 0, json!({})), now);
    queue.put(info("b", 0, json!({})), now);
    queue.put(info("g", 0, json!({"spec": {"schedulingGates": [{"name": "x"}]}})), now);
    let added = "UnschedulablePodAdd";
    of(&mut queue, &[("active", added, 2), ("unschedulable", added, 1)]);
    queue.put(info("g", 0, json!({})), now);
    of(
        &mut queue,
        &[("active", "UnschedulablePodUpdatePodSchedulingGatesEliminated", 1)],
    );
    while pop(&mut queue, now).is_some() {}
    of(&mut queue, &[]);
    queue.fail("a", REFUSED, now);
    queue.fail("b", ScheduleFailure::Error, now);
    let failed = "ScheduleAttemptFailure";
    of(&mut queue, &[("backoff", failed, 1), ("unschedulable", failed, 1)]);
    queue.wake(now, ("NodeAdd", any_plugin()), |_, _| true);
    of(&mut queue, &[("backoff", "NodeAdd", 1)]);
    assert!(pop(&mut queue, now).is_some());
    of(&mut queue, &[("active", "PopFromBackoffQ", 1)]);
    queue.fail("a", REFUSED, now);
    queue.entered().for_each(drop);
    queue.advance(now + seconds(1));
    of(&mut queue, &[("active", "BackoffComplete", 1)]);
    queue.advance(now + seconds(300));
    of(&mut queue, &[("active", "UnschedulableTimeout", 1)]);
}

proptest! {
    /// A gated pod is never tried, no pod is tried twice at once, and none is lost: after ten minutes in which all are given
    /// back, each has had its turn.
    #[test]
    fn every_pod_has_its_turn_unless_gated(steps in proptest::collection::vec(step(), 1..60)) {
        let mut now = Instant::now();
        let mut queue = PodQueue::default();
        let mut gated: BTreeMap<String, bool> = BTreeMap::new();
        let mut tried: Vec<String> = Vec::new();
        for step in steps {
            match step {
                Step::Put { pod, gated: is_gated } => {
                    let name = format!("p{pod}");
                    // Gates are taken away and never given.
                    let is_gated = is_gated && gated.get(&name).copied().unwrap_or(true);
                    let gates = if is_gated { json!([{"name": "x"}]) } else { json!([]) };
                    let priority = i32::try_from(pod % 3).unwrap();
                    queue.put(info(&name, priority, json!({"spec": {"schedulingGates": gates}})), now);
                    gated.insert(name, is_gated);
                }
                Step::Pop => {
                    if let Some(name) = pop(&mut queue, now) {
                        prop_assert!(!gated[&name] && !tried.contains(&name), "{name}");
                        tried.push(name);
                    }
                }
                Step::Fail { error } => {
                    if let Some(name) = tried.pop() {
                        let setback = if error { ScheduleFailure::Error } else { REFUSED };
                        queue.fail(&name, setback, now);
                    }
                }
                Step::Wake => queue.wake(now, ("NodeAdd", any_plugin()), |_, _| true),
                Step::Remove { pod } => {
                    let name = format!("p{pod}");
                    queue.remove(&name);
                    gated.remove(&name);
                    tried.retain(|known| *known != name);
                }
                Step::Wait { seconds: n } => now += seconds(n),
            }
        }
        for name in tried.drain(..) {
            queue.fail(&name, REFUSED, now);
        }
        now += seconds(600);
        let mut turns: Vec<String> = std::iter::from_fn(|| pop(&mut queue, now)).collect();
        turns.sort();
        let free: Vec<String> = gated.iter().filter(|(_, is_gated)| !**is_gated).map(|(name, _)| name.clone()).collect();
        prop_assert_eq!(turns, free);
    }
}

/// Whom pods wait for is counted where they are, whatever becomes of them: by each plugin that refused, until the next cycle.
#[tokio::test(start_paused = true)]
async fn plugins_are_counted_as_long_as_pods_wait_because_of_them() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    let blamed = |queue: &PodQueue| -> Vec<(Plugin, usize)> {
        let all = queue.blamed().filter(|(.., pods)| *pods > 0);
        all.map(|(plugin, profile, pods)| {
            assert_eq!(profile, "default-scheduler");
            (plugin, pods)
        })
        .collect()
    };
    let (fit, taints) = (Plugin::NodeResourcesFit, Plugin::TaintToleration);
    let both = PluginSet::NONE.with(fit).with(taints);
    let gated = json!({"spec": {"schedulingGates": [{"name": "x"}]}});
    queue.put(info("g", 0, gated), now);
    queue.put(info("a", 0, json!({})), now);
    queue.put(info("b", 0, json!({})), now);
    let gates = (Plugin::SchedulingGates, 1);
    assert_eq!(blamed(&queue), [gates]);
    for (uid, refused) in [("a", both), ("b", PluginSet::NONE.with(fit))] {
        assert_eq!(pop(&mut queue, now).as_deref(), Some(uid));
        queue.fail(uid, ScheduleFailure::Unschedulable(refused), now);
    }
    assert_eq!(blamed(&queue), [gates, (taints, 1), (fit, 2)]);
    // Nothing happens for long: both are tried again, which is known of them until they are refused again.
    let later = now + seconds(1000);
    assert_eq!(pop(&mut queue, later).as_deref(), Some("a"));
    assert!(queue.tried("a").unwrap().waited_long);
    assert_eq!(blamed(&queue), [gates, (fit, 1)], "one of them is in a cycle");
    queue.fail("a", ScheduleFailure::Unschedulable(PluginSet::NONE.with(taints)), later);
    assert!(!queue.tried("a").unwrap().waited_long);
    assert_eq!(blamed(&queue), [gates, (taints, 1), (fit, 1)]);
    queue.put(info("g", 0, json!({})), later);
    queue.remove("b");
    assert_eq!(blamed(&queue), [(taints, 1)]);
    queue.remove("a");
    queue.remove("g");
    assert_eq!(blamed(&queue), []);
}
