use super::super::bind::Binder;
use super::super::config::SchedulerConfig;
use super::super::cycle::FitError;
use super::super::extender::tests::{extender, server};
use super::super::queue::PodQueue;
use super::super::sources::Sources;
use super::super::testing::{cluster, important, node, pod};
use super::super::{TURN, profile::Profile};
use super::*;
use crate::controller::kept::Kept;
use client::Key;
use client::informer::Change;
use serde_json::json;
use std::pin::pin;
use tokio::task::JoinSet;

mod nominated;

/// Of a server that answers nobody.
fn silent() -> kube::Client {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    kube::Client::new(service, "default")
}

/// Beside such a server; that many pods wait, and there is a node for all.
fn scheduler(pods: usize) -> Scheduler {
    let client = silent();
    let mut queue = PodQueue::new(SchedulerConfig::default().backoff);
    for number in 0..pods {
        queue.put(pod(&format!("p{number}"), json!({})), Instant::now());
    }
    Scheduler {
        queue,
        cluster: cluster(&[node("n", json!({}))]),
        profiles: vec![Profile::default()],
        informers: Sources::spawn(&client, 1, Kept::Asked),
        search: Search::new(1),
        sampler: Sampler::new(1),
        is_sampled: false,
        metrics: Arc::default(),
        binder: Binder::new(client, Arc::new(client::SystemClock), BTreeMap::new()),
        flights: JoinSet::new(),
        extenders: Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn others_on_the_thread_have_their_turn_between_cycles() {
    for (turn, at_once) in [(Duration::ZERO, 1), (TURN, 3)] {
        let mut scheduler = scheduler(3);
        let mut is_done = false;
        {
            let mut cycles = pin!(scheduler.cycles(turn));
            if futures::poll!(cycles.as_mut()).is_ready() {
                is_done = true;
            }
        }
        assert_eq!((scheduler.flights.len(), is_done), (at_once, at_once == 3), "{turn:?}");
    }
}

/// What is due while nothing may begin would be due at once, again and again.
#[tokio::test(start_paused = true)]
async fn nothing_is_due_while_too_much_is_under_way() {
    let mut scheduler = scheduler(1);
    let pod = scheduler.queue.pop(Instant::now()).unwrap();
    scheduler.queue.fail(&pod.uid, ScheduleFailure::Error, Instant::now());
    let due = scheduler.queue.next_due();
    assert!(due.is_some());
    assert_eq!(scheduler.due(), due);
    (0..IN_FLIGHT).for_each(|_| drop(scheduler.flights.spawn(std::future::pending())));
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(!scheduler.cycles(TURN).await);
    assert_eq!(scheduler.queue.next_due(), due, "it is over, and nobody looked");
    assert_eq!(scheduler.due(), None);
    scheduler.flights.abort_all();
    while scheduler.flights.join_next().await.is_some() {}
    assert_eq!(scheduler.due(), due);
}

/// Who is told to end while nothing has been listed yet ends.
#[tokio::test(start_paused = true)]
async fn a_scheduler_that_never_began_ends() {
    let idle = scheduler(0);
    let shutdown = tokio_util::sync::CancellationToken::new();
    let run = super::super::run(super::super::SchedulerContext {
        informers: idle.informers,
        client: silent(),
        config: SchedulerConfig::default(),
        clock: Arc::new(client::SystemClock),
        host: String::new(),
        seed: 1,
        metrics: idle.metrics,
        shutdown: shutdown.clone(),
    });
    let mut run = pin!(run);
    assert!(futures::poll!(run.as_mut()).is_pending());
    shutdown.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(1), run).await;
    assert!(ended.is_ok());
}

/// The points that follow a decision are counted though no plugin is there to be asked, and so is what a refused binding undoes.
#[tokio::test(start_paused = true)]
async fn what_follows_a_decision_is_timed() {
    let mut scheduler = scheduler(1);
    scheduler.cycles(TURN).await;
    let pod = pod("p0", json!({}));
    assert!(scheduler.cluster.pod(&pod.uid).is_some());
    let error = "no".to_owned();
    scheduler.landed(Some(Bound::Failed {
        pod: pod.clone(),
        error,
    }));
    assert!(scheduler.cluster.pod(&pod.uid).is_none());
    let mut registry = prometheus_client::registry::Registry::default();
    scheduler.metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let counted = text.lines().filter_map(|line| {
        let line =
            line.strip_prefix("scheduler_framework_extension_point_duration_seconds_count{extension_point=\"")?;
        let (point, rest) = line.split_once("\",status=\"Success\",profile=\"default-scheduler\"} ")?;
        Some((point, rest))
    });
    let mut counted: Vec<_> = counted.collect();
    counted.sort_unstable();
    let expected = ["Filter", "Permit", "PreFilter", "Reserve", "Unreserve"];
    assert_eq!(counted, expected.map(|point| (point, "1")));
}

fn candidate(node: &str) -> Preemption {
    Preemption {
        node: node.to_owned(),
        victims: Vec::new(),
        displaced: Vec::new(),
        violations: 0,
    }
}

#[test]
fn extenders_decide_who_goes_and_are_quoted_where_nobody_does() {
    let after = |left: Result<Vec<Preemption>, String>| {
        let error = FitError {
            nodes: 2,
            ..FitError::default()
        };
        let unplaced = Unplaced {
            error,
            candidates: Vec::new(),
            renounce: false,
        };
        let unplaced = with_candidates(unplaced, left);
        let nodes: Vec<String> = unplaced
            .candidates
            .iter()
            .map(|candidate| candidate.node.clone())
            .collect();
        (nodes, unplaced.error.message())
    };
    let (nodes, message) = after(Ok(vec![candidate("b"), candidate("a")]));
    assert_eq!(nodes, ["b", "a"]);
    assert!(!message.contains("preemption"), "{message}");
    let (nodes, message) = after(Ok(Vec::new()));
    assert_eq!(nodes, Vec::<String>::new());
    assert!(
        message.ends_with(" preemption: no candidate node for preemption"),
        "{message}"
    );
    let (nodes, message) = after(Err("extender x: broken".to_owned()));
    assert_eq!(nodes, Vec::<String>::new());
    assert!(message.ends_with(" preemption: extender x: broken"), "{message}");
}

/// Where extenders leave none of the nodes that would do, others may be made to.
#[tokio::test]
async fn what_extenders_leave_nothing_of_may_be_made_elsewhere() {
    let refused = json!({"NodeNames": [], "FailedNodes": {"n": "too old"}}).to_string();
    let (url, _) = server(vec![("filter", 200, refused)]).await;
    let mut scheduler = scheduler(0);
    let caller = Caller::new(extender(&url, "filter", "")).unwrap();
    scheduler.extenders.push(Arc::new(caller));
    scheduler.cluster.set_node(&node("full", json!({})));
    scheduler.cluster.place(important("low", 0, "4", json!({})), "full");
    for (name, priority, waits_for) in [("high", 9, Some("full")), ("low too", 0, None)] {
        let pod = important(name, priority, "1", json!({}));
        scheduler.queue.put(Arc::clone(&pod), Instant::now());
        assert!(!scheduler.cycles(TURN).await);
        assert_eq!(scheduler.cluster.nominated.node_of(name), waits_for, "{name}");
        assert!(scheduler.cluster.pod(name).is_none());
    }
}

/// A status changes nothing of what a cycle asks, and the state before it would be held for the scheduler alone.
#[tokio::test(start_paused = true)]
async fn of_a_placed_pod_the_state_that_all_share_is_held() {
    let mut scheduler = scheduler(0);
    let states = ["Pending", "Running"].map(|phase| {
        let state = json!({"spec": {"nodeName": "n"}, "status": {"phase": phase}});
        Arc::clone(&pod("p", state).pod)
    });
    let mut old = None;
    let mut described = Vec::new();
    for state in &states {
        scheduler.pod_changed(Change {
            key: Key::of(&**state),
            old: old.replace(Arc::clone(state)),
            new: Some(Arc::clone(state)),
        });
        let held = scheduler.cluster.pod("p").expect("counted");
        assert!(Arc::ptr_eq(&held.pod, state));
        described.push(Arc::as_ptr(held));
    }
    assert_eq!(described[0], described[1], "it is described once");
    assert_eq!(Arc::strong_count(&states[0]), 1);
}

/// Of a tenth of the cycles, not of all: the clock would take longer than what it times.
#[tokio::test(start_paused = true)]
async fn a_share_of_cycles_is_timed_plugin_by_plugin() {
    let mut sampler = Sampler::new(7);
    let sampled = (0..10_000).filter(|_| sampler.is_one()).count();
    assert!((800..1200).contains(&sampled), "{sampled}");
    let mut scheduler = scheduler(100);
    scheduler.cycles(TURN).await;
    scheduler.cycles(TURN).await;
    assert_eq!(scheduler.flights.len(), 100);
    let mut registry = prometheus_client::registry::Registry::default();
    scheduler.metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let count = |labels: &str| -> usize {
        let line = format!("scheduler_plugin_execution_duration_seconds_count{{{labels}}} ");
        let found = text.lines().find_map(|had| had.strip_prefix(&*line));
        found.map_or(0, |number| number.parse().unwrap())
    };
    let cycles = count("plugin=\"NodeResourcesFit\",extension_point=\"PreFilter\",status=\"Success\"");
    assert!((1..40).contains(&cycles), "{cycles}\n{text}");
    let skipped = count("plugin=\"NodePorts\",extension_point=\"PreFilter\",status=\"Skip\"");
    assert_eq!(skipped, cycles, "{text}");
}
