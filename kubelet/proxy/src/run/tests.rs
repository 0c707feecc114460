//! The loop over a scripted API server and the kernel: what others do to the tables is undone.

use super::*;
use crate::node_ports;
use crate::testing::api::{SERVICES, SLICES, Server};
use crate::testing::{in_paused_namespace, nft};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::mpsc;

/// More than any wait of the loop, by a clock that nobody waits for.
const GUARD: Duration = Duration::from_secs(600);

fn put_service(server: &Server) {
    server.put(
        SERVICES,
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop", "uid": "web"},
            "spec": {"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ports": [{"port": 80, "protocol": "TCP"}]}}),
    );
}

fn put_slice(server: &Server, address: &str) {
    server.put(
        SLICES,
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "web-1", "namespace": "shop", "uid": "s", "labels": {"kubernetes.io/service-name": "web"}},
            "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}}]}),
    );
}

struct Loop {
    told: mpsc::UnboundedReceiver<Notice>,
}

impl Loop {
    /// The next write: whether it was a whole one. A write that fails ends the test.
    async fn written(&mut self) -> bool {
        let next = async {
            loop {
                match self.told.recv().await.expect("the loop runs") {
                    Notice::Synced(synced) => return synced.full,
                    Notice::Failed(why) => panic!("{why}"),
                    Notice::Changed(_)
                    | Notice::Queued(_)
                    | Notice::Crowded(..)
                    | Notice::Without(..)
                    | Notice::Unfollowed(_)
                    | Notice::Full(_)
                    | Notice::Forgets { .. } => {}
                }
            }
        };
        tokio::time::timeout(GUARD, next).await.expect("it writes")
    }

    /// Waits until the kernel has this endpoint alone; returns whether a whole write brought it.
    async fn serves(&mut self, address: &str) -> bool {
        loop {
            let full = self.written().await;
            let listed = nft(&["list", "map", "ip", "skiff-proxy", "endpoints"]);
            if listed.contains(&format!("{address} . 8080")) {
                assert_eq!(listed.matches(" . 8080").count(), 1, "{listed}");
                return full;
            }
        }
    }
}

#[test]
fn what_others_do_to_the_tables_is_undone() {
    in_paused_namespace(async || {
        let (reserved, node_ports) = (
            "ipv4/ip_local_reserved_ports",
            node_ports::parse("30000-32767").unwrap(),
        );
        netlink::sysctl::set(reserved, "8080").unwrap();
        assert_eq!(node_ports::keep(Some(&node_ports)), [""; 0]);
        let server = Server::new();
        put_service(&server);
        put_slice(&server, "10.1.0.1");
        let (told, hears) = mpsc::unbounded_channel();
        let observer: Observer = Arc::new(move |notice| drop(told.send(notice.clone())));
        let (_decided, settings) = watch::channel(Settings::default());
        let (stop, sources) = (CancellationToken::new(), server.informers().rules);
        let running = tokio::spawn(run(sources, settings, vec![observer], stop.clone()));
        let mut of = Loop { told: hears };
        assert!(of.serves("10.1.0.1").await, "the first write is a whole one");
        put_slice(&server, "10.1.0.2");
        assert!(!of.serves("10.1.0.2").await, "a change is a change");
        // Nothing happens but that: the next look finds out.
        for foreign in [
            &["flush", "ruleset"][..],
            &["delete", "table", "ip6", "skiff-proxy"],
            &["flush", "chain", "ip", "skiff-proxy", "services"],
            &["add", "chain", "ip", "skiff-proxy", "strangers"],
        ] {
            nft(foreign);
            assert!(of.serves("10.1.0.2").await, "{foreign:?}");
            let services = nft(&["list", "chain", "ip", "skiff-proxy", "services"]);
            assert!(services.contains("@classes"), "{services}");
            assert!(!nft(&["list", "table", "ip", "skiff-proxy"]).contains("strangers"));
            assert!(nft(&["list", "tables"]).contains("ip6 skiff-proxy"));
            assert!(nft(&["list", "tables"]).contains("inet skiff-node-ports"));
        }
        // A change meets tables that are not as written: it brings all.
        nft(&["flush", "ruleset"]);
        put_slice(&server, "10.1.0.3");
        assert!(of.serves("10.1.0.3").await);
        // Somebody else's table is not touched, and brings nothing about.
        nft(&["add", "table", "ip", "other"]);
        put_slice(&server, "10.1.0.4");
        assert!(!of.serves("10.1.0.4").await);
        assert!(nft(&["list", "tables"]).contains("ip other"));
        // It ends, and its rules stay.
        stop.cancel();
        running.await.unwrap().expect("it was told to end");
        assert!(nft(&["list", "map", "ip", "skiff-proxy", "endpoints"]).contains("10.1.0.4"));
        // It still knows which reserved ports are its own.
        node_ports::remove().unwrap();
        assert_eq!(netlink::sysctl::get(reserved).as_deref(), Some("8080"));
    });
}

/// A Service of many addresses for many ports.
fn put_large(server: &Server, number: usize, addresses: usize) {
    let addresses: Vec<String> = (0..addresses).map(|last| format!("192.{number}.2.{last}")).collect();
    let ports: Vec<_> = (0..36)
        .map(|port| json!({"name": format!("p{port}"), "port": 1000 + port}))
        .collect();
    server.put(
        SERVICES,
        json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": format!("large-{number}"), "namespace": "shop", "uid": number.to_string(),
                "creationTimestamp": format!("2026-01-01T00:00:{number:02}Z")},
            "spec": {"clusterIP": format!("10.96.1.{number}"), "externalIPs": addresses, "ports": ports}}),
    );
}

#[test]
fn a_namespace_has_so_many_addresses_from_outside_and_the_others_are_told() {
    in_paused_namespace(async || {
        let server = Server::new();
        // 9,000 elements each.
        (0..14).for_each(|number| put_large(&server, number, 250));
        let (told, mut hears) = mpsc::unbounded_channel();
        let observer: Observer = Arc::new(move |notice| drop(told.send(notice.clone())));
        let (_decided, settings) = watch::channel(Settings::default());
        let (stop, sources) = (CancellationToken::new(), server.informers().rules);
        let running = tokio::spawn(run(sources, settings, vec![observer], stop.clone()));
        let mut next = async || match tokio::time::timeout(GUARD, hears.recv()).await {
            Ok(Some(Notice::Failed(why))) => panic!("{why}"),
            Ok(Some(notice)) => notice,
            _ => panic!("it writes"),
        };
        let addresses = |synced: &Synced, number: usize| {
            let service = crate::model::ServiceName::new("shop", format!("large-{number}"));
            let ports = synced.snapshot.services.get(&service);
            ports.map_or(0, |ports| ports[0].port.external_ips.len())
        };
        let mut last = None;
        let without = loop {
            match next().await {
                Notice::Synced(synced) => last = Some(synced),
                Notice::Without(service, _) => break service,
                _ => {}
            }
        };
        assert_eq!(without.to_string(), "shop/large-13");
        let shown = (0..14).map(|number| addresses(last.as_ref().unwrap(), number));
        let expected = (0..14).map(|number| if number < 13 { 250 } else { 0 });
        assert!(shown.eq(expected));
        // Another makes room, and nobody else is told anything.
        put_large(&server, 2, 1);
        loop {
            match next().await {
                Notice::Synced(synced) if addresses(&synced, 13) == 250 => break,
                Notice::Without(service, _) => panic!("{service}"),
                _ => {}
            }
        }
        stop.cancel();
        running.await.unwrap().expect("it was told to end");
    });
}
