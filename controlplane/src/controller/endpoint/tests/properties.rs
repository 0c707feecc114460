//! Whatever slices there are at first: one look makes them show each pod once, and a second one finds nothing to do.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A slice that is there at first.
#[derive(Clone, Debug)]
struct Found {
    /// Of this very Service, and not of one before it.
    is_own: bool,
    is_labelled: bool,
    /// Which of the ports that pods have; beyond them one that none has.
    port: usize,
    /// Numbers of pods, and whether what it says of each is out of date.
    endpoints: Vec<(usize, bool)>,
}

fn found() -> impl Strategy<Value = Found> {
    let endpoints = prop::collection::vec((0..250_usize, any::<bool>()), 0..100);
    (
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.8),
        0..4_usize,
        endpoints,
    )
        .prop_map(|(is_own, is_labelled, port, endpoints)| Found {
            is_own,
            is_labelled,
            port,
            endpoints,
        })
}

fn port(number: usize) -> Value {
    json!({"name": "web", "containerPort": 9000 + number})
}

fn one(i: usize) -> Arc<Pod> {
    pod(
        i,
        json!({"spec": {"containers": [{"name": "c", "ports": [port(i % 3)]}]}}),
    )
}

/// The slice as it would be of those pods alone, and then as it was found.
fn slice_of(service: &Service, number: usize, found: &Found) -> Arc<EndpointSlice> {
    let pods: Vec<_> = found
        .endpoints
        .iter()
        .map(|(i, _)| {
            pod(
                *i,
                json!({"spec": {"containers": [{"name": "c", "ports": [port(found.port)]}]}}),
            )
        })
        .collect();
    let mut slice = EndpointSlice::clone(&made(&slices(service, &pods, &[])[0], &format!("web-{number}")));
    for (endpoint, (_, is_stale)) in slice.endpoints.iter_mut().flatten().zip(&found.endpoints) {
        if *is_stale {
            endpoint.node_name = Some("elsewhere".to_owned());
        }
    }
    if !found.is_own {
        slice.metadata.owner_references.as_mut().unwrap()[0].uid = "before".to_owned();
    }
    if !found.is_labelled {
        slice
            .metadata
            .labels
            .as_mut()
            .unwrap()
            .insert("mine".to_owned(), "1".to_owned());
    }
    Arc::new(slice)
}

fn apply(writes: &[Write], all: &mut BTreeMap<String, Arc<EndpointSlice>>) {
    for (n, write) in writes.iter().enumerate() {
        match &write.verb {
            Verb::Create(_) => {
                let name = format!("web-new-{n}");
                all.insert(name.clone(), made(write, &name));
            }
            Verb::Replace(body) => {
                let name = write.key.name.clone();
                assert!(
                    all.insert(name, Arc::new(serde_json::from_value(body.clone()).unwrap()))
                        .is_some()
                );
            }
            _ => assert!(all.remove(&write.key.name).is_some()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn one_look_makes_slices_show_what_there_is(
        found in prop::collection::vec(found(), 0..6), pods in prop::collection::btree_set(0..250_usize, 0..250),
    ) {
        let service = service(json!({"spec": {"ports": [{"name": "http", "port": 80, "targetPort": "web"}]}}));
        let pods: Vec<Arc<Pod>> = pods.into_iter().map(one).collect();
        let named = found.iter().enumerate().map(|(n, found)| (format!("web-{n}"), slice_of(&service, n, found)));
        let mut all: BTreeMap<String, Arc<EndpointSlice>> = named.collect();
        let listed = |all: &BTreeMap<String, Arc<EndpointSlice>>| all.values().cloned().collect::<Vec<_>>();
        apply(&slices(&service, &pods, &listed(&all)), &mut all);
        prop_assert_eq!(slices(&service, &pods, &listed(&all)), vec![]);
        let mut shown: Vec<(String, Option<i32>)> = Vec::new();
        for slice in all.values() {
            let endpoints = slice.endpoints.as_deref().unwrap_or_default();
            prop_assert!(endpoints.len() <= 100);
            prop_assert!(!endpoints.is_empty() || (pods.is_empty() && all.len() == 1), "an empty one too many");
            let port = slice.ports.iter().flatten().next().and_then(|port| port.port);
            shown.extend(endpoints.iter().map(|endpoint| (endpoint.target_ref.as_ref().unwrap().uid.clone().unwrap(), port)));
        }
        shown.sort();
        let number = |pod: &Arc<Pod>| pod.spec.as_ref().unwrap().containers[0].ports.as_ref().unwrap()[0].container_port;
        let wanted: Vec<_> = pods.iter().map(|pod| (pod.metadata.uid.clone().unwrap(), Some(number(pod)))).collect();
        prop_assert_eq!(shown, wanted);
    }
}
