//! Services: defaults, validation, and the pure half of address allocation. Which addresses are taken is the caller's
//! knowledge. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};

use super::field::{at, copy, default_text, default_to, int, invalid_each, list, list_mut, one_of, remove, set, text};
use super::metadata::validate_labels;
use super::name::{dns1123_label, port_name, port_number};
use super::{NameRule, PrepareContext, Strategy, isolate};
use crate::apiserver::status::{FieldError, FieldErrorKind};

/// The Service kind's strategy.
pub struct Service;

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

impl Strategy for Service {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec") else { return };
        default_text(spec, "sessionAffinity", "None");
        default_text(spec, "type", "ClusterIP");
        match text(spec, &["sessionAffinity"]) {
            "None" => {
                remove(spec, "sessionAffinityConfig");
            }
            _ => {
                let seconds = &["sessionAffinityConfig", "clientIP", "timeoutSeconds"];
                if at(spec, seconds).is_null() {
                    set(spec, seconds, 10_800);
                }
            }
        }
        for port in list_mut(spec, &["ports"]).into_iter().flatten() {
            default_text(port, "protocol", "TCP");
            let number = at(port, &["port"]).clone();
            let target = at(port, &["targetPort"]);
            if target.is_null() || target == &json!(0) || target == &json!("") {
                set(port, &["targetPort"], number);
            }
        }
        let kind = text(spec, &["type"]).to_owned();
        let reachable = matches!(kind.as_str(), "NodePort" | "LoadBalancer");
        let external = reachable || !list(spec, &["externalIPs"]).is_empty();
        if external && kind != "ExternalName" {
            default_text(spec, "externalTrafficPolicy", "Cluster");
        }
        if kind != "ExternalName" {
            default_text(spec, "internalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            default_to(spec, "allocateLoadBalancerNodePorts", true);
        }
        for ingress in list_mut(object, &["status", "loadBalancer", "ingress"])
            .into_iter()
            .flatten()
        {
            if !text(ingress, &["ip"]).is_empty() {
                default_text(ingress, "ipMode", "VIP");
            }
        }
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        set(object, &["status"], json!({"loadBalancer": {}}));
        pair_addresses(object);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, subresource: &str) {
        isolate(new, old, subresource);
        if subresource.is_empty() {
            keep_allocated(new, old);
            pair_addresses(new);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate(object)
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        if subresource == "status" {
            return Vec::new();
        }
        let mut errors = validate(new);
        let kind = |object: &Value| text(object, &["spec", "type"]).to_owned();
        if kind(new) != "ExternalName" && kind(old) != "ExternalName" {
            let before = text(old, &["spec", "clusterIP"]);
            let after = text(new, &["spec", "clusterIP"]);
            if !before.is_empty() && before != after {
                errors.push(FieldError::invalid(
                    "spec.clusterIPs[0]",
                    at(new, &["spec", "clusterIPs"]).clone(),
                    "may not change once set",
                ));
            }
        }
        let class = &["spec", "loadBalancerClass"];
        if kind(new) == "LoadBalancer" && kind(old) == "LoadBalancer" && at(new, class) != at(old, class) {
            errors.push(FieldError::invalid(
                "spec.loadBalancerClass",
                at(new, class).clone(),
                "may not change once set",
            ));
        }
        errors
    }

    fn selectable_fields(&self, object: &Value) -> BTreeMap<&'static str, String> {
        BTreeMap::from([
            ("spec.clusterIP", text(object, &["spec", "clusterIP"]).to_owned()),
            ("spec.type", text(object, &["spec", "type"]).to_owned()),
        ])
    }

    fn field_labels(&self) -> &'static [&'static str] {
        &["spec.clusterIP", "spec.type"]
    }

    fn name_rule(&self) -> NameRule {
        NameRule::ServiceLabel
    }
}

/// `clusterIP` and the first of `clusterIPs` are one thing.
fn pair_addresses(object: &mut Value) {
    let single = text(object, &["spec", "clusterIP"]).to_owned();
    let first = list(object, &["spec", "clusterIPs"]).first().and_then(Value::as_str);
    match (single.as_str(), first.map(str::to_owned)) {
        ("", Some(first)) => set(object, &["spec", "clusterIP"], first),
        (single, None) if !single.is_empty() => set(object, &["spec", "clusterIPs"], vec![single]),
        _ => {}
    }
}

/// What was allocated stays when an update leaves it out (unless the type no longer has it).
fn keep_allocated(new: &mut Value, old: &Value) {
    let has_address = |object: &Value| text(object, &["spec", "type"]) != "ExternalName";
    if has_address(new) && has_address(old) {
        let sent = !text(new, &["spec", "clusterIP"]).is_empty() || !list(new, &["spec", "clusterIPs"]).is_empty();
        if !sent {
            copy(new, old, &["spec", "clusterIP"]);
            copy(new, old, &["spec", "clusterIPs"]);
        }
        for key in ["ipFamilies", "ipFamilyPolicy"] {
            if at(new, &["spec", key]).is_null() {
                copy(new, old, &["spec", key]);
            }
        }
    } else if !has_address(new)
        && let Some(spec) = new.get_mut("spec")
    {
        let same = text(spec, &["clusterIP"]) == text(old, &["spec", "clusterIP"]);
        if same {
            remove(spec, "clusterIP");
            remove(spec, "clusterIPs");
        }
        for key in ["ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            remove(spec, key);
        }
    }
    let has_node_ports = |object: &Value| matches!(text(object, &["spec", "type"]), "NodePort" | "LoadBalancer");
    if has_node_ports(new) && has_node_ports(old) {
        let before = list(old, &["spec", "ports"]).to_vec();
        for port in list_mut(new, &["spec", "ports"]).into_iter().flatten() {
            let same = before.iter().find(|old| {
                at(old, &["port"]) == at(port, &["port"]) && text(old, &["protocol"]) == text(port, &["protocol"])
            });
            if int(port, &["nodePort"]).unwrap_or(0) == 0
                && let Some(same) = same
            {
                copy(port, same, &["nodePort"]);
            }
        }
    }
    if !has_node_ports(new) && has_node_ports(old) {
        let before: Vec<Value> = list(old, &["spec", "ports"])
            .iter()
            .map(|port| at(port, &["nodePort"]).clone())
            .collect();
        for port in list_mut(new, &["spec", "ports"]).into_iter().flatten() {
            if before.contains(at(port, &["nodePort"])) {
                remove(port, "nodePort");
            }
        }
        if let Some(spec) = new.get_mut("spec") {
            for key in [
                "externalTrafficPolicy",
                "allocateLoadBalancerNodePorts",
                "healthCheckNodePort",
            ] {
                if at(spec, &[key]) == at(old, &["spec", key]) && list(spec, &["externalIPs"]).is_empty() {
                    remove(spec, key);
                }
            }
        }
    }
}

fn validate(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = at(object, &["spec"]);
    let kind = text(spec, &["type"]);
    one_of(&mut errors, "spec.type", kind, TYPES);
    let headless = text(spec, &["clusterIP"]) == "None";
    let ports = list(spec, &["ports"]);
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    validate_ports(&mut errors, ports, kind);
    match kind {
        "ExternalName" => {
            let name = text(spec, &["externalName"]);
            let name = name.strip_suffix('.').unwrap_or(name);
            if name.is_empty() {
                errors.push(FieldError::required("spec.externalName", ""));
            } else {
                let problems = super::name::dns1123_subdomain(name);
                invalid_each(&mut errors, "spec.externalName", &json!(name), problems);
            }
            if !list(spec, &["clusterIPs"]).is_empty() || !text(spec, &["clusterIP"]).is_empty() {
                errors.push(FieldError::forbidden(
                    "spec.clusterIPs[0]",
                    "may not be set for ExternalName services",
                ));
            }
        }
        "LoadBalancer" if headless => errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            "None",
            "may not be set to 'None' for LoadBalancer services",
        )),
        "NodePort" if headless => errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            "None",
            "may not be set to 'None' for NodePort services",
        )),
        _ => {}
    }
    validate_addresses(&mut errors, spec);
    validate_labels(at(spec, &["selector"]), "spec.selector", &mut errors);
    one_of(
        &mut errors,
        "spec.sessionAffinity",
        text(spec, &["sessionAffinity"]),
        &["ClientIP", "None"],
    );
    if let Some(seconds) = int(spec, &["sessionAffinityConfig", "clientIP", "timeoutSeconds"])
        && !(1..=86_400).contains(&seconds)
    {
        errors.push(FieldError::invalid(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            seconds,
            "must be greater than 0 and less than or equal to 86400",
        ));
    }
    for (key, supported) in [
        ("internalTrafficPolicy", &["Cluster", "Local"][..]),
        ("externalTrafficPolicy", &["Cluster", "Local"]),
        (
            "ipFamilyPolicy",
            &["PreferDualStack", "RequireDualStack", "SingleStack"],
        ),
    ] {
        let value = text(spec, &[key]);
        if !value.is_empty() {
            one_of(&mut errors, &format!("spec.{key}"), value, supported);
        }
    }
    errors
}

fn validate_addresses(errors: &mut Vec<FieldError>, spec: &Value) {
    let addresses = list(spec, &["clusterIPs"]);
    let single = text(spec, &["clusterIP"]);
    if let Some(first) = addresses.first().and_then(Value::as_str)
        && !single.is_empty()
        && single != first
    {
        errors.push(FieldError::invalid(
            "spec.clusterIPs",
            Value::from(addresses.to_vec()),
            "first value must match `clusterIP`",
        ));
    }
    for (i, address) in addresses.iter().enumerate() {
        let value = address.as_str().unwrap_or("");
        if value != "None" && value.parse::<IpAddr>().is_err() {
            errors.push(FieldError::invalid(
                format!("spec.clusterIPs[{i}]"),
                value,
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ));
        }
    }
    for (i, address) in list(spec, &["externalIPs"]).iter().enumerate() {
        if address.as_str().and_then(|ip| ip.parse::<IpAddr>().ok()).is_none() {
            errors.push(FieldError::invalid(
                format!("spec.externalIPs[{i}]"),
                address.clone(),
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ));
        }
    }
}

fn validate_ports(errors: &mut Vec<FieldError>, ports: &[Value], kind: &str) {
    let mut names = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{i}]");
        let name = text(port, &["name"]);
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(FieldError::required(format!("{path}.name"), ""));
            }
        } else {
            invalid_each(errors, &format!("{path}.name"), &json!(name), dns1123_label(name));
            if !names.insert(name) {
                errors.push(FieldError::new(
                    format!("{path}.name"),
                    FieldErrorKind::Duplicate,
                    json!(name),
                    "",
                ));
            }
        }
        let number = int(port, &["port"]).unwrap_or(0);
        invalid_each(errors, &format!("{path}.port"), &json!(number), port_number(number));
        let protocol = text(port, &["protocol"]);
        one_of(errors, &format!("{path}.protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        let target = at(port, &["targetPort"]);
        let problems = match (target.as_i64(), target.as_str()) {
            (Some(number), _) => port_number(number),
            (_, Some(name)) => port_name(name),
            _ => Vec::new(),
        };
        invalid_each(errors, &format!("{path}.targetPort"), target, problems);
        let node_port = int(port, &["nodePort"]).unwrap_or(0);
        if node_port != 0 && !matches!(kind, "NodePort" | "LoadBalancer") {
            errors.push(FieldError::forbidden(
                format!("{path}.nodePort"),
                format!("may not be used when `type` is '{kind}'"),
            ));
        }
        if !numbers.insert((number, protocol)) {
            errors.push(FieldError::new(
                path,
                FieldErrorKind::Duplicate,
                json!({"port": number, "protocol": protocol}),
                "",
            ));
        }
    }
}

/// A range of Service addresses: a CIDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    base: IpAddr,
    prefix: u8,
}

/// Why no address can be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// The text is not a CIDR.
    #[error("{0} is not a CIDR")]
    NotCidr(String),
    /// Every address of the range is taken.
    #[error("range is full")]
    Full,
    /// The address asked for is not in the range.
    #[error("the provided IP ({0}) is not in the valid range")]
    OutOfRange(IpAddr),
    /// The address asked for is taken.
    #[error("provided IP is already allocated")]
    Taken(IpAddr),
}

impl AllocateError {
    /// The error as a client of the API sees it (422 on `spec.clusterIPs`).
    pub fn field_error(&self, service: &Value) -> FieldError {
        let asked = at(service, &["spec", "clusterIPs"]).clone();
        let detail = match self {
            Self::Full | Self::NotCidr(_) => format!("failed to allocate IP: {self}"),
            Self::OutOfRange(ip) | Self::Taken(ip) => format!("failed to allocate IP {ip}: {self}"),
        };
        FieldError::invalid("spec.clusterIPs", asked, detail)
    }
}

impl std::str::FromStr for Range {
    type Err = AllocateError;

    fn from_str(text: &str) -> Result<Self, AllocateError> {
        let bad = || AllocateError::NotCidr(text.to_owned());
        if !super::node::is_cidr(text) {
            return Err(bad());
        }
        let (base, prefix) = text.split_once('/').ok_or_else(bad)?;
        let (base, prefix) = (base.parse().map_err(|_| bad())?, prefix.parse().map_err(|_| bad())?);
        Ok(Self { base, prefix })
    }
}

impl Range {
    fn bits(ip: IpAddr) -> u128 {
        match ip {
            IpAddr::V4(ip) => u128::from(u32::from(ip)),
            IpAddr::V6(ip) => u128::from(ip),
        }
    }

    fn width(self) -> u8 {
        if self.base.is_ipv4() { 32 } else { 128 }
    }

    /// The number of addresses, capped at 2^16 as upstream caps large ranges.
    fn size(self) -> u128 {
        1 << u32::from(self.width() - self.prefix).min(16)
    }

    fn first(self) -> u128 {
        let host = self.width() - self.prefix;
        let mask = if host == 128 { 0 } else { u128::MAX << host };
        Self::bits(self.base) & mask
    }

    fn ip(self, bits: u128) -> IpAddr {
        match self.base {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(bits).unwrap_or(u32::MAX))),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(bits)),
        }
    }

    /// The usable address at `offset` (1 is the first, which the `kubernetes` Service has).
    pub fn nth(self, offset: u128) -> Option<IpAddr> {
        (offset > 0 && offset < self.size()).then(|| self.ip(self.first() + offset))
    }

    /// Whether the address may be given out: in the range, and neither its network nor (for IPv4) its broadcast address.
    pub fn contains(self, ip: IpAddr) -> bool {
        let last_usable = self.size() - u128::from(self.base.is_ipv4() && self.size() > 2);
        ip.is_ipv4() == self.base.is_ipv4()
            && Self::bits(ip)
                .checked_sub(self.first())
                .is_some_and(|offset| offset > 0 && offset < last_usable)
    }

    /// A free address, looked for from `start` (any number; a random one spreads them) in the upper part of the range
    /// first, so that small addresses stay for those who choose their own.
    fn free(self, used: &BTreeSet<IpAddr>, start: u64) -> Option<IpAddr> {
        let size = self.size();
        let reserved = (size / 16).clamp(16, 256).min(size);
        let (upper, lower) = (reserved..size, 1..reserved);
        [upper, lower].into_iter().find_map(|part| {
            let length = part.end.checked_sub(part.start).filter(|length| *length > 0)?;
            let shift = u128::from(start) % length;
            (0..length)
                .map(|i| self.ip(self.first() + part.start + (i + shift) % length))
                .find(|ip| self.contains(*ip) && !used.contains(ip))
        })
    }
}

/// Gives a Service its address: fills in `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy` where the type has
/// them. `used` are the addresses of all other Services, `start` is any number (random for spreading). Returns the address
/// taken from the range, `None` if the Service has none (headless, ExternalName).
pub fn allocate(
    range: Range,
    used: &BTreeSet<IpAddr>,
    start: u64,
    service: &mut Value,
) -> Result<Option<IpAddr>, AllocateError> {
    if text(service, &["spec", "type"]) == "ExternalName" {
        return Ok(None);
    }
    pair_addresses(service);
    let family = if range.base.is_ipv4() { "IPv4" } else { "IPv6" };
    let Some(spec) = service.get_mut("spec") else {
        return Ok(None);
    };
    default_to(spec, "ipFamilies", json!([family]));
    default_text(spec, "ipFamilyPolicy", "SingleStack");
    let asked = text(service, &["spec", "clusterIP"]);
    if asked == "None" {
        return Ok(None);
    }
    let ip = if asked.is_empty() {
        range.free(used, start).ok_or(AllocateError::Full)?
    } else if let Ok(ip) = asked.parse::<IpAddr>() {
        if !range.contains(ip) {
            return Err(AllocateError::OutOfRange(ip));
        }
        if used.contains(&ip) {
            return Err(AllocateError::Taken(ip));
        }
        ip
    } else {
        // Not an address: validation says so.
        return Ok(None);
    };
    set(service, &["spec", "clusterIP"], ip.to_string());
    set(service, &["spec", "clusterIPs"], vec![ip.to_string()]);
    Ok(Some(ip))
}

/// Gives every port of a Service of type NodePort or LoadBalancer a node port: those asked for are checked, the others get a
/// free one of 30000-32767. `used` are the node ports of all other Services.
pub fn allocate_node_ports(used: &BTreeSet<u16>, start: u64, service: &mut Value) -> Result<(), FieldError> {
    const FIRST: u16 = 30_000;
    const COUNT: u16 = 2_768;
    let kind = text(service, &["spec", "type"]);
    let wanted = match kind {
        "NodePort" => true,
        "LoadBalancer" => at(service, &["spec", "allocateLoadBalancerNodePorts"]) != &Value::Bool(false),
        _ => false,
    };
    if !wanted {
        return Ok(());
    }
    let mut used = used.clone();
    let ports = || format!("The range of valid ports is {FIRST}-{}", FIRST + COUNT - 1);
    for (i, port) in list(service, &["spec", "ports"]).iter().enumerate() {
        let path = format!("spec.ports[{i}].nodePort");
        let asked = int(port, &["nodePort"]).unwrap_or(0);
        if asked == 0 {
            continue;
        }
        let number = u16::try_from(asked).ok();
        let Some(number) = number.filter(|port| (FIRST..FIRST + COUNT).contains(port)) else {
            let detail = format!("provided port is not in the valid range. {}", ports());
            return Err(FieldError::invalid(path, asked, detail));
        };
        if !used.insert(number) {
            return Err(FieldError::invalid(path, asked, "provided port is already allocated"));
        }
    }
    let shift = u16::try_from(start % u64::from(COUNT)).unwrap_or(0);
    for (i, port) in list_mut(service, &["spec", "ports"]).into_iter().flatten().enumerate() {
        if int(port, &["nodePort"]).unwrap_or(0) != 0 {
            continue;
        }
        let free = (0..COUNT)
            .map(|i| FIRST + (i + shift) % COUNT)
            .find(|port| !used.contains(port))
            .ok_or_else(|| {
                FieldError::invalid(
                    format!("spec.ports[{i}].nodePort"),
                    0,
                    "failed to allocate a nodePort: range is full",
                )
            })?;
        used.insert(free);
        set(port, &["nodePort"], free);
    }
    Ok(())
}

/// Every node port and address a Service holds.
pub fn held(service: &Value) -> (BTreeSet<IpAddr>, BTreeSet<u16>) {
    let ips = list(service, &["spec", "clusterIPs"])
        .iter()
        .chain([at(service, &["spec", "clusterIP"])]);
    let ips = ips.filter_map(|ip| ip.as_str()?.parse().ok()).collect();
    let ports = list(service, &["spec", "ports"]).iter();
    let ports = ports
        .filter_map(|port| u16::try_from(int(port, &["nodePort"])?).ok())
        .filter(|port| *port != 0);
    (ips, ports.collect())
}

#[cfg(test)]
mod tests;
