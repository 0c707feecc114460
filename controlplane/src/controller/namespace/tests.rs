//! When namespaces are looked at, and what their conditions say.

use super::condition::Remains;
use super::*;
use crate::controller::event::Recorder;
use crate::controller::tests::world::informers_of;
use crate::metrics::QueueMetrics;
use client::Clock;
use http::{Request, Response};
use k8s_openapi::api::core::v1::NamespaceCondition;
use proto::api::condition as list;
use serde_json::Value;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

fn found(conditions: &[NamespaceCondition], kind: &str) -> (String, String, String) {
    let all = conditions.to_vec();
    let c = list::find(Some(&all), kind).unwrap();
    (c.status.clone(), c.reason.clone().unwrap(), c.message.clone().unwrap())
}

#[test]
fn conditions_tell_what_is_left() {
    let one = |name: &str, count| BTreeMap::from([(name.to_owned(), count)]);
    let table = [
        (
            Remains {
                objects: BTreeMap::from([("pods.".to_owned(), 1), ("deployments.apps".to_owned(), 2)]),
                ..Remains::default()
            },
            "NamespaceContentRemaining",
            "SomeResourcesRemain",
            "Some resources are remaining: deployments.apps has 2 resource instances, pods. has 1 resource instances",
        ),
        (
            Remains {
                finalizers: one("example.com/x", 2),
                ..Remains::default()
            },
            "NamespaceFinalizersRemaining",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: example.com/x in 2 resource instances",
        ),
        (
            Remains {
                errors: vec!["secrets is forbidden".into(), "jobs is forbidden".into()],
                ..Remains::default()
            },
            "NamespaceDeletionContentFailure",
            "ContentDeletionFailed",
            "Failed to delete all resource types, 2 remaining: jobs is forbidden, secrets is forbidden",
        ),
        (
            Remains {
                undiscovered: Some("Discovery failed".into()),
                ..Remains::default()
            },
            "NamespaceDeletionDiscoveryFailure",
            "DiscoveryFailed",
            "Discovery failed",
        ),
        (
            Remains {
                unparsed: Some("unexpected GroupVersion string: a/b/c".into()),
                ..Remains::default()
            },
            "NamespaceDeletionGroupVersionParsingFailure",
            "GroupVersionParsingFailed",
            "unexpected GroupVersion string: a/b/c",
        ),
    ];
    let now = Timestamp::UNIX_EPOCH;
    for (remains, kind, reason, message) in table {
        let told = conditions(None, &remains, now);
        assert_eq!(found(&told, kind), ("True".into(), reason.into(), message.into()));
        let bad = told.iter().filter(|c| c.status == "True").count();
        assert_eq!((told.len(), bad), (5, 1), "{kind}");
        let done = conditions(Some(told), &Remains::default(), now);
        assert!(done.len() == 5 && done.iter().all(|c| c.status == "False"), "{done:?}");
    }
}

#[test]
fn pods_are_waited_for_as_long_as_the_longest_grace() {
    let pod = |phase: &str, grace: Option<i64>| {
        let pod =
            json!({"spec": {"containers": [], "terminationGracePeriodSeconds": grace}, "status": {"phase": phase}});
        Arc::new(serde_json::from_value::<Pod>(pod).unwrap())
    };
    let at = |second| Timestamp::from_second(second).unwrap();
    let pods = [
        pod("Running", Some(30)),
        pod("Pending", Some(60)),
        pod("Succeeded", Some(900)),
    ];
    assert_eq!(grace(&pods, at(0), at(59)), 60);
    assert_eq!(grace(&pods, at(0), at(60)), 0);
    assert_eq!(grace(&[pod("Running", None)], at(0), at(0)), 0);
    assert_eq!(grace(&[], at(0), at(0)), 0);
}

#[test]
fn looks_come_less_often_but_not_after_what_should_be_gone() {
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_CAP, 0);
    let remains = Look::Remains(15);
    assert!(again_in(&remains, &mut backoff) <= RETRY_FIRST);
    let late: Vec<Duration> = (0..20).map(|_| again_in(&remains, &mut backoff)).collect();
    assert_eq!(late.last(), Some(&Duration::from_secs(8)));
    let failed = again_in(&Look::Failed(String::new()), &mut backoff);
    assert!(failed > Duration::from_secs(8) && failed <= RETRY_CAP, "{failed:?}");
}

#[test]
fn what_is_written_into_its_status_is_no_news_of_a_namespace() {
    let namespace = |extra: Value| -> Namespace {
        let mut namespace = json!({"metadata": {"name": "a", "uid": "1"}, "spec": {"finalizers": ["kubernetes"]}});
        json_patch::merge(&mut namespace, &extra);
        serde_json::from_value(namespace).unwrap()
    };
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let with = |extra: Value| {
        let mut both = going.clone();
        json_patch::merge(&mut both, &extra);
        namespace(both)
    };
    let (active, gone) = (namespace(json!({})), with(json!({})));
    assert!(!is_news(None, Some(&active)));
    assert!(is_news(None, Some(&gone)) && is_news(Some(&active), Some(&gone)));
    assert!(!is_news(Some(&gone), None));
    let told = with(json!({"status": {"phase": "Terminating", "conditions": []}}));
    assert!(!is_news(Some(&gone), Some(&told)));
    assert!(is_news(
        Some(&gone),
        Some(&with(json!({"spec": {"finalizers": ["x"]}})))
    ));
    assert!(is_news(Some(&gone), Some(&with(json!({"metadata": {"uid": "2"}})))));
}

const MAPS: &str = "/api/v1/namespaces/a/configmaps";

/// A server of one namespace with config maps, where another one of the same name takes its place at the request `replaced_at`: the
/// requests there were.
async fn requests_of_a_look(replaced_at: usize, pages: usize) -> (Option<Remains>, Vec<String>) {
    let seen = Arc::new(Mutex::new(Vec::<String>::new()));
    let (log, count) = (Arc::clone(&seen), Arc::new(AtomicUsize::new(0)));
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let at = count.fetch_add(1, Ordering::Relaxed);
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let accept = request
            .headers()
            .get("accept")
            .map_or("", |accept| accept.to_str().unwrap());
        let accept = accept.to_owned();
        let is_metadata = accept.contains("as=PartialObjectMetadataList");
        log.lock().unwrap().push(format!("{method} {}", uri.path()));
        let going =
            |uid: &str| json!({"metadata": {"name": "a", "uid": uid, "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let answer = match (method.as_str(), uri.path()) {
            ("GET", "/api/v1/namespaces/a") if at < replaced_at => going("1"),
            ("GET", "/api/v1/namespaces/a") => going("2"),
            ("GET", "/api") => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
            ("GET", "/apis") => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}),
            ("GET", "/api/v1") => {
                json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [
                {"name": "configmaps", "singularName": "", "namespaced": true, "kind": "ConfigMap", "verbs": ["delete", "deletecollection", "list"]}]})
            }
            ("GET", MAPS) => json!({"items": [{"metadata": {"name": "kept", "finalizers": ["x"]}}], "metadata": {}}),
            ("DELETE", MAPS) => {
                let query = uri.query().unwrap_or_default();
                assert!(
                    is_metadata && query.contains("limit=500"),
                    "the whole collection is answered: {accept} {query}"
                );
                let page: usize = query.rsplit_once("continue=").unwrap().1.parse().unwrap_or(1);
                let next = if page < pages {
                    (page + 1).to_string()
                } else {
                    String::new()
                };
                json!({"items": [], "metadata": {"continue": next}})
            }
            _ => json!({"items": [], "metadata": {}}),
        };
        async move {
            Ok::<_, std::convert::Infallible>(Response::new(kube::client::Body::from(answer.to_string().into_bytes())))
        }
    });
    let client = kube::Client::new(service, "default");
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "a", "uid": "1"}})).unwrap();
    let remains = content::empty(&client, &namespace, 0).await;
    let seen = seen.lock().unwrap().clone();
    (remains, seen)
}

#[tokio::test]
async fn nothing_of_a_namespace_made_anew_during_a_look_is_deleted() {
    let is_delete = |request: &&String| request.starts_with("DELETE");
    let (remains, whole) = requests_of_a_look(usize::MAX, 1).await;
    assert_eq!(
        remains.unwrap().objects,
        BTreeMap::from([("configmaps.".to_owned(), 1)])
    );
    let deletion = whole.iter().position(|request| is_delete(&request)).unwrap();
    assert_eq!(whole[deletion - 1], "GET /api/v1/namespaces/a", "{whole:?}");
    for replaced_at in 0..deletion {
        let (remains, requests) = requests_of_a_look(replaced_at, 1).await;
        assert_eq!(
            (remains, requests.iter().filter(is_delete).count()),
            (None, 0),
            "{replaced_at}: {requests:?}"
        );
    }
}

#[tokio::test]
async fn a_large_collection_is_deleted_page_by_page() {
    let deletions = |requests: &[String]| requests.iter().filter(|r| **r == format!("DELETE {MAPS}")).count();
    let (remains, requests) = requests_of_a_look(usize::MAX, 3).await;
    assert_eq!((remains.is_some(), deletions(&requests)), (true, 3));
    let second = requests
        .iter()
        .position(|request| request.starts_with("DELETE"))
        .unwrap()
        + 1;
    let (remains, requests) = requests_of_a_look(second, 3).await;
    assert_eq!(
        (remains, deletions(&requests)),
        (None, 1),
        "the next page may be another namespace's"
    );
}

/// What the controller is given where namespaces of these names are going away, and have nothing of this controller's to do.
async fn environment_with(names: &[&str]) -> Environment {
    let going =
        |name: &&str| json!({"metadata": {"name": name, "uid": name, "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let informers = informers_of(BTreeMap::from([("namespaces", names.iter().map(going).collect())]));
    informers.synced().await;
    let service = tower::service_fn(|request: Request<kube::client::Body>| async move {
        panic!("nothing is to be asked: {}", request.uri());
        #[allow(unreachable_code)]
        Ok::<_, std::convert::Infallible>(Response::new(kube::client::Body::empty()))
    });
    let client = kube::Client::new(service, "default");
    let clock: Arc<dyn Clock> = Arc::new(client::SystemClock);
    Environment {
        informers,
        recorder: Recorder::spawn(client.clone(), Arc::clone(&clock), NAME),
        client,
        clock,
        metrics: QueueMetrics::default(),
        shutdown: tokio_util::sync::CancellationToken::new(),
    }
}

/// How often others have their turn until it is done.
async fn turns(doing: impl Future<Output = ()>) -> usize {
    let mut doing = pin!(doing);
    let mut turns = 0;
    while futures::poll!(doing.as_mut()).is_pending() {
        turns += 1;
    }
    turns
}

#[tokio::test(start_paused = true)]
async fn others_on_the_thread_have_their_turn_between_looks_that_wait_for_nothing() {
    let environment = environment_with(&["a", "b"]).await;
    let waiting = environment.metrics.depth.clone();
    let mut running = pin!(run(environment));
    for expected in [1, 0] {
        assert!(futures::poll!(running.as_mut()).is_pending());
        assert_eq!(waiting.get(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn others_on_the_thread_have_their_turn_between_changes() {
    let environment = environment_with(&["a", "b", "c"]).await;
    let (queue, turn) = (Queue::default(), Duration::ZERO);
    let namespaces = environment.informers.namespaces.subscribe().take();
    assert_eq!(turns(hear_namespaces(namespaces, &queue, turn)).await, 3);
    for name in ["a", "b", "c"] {
        assert_eq!(queue.next().await, Key::new("", name));
        queue.done(&Key::new("", name));
    }
    let emptier = Emptier {
        environment,
        delays: Mutex::default(),
    };
    let gone = |namespace: &str, name: &str| Change {
        key: Key::new(namespace, name),
        old: Some(Arc::new(Pod::default())),
        new: None,
    };
    let mut pods = vec![gone("a", "x"), gone("a", "y"), gone("b", "x"), gone("d", "x")];
    pods.push(Change {
        new: Some(Arc::new(Pod::default())),
        ..gone("c", "x")
    });
    assert_eq!(
        turns(emptier.hear_pods(pods, &queue, turn)).await,
        5 + 3,
        "each namespace is asked once"
    );
    for name in ["a", "b"] {
        assert_eq!(queue.next().await, Key::new("", name));
    }
    assert!(
        futures::poll!(pin!(queue.next())).is_pending(),
        "of no other the last pod has gone"
    );
}
