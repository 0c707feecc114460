//! The firewall plugin's keys (contract §4.4). Pure.

use crate::protocol::env::validate_interface_name;
use crate::protocol::error::Error;
use crate::protocol::json::{DecodeError, Fields};
use crate::protocol::result::CniResult;

const DEFAULT_ADMIN_CHAIN: &str = "CNI-ADMIN";
/// The longest chain name iptables accepts.
const MAX_CHAIN_BYTES: usize = 28;

/// What makes the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// nf_tables, also when nothing is said.
    Nftables,
    /// The iptables programs, only by their name.
    Iptables,
}

/// Who may open connections to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingress {
    /// Anybody.
    Open,
    /// What is on the same bridge, and the host.
    SameBridge,
    /// The host alone.
    Isolated,
}

/// A read configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What makes the rules.
    pub backend: Backend,
    /// The chain in which an administrator decides before the containers' rules do.
    pub admin_chain: String,
    /// Who may open connections.
    pub ingress: Ingress,
}

impl Config {
    /// Reads and checks the configuration.
    pub fn read(fields: &Fields<'_>) -> Result<Self, Error> {
        let text = |key: &'static str| {
            let load = |error: DecodeError| Error::internal(format!("failed to load netconf: {error}"));
            fields.string(key).map_err(load)
        };
        let backend = match text("backend")? {
            "" | "nftables" => Backend::Nftables,
            "iptables" => Backend::Iptables,
            "firewalld" => {
                let text = "the firewalld backend is not available; leave \"backend\" out or use nftables or iptables";
                return Err(Error::internal(text));
            }
            other => return Err(Error::internal(format!("unrecognized backend {other:?}"))),
        };
        text("firewalldZone")?;
        let admin_chain = match text("iptablesAdminChainName")? {
            "" => DEFAULT_ADMIN_CHAIN,
            name if is_chain_name(name) => name,
            name => return Err(Error::internal(format!("invalid iptablesAdminChainName {name:?}"))),
        };
        let ingress = match text("ingressPolicy")? {
            "" | "open" => Ingress::Open,
            "same-bridge" => Ingress::SameBridge,
            "isolated" => Ingress::Isolated,
            other => return Err(Error::internal(format!("unknown ingress policy: {other:?}"))),
        };
        Ok(Self {
            backend,
            admin_chain: admin_chain.to_owned(),
            ingress,
        })
    }

    /// The bridge whose containers are shut off: the first interface of the previous result.
    pub fn isolated_bridge(&self, previous: &CniResult) -> Result<Option<String>, Error> {
        let policy = match self.ingress {
            Ingress::Open => return Ok(None),
            Ingress::SameBridge => "same-bridge",
            Ingress::Isolated => "isolated",
        };
        let Some(first) = previous.interfaces.first() else {
            let text = "make sure to chain \"firewall\" plugin with \"bridge\"";
            return Err(Error::internal(format!(
                "interface needs to be set for ingress policy {policy:?}, {text}"
            )));
        };
        if first.name.is_empty() {
            return Err(Error::internal("got empty bridge name"));
        }
        if validate_interface_name(&first.name).is_err() || first.name.contains(['"', '\'', '\\']) {
            return Err(Error::internal(format!("invalid bridge name {:?}", first.name)));
        }
        Ok(Some(first.name.clone()))
    }
}

/// What iptables takes as a chain's name and nothing that means more in a restore text.
pub(in crate::plugin) fn is_chain_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':' | b'+');
    !name.is_empty() && name.len() <= MAX_CHAIN_BYTES && !name.starts_with(['-', ':']) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(config: Value) -> Result<Config, Error> {
        Config::read(&Fields::new(config.as_object().unwrap(), "FirewallNetConf"))
    }

    #[test]
    fn defaults_and_refusals() {
        let config = read(json!({})).unwrap();
        assert_eq!((config.backend, config.ingress), (Backend::Nftables, Ingress::Open));
        assert_eq!(config.admin_chain, "CNI-ADMIN");
        let text = |config: Value| read(config).unwrap_err().msg;
        assert_eq!(text(json!({"ingressPolicy": "x"})), "unknown ingress policy: \"x\"");
        assert_eq!(text(json!({"backend": "ipfw"})), "unrecognized backend \"ipfw\"");
        assert!(text(json!({"backend": "firewalld"})).contains("firewalld"));
        for name in ["a b", "x\n-F INPUT", "-j", &"a".repeat(29)] {
            assert!(
                text(json!({"iptablesAdminChainName": name})).contains("iptablesAdminChainName"),
                "{name}"
            );
        }
    }

    #[test]
    fn isolation_needs_a_bridge() {
        let config = read(json!({"ingressPolicy": "same-bridge"})).unwrap();
        let mut previous = CniResult::default();
        assert!(config.isolated_bridge(&previous).is_err());
        for (name, fits) in [("br0", true), ("", false), ("a\nb", false), ("a\"b", false)] {
            previous.interfaces = vec![crate::protocol::result::Interface {
                name: name.into(),
                ..Default::default()
            }];
            assert_eq!(config.isolated_bridge(&previous).is_ok(), fits, "{name}");
        }
    }
}
