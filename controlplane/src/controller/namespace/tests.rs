//! When namespaces are looked at, and what their conditions say.

use super::condition::Remains;
use super::*;
use k8s_openapi::api::core::v1::NamespaceCondition;
use proto::api::condition as list;
use serde_json::Value;

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
