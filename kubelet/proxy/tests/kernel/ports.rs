//! Node ports kept out of ephemeral use.

use proxy::node_ports::{self, Memory};

use crate::net::Namespace;

const RESERVED: &str = "ipv4/ip_local_reserved_ports";
const EPHEMERAL: &str = "ipv4/ip_local_port_range";

#[test]
fn node_ports_are_reserved_beside_others_and_taken_back() {
    let node = Namespace::new("ports");
    node.inside(|| {
        let reserved = || netlink::sysctl::get(RESERVED).unwrap();
        let keep = |range: Option<&str>| node_ports::keep(range.map(|text| node_ports::parse(text).unwrap()).as_ref());
        netlink::sysctl::set(RESERVED, "8080,30005").unwrap();
        netlink::sysctl::set(EPHEMERAL, "30000 60999").unwrap();
        // Not asked for: told, and nothing changed.
        let told = keep(None);
        assert!(
            told.len() == 1 && told[0].contains("30000-30004,30006-32767"),
            "{told:?}"
        );
        assert_eq!(reserved(), "8080,30005");
        for _ in 0..2 {
            assert_eq!(keep(Some("30000-32767")), [""; 0]);
            assert_eq!(reserved(), "8080,30000-32767");
        }
        // Another range in place of that.
        assert_eq!(keep(Some("31000-31009")), [""; 0]);
        assert_eq!(reserved(), "8080,30005,31000-31009");
        // Not asked for any more.
        assert_eq!(keep(None).len(), 1);
        assert_eq!(reserved(), "8080,30005");
        assert_eq!(keep(Some("30000-32767")), [""; 0]);
        node_ports::remove().unwrap();
        assert_eq!(reserved(), "8080,30005");
        node_ports::remove().unwrap();
        // Others' lists are longer than what one may think to read at once; and none at all.
        let many: Vec<String> = (0..1000).map(|i| (10 + 2 * i).to_string()).collect();
        for others in [many.join(","), String::new()] {
            netlink::sysctl::set(RESERVED, &format!("{others}\n")).unwrap();
            assert_eq!(keep(Some("30000-32767")), [""; 0]);
            let both = [others.as_str(), "30000-32767"].join(if others.is_empty() { "" } else { "," });
            assert_eq!(reserved(), both);
            node_ports::remove().unwrap();
            assert_eq!(reserved(), others);
        }
    });
    assert_eq!(node.nft(&["list", "ruleset"]), "", "nothing is left");
}

#[test]
fn what_was_added_is_known_after_the_rule_set_was_emptied() {
    let node = Namespace::new("memory");
    node.inside(|| {
        let reserved = || netlink::sysctl::get(RESERVED).unwrap();
        netlink::sysctl::set(RESERVED, "8080,30005").unwrap();
        let mut memory = Memory::default();
        memory.refresh().unwrap();
        assert_eq!(node.nft(&["list", "tables"]), "", "nothing was added");
        assert_eq!(
            node_ports::keep(node_ports::parse("30000-32767").ok().as_ref()),
            [""; 0]
        );
        memory.refresh().unwrap();
        for _ in 0..2 {
            node.nft(&["flush", "ruleset"]);
            memory.refresh().unwrap();
        }
        assert_eq!(reserved(), "8080,30000-32767");
        node_ports::remove().unwrap();
        assert_eq!(reserved(), "8080,30005", "and the others' stay");
        // Taken back beside a proxy that runs: what others reserve from now on is theirs.
        memory.refresh().unwrap();
        netlink::sysctl::set(RESERVED, "30000-30009").unwrap();
        memory.refresh().unwrap();
        node_ports::remove().unwrap();
        assert_eq!(reserved(), "30000-30009");
    });
}
