use super::*;
use crate::controller::write::Verb;
use serde_json::{Value, json};

fn endpoints(more: Value) -> Endpoints {
    let mut value = json!({"metadata": {"name": "db", "namespace": "n", "uid": "e", "labels": {"a": "b"},
        "annotations": {"kept": "1", "kubectl.kubernetes.io/last-applied-configuration": "x"}},
        "subsets": [{"addresses": [{"ip": "192.0.2.1", "hostname": "h"}, {"ip": "fd00::1"}],
            "notReadyAddresses": [{"ip": "192.0.2.2"}], "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}]}]});
    json_patch::merge(&mut value, &more);
    serde_json::from_value(value).unwrap()
}

fn plan(endpoints: &Endpoints, slices: &[Arc<EndpointSlice>]) -> Plan {
    super::plan(endpoints, slices, 1000).0
}

fn body(write: &Write) -> Value {
    match &write.verb {
        Verb::Create(body) | Verb::Replace(body) => body.clone(),
        other => panic!("{other:?}"),
    }
}

/// What the server would hold after creations.
fn made(plan: &Plan) -> Vec<Arc<EndpointSlice>> {
    let writes = plan.writes.iter().enumerate();
    writes
        .map(|(i, write)| {
            let mut body = body(write);
            body["metadata"]["name"] = json!(format!("db-{i}"));
            body["metadata"]["uid"] = json!(format!("{i}"));
            Arc::new(serde_json::from_value(body).unwrap())
        })
        .collect()
}

#[test]
fn each_family_has_a_slice_with_what_the_endpoints_say() {
    let endpoints = endpoints(json!({}));
    let plan = plan(&endpoints, &[]);
    assert_eq!((plan.writes.len(), plan.events.len()), (2, 0));
    let first = body(&plan.writes[0]);
    assert_eq!(
        first["metadata"]["labels"],
        json!({"a": "b", "kubernetes.io/service-name": "db",
            "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io"})
    );
    assert_eq!(first["metadata"]["annotations"], json!({"kept": "1"}));
    assert_eq!(first["metadata"]["ownerReferences"][0]["kind"], "Endpoints");
    assert_eq!(first["addressType"], "IPv4");
    assert_eq!(
        first["ports"],
        json!([{"name": "sql", "port": 5432, "protocol": "TCP"}])
    );
    assert_eq!(
        first["endpoints"],
        json!([{"addresses": ["192.0.2.1"], "conditions": {"ready": true}, "hostname": "h"},
            {"addresses": ["192.0.2.2"], "conditions": {"ready": false}}])
    );
    assert_eq!(body(&plan.writes[1])["addressType"], "IPv6");
    assert_eq!(
        self::plan(&endpoints, &made(&plan)),
        Plan::default(),
        "nothing more to do"
    );
}

#[test]
fn a_change_replaces_and_what_is_no_longer_said_goes() {
    let old = made(&plan(&endpoints(json!({})), &[]));
    let only = endpoints(json!({"subsets": [{"addresses": [{"ip": "192.0.2.9"}],
        "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}]}]}));
    let writes = plan(&only, &old).writes;
    assert_eq!(writes.len(), 2);
    assert_eq!(body(&writes[0])["endpoints"][0]["addresses"], json!(["192.0.2.9"]));
    assert!(matches!(writes[1].verb, Verb::Delete { .. }) && writes[1].key.name == "db-1");
    let other_port = endpoints(json!({"subsets": [{"addresses": [{"ip": "192.0.2.9"}], "ports": [{"port": 1}]}]}));
    let writes = plan(&other_port, &old).writes;
    let verbs: Vec<bool> = writes
        .iter()
        .map(|write| matches!(write.verb, Verb::Delete { .. }))
        .collect();
    assert_eq!(verbs, [false, true, true]);
}

#[test]
fn what_cannot_be_written_is_told_of_the_endpoints() {
    let all = endpoints(json!({}));
    let first = plan(&all, &[]);
    let old = made(&first);
    let only = endpoints(json!({"subsets": [{"addresses": [{"ip": "192.0.2.9"}],
        "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}]}]}));
    let second = plan(&only, &old);
    let told = |write: &Write| {
        let event = write.on_failure.clone().unwrap();
        let about = event.regarding;
        assert_eq!((event.kind, event.reason), ("Warning", "FailedToUpdateEndpointSlices"));
        assert_eq!(
            (about.kind.as_deref(), about.name.as_deref()),
            (Some("Endpoints"), Some("db"))
        );
        event.message
    };
    let expected = [
        "failed to create EndpointSlice for Endpoints n/db: {}",
        "failed to create EndpointSlice for Endpoints n/db: {}",
        "failed to update db-0 EndpointSlice for Endpoints n/db: {}",
        "failed to delete db-1 EndpointSlice for Endpoints n/db: {}",
    ];
    let all: Vec<String> = first.writes.iter().chain(&second.writes).map(told).collect();
    assert_eq!(all, expected);
}

#[test]
fn what_is_too_much_or_no_address_is_told() {
    let many: Vec<Value> = (0..1003)
        .map(|i| json!({"ip": format!("198.18.{}.{}", i / 250, i % 250 + 1)}))
        .collect();
    let mut subset = json!({"addresses": many});
    subset["addresses"][0]["ip"] = json!("nowhere");
    let (plan, left_out) = super::plan(&endpoints(json!({"subsets": [subset]})), &[], 1000);
    assert_eq!(body(&plan.writes[0])["endpoints"].as_array().unwrap().len(), 1000);
    assert_eq!(left_out, 3);
    let told: Vec<(&str, &str)> = plan
        .events
        .iter()
        .map(|event| (event.reason, event.message.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (
                "InvalidIPAddress",
                "Skipped 1 invalid IP addresses when mirroring to EndpointSlices"
            ),
            (
                "TooManyAddressesToMirror",
                "A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset. 3 addresses were skipped"
            ),
        ]
    );
}

/// Two subsets of the same ports share a slice: what that does not hold is told too.
#[test]
fn what_a_slice_does_not_hold_is_told() {
    let subset = |first: u8| json!({"addresses": [{"ip": format!("192.0.2.{first}")}, {"ip": format!("192.0.2.{}", first + 1)}]});
    let (plan, left_out) = super::plan(&endpoints(json!({"subsets": [subset(1), subset(3)]})), &[], 3);
    assert_eq!(
        (body(&plan.writes[0])["endpoints"].as_array().unwrap().len(), left_out),
        (3, 1)
    );
    assert_eq!(plan.events[0].reason, "TooManyAddressesToMirror");
}

/// One object's author may ask for as many slices as it has room for subsets: to look at each for each would hold up all controllers.
#[test]
fn very_many_slices_are_found_by_what_they_show() {
    let subset = |port: usize| json!({"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": port}]});
    let endpoints = endpoints(json!({"subsets": (1..=4000).map(subset).collect::<Vec<_>>()}));
    let mut slices = made(&plan(&endpoints, &[]));
    let mut twice = EndpointSlice::clone(&slices[7]);
    twice.metadata.name = Some("twice".to_owned());
    slices.push(Arc::new(twice));
    let begun = std::time::Instant::now();
    let writes = plan(&endpoints, &slices).writes;
    // A tenth of a second, where looking at each for each takes half a minute.
    assert!(
        begun.elapsed() < std::time::Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    let deleted: Vec<&str> = writes.iter().map(|write| write.key.name.as_str()).collect();
    assert_eq!(deleted, ["twice"], "of two that show the same the first stays");
}

/// Of what does not fit those go first that take no traffic, whatever their addresses.
#[test]
fn who_is_ready_is_mirrored_first() {
    let subset =
        |ready: &str, waiting: &str| json!({"addresses": [{"ip": ready}], "notReadyAddresses": [{"ip": waiting}]});
    let all = json!({"subsets": [subset("192.0.2.8", "192.0.2.1"), subset("192.0.2.9", "192.0.2.2")]});
    let shown = |most| -> Vec<String> {
        let (plan, left_out) = super::plan(&endpoints(all.clone()), &[], most);
        let body = body(&plan.writes[0]);
        let shown = body["endpoints"].as_array().unwrap().iter();
        let shown: Vec<String> = shown
            .map(|endpoint| endpoint["addresses"][0].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(shown.len() + left_out, 4);
        shown
    };
    assert_eq!(shown(3), ["192.0.2.1", "192.0.2.8", "192.0.2.9"]);
    assert_eq!(shown(2), ["192.0.2.8", "192.0.2.9"]);
}

#[test]
fn only_endpoints_of_services_without_selector_are_mirrored() {
    let service = |spec: Value| -> Service { serde_json::from_value(json!({"spec": spec})).unwrap() };
    let plain = service(json!({}));
    let skip = json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}});
    let leader = json!({"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}}});
    for (more, service, expected) in [
        (json!({}), Some(&plain), true),
        (json!({}), Some(&service(json!({"selector": {}}))), true),
        (json!({}), Some(&service(json!({"selector": {"a": "b"}}))), false),
        (json!({}), None, false),
        (skip, Some(&plain), false),
        (leader, Some(&plain), false),
    ] {
        assert_eq!(is_mirrored(&endpoints(more.clone()), service), expected, "{more}");
    }
}
