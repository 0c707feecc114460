//! What of a Service stays from its old state to the new one though nobody says so, and what goes with a type. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::rules;
use crate::resource::field::{at, copy, int, list, list_mut, remove, set, text};

fn kind(service: &Value) -> &str {
    text(service, &["spec", "type"])
}

fn has_address(service: &Value) -> bool {
    kind(service) != "ExternalName"
}

fn has_node_ports(service: &Value) -> bool {
    matches!(kind(service), "NodePort" | "LoadBalancer")
}

/// `clusterIP` and the first of `clusterIPs` are one thing.
pub fn pair_addresses(object: &mut Value) {
    let single = text(object, &["spec", "clusterIP"]).to_owned();
    let first = list(object, &["spec", "clusterIPs"]).first().and_then(Value::as_str);
    match (single.as_str(), first.map(str::to_owned)) {
        ("", Some(first)) => set(object, &["spec", "clusterIP"], first),
        (single, None) if !single.is_empty() => set(object, &["spec", "clusterIPs"], vec![single]),
        _ => {}
    }
}

/// What was allocated stays when an update leaves it out (unless the type no longer has it).
pub(super) fn keep_allocated(new: &mut Value, old: &Value) {
    match (has_address(new), has_address(old)) {
        (true, true) => keep_addresses(new, old),
        (false, true) => drop_addresses(new, old),
        _ => {}
    }
    if has_node_ports(new) && has_node_ports(old) {
        keep_node_ports(new, old);
    }
    let checks = rules::needs_health_check;
    let port = &["spec", "healthCheckNodePort"];
    if checks(new) && checks(old) && int(new, port).unwrap_or(0) == 0 {
        copy(new, old, port);
    }
    if !has_node_ports(new) && has_node_ports(old) {
        drop_node_ports(new, old);
    }
    drop_what_the_type_had(new, old);
    drop_balancer_status(new);
}

/// What a balancer said of a Service that has none any more is not true, whoever takes the balancer down and whenever: proxies lead
/// traffic by it.
fn drop_balancer_status(new: &mut Value) {
    let status = &["status", "loadBalancer"];
    if kind(new) != "LoadBalancer" && !list(new, &["status", "loadBalancer", "ingress"]).is_empty() {
        set(new, status, json!({}));
    }
}

fn keep_addresses(new: &mut Value, old: &Value) {
    let single = text(new, &["spec", "clusterIP"]).to_owned();
    let before = text(old, &["spec", "clusterIP"]);
    let (sent, known) = (list(new, &["spec", "clusterIPs"]), list(old, &["spec", "clusterIPs"]));
    if sent.is_empty() && (single.is_empty() || single == before) {
        copy(new, old, &["spec", "clusterIP"]);
        copy(new, old, &["spec", "clusterIPs"]);
    } else if !single.is_empty() && single != before && sent == known && known.len() == 1 {
        // Who changes the one alone means both; validation says that it may not change.
        set(new, &["spec", "clusterIPs"], vec![single]);
    }
    for key in ["ipFamilies", "ipFamilyPolicy"] {
        if at(new, &["spec", key]).is_null() {
            copy(new, old, &["spec", key]);
        }
    }
}

fn drop_addresses(new: &mut Value, old: &Value) {
    let same = |new: &Value, key: &str| at(new, &["spec", key]) == at(old, &["spec", key]);
    let addresses = same(new, "clusterIPs") || text(new, &["spec", "clusterIP"]) == text(old, &["spec", "clusterIP"]);
    let drops = [
        ("clusterIP", addresses),
        ("clusterIPs", addresses),
        ("ipFamilies", same(new, "ipFamilies")),
        ("ipFamilyPolicy", same(new, "ipFamilyPolicy")),
        ("internalTrafficPolicy", same(new, "internalTrafficPolicy")),
    ];
    let Some(spec) = new.get_mut("spec") else { return };
    for (key, _) in drops.into_iter().filter(|(_, goes)| *goes) {
        remove(spec, key);
    }
}

fn node_ports(service: &Value) -> impl Iterator<Item = i64> {
    let ports = list(service, &["spec", "ports"]).iter();
    ports
        .filter_map(|port| int(port, &["nodePort"]))
        .filter(|port| *port != 0)
}

/// By the ports' names, and none twice.
fn keep_node_ports(new: &mut Value, old: &Value) {
    let sent: BTreeSet<i64> = node_ports(new).collect();
    let mut used: BTreeSet<i64> = node_ports(old).filter(|port| sent.contains(port)).collect();
    let known: BTreeMap<&str, i64> = list(old, &["spec", "ports"])
        .iter()
        .map(|port| (text(port, &["name"]), int(port, &["nodePort"]).unwrap_or(0)))
        .collect();
    for port in list_mut(new, &["spec", "ports"]).into_iter().flatten() {
        if int(port, &["nodePort"]).unwrap_or(0) != 0 {
            continue;
        }
        let before = known.get(text(port, &["name"])).copied().unwrap_or(0);
        if before != 0 && used.insert(before) {
            set(port, &["nodePort"], before);
        }
    }
}

fn drop_node_ports(new: &mut Value, old: &Value) {
    let before: BTreeSet<i64> = node_ports(old).collect();
    for port in list_mut(new, &["spec", "ports"]).into_iter().flatten() {
        if int(port, &["nodePort"]).is_some_and(|port| before.contains(&port)) {
            remove(port, "nodePort");
        }
    }
}

/// What another type had goes with it, unless the sender changed it.
fn drop_what_the_type_had(new: &mut Value, old: &Value) {
    let is_balanced = |object: &Value| kind(object) == "LoadBalancer";
    let no_longer_balanced = is_balanced(old) && !is_balanced(new);
    let no_longer_external = rules::is_external(old) && !rules::is_external(new);
    let no_longer_checked = rules::needs_health_check(old) && !rules::needs_health_check(new);
    let Some(spec) = new.get_mut("spec") else { return };
    for (key, goes) in [
        ("externalTrafficPolicy", no_longer_external),
        ("allocateLoadBalancerNodePorts", no_longer_balanced),
        ("healthCheckNodePort", no_longer_checked),
        ("loadBalancerClass", no_longer_balanced),
    ] {
        if goes && at(spec, &[key]) == at(old, &["spec", key]) {
            remove(spec, key);
        }
    }
}
