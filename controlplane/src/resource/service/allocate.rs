//! Giving Services their addresses. Which are taken is the caller's knowledge, and so is that two callers do not choose at once. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::range::{Range, family};
use crate::resource::field::{at, int, list, set, text};
use crate::resource::field_error::{FieldError, FieldErrors};

/// Why no address or port can be given.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AllocateError {
    /// The text is not a CIDR, or not a list of them that makes sense.
    #[error("{0} is not a CIDR")]
    NotCidr(String),
    /// Fields that cannot be obeyed (422).
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Invalid(FieldErrors),
    /// Nothing is left (500, as upstream).
    #[error("{0}")]
    Exhausted(&'static str),
}

impl From<FieldError> for AllocateError {
    fn from(error: FieldError) -> Self {
        Self::Invalid(vec![error].into())
    }
}

/// An address that only one Service may have: namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The address.
    pub address: IpAddr,
    /// Namespace of whom it is for.
    pub namespace: &'static str,
    /// Name of the Service; `None` is any of the namespace.
    pub name: Option<&'static str>,
}

impl Reserved {
    fn is_for(&self, service: &Value) -> bool {
        let meta = |key| text(service, &["metadata", key]);
        meta("namespace") == self.namespace && self.name.is_none_or(|name| meta("name") == name)
    }
}

/// What addresses are given of.
pub struct Pool<'a> {
    /// Families of the cluster, the default first.
    pub families: &'a [&'static str],
    /// Ranges, in the order in which they are filled.
    pub ranges: &'a [Range],
    /// Addresses that are kept for one Service.
    pub reserved: &'a [Reserved],
    /// Whether another Service, or anything else, has the address.
    pub is_taken: &'a dyn Fn(IpAddr) -> bool,
}

impl Pool<'_> {
    fn is_kept(&self, ip: IpAddr, service: &Value) -> bool {
        let mut kept = self.reserved.iter();
        kept.any(|reserved| reserved.address == ip && !reserved.is_for(service))
    }

    fn any(&self, family: &str, service: &Value, start: u64) -> Result<IpAddr, AllocateError> {
        let is_taken = |ip: IpAddr| (self.is_taken)(ip) || self.reserved.iter().any(|kept| kept.address == ip);
        let mut ranges = self.ranges.iter().filter(|range| range.family() == family);
        let found = ranges.find_map(|range| range.free(&is_taken, start));
        debug_assert!(found.is_none_or(|ip| !self.is_kept(ip, service)));
        found.ok_or(AllocateError::Exhausted(
            "failed to allocate a serviceIP: range is full",
        ))
    }

    fn this(&self, ip: IpAddr, service: &Value) -> Result<IpAddr, AllocateError> {
        let refused = |why: String| {
            let all = at(service, &["spec", "clusterIPs"]);
            let why = format!("failed to allocate IP {ip}: {why}");
            AllocateError::from(FieldError::invalid_value("spec.clusterIPs", all, why))
        };
        let Some(range) = self.ranges.iter().find(|range| range.spans(ip)) else {
            return Err(refused(
                "the provided network does not match the current range".to_owned(),
            ));
        };
        if !self.ranges.iter().any(|range| range.contains(ip)) {
            return Err(refused(format!(
                "the provided IP ({ip}) is not in the valid range. The range of valid IPs is {range}"
            )));
        }
        if (self.is_taken)(ip) || self.is_kept(ip, service) {
            return Err(refused("provided IP is already allocated".to_owned()));
        }
        Ok(ip)
    }
}

/// Gives a Service whose families are known ([`super::fill_families`]) the addresses it has not: fills in `clusterIP` and `clusterIPs`.
/// What `old` holds in the same place stays as it is. `start` is any number (random for spreading).
///
/// # Errors
/// 422 for an address that cannot be had, 500 when nothing is left.
pub fn allocate(pool: &Pool<'_>, start: u64, service: &mut Value, old: Option<&Value>) -> Result<(), AllocateError> {
    if text(service, &["spec", "type"]) == "ExternalName" || text(service, &["spec", "clusterIP"]) == "None" {
        return Ok(());
    }
    let texts = |object: &Value, key: &str| -> Vec<String> {
        let all = list(object, &["spec", key]).iter();
        all.map(|value| value.as_str().unwrap_or_default().to_owned()).collect()
    };
    let had = old.map_or_else(Vec::new, |old| texts(old, "clusterIPs"));
    let mut addresses = texts(service, "clusterIPs");
    for (i, family) in texts(service, "ipFamilies").iter().enumerate() {
        if had.get(i).is_some_and(|had| had != "None" && !had.is_empty()) && addresses.get(i).is_some() {
            // Kept, or changed, which validation refuses.
            continue;
        }
        let asked = addresses.get(i).filter(|text| !text.is_empty());
        let given = match asked.map(|text| text.parse::<IpAddr>()) {
            None => pool.any(family, service, start)?,
            Some(Ok(ip)) => pool.this(ip, service)?,
            // Not an address: validation says so.
            Some(Err(_)) => return Ok(()),
        };
        match addresses.get_mut(i) {
            Some(place) => *place = given.to_string(),
            None => addresses.push(given.to_string()),
        }
    }
    if let Some(first) = addresses.first() {
        set(service, &["spec", "clusterIP"], first.as_str());
        set(service, &["spec", "clusterIPs"], addresses);
    }
    Ok(())
}

/// Every address a Service holds.
pub fn held_addresses(service: &Value) -> BTreeSet<IpAddr> {
    if text(service, &["spec", "type"]) == "ExternalName" {
        return BTreeSet::new();
    }
    let ips = list(service, &["spec", "clusterIPs"])
        .iter()
        .chain([at(service, &["spec", "clusterIP"])]);
    ips.filter_map(|ip| ip.as_str()?.parse().ok()).collect()
}

/// Every node port a Service holds, that of health checks with them. A type that has none holds none, whatever its fields say:
/// an ExternalName may carry any number there, and must not keep it from others.
pub fn held_ports(service: &Value) -> BTreeSet<u16> {
    if !matches!(text(service, &["spec", "type"]), "NodePort" | "LoadBalancer") {
        return BTreeSet::new();
    }
    let ports = list(service, &["spec", "ports"]).iter();
    let ports = ports.filter_map(|port| int(port, &["nodePort"]));
    let all = ports.chain(int(service, &["spec", "healthCheckNodePort"]));
    all.filter_map(|port| u16::try_from(port).ok().filter(|port| *port != 0))
        .collect()
}

/// The IPAddress object by which a Service holds an address, without what only the store adds (contract §12).
pub fn address_object(ip: IpAddr, namespace: &str, name: &str) -> Value {
    serde_json::json!({
        "metadata": {"name": ip.to_string(), "labels": {
            IP_FAMILY: family(ip),
            MANAGED_BY: ALLOCATOR,
        }},
        "spec": {"parentRef": {"group": "", "resource": "services", "namespace": namespace, "name": name}},
    })
}

/// Which address of the range the cluster's DNS has, counted as [`Range::nth`] does.
pub const CLUSTER_DNS: u128 = 10;
/// Label of an IPAddress: whose it is.
pub const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
/// Label of an IPAddress: its family.
pub const IP_FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
/// Who manages the addresses of Services.
pub const ALLOCATOR: &str = "ipallocator.k8s.io";
