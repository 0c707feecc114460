use super::*;
use k8s_openapi::api::core::v1::Pod;
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
    queue.put(info("a", 0, json!({"spec": {"schedulingGates": [{"name": "x"}]}})), now);
    assert_eq!(pop(&mut queue, now), None);
    assert_eq!(queue.next_due(), None);
    queue.put(info("a", 0, json!({})), now);
    assert_eq!(pop(&mut queue, now).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn unschedulable_pods_wait_for_help_or_five_minutes() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    queue.put(info("a", 0, json!({})), now);
    assert!(pop(&mut queue, now).is_some());
    queue.fail("a", ScheduleFailure::Unschedulable, now);
    assert_eq!(pop(&mut queue, now + seconds(100)), None);
    queue.wake(now + seconds(100), |_| false);
    assert_eq!(pop(&mut queue, now + seconds(100)), None);
    assert_eq!(queue.next_due(), Some(now + seconds(300)));
    assert!(pop(&mut queue, now + seconds(300)).is_some());
    queue.fail("a", ScheduleFailure::Unschedulable, now + seconds(300));
    queue.wake(now + seconds(310), |_| true);
    assert!(pop(&mut queue, now + seconds(310)).is_some());
}

#[tokio::test(start_paused = true)]
async fn help_during_the_cycle_is_not_lost() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    queue.put(info("a", 0, json!({})), now);
    assert!(pop(&mut queue, now).is_some());
    queue.wake(now, |_| true);
    queue.fail("a", ScheduleFailure::Unschedulable, now);
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
    queue.fail("helped", ScheduleFailure::Unschedulable, now);
    queue.wake(now, |_| true);
    queue.put(info("fresh", 0, json!({})), now);
    assert_eq!(pop(&mut queue, now).as_deref(), Some("fresh"));
    assert_eq!(pop(&mut queue, now).as_deref(), Some("helped"));
}

#[tokio::test(start_paused = true)]
async fn a_changed_pod_gets_another_cycle_and_a_removed_one_none() {
    let now = Instant::now();
    let mut queue = PodQueue::default();
    queue.put(info("a", 0, json!({})), now);
    assert!(pop(&mut queue, now).is_some());
    queue.fail("a", ScheduleFailure::Unschedulable, now);
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
