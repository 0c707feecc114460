//! Giving Services their node ports. Which are taken is the caller's knowledge. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::allocate::AllocateError;
use super::rules::needs_health_check;
use crate::resource::field::{at, int, list, list_mut, set, text};
use crate::resource::field_error::FieldError;

/// The range node ports are given of (`--service-node-port-range`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePorts {
    /// The first of them.
    pub(super) first: u16,
    /// The last of them.
    pub(super) last: u16,
}

impl Default for NodePorts {
    /// Upstream's: 30000-32767.
    fn default() -> Self {
        Self {
            first: 30_000,
            last: 32_767,
        }
    }
}

impl std::fmt::Display for NodePorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl std::str::FromStr for NodePorts {
    type Err = String;

    /// Upstream's forms: `30000-32767`, both included; `30000+2767`, so many more than the first; `30000`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| -> Result<u32, String> {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let parsed = text.parse().ok().filter(|_| is_number);
            parsed.ok_or_else(|| format!("unable to parse port range: {text:?} is not a number"))
        };
        let text = text.trim();
        let (first, last) = match (text.split_once('-'), text.split_once('+')) {
            (Some((first, last)), _) => (number(first)?, number(last)?),
            (None, Some((first, more))) => {
                let first = number(first)?;
                (first, first.saturating_add(number(more)?))
            }
            (None, None) => (number(text)?, number(text)?),
        };
        let port = |number: u32| {
            let port = u16::try_from(number).ok().filter(|port| *port != 0);
            port.ok_or_else(|| format!("the ports of a range must be between 1 and 65535: {text}"))
        };
        let (first, last) = (port(first)?, port(last)?);
        match first <= last {
            true => Ok(Self { first, last }),
            false => Err(format!("end port cannot be less than start port: {text}")),
        }
    }
}

impl NodePorts {
    /// Whether the port is of the range.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// How many ports there are.
    pub fn size(self) -> usize {
        usize::from(self.last - self.first) + 1
    }

    /// The ports at the beginning that are left to those who choose their own, as long as there are others: a 32nd part, 16 to 128
    /// (contract §12); none of fewer than 16.
    fn band(self) -> usize {
        match self.size() {
            0..16 => 0,
            size => (size / 32).clamp(16, 128),
        }
    }

    /// The port at an offset of the range.
    fn nth(self, offset: usize) -> Option<u16> {
        let offset = u16::try_from(offset).ok()?;
        self.first.checked_add(offset).filter(|port| *port <= self.last)
    }
}

/// Ports that are being given.
struct Ports<'a> {
    range: NodePorts,
    is_taken: &'a dyn Fn(u16) -> bool,
    own: BTreeSet<u16>,
    start: u64,
}

impl Ports<'_> {
    fn is_free(&self, port: u16) -> bool {
        !self.own.contains(&port) && !(self.is_taken)(port)
    }

    fn take(&mut self, asked: i64) -> Result<u16, String> {
        let number = u16::try_from(asked).ok();
        let Some(number) = number.filter(|port| self.range.contains(*port)) else {
            let range = format!("The range of valid ports is {}", self.range);
            return Err(format!("provided port is not in the valid range. {range}"));
        };
        if !self.is_free(number) {
            return Err("provided port is already allocated".to_owned());
        }
        self.own.insert(number);
        Ok(number)
    }

    fn any(&mut self) -> Option<u16> {
        let (size, band) = (self.range.size(), self.range.band());
        let found = [band..size, 0..band].into_iter().find_map(|part| {
            let length = part.len();
            let shift = usize::try_from(self.start % u64::try_from(length.max(1)).ok()?).ok()?;
            let offsets = (0..length).map(|i| part.start + (i + shift) % length);
            let mut ports = offsets.filter_map(|offset| self.range.nth(offset));
            ports.find(|port| self.is_free(*port))
        })?;
        self.own.insert(found);
        Some(found)
    }
}

/// Gives every port of a Service of type NodePort or LoadBalancer a node port: those asked for are checked, the others get a
/// free one of the range; and one for health checks where the Service needs that. `is_taken` tells the node ports of all other Services.
///
/// One node port may serve several protocols of one Service, as upstream: in a new Service ports of one number share it (53/TCP
/// and 53/UDP), in an update any may. That no protocol has one node port twice is validated with the other fields.
///
/// # Errors
/// 422 for a port that cannot be had, 500 when nothing is left.
pub fn allocate_node_ports(
    range: NodePorts,
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
        range,
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
