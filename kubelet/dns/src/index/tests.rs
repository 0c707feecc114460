use super::*;
use crate::answer::tests::{index, raw};
use crate::answer::tests::{question, slice};
use crate::wire::kind;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;

/// Of a slice: its service, and its endpoints' last byte, hostname and readiness.
type Content = (usize, Vec<(u8, u8, bool)>);

/// What happens to an object: it is as number says, or gone.
#[derive(Clone, Debug)]
enum Step {
    Service(usize, usize, Option<usize>),
    Slice(usize, usize, Option<Content>),
    Namespace(usize, bool),
    Pod(usize, Option<(usize, u8, bool)>),
}

const NAMESPACES: [&str; 2] = ["default", "other"];
const SERVICES: [&str; 3] = ["a", "b", "c"];
const HOSTNAMES: [&str; 4] = ["", "h0", "h1", "H2"];

fn step() -> impl Strategy<Value = Step> {
    let endpoint = (0..6u8, 0..4u8, any::<bool>());
    let content = (0..4usize, prop::collection::vec(endpoint, 0..4));
    prop_oneof![
        (0..2usize, 0..3usize, prop::option::of(0..6usize)).prop_map(|(ns, name, spec)| Step::Service(ns, name, spec)),
        (0..2usize, 0..3usize, prop::option::of(content))
            .prop_map(|(ns, name, content)| Step::Slice(ns, name, content)),
        (0..2usize, any::<bool>()).prop_map(|(ns, exists)| Step::Namespace(ns, exists)),
        (0..2usize, prop::option::of((0..2usize, 0..6u8, any::<bool>()))).prop_map(|(name, pod)| Step::Pod(name, pod)),
    ]
}

fn service(spec: usize) -> Service {
    let spec = match spec {
        0 => json!({"clusterIP": "10.96.0.1", "ports": [{"name": "x", "port": 1}]}),
        1 => {
            json!({"clusterIP": "10.96.0.2", "clusterIPs": ["10.96.0.2", "fd00::2"], "ports": [{"name": "y", "port": 2}]})
        }
        2 => json!({"clusterIP": "None"}),
        3 => json!({"clusterIP": "None", "publishNotReadyAddresses": true}),
        4 => json!({"type": "ExternalName", "externalName": "a.default.svc.cluster.local"}),
        _ => json!({}),
    };
    serde_json::from_value(json!({"spec": spec})).unwrap()
}

fn endpoints(namespace: usize, name: usize, (of, endpoints): &Content) -> EndpointSlice {
    let endpoints = endpoints.iter().map(|(address, hostname, ready)| {
        let hostname = Some(HOSTNAMES[usize::from(*hostname)]).filter(|hostname| !hostname.is_empty());
        json!({"addresses": [format!("10.244.0.{address}")], "hostname": hostname, "conditions": {"ready": ready}})
    });
    let service = SERVICES.get(*of).copied().unwrap_or("nothing");
    let ports = json!([{"name": "x", "port": 7}]);
    slice(
        NAMESPACES[namespace],
        service,
        &format!("s{name}"),
        "IPv4",
        ports,
        endpoints.collect(),
    )
}

fn pod(name: usize, (namespace, address, runs): (usize, u8, bool)) -> Pod {
    let phase = if runs { "Running" } else { "Succeeded" };
    serde_json::from_value(
        json!({"metadata": {"name": format!("p{name}"), "namespace": NAMESPACES[namespace]},
        "status": {"phase": phase, "podIP": format!("10.244.0.{address}")}}),
    )
    .unwrap()
}

fn bare() -> Index {
    let mut index = Index::new(Shape {
        pods: PodNames::Verified,
        ..index().shape
    });
    index.synced = true;
    index
}

/// Every answer that could differ.
fn answers(index: &Index) -> BTreeMap<String, Vec<u8>> {
    let mut names: Vec<String> = Vec::new();
    for namespace in NAMESPACES {
        names.push(format!("{namespace}.svc.cluster.local"));
        for service in SERVICES {
            let end = format!("{service}.{namespace}.svc.cluster.local");
            names.extend(
                ["", "_x._tcp.", "_y._tcp.", "_tcp.", "h0.", "h1.", "h2."].map(|front| format!("{front}{end}")),
            );
            names.extend((0..6).map(|last| format!("10-244-0-{last}.{end}")));
        }
        names.extend((0..6).map(|last| format!("10-244-0-{last}.{namespace}.pod.cluster.local")));
    }
    names.extend((0..6).map(|last| format!("{last}.0.244.10.in-addr.arpa")));
    names.extend((1..3).map(|last| format!("{last}.0.96.10.in-addr.arpa")));
    let mut all = BTreeMap::new();
    for name in names {
        for kind in [kind::A, kind::AAAA, kind::SRV, kind::PTR] {
            let answer = raw(index, &question(&name, kind, Some(1232)));
            all.insert(format!("{name} {kind}"), answer.unwrap_or_default());
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn changed_step_by_step_it_is_as_built_anew(steps in prop::collection::vec(step(), 0..40)) {
        let mut index = bare();
        let (mut services, mut slices) = (BTreeMap::new(), BTreeMap::new());
        let (mut namespaces, mut pods) = (BTreeMap::new(), BTreeMap::<usize, Pod>::new());
        for step in steps {
            match step {
                Step::Service(namespace, name, spec) => {
                    let now = spec.map(service);
                    index.set_service(NAMESPACES[namespace], SERVICES[name], now.as_ref());
                    services.insert((namespace, name), now);
                }
                Step::Slice(namespace, name, content) => {
                    let now = content.map(|content| endpoints(namespace, name, &content));
                    let was = slices.get(&(namespace, name)).cloned().flatten();
                    index.set_slice(was.as_ref(), now.as_ref());
                    slices.insert((namespace, name), now);
                }
                Step::Namespace(namespace, exists) => {
                    index.set_namespace(NAMESPACES[namespace], exists);
                    namespaces.insert(namespace, exists);
                }
                Step::Pod(name, now) => {
                    let now = now.map(|now| pod(name, now));
                    let was = pods.remove(&name);
                    index.set_pod(was.as_ref(), now.as_ref());
                    pods.extend(now.map(|now| (name, now)));
                }
            }
        }
        let mut anew = bare();
        // The other way round: slices before services.
        slices.values().for_each(|slice| anew.set_slice(None, slice.as_ref()));
        pods.values().for_each(|pod| anew.set_pod(None, Some(pod)));
        for ((namespace, name), service) in &services {
            anew.set_service(NAMESPACES[*namespace], SERVICES[*name], service.as_ref());
        }
        namespaces.iter().for_each(|(namespace, exists)| anew.set_namespace(NAMESPACES[*namespace], *exists));
        prop_assert_eq!(answers(&index), answers(&anew));
        prop_assert_eq!(index.services.len(), anew.services.len());
        prop_assert_eq!(index.owners.len(), anew.owners.len());
        prop_assert_eq!(index.holders.len(), anew.holders.len());
        prop_assert_eq!(index.pods.len(), anew.pods.len());
        // And nothing stays of what goes.
        for ((namespace, name), _) in services {
            index.set_service(NAMESPACES[namespace], SERVICES[name], None);
        }
        slices.values().for_each(|slice| index.set_slice(slice.as_ref(), None));
        pods.values().for_each(|pod| index.set_pod(Some(pod), None));
        prop_assert!(index.services.is_empty() && index.holders.is_empty() && index.owners.is_empty() && index.pods.is_empty());
    }

    #[test]
    fn addresses_with_dashes_are_read_back(v4: u32, v6: u128) {
        for address in [IpAddr::from(std::net::Ipv4Addr::from(v4)), IpAddr::from(std::net::Ipv6Addr::from(v6))] {
            prop_assert_eq!(undashed(&dashed(&address)), Some(address));
        }
    }
}

#[test]
fn labels_that_say_addresses() {
    for (label, expected) in [
        ("10-0-0-1", Some("10.0.0.1")),
        ("2001-db8--1", Some("2001:db8::1")),
        ("--1", Some("::1")),
        ("2001-db8-0-0-0-0-0-1", Some("2001:db8::1")),
        ("10-0-0", None),
        ("10-0-0-256", None),
        ("10-0-0-01", None),
        ("web", None),
        ("", None),
        ("-", None),
        ("1-2-3-x", None),
    ] {
        assert_eq!(
            undashed(label.as_bytes()),
            expected.map(|text| text.parse().unwrap()),
            "{label}"
        );
    }
}

#[test]
fn a_slice_says_an_address_once() {
    let mut index = bare();
    let owner: IpAddr = "10.244.0.1".parse().unwrap();
    let content = |count| (0, vec![(1, 0, true); count]);
    let (many, fewer, other) = (
        endpoints(0, 0, &content(1000)),
        endpoints(0, 0, &content(3)),
        endpoints(0, 1, &content(2)),
    );
    index.set_slice(None, Some(&many));
    // By the service that comes to them, and by slices that come to it.
    index.set_service("default", "a", Some(&service(2)));
    assert_eq!((index.owners(&owner).len(), index.endpoints("default", "a")), (1, 1000));
    index.set_slice(None, Some(&other));
    assert_eq!((index.owners(&owner).len(), index.endpoints("default", "a")), (2, 1002));
    index.set_slice(Some(&many), Some(&fewer));
    assert_eq!(index.owners(&owner).len(), 2);
    index.set_slice(Some(&fewer), None);
    assert_eq!(index.owners(&owner).len(), 1);
    index.set_slice(Some(&other), None);
    assert!(index.owners(&owner).is_empty());
}

#[test]
fn ten_thousand_services_are_small() {
    let mut index = bare();
    for number in 0..10_000 {
        let (name, namespace) = (format!("service-{number}"), format!("namespace-{}", number % 100));
        let spec = json!({"clusterIP": format!("10.{}.{}.1", number / 256, number % 256), "ports": [{"name": "http", "port": 80}]});
        let service: Service = serde_json::from_value(json!({"spec": spec})).unwrap();
        index.set_service(&namespace, &name, Some(&service));
    }
    let key = key(&["service-9999", "namespace-99"]).unwrap();
    assert!(index.service(&key).is_some());
    // What the maps take; examples/load.rs measures the whole.
    assert!(size_of::<Entry>() <= 64, "{}", size_of::<Entry>());
    assert!(size_of::<Endpoint>() <= 40, "{}", size_of::<Endpoint>());
}
