use super::*;
use serde_json::json;

fn slice(name: &str, address: &str, ports: serde_json::Value) -> ReadSlice {
    let slice = serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": name, "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "endpoints": [{"addresses": [address]}], "ports": ports,
    }));
    read_slice(&slice.unwrap(), "n1")
}

/// Each port has the endpoints of its name and protocol, at the number each slice gives for it.
#[test]
fn ports_find_their_endpoints() {
    let service = serde_json::from_value(
        json!({"metadata": {"namespace": "ns", "name": "web"}, "spec": {"clusterIP": "10.96.0.1",
        "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 53}, {"name": "b", "port": 53, "protocol": "UDP"},
                  {"name": "c", "port": 9}]}}),
    );
    let slices = [
        slice(
            "one",
            "10.1.0.1",
            json!([{"name": "a", "port": 8080}, {"name": "b", "port": 5353, "protocol": "UDP"}]),
        ),
        slice(
            "two",
            "10.1.0.2",
            json!([{"name": "a", "port": 9090}, {"name": "b", "port": 5354}]),
        ),
    ];
    let here = Here { node: "n1", zone: "" };
    let served = serve(read_service(&service.unwrap()).ports, &slices, here);
    let found: Vec<Vec<String>> = served
        .iter()
        .map(|served| served.endpoints().iter().map(ToString::to_string).collect())
        .collect();
    let expected: [&[&str]; 4] = [
        &["10.1.0.1:8080", "10.1.0.2:9090"],
        &["10.1.0.2:5354"],
        &["10.1.0.1:5353"],
        &[],
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_service_with_too_many_endpoints_is_told_once() {
    let state = |beyond: &[usize]| {
        let ports: Vec<Served> = beyond
            .iter()
            .map(|beyond| Served {
                beyond: *beyond,
                ..crate::testing::nothing_served()
            })
            .collect();
        Snapshot {
            services: [(Arc::new(ServiceName::new("ns", "web")), ports.into())].into(),
        }
    };
    let told = |before: Option<&Snapshot>, after: &Snapshot| -> Vec<usize> {
        crowded(before, after).into_iter().map(|(_, beyond)| beyond).collect()
    };
    let (few, many, more) = (state(&[0, 0]), state(&[0, 3]), state(&[0, 4]));
    assert_eq!(told(None, &many), [3]);
    assert_eq!(told(Some(&few), &many), [3]);
    for (before, after) in [
        (&many, &many),
        (&many, &more),
        (&many, &few),
        (&few, &Snapshot::default()),
    ] {
        assert!(told(Some(before), after).is_empty());
    }
}

#[test]
fn a_service_that_gets_a_port_of_sctp_is_told_once() {
    let state = |protocols: &[Protocol]| {
        let served = |protocol: &Protocol| {
            let mut served = crate::testing::nothing_served();
            served.port.name.protocol = *protocol;
            served
        };
        let ports: Vec<Served> = protocols.iter().map(served).collect();
        Snapshot {
            services: [(Arc::new(ServiceName::new("ns", "web")), ports.into())].into(),
        }
    };
    let (none, one) = (
        state(&[Protocol::Tcp, Protocol::Udp]),
        state(&[Protocol::Tcp, Protocol::Sctp]),
    );
    let web = [ServiceName::new("ns", "web")];
    assert_eq!(with_sctp(None, &one), web);
    assert_eq!(with_sctp(Some(&none), &one), web);
    let two = state(&[Protocol::Sctp, Protocol::Sctp]);
    for (before, after) in [(&one, &one), (&one, &two), (&one, &none), (&none, &Snapshot::default())] {
        assert_eq!(with_sctp(Some(before), after), []);
    }
}
