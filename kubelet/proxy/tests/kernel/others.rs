//! Rules of another proxy.

use proxy::others;

use crate::net::Namespace;

#[test]
fn rules_of_another_proxy_are_told_by_their_names_and_left() {
    let node = Namespace::new("others");
    let found = || node.inside(|| others::found().unwrap());
    // Tables of these names are not a proxy's by that alone.
    node.nft(&["add table ip nat; add chain ip nat POSTROUTING; add table ip6 kube-proxy"]);
    assert_eq!(found(), None);
    for (command, named) in [
        (
            "add table ip kube-proxy; add chain ip kube-proxy services",
            "chain services of table ip kube-proxy",
        ),
        (
            "add chain ip6 kube-proxy services",
            "chain services of table ip6 kube-proxy",
        ),
        ("add chain ip nat KUBE-SERVICES", "chain KUBE-SERVICES of table ip nat"),
    ] {
        node.nft(&[command]);
        let note = found().unwrap();
        assert!(note.contains(named), "{note}");
    }
    // A bridge serves as well as a dummy link, which not every kernel has.
    node.ip(&["link", "add", "kube-ipvs0", "type", "bridge"]);
    assert!(found().unwrap().contains("link kube-ipvs0"));
    node.nft(&["flush ruleset"]);
    node.ip(&["link", "del", "kube-ipvs0"]);
    assert_eq!(found(), None);
}
