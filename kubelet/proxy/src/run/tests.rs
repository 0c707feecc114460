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
