//! Rows of Services, endpoints, Ingresses and network policies. Pure.

use serde_json::Value;

use super::format::{age, labels, name, or, selector, shortened};
use super::{AGE, NAME, Printer, column, wide};
use crate::resource::field::{at, int, list, text};

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "EndpointSlice" => ENDPOINT_SLICE,
        "Ingress" => INGRESS,
        "IngressClass" => INGRESS_CLASS,
        "NetworkPolicy" => NETWORK_POLICY,
        "ServiceCIDR" => SERVICE_CIDR,
        "IPAddress" => IP_ADDRESS,
        _ => return None,
    })
}

pub(super) const SERVICE: Printer = Printer {
    columns: &[
        NAME,
        column("Type"),
        column("Cluster-IP"),
        column("External-IP"),
        column("Port(s)"),
        AGE,
        wide("Selector"),
    ],
    cells: |service, now| {
        let cluster_ip = list(service, &["spec", "clusterIPs"])
            .first()
            .and_then(Value::as_str)
            .unwrap_or_else(|| text(service, &["spec", "clusterIP"]));
        vec![
            name(service),
            Value::from(text(service, &["spec", "type"])),
            or(cluster_ip, "<none>"),
            Value::from(external_ip(service)),
            or(&service_ports(service), "<none>"),
            age(service, now),
            labels(at(service, &["spec", "selector"])),
        ]
    },
};

fn strings(value: &Value, path: &[&str]) -> Vec<String> {
    let items = list(value, path).iter().filter_map(Value::as_str);
    items.map(str::to_owned).collect()
}

fn external_ip(service: &Value) -> String {
    let external = strings(service, &["spec", "externalIPs"]);
    match text(service, &["spec", "type"]) {
        "ExternalName" => text(service, &["spec", "externalName"]).to_owned(),
        "LoadBalancer" => {
            let mut all: Vec<String> = ingress_addresses(service);
            all.extend(external);
            if all.is_empty() {
                "<pending>".to_owned()
            } else {
                all.join(",")
            }
        }
        _ if external.is_empty() => "<none>".to_owned(),
        _ => external.join(","),
    }
}

/// Addresses (or host names) in `status.loadBalancer.ingress`.
fn ingress_addresses(object: &Value) -> Vec<String> {
    let addresses = list(object, &["status", "loadBalancer", "ingress"])
        .iter()
        .map(|ingress| {
            let ip = text(ingress, &["ip"]);
            if ip.is_empty() {
                text(ingress, &["hostname"])
            } else {
                ip
            }
            .to_owned()
        });
    let mut addresses: Vec<String> = addresses.filter(|address| !address.is_empty()).collect();
    addresses.sort();
    addresses.dedup();
    addresses
}

fn service_ports(service: &Value) -> String {
    let ports: Vec<String> = list(service, &["spec", "ports"])
        .iter()
        .map(|port| {
            let number = int(port, &["port"]).unwrap_or(0);
            let protocol = text(port, &["protocol"]);
            match int(port, &["nodePort"]).unwrap_or(0) {
                0 => format!("{number}/{protocol}"),
                node_port => format!("{number}:{node_port}/{protocol}"),
            }
        })
        .collect();
    ports.join(",")
}

/// An address with a port; brackets around IPv6.
fn host_port(address: &str, port: i64) -> String {
    if address.contains(':') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}

pub(super) const ENDPOINTS: Printer = Printer {
    columns: &[NAME, column("Endpoints"), AGE],
    cells: |endpoints, now| {
        let mut all = Vec::new();
        for subset in list(endpoints, &["subsets"]) {
            let ports = list(subset, &["ports"]);
            for address in list(subset, &["addresses"]) {
                let ip = text(address, &["ip"]);
                if ports.is_empty() {
                    all.push(ip.to_owned());
                }
                all.extend(
                    ports
                        .iter()
                        .map(|port| host_port(ip, int(port, &["port"]).unwrap_or(0))),
                );
            }
        }
        vec![name(endpoints), or(&shortened(&all, 3), "<none>"), age(endpoints, now)]
    },
};

const ENDPOINT_SLICE: Printer = Printer {
    columns: &[NAME, column("AddressType"), column("Ports"), column("Endpoints"), AGE],
    cells: |slice, now| {
        let ports: Vec<String> = list(slice, &["ports"])
            .iter()
            .map(|port| match int(port, &["port"]) {
                Some(number) => number.to_string(),
                None => "*".to_owned(),
            })
            .collect();
        let addresses: Vec<String> = list(slice, &["endpoints"])
            .iter()
            .flat_map(|endpoint| strings(endpoint, &["addresses"]))
            .collect();
        vec![
            name(slice),
            Value::from(text(slice, &["addressType"])),
            or(&shortened(&ports, 3), "<unset>"),
            or(&shortened(&addresses, 3), "<unset>"),
            age(slice, now),
        ]
    },
};

const INGRESS: Printer = Printer {
    columns: &[
        NAME,
        column("Class"),
        column("Hosts"),
        column("Address"),
        column("Ports"),
        AGE,
    ],
    cells: |ingress, now| {
        let hosts: Vec<String> = list(ingress, &["spec", "rules"])
            .iter()
            .map(|rule| text(rule, &["host"]).to_owned())
            .filter(|host| !host.is_empty())
            .collect();
        let class = match text(ingress, &["spec", "ingressClassName"]) {
            "" => text(ingress, &["metadata", "annotations", "kubernetes.io/ingress.class"]),
            class => class,
        };
        let tls = !list(ingress, &["spec", "tls"]).is_empty();
        vec![
            name(ingress),
            or(class, "<none>"),
            or(&shortened(&hosts, 3), "*"),
            Value::from(ingress_addresses(ingress).join(",")),
            Value::from(if tls { "80, 443" } else { "80" }),
            age(ingress, now),
        ]
    },
};

const INGRESS_CLASS: Printer = Printer {
    columns: &[NAME, column("Controller"), column("Parameters"), AGE],
    cells: |class, now| {
        let parameters = at(class, &["spec", "parameters"]);
        let shown = if parameters.is_null() {
            "<none>".to_owned()
        } else {
            let (kind, group) = (text(parameters, &["kind"]), text(parameters, &["apiGroup"]));
            let dot = if group.is_empty() { "" } else { "." };
            format!("{kind}{dot}{group}/{}", text(parameters, &["name"]))
        };
        vec![
            name(class),
            Value::from(text(class, &["spec", "controller"])),
            Value::from(shown),
            age(class, now),
        ]
    },
};

const NETWORK_POLICY: Printer = Printer {
    columns: &[NAME, column("Pod-Selector"), AGE],
    cells: |policy, now| {
        vec![
            name(policy),
            selector(at(policy, &["spec", "podSelector"])),
            age(policy, now),
        ]
    },
};

const SERVICE_CIDR: Printer = Printer {
    columns: &[NAME, column("CIDRs"), AGE],
    cells: |cidr, now| {
        vec![
            name(cidr),
            Value::from(strings(cidr, &["spec", "cidrs"]).join(",")),
            age(cidr, now),
        ]
    },
};

const IP_ADDRESS: Printer = Printer {
    columns: &[NAME, column("ParentRef"), AGE],
    cells: |address, now| {
        let parent = at(address, &["spec", "parentRef"]);
        let parts = ["group", "resource", "namespace", "name"].map(|key| text(parent, &[key]));
        let group = if parts[0].is_empty() {
            String::new()
        } else {
            format!("{}.", parts[0])
        };
        let shown = format!("{group}{}/{}/{}", parts[1], parts[2], parts[3]);
        vec![name(address), Value::from(shown), age(address, now)]
    },
};
