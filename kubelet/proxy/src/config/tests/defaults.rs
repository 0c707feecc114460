use super::*;
use serde_json::json;

#[test]
fn a_programs_own_defaults_hold_where_the_file_says_nothing() {
    let own = [
        ("mode", json!("nftables")),
        ("nftables.minSyncPeriod", json!("50ms")),
        ("clusterCIDR", json!("10.1.0.0/16")),
    ];
    let with = |text: &str| resolve_with(Some(&format!("{HEAD}{text}")), &Flags::default(), &own).expect("valid");
    // As kubeadm writes what it has nothing to say about: empty, not absent.
    for text in [
        "",
        "mode: \"\"\nclusterCIDR: \"\"\nnftables: {minSyncPeriod: 0s}\niptables: {localhostNodePorts: null}\n",
    ] {
        let config = with(text);
        assert_eq!(config.min_sync_period, Duration::from_millis(50), "{text}");
        assert_eq!(
            config.local,
            LocalTraffic::ClusterCidr(cidrs(["10.1.0.0/16"])),
            "{text}"
        );
        assert_eq!(
            (config.node_ports, config.localhost_node_ports),
            (NodePorts::Primary, false),
            "{text}"
        );
        assert_eq!(config.effective["mode"], "nftables");
        // Of what nobody says anything about, upstream's.
        assert_eq!(config.sync_period, Duration::from_secs(30));
    }
    let said = with("mode: iptables\nclusterCIDR: 10.2.0.0/16\nnodePortAddresses: [192.0.2.0/24]\n");
    assert_eq!(said.local, LocalTraffic::ClusterCidr(cidrs(["10.2.0.0/16"])));
    assert_eq!(said.min_sync_period, Duration::from_secs(1), "the other mode's");
    assert!(said.localhost_node_ports);
    assert_eq!(said.node_ports, NodePorts::Ranges(cidrs(["192.0.2.0/24"])));
    let wrong = resolve_with(Some(HEAD), &Flags::default(), &[("mode", json!("odd"))]);
    assert!(
        matches!(wrong, Err(ConfigError::Mistakes { .. })),
        "they are judged as what is written is"
    );
}
