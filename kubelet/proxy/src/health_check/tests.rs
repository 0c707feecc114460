use super::plan::Changes;
use super::*;
use crate::model::{PortName, Protocol, Served, ServicePort};
use std::sync::Mutex;
use tokio::sync::mpsc;

fn name(name: &str) -> ServiceName {
    ServiceName::new("shop", name)
}

fn served(service: &str, check: u16, local: usize) -> Served {
    Served {
        port: ServicePort {
            name: PortName {
                namespace: "shop".into(),
                service: service.into(),
                port: format!("p{local}"),
                protocol: Protocol::Tcp,
            },
            cluster_ips: vec![],
            port: 80,
            node_port: 0,
            external_ips: [].into(),
            load_balancer_ips: [].into(),
            source_ranges: None,
            internal_local: false,
            external_local: true,
            affinity_seconds: 0,
            health_check_node_port: check,
        },
        local_endpoints: local,
        ..crate::testing::nothing_served()
    }
}

fn snapshot(services: &[(&str, Vec<Served>)]) -> Arc<Snapshot> {
    let services = services
        .iter()
        .map(|(of, ports)| (Arc::new(name(of)), ports.clone().into()));
    Arc::new(Snapshot {
        services: services.collect(),
    })
}

#[test]
fn what_services_ask_for() {
    let snapshot = snapshot(&[
        ("a", vec![served("a", 31000, 1), served("a", 31000, 2)]),
        ("b", vec![served("b", 0, 1)]),
        ("c", vec![served("c", 31001, 0)]),
    ]);
    let check = |port, local_endpoints| Check { port, local_endpoints };
    let expected = [(name("a"), check(31000, 2)), (name("c"), check(31001, 0))];
    assert_eq!(wanted(&snapshot), expected.into());
}

#[test]
fn what_starts_and_stops() {
    let check = |port| Check {
        port,
        local_endpoints: 1,
    };
    let running = [(name("a"), 1), (name("b"), 2), (name("c"), 3)].into();
    let wanted = [(name("a"), check(1)), (name("b"), check(3)), (name("d"), check(4))].into();
    assert_eq!(
        changes(&running, &wanted),
        Changes {
            close: vec![name("b"), name("c")],
            open: vec![(name("b"), 3), (name("d"), 4)],
        }
    );
    assert_eq!(changes(&BTreeMap::new(), &Wanted::new()), Changes::default());
}

#[test]
fn answers_are_upstreams() {
    for (local, healthy, code) in [(2, true, 200), (0, true, 503), (2, false, 503)] {
        let answer = answer(&name("web"), local, healthy);
        let weight = local.to_string();
        assert_eq!(answer.code, code);
        assert!(
            answer.headers.contains(&("X-Load-Balancing-Endpoint-Weight", weight)),
            "{answer:?}"
        );
        assert_eq!(
            answer.body,
            format!(
                "{{\n\t\"service\": {{\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t}},\n\t\"localEndpoints\": {local},\n\t\"serviceProxyHealthy\": {healthy}\n}}"
            )
        );
    }
}

/// Ports of an address of our own, below the range the kernel hands out itself, so that nothing else takes them in between.
struct Ports {
    own: IpAddr,
    /// Nobody has it.
    free: u16,
    /// Somebody has it, for as long as `held` lives.
    taken: u16,
    held: TcpListener,
    /// Whoever holds this port of the address may use the other two: runs at the same time get different addresses.
    _claim: TcpListener,
}

async fn ports() -> Ports {
    for (number, free) in (0u16..).zip((20_000..32_000).step_by(3)) {
        let [high, low] = number.to_be_bytes();
        let own = IpAddr::from([127, 90, high, low | 1]);
        let (taken, claim) = (free + 1, free + 2);
        let Ok(claim) = http::bind((own, claim).into()).await else {
            continue;
        };
        // Somebody may listen on every address.
        let probe = http::bind((own, free).into()).await;
        let held = http::bind((own, taken).into()).await;
        if let (Ok(_), Ok(held)) = (probe, held) {
            return Ports {
                own,
                free,
                taken,
                held,
                _claim: claim,
            };
        }
    }
    panic!("every port of every address is taken")
}

#[tokio::test]
async fn servers_follow_services_and_a_taken_port_harms_nobody() {
    let Ports {
        own,
        free,
        taken,
        held,
        _claim,
    } = ports().await;
    let stop = CancellationToken::new();
    let (snapshots, seen) = watch::channel(Arc::new(Snapshot::default()));
    let (told, mut events) = mpsc::unbounded_channel();
    let addresses = Arc::new(Mutex::new(vec![own]));
    let where_to = addresses.clone();
    let needs = Needs {
        node: "n1".into(),
        addresses: Arc::new(move || where_to.lock().unwrap().clone()),
        health: Health::new(Duration::from_secs(30), &["IPv4"]),
        tell: Arc::new(move |what| told.send(what).unwrap()),
    };
    let running = tokio::spawn(run(seen, needs, stop.clone()));
    let get = async |port| crate::testing::get((own, port).into(), "/").await;

    // Services are served in the order of their names: once the second's failure is told the first one's server is there.
    snapshots.send_replace(snapshot(&[
        ("a", vec![served("a", free, 1)]),
        ("b", vec![served("b", taken, 1)]),
    ]));
    let event = events.recv().await.unwrap();
    assert_eq!(
        (
            event.reason,
            event.action,
            event.kind,
            event.name.as_str(),
            event.is_warning
        ),
        ("FailedToStartServiceHealthcheck", "Listen", "Service", "b", true)
    );
    let begins = format!("node n1 failed to start healthcheck \"shop/b\" on port {taken}: listen tcp ");
    assert!(event.note.starts_with(&begins), "{}", event.note);
    let (code, body) = get(free).await;
    assert!(code == 200 && body.contains("\"localEndpoints\": 1"), "{body}");

    // The number of endpoints changes without a new server; the port that was taken is had once it is free.
    drop(held);
    snapshots.send_replace(snapshot(&[
        ("a", vec![served("a", free, 0)]),
        ("b", vec![served("b", taken, 3)]),
        ("c", vec![served("c", taken, 3)]),
    ]));
    let event = events.recv().await.unwrap();
    assert_eq!(event.name, "c", "it is b's now, and the failure of b is not told twice");
    assert_eq!(get(free).await.0, 503);
    assert!(get(taken).await.1.contains("\"localEndpoints\": 3"));

    // Whoever goes frees its port for another.
    snapshots.send_replace(snapshot(&[
        ("b", vec![served("b", free, 2)]),
        ("d", vec![served("d", free, 2)]),
    ]));
    let event = events.recv().await.unwrap();
    assert_eq!(event.name, "d");
    assert!(get(free).await.1.contains("\"name\": \"b\""));
    stop.cancel();
    running.await.unwrap();
}
