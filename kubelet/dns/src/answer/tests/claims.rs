//! What a tenant writes gives no address of the cluster's own services a name, and the zone no server.

use super::*;

/// A headless service of a tenant that says of these addresses, so often, that it stands there.
fn claim(index: &mut Index, name: &str, addresses: &[&str], times: usize) {
    cluster::put(index, "other", name, json!({"clusterIP": "None"}));
    for address in addresses {
        let family = if address.contains(':') { "IPv6" } else { "IPv4" };
        let one = json!({"addresses": [address], "hostname": "evil"});
        let endpoints = Value::Array(vec![one; times]);
        let name_of_slice = format!("{name}-{family}-{address}");
        index.set_slice(
            None,
            Some(&slice("other", name, &name_of_slice, family, json!([]), endpoints)),
        );
    }
}

/// Who is said to serve the zone.
fn server(index: &Index) -> String {
    let text = ask(index, "cluster.local", RecordType::NS);
    let record = text.split([',', '+']).next().unwrap();
    record.trim().rsplit(' ').next().unwrap().to_owned()
}

#[test]
fn the_zone_has_no_strangers_server() {
    let ours = "kube-dns.kube-system.svc.cluster.local.";
    let mut index = index();
    claim(&mut index, "a", &["10.96.0.10", "fd00:96::10"], 1);
    assert_eq!(server(&index), ours);
    // While ours is away, and when it is written after the stranger's.
    index.set_service("kube-system", "kube-dns", None);
    assert_eq!(server(&index), "ns.dns.cluster.local.");
    cluster::put(&mut index, "other", "b", json!({"clusterIP": "10.96.0.10"}));
    assert_eq!(server(&index), "ns.dns.cluster.local.");
    cluster::put(
        &mut index,
        "kube-system",
        "kube-dns",
        json!({"clusterIP": "10.96.0.10"}),
    );
    assert_eq!(server(&index), ours);
}

#[test]
fn an_address_of_a_service_has_its_name_alone() {
    let mut index = index();
    // More than are looked through, of one and of many.
    claim(&mut index, "a", &["10.96.0.20"], 9000);
    for number in 0..100 {
        claim(&mut index, &format!("b{number}"), &["10.96.0.20", "10.96.0.21"], 1);
    }
    for (address, service) in [("20.0.96.10", "web"), ("21.0.96.10", "dual")] {
        let name = format!("{address}.in-addr.arpa");
        let expected = format!("NoError: {name}. 5 PTR {service}.default.svc.cluster.local.");
        assert_eq!(ask(&index, &name, PTR), expected);
    }
    // Written after them, too, and outside of the ranges.
    claim(&mut index, "c", &["192.0.2.9"], 9000);
    cluster::put(&mut index, "default", "fixed", json!({"clusterIP": "192.0.2.9"}));
    let name = "9.2.0.192.in-addr.arpa";
    let expected = format!("NoError: {name}. 5 PTR fixed.default.svc.cluster.local.");
    assert_eq!(ask(&index, name, PTR), expected);
}
