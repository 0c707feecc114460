use super::*;
use crate::resource::service::AllocateError::Exhausted;
use serde_json::json;

fn service(ip: &str, port: u16) -> Value {
    json!({"spec": {"type": "NodePort", "clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": 80, "nodePort": port}]}})
}

fn text(counted: &Counted, addresses: &[&str], ranges: &[Range]) -> String {
    let mut registry = Registry::default();
    let addresses = addresses.iter().map(|ip| ip.parse().unwrap());
    counted.register(&mut registry, addresses, ranges, (3, 2768));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

#[test]
fn allocations_are_counted_by_range_and_by_who_chose() {
    let ranges: [Range; 2] = ["10.96.0.0/24".parse().unwrap(), "10.97.0.0/28".parse().unwrap()];
    let counted = Counted::default();
    let given = service("10.96.0.9", 30_001);
    let chosen = Asked::of(&json!({"spec": {"type": "NodePort"}}), None);
    counted.addresses(&chosen, &given, &ranges, &Ok(()));
    counted.ports(&chosen, &given, &Ok(()));
    let asked = Asked::of(&given, None);
    counted.addresses(&asked, &given, &ranges, &Ok(()));
    counted.ports(&asked, &given, &Ok(()));
    // What it had is given to nobody anew.
    let kept = Asked::of(&given, Some(&given));
    counted.addresses(&kept, &given, &ranges, &Ok(()));
    counted.ports(&kept, &given, &Ok(()));
    counted.addresses(&asked, &given, &ranges, &Err(AllocateError::NotCidr(String::new())));
    counted.addresses(&chosen, &given, &ranges, &Err(Exhausted("full")));
    counted.ports(&chosen, &given, &Err(Exhausted("full")));
    let told = text(&counted, &["10.96.0.1", "10.96.0.9", "10.97.0.1", "192.0.2.1"], &ranges);
    for line in [
        "clusterip_allocator_allocated_ips{cidr=\"10.96.0.0/24\"} 2",
        "clusterip_allocator_available_ips{cidr=\"10.96.0.0/24\"} 252",
        "clusterip_allocator_available_ips{cidr=\"10.97.0.0/28\"} 13",
        "clusterip_allocator_allocation_total{cidr=\"10.96.0.0/24\",scope=\"dynamic\"} 1",
        "clusterip_allocator_allocation_total{cidr=\"10.96.0.0/24\",scope=\"static\"} 1",
        "clusterip_allocator_allocation_errors_total{cidr=\"10.96.0.0/24\",scope=\"static\"} 1",
        "clusterip_allocator_allocation_errors_total{cidr=\"10.97.0.0/28\",scope=\"dynamic\"} 1",
        "nodeport_allocator_allocated_ports 3",
        "nodeport_allocator_available_ports 2765",
        "nodeport_allocator_allocation_total{scope=\"dynamic\"} 1",
        "nodeport_allocator_allocation_total{scope=\"static\"} 1",
        "nodeport_allocator_allocation_errors_total{scope=\"dynamic\"} 1",
    ] {
        assert!(
            told.contains(&format!("\nkube_apiserver_{line}\n")),
            "{line} is not in\n{told}"
        );
    }
    assert!(
        !text(&counted, &[], &ranges[..1]).contains("10.97"),
        "a range that is gone"
    );
}
