use super::*;
use crate::held::Pod;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use serde_json::{Value, json};

mod refusals;

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

fn text(usage: &Usage) -> String {
    let parts = usage.iter().map(|(name, amount)| format!("{name}={amount}"));
    parts.collect::<Vec<_>>().join(" ")
}

fn pod(value: Value) -> Pod {
    serde_json::from_value(value).unwrap()
}

pub(super) fn quota(spec: Value, status: Value) -> Quota {
    let object = json!({"metadata": {"name": "q"}, "spec": spec, "status": status});
    Quota::of(&serde_json::from_value(object).unwrap())
}

fn container(resources: Value) -> Value {
    json!({"name": "c", "resources": resources})
}

#[test]
fn what_is_lowered_or_was_not_enforced_has_to_be_proven() {
    let of = |hard: Value, used: Value| quota(json!({}), json!({"hard": hard, "used": used}));
    let both = json!({"pods": "9", "services": "9"});
    for (hard, told, new, unproven) in [
        (&both, json!({"pods": "2", "services": "1"}), "2", ""),
        (&both, json!({"pods": "2", "services": "1"}), "2000m", ""),
        (&both, json!({"pods": "2", "services": "1"}), "3", ""),
        (&both, json!({"pods": "2", "services": "1"}), "1", "pods=1"),
        (&both, json!({"pods": "2", "services": "2"}), "1", "pods=1 services=1"),
        (&both, json!({"services": "1"}), "3", "pods=3"),
        (
            &json!({"services": "9"}),
            json!({"pods": "2", "services": "1"}),
            "3",
            "pods=3",
        ),
        (&json!({}), json!({}), "3", "pods=3 services=1"),
    ] {
        let before = of(hard.clone(), told.clone());
        let now = of(both.clone(), json!({"pods": new, "services": "1"}));
        assert_eq!(text(&now.unproven(&before)), unproven, "{hard} {told} {new}");
    }
}

#[test]
fn what_a_pod_uses() {
    let big = json!({"requests": {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "2Gi", "example.com/gpu": "2",
        "hugepages-2Mi": "4Mi"}, "limits": {"cpu": "1", "memory": "2Gi"}});
    let small = json!({"requests": {"cpu": "100m"}});
    let cases = [
        (
            "nothing asked",
            json!({"containers": [container(json!({}))]}),
            json!({}),
            "count/pods=1 pods=1",
        ),
        (
            "everything",
            json!({"containers": [container(big.clone())]}),
            json!({}),
            "count/pods=1 cpu=500m ephemeral-storage=2Gi hugepages-2Mi=4Mi limits.cpu=1 limits.memory=2Gi memory=1Gi pods=1 \
             requests.cpu=500m requests.ephemeral-storage=2Gi requests.example.com/gpu=2 requests.hugepages-2Mi=4Mi \
             requests.memory=1Gi",
        ),
        (
            "sidecars add, steps do not",
            json!({"containers": [container(small.clone())], "initContainers": [
                {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                {"name": "i", "resources": {"requests": {"cpu": "50m"}}}]}),
            json!({}),
            "count/pods=1 cpu=1100m pods=1 requests.cpu=1100m",
        ),
        (
            "pod level and overhead",
            json!({"containers": [container(small.clone())], "overhead": {"cpu": "10m"},
                "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}}),
            json!({}),
            "count/pods=1 cpu=2010m limits.cpu=3010m pods=1 requests.cpu=2010m",
        ),
        (
            "a resize downwards that has not come yet",
            json!({"containers": [container(json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}))]}),
            json!({"containerStatuses": [{"name": "c", "ready": true, "restartCount": 0, "image": "", "imageID": "",
                "allocatedResources": {"cpu": "300m"},
                "resources": {"requests": {"cpu": "300m"}, "limits": {"cpu": "400m"}}}]}),
            "count/pods=1 cpu=300m limits.cpu=400m pods=1 requests.cpu=300m",
        ),
        (
            "over",
            json!({"containers": [container(big.clone())]}),
            json!({"phase": "Failed"}),
            "count/pods=1",
        ),
        (
            "done",
            json!({"containers": [container(big)]}),
            json!({"phase": "Succeeded"}),
            "count/pods=1",
        ),
    ];
    for (case, spec, status, wanted) in cases {
        let pod = pod(json!({"metadata": {}, "spec": spec, "status": status}));
        assert_eq!(text(&pod.usage(now())), wanted, "{case}");
    }
}

#[test]
fn a_pod_that_should_be_gone_uses_its_record_alone() {
    for (deleted, grace, wanted) in [
        ("2026-01-01T00:09:30Z", 30, "count/pods=1 pods=1"),
        ("2026-01-01T00:09:29Z", 30, "count/pods=1"),
        ("2026-01-01T00:20:00Z", 0, "count/pods=1 pods=1"),
    ] {
        let pod = pod(
            json!({"metadata": {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": grace},
            "spec": {"containers": [container(json!({}))]}}),
        );
        assert_eq!(text(&pod.usage(now())), wanted, "{deleted} {grace}");
    }
}

#[test]
fn what_services_use() {
    let ports = json!([{"port": 1}, {"port": 2, "nodePort": 30000}]);
    for (spec, balancers, node_ports) in [
        (json!({"ports": ports}), "0", "0"),
        (json!({"type": "NodePort", "ports": ports}), "0", "2"),
        (json!({"type": "LoadBalancer", "ports": ports}), "1", "2"),
        (
            json!({"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": false}),
            "1",
            "1",
        ),
    ] {
        let service: Service = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let wanted =
            format!("count/services=1 services=1 services.loadbalancers={balancers} services.nodeports={node_ports}");
        assert_eq!(text(&service.usage(now())), wanted);
    }
}

#[test]
fn what_claims_use() {
    let claim = |class: &str, asked: &str, given: &str| -> PersistentVolumeClaim {
        let mut claim = json!({"metadata": {}, "spec": {"resources": {"requests": {"storage": asked}}}});
        if !class.is_empty() {
            claim["spec"]["storageClassName"] = json!(class);
        }
        if !given.is_empty() {
            claim["status"] = json!({"allocatedResources": {"storage": given}});
        }
        serde_json::from_value(claim).unwrap()
    };
    assert_eq!(
        text(&claim("", "1Gi", "").usage(now())),
        "count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=1Gi"
    );
    let gold = "gold.storageclass.storage.k8s.io";
    assert_eq!(
        text(&claim("gold", "1Gi", "2Gi").usage(now())),
        format!(
            "count/persistentvolumeclaims=1 {gold}/persistentvolumeclaims=1 {gold}/requests.storage=2Gi \
             persistentvolumeclaims=1 requests.storage=2Gi"
        )
    );
    assert_eq!(claim("", "1500m", "").usage(now())["requests.storage"].to_string(), "2");
    let mut old = claim("", "1Gi", "");
    let annotation = ("volume.beta.kubernetes.io/storage-class".to_owned(), "old".to_owned());
    old.metadata.annotations = Some([annotation].into());
    assert!(
        old.usage(now())
            .contains_key("old.storageclass.storage.k8s.io/requests.storage")
    );
}

#[test]
fn which_names_are_whose() {
    for (name, wanted) in [
        ("pods", Some(Evaluator::Pods)),
        ("count/pods", Some(Evaluator::Pods)),
        ("requests.example.com/gpu", Some(Evaluator::Pods)),
        ("hugepages-2Mi", Some(Evaluator::Pods)),
        ("requests.hugepages-2Mi", Some(Evaluator::Pods)),
        ("limits.ephemeral-storage", Some(Evaluator::Pods)),
        ("services.nodeports", Some(Evaluator::Services)),
        ("requests.storage", Some(Evaluator::Claims)),
        (
            "a.storageclass.storage.k8s.io/requests.storage",
            Some(Evaluator::Claims),
        ),
        ("a.storageclass.storage.k8s.io/other", None),
        ("secrets", Evaluator::of("", "secrets")),
        ("count/secrets", Evaluator::of("", "secrets")),
        ("count/jobs.batch", Evaluator::of("batch", "jobs")),
        ("count/foos.example.com", Evaluator::of("example.com", "foos")),
        ("count/events", None),
        ("example.com/gpu", None),
        ("jobs", None),
    ] {
        assert_eq!(Evaluator::of_name(name), wanted, "{name}");
        if let Some(evaluator) = wanted {
            assert!(evaluator.measures(name), "{name}");
        }
    }
    let jobs = Evaluator::of("batch", "jobs").unwrap();
    assert!(!jobs.measures("count/jobs") && !jobs.measures("count/jobs.other") && !jobs.measures("jobs"));
    assert_eq!(Evaluator::of("", "events"), None);
    assert_eq!(Evaluator::of("events.k8s.io", "events"), None);
}

#[test]
fn scopes_choose_pods() {
    let plain = json!({"containers": [container(json!({}))]});
    let with = |key: &str, value: Value| {
        let mut spec = plain.clone();
        spec[key] = value;
        spec
    };
    let bounded = with("activeDeadlineSeconds", json!(5));
    let high = with("priorityClassName", json!("high"));
    let asking = json!({"containers": [container(json!({"requests": {"cpu": "1"}}))]});
    let term = json!({"topologyKey": "t", "namespaces": ["other"]});
    let crossing = with(
        "affinity",
        json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}}),
    );
    let class = |operator: &str, values: &[&str]| {
        json!({"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": operator, "values": values}]}})
    };
    for (spec, chosen, left) in [
        (json!({"scopes": ["Terminating"]}), vec![&bounded], vec![&plain]),
        (json!({"scopes": ["NotTerminating"]}), vec![&plain], vec![&bounded]),
        (json!({"scopes": ["BestEffort"]}), vec![&plain, &bounded], vec![&asking]),
        (json!({"scopes": ["NotBestEffort"]}), vec![&asking], vec![&plain]),
        (
            json!({"scopes": ["BestEffort", "Terminating"]}),
            vec![&bounded],
            vec![&plain, &asking],
        ),
        (
            json!({"scopes": ["CrossNamespacePodAffinity"]}),
            vec![&crossing],
            vec![&plain],
        ),
        (class("In", &["high"]), vec![&high], vec![&plain]),
        (class("In", &["low"]), vec![], vec![&high, &plain]),
        (class("NotIn", &["high"]), vec![&plain], vec![&high]),
        (class("Exists", &[]), vec![&high], vec![&plain]),
        (class("DoesNotExist", &[]), vec![&plain], vec![&high]),
        (json!({}), vec![&plain, &high], vec![]),
        (json!({"scopes": ["VolumeAttributesClass"]}), vec![], vec![&plain]),
    ] {
        let quota = quota(spec.clone(), json!({}));
        let covers = |spec: &Value| quota.covers(&pod(json!({"metadata": {}, "spec": spec})));
        assert!(chosen.iter().all(|spec| covers(spec)), "{spec}");
        assert!(!left.iter().any(|spec| covers(spec)), "{spec}");
    }
}

#[test]
fn scopes_choose_claims() {
    let claim = |spec: &str, status: &str| -> PersistentVolumeClaim {
        serde_json::from_value(json!({"metadata": {}, "spec": {"volumeAttributesClassName": spec},
            "status": {"currentVolumeAttributesClassName": status}}))
        .unwrap()
    };
    let scope = |operator: &str, values: &[&str]| {
        let rule = json!({"scopeName": "VolumeAttributesClass", "operator": operator, "values": values});
        quota(json!({"scopeSelector": {"matchExpressions": [rule]}}), json!({}))
    };
    assert!(scope("In", &["fast"]).covers(&claim("fast", "")));
    assert!(
        scope("In", &["fast"]).covers(&claim("slow", "fast")),
        "what it still has counts"
    );
    assert!(!scope("In", &["fast"]).covers(&claim("", "")));
    assert!(scope("DoesNotExist", &[]).covers(&claim("", "")));
    assert!(!scope("Exists", &[]).covers(&claim("", "")));
    assert!(!quota(json!({"scopes": ["BestEffort"]}), json!({})).covers(&claim("fast", "")));
}

#[test]
fn sums_say_zero_of_what_nobody_uses() {
    let pods: Vec<Pod> = ["100m", "200m"]
        .map(|cpu| pod(json!({"metadata": {}, "spec": {"containers": [container(json!({"requests": {"cpu": cpu}}))]}})))
        .into();
    let bounded = quota(
        json!({"hard": {"pods": "5", "requests.cpu": "1", "limits.cpu": "1", "secrets": "1"}}),
        json!({}),
    );
    let sum = bounded.sum(&Evaluator::Pods, pods.iter(), &bounded.wanted, now());
    assert_eq!(text(&sum), "limits.cpu=0 pods=2 requests.cpu=300m");
}
