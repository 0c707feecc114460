//! Results: one form inside, every version's form outside (contract §1.6).

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::json::{DecodeError, Fields, parse_ip};
use super::version::Version;
use netlink::cidr::Cidr;

/// What an ADD produced, in the newest form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CniResult {
    /// Interfaces touched, in the plugin's order.
    pub interfaces: Vec<Interface>,
    /// Addresses.
    pub ips: Vec<IpConfig>,
    /// Routes.
    pub routes: Vec<Route>,
    /// Name resolution.
    pub dns: Dns,
}

/// An interface in a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its hardware address, or empty.
    pub mac: String,
    /// Its MTU in bytes, or 0.
    pub mtu: i64,
    /// The namespace path it is in; empty is the host.
    pub sandbox: String,
    /// Path of a socket, for interfaces in user space.
    pub socket_path: String,
    /// PCI address, for hardware.
    pub pci_id: String,
}

/// An address in a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpConfig {
    /// Index into the interfaces.
    pub interface: Option<i64>,
    /// The address and its network's prefix.
    pub address: Cidr,
    /// The gateway of that network.
    pub gateway: Option<IpAddr>,
}

/// A route in a result or configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination.
    pub dst: Cidr,
    /// Next hop; absent means the address's gateway.
    pub gw: Option<IpAddr>,
    /// MTU along the route in bytes, or 0.
    pub mtu: i64,
    /// Maximum segment size in bytes, or 0.
    pub advmss: i64,
    /// Metric, or 0.
    pub priority: i64,
    /// Routing table.
    pub table: Option<i64>,
    /// Scope.
    pub scope: Option<i64>,
}

/// Name resolution in a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Dns {
    pub nameservers: Vec<String>,
    pub domain: String,
    pub search: Vec<String>,
    pub options: Vec<String>,
}

/// A result that cannot be read or shown in the wanted version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResultError {
    /// The text is no result.
    #[error("{0}")]
    Decode(#[source] DecodeErrorText),
    /// A version nobody knows.
    #[error("unsupported CNI result version {0:?}")]
    Version(String),
    /// The old forms hold one address per family and there is none.
    #[error("cannot convert: no valid IP addresses")]
    NoAddress,
}

/// The text of a decoding error, without a source of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeErrorText(String);

impl From<DecodeError> for ResultError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(DecodeErrorText(error.to_string()))
    }
}

impl Route {
    /// A plain route.
    pub fn new(dst: Cidr, gw: Option<IpAddr>) -> Self {
        Self {
            dst,
            gw,
            mtu: 0,
            advmss: 0,
            priority: 0,
            table: None,
            scope: None,
        }
    }

    /// Reads one from JSON.
    pub fn read(fields: &Fields<'_>) -> Result<Self, DecodeError> {
        let dst = fields.parsed("dst", Cidr::parse)?;
        let dst = dst.ok_or_else(|| DecodeError::Content("invalid CIDR address: ".into()))?;
        Ok(Self {
            dst,
            gw: fields.parsed("gw", parse_ip)?,
            mtu: fields.int("mtu")?,
            advmss: fields.int("advmss")?,
            priority: fields.int("priority")?,
            table: fields.maybe_int("table")?,
            scope: fields.maybe_int("scope")?,
        })
    }

    fn render(&self, extras: bool) -> Value {
        let mut route = json!({"dst": self.dst.to_string()});
        if let Some(gw) = self.gw {
            route["gw"] = json!(gw.to_string());
        }
        if !extras {
            return route;
        }
        for (key, number) in [("mtu", self.mtu), ("advmss", self.advmss), ("priority", self.priority)] {
            if number != 0 {
                route[key] = json!(number);
            }
        }
        for (key, number) in [("table", self.table), ("scope", self.scope)] {
            if let Some(number) = number {
                route[key] = json!(number);
            }
        }
        route
    }
}

impl Dns {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads the result form from JSON.
    pub fn read(fields: &Fields<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            nameservers: fields.strings("nameservers")?,
            domain: fields.string("domain")?.to_owned(),
            search: fields.strings("search")?,
            options: fields.strings("options")?,
        })
    }

    fn render(&self) -> Value {
        let mut dns = Map::new();
        for (key, list) in [
            ("nameservers", &self.nameservers),
            ("search", &self.search),
            ("options", &self.options),
        ] {
            if !list.is_empty() {
                dns.insert(key.into(), json!(list));
            }
        }
        if !self.domain.is_empty() {
            dns.insert("domain".into(), json!(self.domain));
        }
        Value::Object(dns)
    }
}

impl Interface {
    fn read(fields: &Fields<'_>) -> Result<Self, DecodeError> {
        let text = |key| fields.string(key).map(str::to_owned);
        Ok(Self {
            name: text("name")?,
            mac: text("mac")?,
            mtu: fields.int("mtu")?,
            sandbox: text("sandbox")?,
            socket_path: text("socketPath")?,
            pci_id: text("pciID")?,
        })
    }

    fn render(&self, newest: bool) -> Value {
        let mut interface = json!({"name": self.name});
        let mut texts = vec![("mac", &self.mac), ("sandbox", &self.sandbox)];
        if newest {
            texts.extend([("socketPath", &self.socket_path), ("pciID", &self.pci_id)]);
            if self.mtu != 0 {
                interface["mtu"] = json!(self.mtu);
            }
        }
        for (key, text) in texts {
            if !text.is_empty() {
                interface[key] = json!(text);
            }
        }
        interface
    }
}

impl IpConfig {
    fn read(fields: &Fields<'_>) -> Result<Self, DecodeError> {
        let address = fields.parsed("address", Cidr::parse)?;
        Ok(Self {
            interface: fields.maybe_int("interface")?,
            address: address.ok_or_else(|| DecodeError::Content("invalid CIDR address: ".into()))?,
            gateway: fields.parsed("gateway", parse_ip)?,
        })
    }

    fn render(&self, with_version: bool) -> Value {
        let mut ip = json!({"address": self.address.to_string()});
        if with_version {
            ip["version"] = json!(if self.address.is_v4() { "4" } else { "6" });
        }
        if let Some(index) = self.interface {
            ip["interface"] = json!(index);
        }
        if let Some(gateway) = self.gateway {
            ip["gateway"] = json!(gateway.to_string());
        }
        ip
    }
}

impl CniResult {
    /// Reads a result of any version; one without a version is of `default_version`.
    pub fn parse(value: &Value, default_version: Version) -> Result<Self, ResultError> {
        let Value::Object(map) = value else {
            return Err(DecodeError::Content("json: a result must be an object".into()).into());
        };
        let fields = Fields::new(map, "Result");
        let version = match fields.string("cniVersion")? {
            "" => default_version,
            text => Version::parse(text).ok_or_else(|| ResultError::Version(text.to_owned()))?,
        };
        let mut result = if version < Version::V0_3_0 {
            Self::parse_old(&fields)?
        } else {
            Self::parse_lists(&fields)?
        };
        result.dns = Dns::read(&fields.object("dns", "DNS")?)?;
        Ok(result)
    }

    fn parse_lists(fields: &Fields<'_>) -> Result<Self, DecodeError> {
        let interfaces = fields.objects("interfaces", "Interface")?;
        let ips = fields.objects("ips", "IPConfig")?;
        let routes = fields.objects("routes", "Route")?;
        Ok(Self {
            interfaces: interfaces.iter().map(Interface::read).collect::<Result<_, _>>()?,
            ips: ips.iter().map(IpConfig::read).collect::<Result<_, _>>()?,
            routes: routes.iter().map(Route::read).collect::<Result<_, _>>()?,
            dns: Dns::default(),
        })
    }

    fn parse_old(fields: &Fields<'_>) -> Result<Self, DecodeError> {
        let mut result = Self::default();
        for key in ["ip4", "ip6"] {
            let family = fields.object(key, "IPConfig")?;
            if !family.is_present() {
                continue;
            }
            let address = family.parsed("ip", Cidr::parse)?;
            let address = address.ok_or_else(|| DecodeError::Content("invalid CIDR address: ".into()))?;
            result.ips.push(IpConfig {
                interface: None,
                address,
                gateway: family.parsed("gateway", parse_ip)?,
            });
            for route in family.objects("routes", "Route")? {
                result.routes.push(Route::read(&route)?);
            }
        }
        Ok(result)
    }

    /// The JSON form of `version`.
    pub fn render(&self, version: Version) -> Result<Value, ResultError> {
        if version < Version::V0_3_0 {
            self.render_old(version)
        } else {
            Ok(self.render_lists(version))
        }
    }

    fn render_lists(&self, version: Version) -> Value {
        let newest = version >= Version::V1_0_0; // 1.0 and 1.1 share one type upstream
        let old = version < Version::V1_0_0;
        let mut value = json!({"cniVersion": version.as_str()});
        let lists: [(&str, Vec<Value>); 3] = [
            (
                "interfaces",
                self.interfaces
                    .iter()
                    .map(|interface| interface.render(newest))
                    .collect(),
            ),
            ("ips", self.ips.iter().map(|ip| ip.render(old)).collect()),
            ("routes", self.routes.iter().map(|route| route.render(true)).collect()),
        ];
        for (key, list) in lists {
            if !list.is_empty() {
                value[key] = Value::Array(list);
            }
        }
        if old || !self.dns.is_empty() {
            value["dns"] = self.dns.render();
        }
        value
    }

    fn render_old(&self, version: Version) -> Result<Value, ResultError> {
        let mut value = json!({"cniVersion": version.as_str(), "dns": self.dns.render()});
        let mut any = false;
        for (key, v4) in [("ip4", true), ("ip6", false)] {
            let Some(ip) = self.ips.iter().find(|ip| ip.address.is_v4() == v4) else {
                continue;
            };
            any = true;
            let mut family = json!({"ip": ip.address.to_string()});
            if let Some(gateway) = ip.gateway {
                family["gateway"] = json!(gateway.to_string());
            }
            let routes: Vec<Value> = self
                .routes
                .iter()
                .filter(|route| route.dst.is_v4() == v4)
                .map(|route| route.render(false))
                .collect();
            if !routes.is_empty() {
                family["routes"] = Value::Array(routes);
            }
            value[key] = family;
        }
        if any { Ok(value) } else { Err(ResultError::NoAddress) }
    }
}

#[cfg(test)]
mod tests;
