use super::*;
use crate::controller::write::{Verb, Write};
use k8s_openapi::api::core::v1::Endpoints;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

mod properties;

fn service(extra: Value) -> Service {
    let mut value = json!({"metadata": {"name": "web", "namespace": "default", "uid": "s"},
        "spec": {"selector": {"app": "web"}, "ipFamilies": ["IPv4"], "clusterIP": "10.96.0.9",
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]}});
    json_patch::merge(&mut value, &extra);
    serde_json::from_value(value).unwrap()
}

fn pod(i: usize, extra: Value) -> Arc<Pod> {
    let mut value = json!({"metadata": {"name": format!("p{i:03}"), "namespace": "default", "uid": format!("u{i:03}"), "labels": {"app": "web"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 9000}]}]},
        "status": {"phase": "Running", "podIP": format!("10.244.{}.{}", i / 250, i % 250 + 1),
            "conditions": [{"type": "Ready", "status": "True"}]}});
    json_patch::merge(&mut value, &extra);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn slices(service: &Service, pods: &[Arc<Pod>], old: &[Arc<EndpointSlice>]) -> Vec<Write> {
    slice::plan(service, &backends(service, pods), old, |_| Some("z".into()), None, None).0
}

fn body(write: &Write) -> Value {
    match &write.verb {
        Verb::Create(body) | Verb::Replace(body) => body.clone(),
        other => panic!("{other:?}"),
    }
}

/// What the server would hold after a creation.
fn made(write: &Write, name: &str) -> Arc<EndpointSlice> {
    let mut body = body(write);
    body["metadata"]["name"] = json!(name);
    body["metadata"]["uid"] = json!(name);
    Arc::new(serde_json::from_value(body).unwrap())
}

#[test]
fn conditions_follow_the_truth_table() {
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let ending = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let publish = json!({"spec": {"publishNotReadyAddresses": true}});
    let table = [
        ("ready", json!({}), json!({}), (true, true, false)),
        ("not ready", not_ready.clone(), json!({}), (false, false, false)),
        ("terminating", ending.clone(), json!({}), (false, true, true)),
        // Ready by request; whether it serves its pod alone says.
        ("published", not_ready, publish.clone(), (true, false, false)),
        ("published and terminating", ending, publish, (true, true, true)),
    ];
    for (name, pod_extra, service_extra, (ready, serving, terminating)) in table {
        let writes = slices(&service(service_extra), &[pod(0, pod_extra)], &[]);
        let endpoint = &body(&writes[0])["endpoints"][0];
        let want = json!({"ready": ready, "serving": serving, "terminating": terminating});
        assert_eq!(endpoint["conditions"], want, "{name}");
        assert_eq!((&endpoint["nodeName"], &endpoint["zone"]), (&json!("n"), &json!("z")));
    }
}

#[test]
fn pods_without_address_or_life_are_left_out() {
    for extra in [
        json!({"status": {"podIP": null}}),
        json!({"status": {"phase": "Failed"}}),
        json!({"metadata": {"labels": null}}),
    ] {
        let writes = slices(&service(json!({})), &[pod(0, extra)], &[]);
        assert_eq!(body(&writes[0])["endpoints"], json!([]));
    }
}

#[test]
fn pods_of_a_node_that_is_gone_are_left_out_but_where_all_are_published() {
    let pods = [pod(0, json!({})), pod(1, json!({"spec": {"nodeName": "gone"}}))];
    let left = |service: &Service| {
        let mut left = backends(service, &pods);
        let found = leave_out_homeless(service, &mut left, |node| node == "n");
        (left.len(), found)
    };
    assert_eq!(left(&service(json!({}))), (1, true));
    assert_eq!(
        left(&service(json!({"spec": {"publishNotReadyAddresses": true}}))),
        (2, true)
    );
    let mut all = backends(&service(json!({})), &pods);
    assert!(!leave_out_homeless(&service(json!({})), &mut all, |_| true) && all.len() == 2);
}

#[test]
fn endpoints_are_labelled_headless_where_the_service_is_so_and_nowhere_else() {
    const HEADLESS: &str = "service.kubernetes.io/headless";
    let labelled = json!({"metadata": {"labels": {HEADLESS: "", "mine": "1"}}});
    for (extra, expected) in [
        (labelled, json!(null)),
        (json!({"spec": {"clusterIP": "None"}}), json!("")),
    ] {
        let service = service(extra);
        let made = body(&legacy::plan(&service, &[], None, None).unwrap());
        assert_eq!(made["metadata"]["labels"][HEADLESS], expected);
        let made = body(&slices(&service, &[], &[])[0]);
        assert_eq!(made["metadata"]["labels"][HEADLESS], expected);
    }
}

#[test]
fn services_without_selector_are_not_ours() {
    let none = service(json!({"spec": {"selector": null}}));
    let external = service(json!({"spec": {"type": "ExternalName"}}));
    assert!(selector(&none).is_none() && selector(&external).is_none());
}

#[test]
fn named_ports_are_looked_up_in_each_pod() {
    let named = service(json!({"spec": {"ports": [{"name": "http", "port": 80, "targetPort": "web"}]}}));
    let other = pod(
        1,
        json!({"spec": {"containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 9001}]}]}}),
    );
    let without = pod(2, json!({"spec": {"containers": [{"name": "c"}]}}));
    let pods = [pod(0, json!({})), other, without];
    let writes = slices(&named, &pods, &[]);
    // One that has no such port is there by its address: a headless Service's names lead to it.
    let seen: Vec<_> = writes
        .iter()
        .map(|write| {
            let body = body(write);
            let names = body["endpoints"].as_array().unwrap().iter();
            let names: Vec<_> = names
                .map(|e| e["targetRef"]["name"].as_str().unwrap().to_owned())
                .collect();
            (body["ports"][0]["port"].as_u64(), names.join(" "))
        })
        .collect();
    let named_by = |port, name: &str| (port, name.to_owned());
    assert_eq!(
        seen,
        [
            named_by(None, "p002"),
            named_by(Some(9000), "p000"),
            named_by(Some(9001), "p001")
        ]
    );
    // The older object has no place for it.
    let made = body(&legacy::plan(&named, &backends(&named, &pods), None, None).unwrap());
    assert_eq!(made["subsets"].as_array().unwrap().len(), 2);
}

#[test]
fn slices_of_an_earlier_service_of_the_name_are_not_gone_on_with() {
    let (first, pods) = (service(json!({})), [pod(0, json!({}))]);
    let old = [made(&slices(&first, &pods, &[])[0], "web-a")];
    let again = service(json!({"metadata": {"uid": "another"}}));
    let writes = slices(&again, &pods, &old);
    let owner = &body(&writes[0])["metadata"]["ownerReferences"][0]["uid"];
    assert_eq!(
        owner, "another",
        "the collector takes the old slice away whatever stands in it"
    );
    assert_eq!((writes.len(), writes[1].key.name.as_str()), (2, "web-a"));
    assert!(matches!(writes[1].verb, Verb::Delete { .. }));
}

#[test]
fn what_is_written_says_when_it_happened() {
    let (service, pods) = (service(json!({})), [pod(0, json!({}))]);
    let backends = backends(&service, &pods);
    let trigger = Some("2026-01-01T00:00:05Z".parse().unwrap());
    let plan = |old: &[Arc<EndpointSlice>], trigger| slice::plan(&service, &backends, old, |_| None, None, trigger).0;
    let told = |write: &Write| body(write)["metadata"]["annotations"][trigger::ANNOTATION].clone();
    let first = plan(&[], trigger);
    assert_eq!(told(&first[0]), "2026-01-01T00:00:05Z");
    let old = made(&first[0], "web-a");
    assert_eq!(plan(std::slice::from_ref(&old), None), [], "by itself it is no change");
    let mut other = EndpointSlice::clone(&old);
    other.endpoints = Some(vec![]);
    let other = [Arc::new(other)];
    assert_eq!(told(&plan(&other, None)[0]), Value::Null);
    assert_eq!(told(&plan(&other, trigger)[0]), "2026-01-01T00:00:05Z");
    let first = legacy::plan(&service, &backends, None, trigger).unwrap();
    assert_eq!(told(&first), "2026-01-01T00:00:05Z");
    let mut old: Endpoints = serde_json::from_value(body(&first)).unwrap();
    assert_eq!(legacy::plan(&service, &backends, Some(&old), None), None);
    old.subsets = None;
    assert_eq!(
        told(&legacy::plan(&service, &backends, Some(&old), None).unwrap()),
        Value::Null
    );
}

#[test]
fn where_not_all_fit_those_that_are_ready_are_shown() {
    let service = service(json!({}));
    let waiting = json!({"status": {"conditions": []}});
    let pods = |waiting_first: usize, all: usize| -> Vec<Arc<Pod>> {
        let extra = |i| if i < waiting_first { waiting.clone() } else { json!({}) };
        (0..all).map(|i| pod(i, extra(i))).collect()
    };
    for (waiting, all, ready, shown, over) in [
        (10, 1000, 990, 10, json!(null)),
        (10, 1001, 991, 9, json!("truncated")),
        (10, 1200, 1000, 0, json!("truncated")),
    ] {
        let made = body(&legacy::plan(&service, &backends(&service, &pods(waiting, all)), None, None).unwrap());
        let subset = &made["subsets"][0];
        let count = |key: &str| subset[key].as_array().map_or(0, Vec::len);
        assert_eq!(
            (count("addresses"), count("notReadyAddresses")),
            (ready, shown),
            "{all}"
        );
        assert_eq!(
            made["metadata"]["annotations"]["endpoints.kubernetes.io/over-capacity"],
            over
        );
    }
}

#[test]
fn a_hundred_endpoints_per_slice_and_few_changes() {
    let service = service(json!({}));
    let mut pods: Vec<_> = (0..150).map(|i| pod(i, json!({}))).collect();
    let writes = slices(&service, &pods, &[]);
    let sizes: Vec<_> = writes
        .iter()
        .map(|w| body(w)["endpoints"].as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [100, 50]);
    let old = vec![made(&writes[0], "web-a"), made(&writes[1], "web-b")];
    assert_eq!(slices(&service, &pods, &old), vec![]);
    // One goes: its slice alone changes. One comes: the freed place is taken.
    pods.remove(3);
    let writes = slices(&service, &pods, &old);
    assert_eq!((writes.len(), writes[0].key.name.as_str()), (1, "web-a"));
    pods.truncate(99);
    let writes = slices(&service, &pods, &old);
    let verbs: Vec<_> = writes
        .iter()
        .map(|w| (w.key.name.as_str(), matches!(w.verb, Verb::Delete { .. })))
        .collect();
    assert_eq!(verbs, [("web-a", false), ("web-b", true)]);
}

#[test]
fn ports_in_another_order_are_the_same_slices() {
    let ports = json!([{"name": "a", "port": 1, "protocol": "TCP"}, {"name": "b", "port": 2, "protocol": "TCP"}]);
    let service = service(json!({"spec": {"ports": ports}}));
    let pods = [pod(0, json!({}))];
    let mut other = EndpointSlice::clone(&made(&slices(&service, &pods, &[])[0], "web-a"));
    other.ports.as_mut().unwrap().reverse();
    assert_eq!(slices(&service, &pods, &[Arc::new(other)]), vec![]);
}

/// Each pod has another port of the name, so each has a slice of its own: time and memory grow with them, not with their square.
#[test]
fn a_great_many_groups_are_found_among_as_many_slices() {
    let named = service(json!({"spec": {"ports": [{"name": "http", "port": 80, "targetPort": "web"}]}}));
    let pods: Vec<_> = (0..4000)
        .map(|i| {
            let ports = json!([{"name": "web", "containerPort": 9000 + i}]);
            pod(i, json!({"spec": {"containers": [{"name": "c", "ports": ports}]}}))
        })
        .collect();
    let first = slices(&named, &pods, &[]);
    let old: Vec<_> = first
        .iter()
        .enumerate()
        .map(|(i, write)| made(write, &format!("web-{i}")))
        .collect();
    assert_eq!(old.len(), 4000);
    let began = std::time::Instant::now();
    assert_eq!(slices(&named, &pods, &old), vec![]);
    let took = began.elapsed();
    assert!(took.as_secs() < 10, "{took:?}");
}

#[test]
fn an_empty_service_keeps_one_empty_slice() {
    let service = service(json!({}));
    let writes = slices(&service, &[], &[]);
    assert_eq!(writes.len(), 1);
    let old = vec![made(&writes[0], "web-a")];
    assert_eq!(slices(&service, &[], &old), vec![]);
    let labels = &body(&writes[0])["metadata"]["labels"];
    assert_eq!(labels["kubernetes.io/service-name"], "web");
    assert_eq!(
        labels["endpointslice.kubernetes.io/managed-by"],
        "endpointslice-controller.k8s.io"
    );
}

#[test]
fn endpoints_have_two_sides() {
    let service = service(json!({}));
    let waiting = pod(1, json!({"status": {"conditions": []}}));
    let ending = pod(2, json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    let backends = backends(&service, &[pod(0, json!({})), waiting, ending]);
    let write = legacy::plan(&service, &backends, None, None).unwrap();
    let made = body(&write);
    let subset = &made["subsets"][0];
    assert_eq!(made["subsets"].as_array().unwrap().len(), 1);
    assert_eq!(subset["addresses"].as_array().unwrap().len(), 1);
    assert_eq!(subset["notReadyAddresses"][0]["targetRef"]["name"], "p001");
    assert_eq!(
        subset["ports"],
        json!([{"name": "http", "port": 8080, "protocol": "TCP"}])
    );
    let old: Endpoints = serde_json::from_value(made).unwrap();
    assert_eq!(legacy::plan(&service, &backends, Some(&old), None), None);
}

#[test]
fn hints_say_whom_a_ready_endpoint_is_for() {
    let zones = json!({"forZones": [{"name": "z"}]});
    let both = json!({"forZones": [{"name": "z"}], "forNodes": [{"name": "n"}]});
    let hints = |distribution: Value, pod_extra: Value| {
        let service = service(json!({"spec": {"trafficDistribution": distribution}}));
        body(&slices(&service, &[pod(0, pod_extra)], &[])[0])["endpoints"][0]["hints"].clone()
    };
    assert_eq!(hints(json!(null), json!({})), json!(null));
    assert_eq!(hints(json!("PreferClose"), json!({})), zones);
    assert_eq!(hints(json!("PreferSameZone"), json!({})), zones);
    assert_eq!(hints(json!("PreferSameNode"), json!({})), both);
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    assert_eq!(hints(json!("PreferSameNode"), not_ready), json!(null));
    // A change of the wish changes the slices that are there.
    let plain = service(json!({}));
    let old = made(&slices(&plain, &[pod(0, json!({}))], &[])[0], "web-a");
    let close = service(json!({"spec": {"trafficDistribution": "PreferClose"}}));
    assert_eq!(
        body(&slices(&close, &[pod(0, json!({}))], &[old])[0])["endpoints"][0]["hints"],
        zones
    );
}

#[test]
fn each_family_has_its_slice() {
    let both = service(json!({"spec": {"ipFamilies": ["IPv6", "IPv4"]}}));
    let two = json!({"status": {"podIP": "10.244.0.1", "podIPs": [{"ip": "10.244.0.1"}, {"ip": "fd00::1"}]}});
    let writes = slices(&both, &[pod(0, two), pod(1, json!({}))], &[]);
    let seen: Vec<(Value, usize)> = writes
        .iter()
        .map(|write| {
            (
                body(write)["addressType"].clone(),
                body(write)["endpoints"].as_array().unwrap().len(),
            )
        })
        .collect();
    assert_eq!(seen, [(json!("IPv4"), 2), (json!("IPv6"), 1)]);
}

/// Service that goes by zones, and pods on nodes `a`, `b`, ...: each is its own zone.
fn by_zone(
    mode: &str,
    nodes: &[&str],
    old: &[Arc<EndpointSlice>],
    ratios: Option<&topology::Ratios>,
) -> (Vec<Write>, Vec<slice::Hints>) {
    let service = service(
        json!({"metadata": {"annotations": {"service.kubernetes.io/topology-mode": mode}},
        "spec": {"trafficDistribution": "PreferSameNode"}}),
    );
    let pods: Vec<_> = nodes
        .iter()
        .enumerate()
        .map(|(i, node)| pod(i, json!({"spec": {"nodeName": node}})))
        .collect();
    slice::plan(
        &service,
        &backends(&service, &pods),
        old,
        |node| Some(node.to_owned()),
        ratios,
        None,
    )
}

#[test]
fn hints_by_zones_are_in_the_slices_and_stay() {
    let ratios = topology::Ratios::from([("a".to_owned(), 0.5), ("b".to_owned(), 0.5)]);
    let zones = |write: &Write| -> Vec<String> {
        let body = body(write);
        let endpoints = body["endpoints"].as_array().unwrap().iter();
        endpoints
            .map(|endpoint| {
                endpoint["hints"]["forZones"][0]["name"]
                    .as_str()
                    .unwrap_or("-")
                    .to_owned()
            })
            .collect()
    };
    let (writes, hints) = by_zone("Auto", &["a", "a", "a", "b"], &[], Some(&ratios));
    assert_eq!(hints, [("IPv4", Ok(()))]);
    assert_eq!(zones(&writes[0]), ["b", "a", "a", "b"]);
    let old = [made(&writes[0], "web-a")];
    assert_eq!(by_zone("Auto", &["a", "a", "a", "b"], &old, Some(&ratios)).0, []);
    let (gone, why) = by_zone("Auto", &["a", "a", "a", "b"], &old, None);
    assert_eq!(zones(&gone[0]), ["-", "-", "-", "-"]);
    assert!(
        why[0]
            .1
            .as_ref()
            .is_err_and(|why| why.starts_with("Insufficient Node information"))
    );
    // Without the annotation the other field counts.
    let (plain, none) = by_zone("Disabled", &["a", "a", "a", "b"], &old, Some(&ratios));
    assert_eq!(
        (zones(&plain[0]), none),
        (["a", "a", "a", "b"].map(str::to_owned).to_vec(), vec![])
    );
}
