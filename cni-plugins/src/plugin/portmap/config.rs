//! The portmap plugin's keys (contract §4.2). Pure.

use std::net::IpAddr;

use super::condition::{self, Condition};
use crate::cidr::Cidr;
use crate::protocol::dispatch::Request;
use crate::protocol::error::Error;
use crate::protocol::json::{DecodeError, Fields, parse_ip};
use crate::protocol::result::CniResult;

/// A transport protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Transport {
    Tcp,
    Udp,
    Sctp,
}

impl Transport {
    fn parse(text: &str) -> Option<Self> {
        Some(match text.to_ascii_lowercase().as_str() {
            "tcp" => Self::Tcp,
            "udp" => Self::Udp,
            "sctp" => Self::Sctp,
            _ => return None,
        })
    }

    /// The protocol's number in the network header.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

/// One port of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The host's port.
    pub host_port: u16,
    /// The container's port.
    pub container_port: u16,
    /// Protocol.
    pub protocol: Transport,
    /// The host's address; absent is any of both families, unspecified any of one.
    pub host_ip: Option<IpAddr>,
}

impl Mapping {
    /// Whether it leads to a container address of this family.
    pub fn leads_to(&self, container: &IpAddr) -> bool {
        self.host_ip.is_none_or(|addr| addr.is_ipv4() == container.is_ipv4())
    }

    fn read(fields: &Fields<'_>) -> Result<Self, Error> {
        let port = |key: &'static str, name: &str| {
            let number = fields.int(key).map_err(parse_error)?;
            u16::try_from(number)
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| Error::internal(format!("Invalid {name} port number: {number}")))
        };
        fields.int("hostPort").map_err(parse_error)?;
        let container_port = port("containerPort", "container")?;
        let host_port = port("hostPort", "host")?;
        let protocol = fields.string("protocol").map_err(parse_error)?;
        let transport = Transport::parse(protocol);
        let protocol = transport.ok_or_else(|| Error::internal(format!("unknown protocol {protocol:?}")))?;
        let host_ip = fields.parsed("hostIP", parse_ip).map_err(parse_error)?;
        Ok(Self {
            host_port,
            container_port,
            protocol,
            host_ip,
        })
    }
}

/// A read configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Masquerade what comes from the container itself or from localhost.
    pub snat: bool,
    /// Masquerade every mapped connection.
    pub masq_all: bool,
    /// What packets must fulfil, IPv4.
    pub conditions_v4: Vec<Condition>,
    /// What packets must fulfil, IPv6.
    pub conditions_v6: Vec<Condition>,
    /// The ports.
    pub mappings: Vec<Mapping>,
}

fn parse_error(error: DecodeError) -> Error {
    Error::internal(format!("failed to parse network configuration: {error}"))
}

impl Config {
    /// Reads and checks the configuration.
    pub fn read(request: &Request) -> Result<Self, Error> {
        Self::read_fields(&request.fields()).map_err(|error| error.context("failed to parse config"))
    }

    fn read_fields(fields: &Fields<'_>) -> Result<Self, Error> {
        refuse_mark_contradictions(fields)?;
        let conditions_v4 = fields.strings("conditionsV4").map_err(parse_error)?;
        let conditions_v6 = fields.strings("conditionsV6").map_err(parse_error)?;
        check_backend(fields, &conditions_v4, &conditions_v6)?;
        let runtime = fields.object("runtimeConfig", "RuntimeConfig").map_err(parse_error)?;
        let mappings = runtime
            .objects("portMappings", "PortMapEntry.runtimeConfig.portMappings")
            .map_err(parse_error)?;
        Ok(Self {
            snat: fields.maybe_bool("snat").map_err(parse_error)?.unwrap_or(true),
            masq_all: fields.bool("masqAll").map_err(parse_error)?,
            conditions_v4: condition::parse(&conditions_v4, true)
                .map_err(|error| Error::internal(error.to_string()))?,
            conditions_v6: condition::parse(&conditions_v6, false)
                .map_err(|error| Error::internal(error.to_string()))?,
            mappings: mappings.iter().map(Mapping::read).collect::<Result<_, _>>()?,
        })
    }
}

fn refuse_mark_contradictions(fields: &Fields<'_>) -> Result<(), Error> {
    let bit = fields.maybe_int("markMasqBit").map_err(parse_error)?;
    let chain = fields.string("externalSetMarkChain").map_err(parse_error)?;
    if bit.is_some() && !chain.is_empty() {
        return Err(Error::internal("Cannot specify externalSetMarkChain and markMasqBit"));
    }
    if bit.is_some_and(|bit| !(0..=31).contains(&bit)) {
        return Err(Error::internal("MasqMarkBit must be between 0 and 31"));
    }
    Ok(())
}

/// `backend` names iptables, nftables or nothing, which means nftables. Options about marks serve iptables alone; without a
/// named backend they are not needed and are passed over.
fn check_backend(fields: &Fields<'_>, v4: &[String], v6: &[String]) -> Result<(), Error> {
    match fields.string("backend").map_err(parse_error)? {
        "" => Ok(()),
        "nftables" => {
            let mut foreign = Vec::new();
            foreign.extend(fields.value("markMasqBit").map(|_| "markMasqBit"));
            foreign.extend(fields.value("externalSetMarkChain").map(|_| "externalSetMarkChain"));
            foreign.extend(condition::is_iptables_syntax(v4).then_some("conditionsV4"));
            foreign.extend(condition::is_iptables_syntax(v6).then_some("conditionsV6"));
            if foreign.is_empty() {
                return Ok(());
            }
            let options = foreign.join(" ");
            Err(Error::internal(format!(
                "nftables backend was requested but configuration contains iptables-specific options [{options}]"
            )))
        }
        "iptables" => Err(Error::internal(
            "the iptables backend is not available; leave \"backend\" out or use nftables",
        )),
        other => Err(Error::internal(format!("unrecognized backend {other:?}"))),
    }
}

/// The addresses of the container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// IPv4, with the prefix of its network.
    pub v4: Option<Cidr>,
    /// IPv6, with the prefix of its network.
    pub v6: Option<Cidr>,
}

impl Targets {
    /// Both families, when the addresses are not known.
    pub fn any() -> Self {
        let zero = |addr: IpAddr| Some(Cidr::host(addr));
        Self {
            v4: zero([0u8; 4].into()),
            v6: zero([0u8; 16].into()),
        }
    }

    /// True for IPv4 and false for IPv6, as far as there are addresses.
    pub fn families(&self) -> impl Iterator<Item = bool> {
        self.v4.map(|_| true).into_iter().chain(self.v6.map(|_| false))
    }
}

/// The first address per family that belongs to the container's interface, or to none that is known.
pub fn container_addresses(previous: &CniResult, ifname: &str) -> Targets {
    let mut targets = Targets::default();
    for ip in &previous.ips {
        let index = ip.interface.and_then(|index| usize::try_from(index).ok());
        let interface = index.and_then(|index| previous.interfaces.get(index));
        if interface.is_some_and(|interface| interface.name != ifname || interface.sandbox.is_empty()) {
            continue;
        }
        let slot = if ip.address.is_v4() {
            &mut targets.v4
        } else {
            &mut targets.v6
        };
        slot.get_or_insert(ip.address);
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::version::Version;
    use serde_json::{Value, json};

    fn read(config: Value) -> Result<Config, Error> {
        Config::read_fields(&Fields::new(config.as_object().unwrap(), "PortMapConf"))
    }

    fn mapping(mapping: Value) -> Value {
        json!({"runtimeConfig": {"portMappings": [mapping]}})
    }

    #[test]
    fn defaults_and_mappings() {
        let config = read(json!({})).unwrap();
        assert!(config.snat && !config.masq_all && config.mappings.is_empty());
        let one = mapping(json!({"hostPort": 80, "containerPort": 8080, "protocol": "TCP", "hostIP": "192.0.2.1"}));
        let mapping = read(one).unwrap().mappings[0];
        assert_eq!(
            (mapping.host_port, mapping.container_port, mapping.protocol),
            (80, 8080, Transport::Tcp)
        );
        assert!(mapping.leads_to(&"10.0.0.1".parse().unwrap()) && !mapping.leads_to(&"fd00::1".parse().unwrap()));
    }

    #[test]
    fn refusals() {
        let text = |config: Value| read(config).unwrap_err().msg;
        assert_eq!(
            text(mapping(json!({"hostPort": 0, "containerPort": 1, "protocol": "tcp"}))),
            "Invalid host port number: 0"
        );
        assert_eq!(
            text(mapping(
                json!({"hostPort": 1, "containerPort": 65536, "protocol": "tcp"})
            )),
            "Invalid container port number: 65536"
        );
        assert!(text(mapping(json!({"hostPort": "x", "containerPort": 1}))).contains("cannot unmarshal string"));
        assert!(text(mapping(json!({"hostPort": 1, "containerPort": 1, "protocol": "icmp"}))).contains("icmp"));
        assert_eq!(text(json!({"markMasqBit": 32})), "MasqMarkBit must be between 0 and 31");
        assert_eq!(
            text(json!({"markMasqBit": 3, "externalSetMarkChain": "X"})),
            "Cannot specify externalSetMarkChain and markMasqBit"
        );
        assert_eq!(
            text(json!({"backend": "nftables", "markMasqBit": 3, "conditionsV4": ["-s", "10.0.0.1"]})),
            "nftables backend was requested but configuration contains iptables-specific options [markMasqBit conditionsV4]"
        );
        assert!(read(json!({"markMasqBit": 3})).is_ok());
    }

    #[test]
    fn addresses_of_the_containers_interface() {
        let result = json!({
            "interfaces": [{"name": "eth0"}, {"name": "eth0", "sandbox": "/x"}, {"name": "eth1", "sandbox": "/x"}],
            "ips": [{"address": "10.0.0.9/24", "interface": 0}, {"address": "10.0.0.8/24", "interface": 2},
                    {"address": "10.0.0.2/24", "interface": 1}, {"address": "10.0.0.3/24", "interface": 1},
                    {"address": "fd00::2/64"}],
        });
        let targets = container_addresses(&CniResult::parse(&result, Version::V1_0_0).unwrap(), "eth0");
        assert_eq!(targets.v4.unwrap().to_string(), "10.0.0.2/24");
        assert_eq!(targets.v6.unwrap().to_string(), "fd00::2/64");
        assert_eq!(targets.families().collect::<Vec<_>>(), [true, false]);
    }
}
