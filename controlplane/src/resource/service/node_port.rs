//! Giving Services their node ports. Which are taken is the caller's knowledge. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::allocate::AllocateError;
use super::rules::needs_health_check;
use crate::resource::field::{at, int, list, list_mut, set, text};
use crate::resource::field_error::FieldError;

/// The range of node ports: the first, and how many.
pub(super) const NODE_PORTS: (u16, u16) = (30_000, 2_768);
/// The ports at the beginning that are left to those who choose their own, as long as there are others: a 32nd part, 16 to 128
/// (contract §12).
const BAND: u16 = 2_768 / 32;

/// Ports that are being given.
struct Ports<'a> {
    is_taken: &'a dyn Fn(u16) -> bool,
    own: BTreeSet<u16>,
    start: u64,
}

impl Ports<'_> {
    fn is_free(&self, port: u16) -> bool {
        !self.own.contains(&port) && !(self.is_taken)(port)
    }

    fn take(&mut self, asked: i64) -> Result<u16, String> {
        let (first, count) = NODE_PORTS;
        let number = u16::try_from(asked).ok();
        let Some(number) = number.filter(|port| (first..first + count).contains(port)) else {
            let range = format!("The range of valid ports is {first}-{}", first + count - 1);
            return Err(format!("provided port is not in the valid range. {range}"));
        };
        if !self.is_free(number) {
            return Err("provided port is already allocated".to_owned());
        }
        self.own.insert(number);
        Ok(number)
    }

    fn any(&mut self) -> Option<u16> {
        let (first, count) = NODE_PORTS;
        let parts = [(BAND, count - BAND), (0, BAND)];
        let found = parts.into_iter().find_map(|(begin, length)| {
            let shift = u16::try_from(self.start % u64::from(length)).unwrap_or(0);
            (0..length)
                .map(|i| first + begin + (i + shift) % length)
                .find(|port| self.is_free(*port))
        })?;
        self.own.insert(found);
        Some(found)
    }
}

/// Gives every port of a Service of type NodePort or LoadBalancer a node port: those asked for are checked, the others get a
/// free one of 30000-32767; and one for health checks where the Service needs that. `is_taken` tells the node ports of all other Services.
///
/// One node port may serve several protocols of one Service, as upstream: in a new Service ports of one number share it (53/TCP
/// and 53/UDP), in an update any may. That no protocol has one node port twice is validated with the other fields.
///
/// # Errors
/// 422 for a port that cannot be had, 500 when nothing is left.
pub fn allocate_node_ports(
    is_taken: &dyn Fn(u16) -> bool,
    start: u64,
    is_new: bool,
    service: &mut Value,
) -> Result<(), AllocateError> {
    let kind = text(service, &["spec", "type"]);
    if !matches!(kind, "NodePort" | "LoadBalancer") {
        return Ok(());
    }
    // Ports asked for count also where no others are to be allocated.
    let fills = kind == "NodePort" || at(service, &["spec", "allocateLoadBalancerNodePorts"]) != &Value::Bool(false);
    let mut ports = Ports {
        is_taken,
        own: BTreeSet::new(),
        start,
    };
    let shared = take_asked(&mut ports, is_new, service)?;
    if fills {
        fill_free(&mut ports, shared, is_new, service)?;
    }
    if needs_health_check(service) {
        health_check(&mut ports, service)?;
    }
    Ok(())
}

/// Takes the node ports that are asked for. Gives the node port of each port number that shares one.
fn take_asked(ports: &mut Ports<'_>, is_new: bool, service: &Value) -> Result<BTreeMap<i64, u16>, FieldError> {
    let mut shared: BTreeMap<i64, u16> = BTreeMap::new();
    for (i, port) in list(service, &["spec", "ports"]).iter().enumerate() {
        let asked = int(port, &["nodePort"]).unwrap_or(0);
        if asked == 0 {
            continue;
        }
        let of_port = int(port, &["port"]).unwrap_or(0);
        let may_share = match is_new {
            true => shared.get(&of_port).is_some_and(|shared| i64::from(*shared) == asked),
            false => ports.own.iter().any(|own| i64::from(*own) == asked),
        };
        if may_share {
            continue;
        }
        let path = || format!("spec.ports[{i}].nodePort");
        let number = ports
            .take(asked)
            .map_err(|why| FieldError::invalid(path(), asked, why))?;
        if is_new {
            shared.entry(of_port).or_insert(number);
        }
    }
    Ok(shared)
}

/// Gives node ports to the ports that have none.
fn fill_free(
    ports: &mut Ports<'_>,
    mut shared: BTreeMap<i64, u16>,
    is_new: bool,
    service: &mut Value,
) -> Result<(), AllocateError> {
    for port in list_mut(service, &["spec", "ports"]).into_iter().flatten() {
        if int(port, &["nodePort"]).unwrap_or(0) != 0 {
            continue;
        }
        let number = int(port, &["port"]).unwrap_or(0);
        if let Some(same) = shared.get(&number) {
            set(port, &["nodePort"], *same);
            continue;
        }
        let full = AllocateError::Exhausted("failed to allocate a nodePort: range is full");
        let free = ports.any().ok_or(full)?;
        if is_new {
            shared.insert(number, free);
        }
        set(port, &["nodePort"], free);
    }
    Ok(())
}

fn health_check(ports: &mut Ports<'_>, service: &mut Value) -> Result<(), AllocateError> {
    let path = "spec.healthCheckNodePort";
    let asked = int(service, &["spec", "healthCheckNodePort"]).unwrap_or(0);
    if asked != 0 {
        let taken = ports.take(asked);
        taken.map_err(|why| {
            FieldError::invalid(
                path,
                asked,
                format!("failed to allocate requested HealthCheck NodePort {asked}: {why}"),
            )
        })?;
        return Ok(());
    }
    let full = AllocateError::Exhausted("failed to allocate a HealthCheck NodePort: range is full");
    let free = ports.any().ok_or(full)?;
    set(service, &["spec", "healthCheckNodePort"], free);
    Ok(())
}
