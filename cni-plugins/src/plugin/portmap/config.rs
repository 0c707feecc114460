//! The portmap plugin's keys (contract §4.2). Pure.

use std::net::IpAddr;

use super::condition::{self, Condition};
use crate::plugin::firewall::config::is_chain_name;
use crate::protocol::dispatch::Request;
use crate::protocol::error::Error;
use crate::protocol::json::{DecodeError, Fields, parse_ip};
use crate::protocol::result::CniResult;
use netlink::cidr::Cidr;

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

    /// The protocol's name, as iptables has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
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

/// What makes the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// nftables, also when nothing is said.
    Nftables,
    /// The iptables programs, only by their name.
    Iptables,
}

/// What only the iptables backend looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IptablesOptions {
    /// The mark that asks for masquerading.
    pub mark: u32,
    /// A chain of somebody else's that sets a mark, and masquerades what carries it; empty is our own.
    pub set_mark_chain: String,
    /// Words of iptables, IPv4.
    pub conditions_v4: Vec<String>,
    /// Words of iptables, IPv6.
    pub conditions_v6: Vec<String>,
}

/// A read configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What makes the rules.
    pub backend: Backend,
    /// What only the iptables backend looks at.
    pub iptables: IptablesOptions,
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
        let (mark, set_mark_chain) = read_mark(fields)?;
        let words_v4 = fields.strings("conditionsV4").map_err(parse_error)?;
        let words_v6 = fields.strings("conditionsV6").map_err(parse_error)?;
        let backend = read_backend(fields, &words_v4, &words_v6)?;
        let conditions = |words: &[String], v4: bool| match backend {
            Backend::Nftables => condition::parse(words, v4).map_err(|error| Error::internal(error.to_string())),
            Backend::Iptables => refuse_line_breaks(words).map(|()| Vec::new()),
        };
        let runtime = fields.object("runtimeConfig", "RuntimeConfig").map_err(parse_error)?;
        let mappings = runtime
            .objects("portMappings", "PortMapEntry.runtimeConfig.portMappings")
            .map_err(parse_error)?;
        Ok(Self {
            backend,
            snat: fields.maybe_bool("snat").map_err(parse_error)?.unwrap_or(true),
            masq_all: fields.bool("masqAll").map_err(parse_error)?,
            conditions_v4: conditions(&words_v4, true)?,
            conditions_v6: conditions(&words_v6, false)?,
            iptables: IptablesOptions {
                mark,
                set_mark_chain,
                conditions_v4: words_v4,
                conditions_v6: words_v6,
            },
            mappings: mappings.iter().map(Mapping::read).collect::<Result<_, _>>()?,
        })
    }
}

/// A line break would begin another command of a restore text.
fn refuse_line_breaks(words: &[String]) -> Result<(), Error> {
    match words.iter().find(|word| word.contains(char::is_control)) {
        None => Ok(()),
        Some(word) => Err(Error::internal(format!("invalid port mapping condition {word:?}"))),
    }
}

/// The mark `markMasqBit` means, and `externalSetMarkChain`.
fn read_mark(fields: &Fields<'_>) -> Result<(u32, String), Error> {
    const DEFAULT_BIT: i64 = 13;
    let bit = fields.maybe_int("markMasqBit").map_err(parse_error)?;
    let chain = fields.string("externalSetMarkChain").map_err(parse_error)?;
    if bit.is_some() && !chain.is_empty() {
        return Err(Error::internal("Cannot specify externalSetMarkChain and markMasqBit"));
    }
    if !chain.is_empty() && !is_chain_name(chain) {
        return Err(Error::internal(format!("invalid externalSetMarkChain {chain:?}")));
    }
    let bit = bit.unwrap_or(DEFAULT_BIT);
    let bit = u32::try_from(bit).ok().filter(|bit| *bit < u32::BITS);
    let bit = bit.ok_or_else(|| Error::internal("MasqMarkBit must be between 0 and 31"))?;
    Ok((1 << bit, chain.to_owned()))
}

/// `backend` names iptables, nftables or nothing, which means nftables. Options about marks serve iptables alone; without a
/// named backend they are not needed and are passed over.
fn read_backend(fields: &Fields<'_>, v4: &[String], v6: &[String]) -> Result<Backend, Error> {
    let conditions = [("conditionsV4", v4), ("conditionsV6", v6)];
    let written_for = |iptables: bool| {
        let given = conditions.iter().filter(|(_, words)| !words.is_empty());
        given
            .filter(move |(_, words)| condition::is_iptables_syntax(words) == iptables)
            .map(|(key, _)| *key)
    };
    let (backend, name, other, foreign) = match fields.string("backend").map_err(parse_error)? {
        "" => return Ok(Backend::Nftables),
        "nftables" => {
            let keys = ["markMasqBit", "externalSetMarkChain"];
            let marks = keys.into_iter().filter(|key| fields.value(key).is_some());
            let foreign: Vec<&str> = marks.chain(written_for(true)).collect();
            (Backend::Nftables, "nftables", "iptables", foreign)
        }
        "iptables" => (Backend::Iptables, "iptables", "nftables", written_for(false).collect()),
        other => return Err(Error::internal(format!("unrecognized backend {other:?}"))),
    };
    if foreign.is_empty() {
        return Ok(backend);
    }
    let options = foreign.join(" ");
    Err(Error::internal(format!(
        "{name} backend was requested but configuration contains {other}-specific options [{options}]"
    )))
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
        let named = |more: Value| {
            let mut config = json!({"backend": "iptables"});
            config
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            config
        };
        assert_eq!(
            text(named(json!({"conditionsV6": ["ip6 saddr fd00::1"]}))),
            "iptables backend was requested but configuration contains nftables-specific options [conditionsV6]"
        );
        assert!(
            text(named(json!({"conditionsV4": ["-s", "1.2.3.4\nCOMMIT"]}))).contains("invalid port mapping condition")
        );
        assert!(text(named(json!({"externalSetMarkChain": "X\n-F"}))).contains("invalid externalSetMarkChain"));
        let any = read(named(
            json!({"conditionsV4": ["-m", "mark", "!", "--mark", "1"], "markMasqBit": 3}),
        ))
        .unwrap();
        assert_eq!(
            (any.backend, any.iptables.mark, any.conditions_v4.len()),
            (Backend::Iptables, 8, 0)
        );
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
