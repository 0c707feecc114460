//! The bridge plugin's keys (contract §2.1). Pure.

use std::collections::BTreeSet;

use crate::plugin::masquerade::Backend;
use crate::protocol::args;
use crate::protocol::dispatch::Request;
use crate::protocol::error::Error;
use crate::protocol::json::{DecodeError, Fields};
use crate::protocol::result::Dns;
use netlink::link::Mac;

const DEFAULT_BRIDGE: &str = "cni0";
const MAX_VLAN: i64 = 4094;

/// A read configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Name of the bridge.
    pub bridge: String,
    /// The bridge carries the gateway addresses, and the host forwards.
    pub is_gateway: bool,
    /// Containers get a default route by the gateway.
    pub is_default_gateway: bool,
    /// Replace another address on the bridge instead of failing.
    pub force_address: bool,
    /// Masquerade what leaves the network.
    pub ip_masq: bool,
    /// What masquerades.
    pub ip_masq_backend: Backend,
    /// MTU in bytes of a new bridge and of both veth ends; 0 is the kernel's choice.
    pub mtu: u32,
    /// The port reflects frames to their sender.
    pub hairpin: bool,
    /// The bridge is promiscuous.
    pub promisc: bool,
    /// VLAN of the port, untagged; 0 is none.
    pub vlan: u16,
    /// VLANs the port carries tagged.
    pub trunk: Vec<u16>,
    /// Leave VLAN 1 on the port.
    pub preserve_default_vlan: bool,
    /// Drop frames with another source address than the container's.
    pub mac_spoof_check: bool,
    /// Detect duplicate IPv6 addresses.
    pub enable_dad: bool,
    /// Leave the container's end down.
    pub disable_container_interface: bool,
    /// Ports of the bridge do not reach each other.
    pub port_isolation: bool,
    /// Replaces what the IPAM plugin says about name resolution.
    pub dns: Option<Dns>,
    /// Hardware address of the container's end, as configured; see [`Config::mac`].
    pub mac_text: String,
    /// `ipam.type`; empty without address management.
    pub ipam: String,
}

impl Config {
    /// Reads the configuration and `CNI_ARGS`.
    pub fn read(request: &Request) -> Result<Self, Error> {
        let fields = request.fields();
        let mut config =
            Self::read_fields(&fields).map_err(|error| Error::internal(format!("failed to load netconf: {error}")))?;
        let vlan = fields.int("vlan").map_err(load_error)?;
        config.vlan = u16::try_from(vlan)
            .ok()
            .filter(|_| vlan <= MAX_VLAN)
            .ok_or_else(|| Error::internal(format!("invalid VLAN ID {vlan} (must be between 0 and {MAX_VLAN})")))?;
        config.trunk = read_trunk(&fields)?;
        let [from_env] = args::parse(&request.env.args, ["MAC"]).map_err(|error| Error::internal(error.to_string()))?;
        config.mac_text = read_mac(&fields, from_env)?;
        Ok(config)
    }

    fn read_fields(fields: &Fields<'_>) -> Result<Self, DecodeError> {
        let bridge = match fields.string("bridge")? {
            "" => DEFAULT_BRIDGE,
            name => name,
        };
        let mtu = fields.int("mtu")?;
        let dns = Dns::read(&fields.object("dns", "DNS")?)?;
        let is_default_gateway = fields.bool("isDefaultGateway")?;
        Ok(Self {
            bridge: bridge.to_owned(),
            is_gateway: fields.bool("isGateway")? || is_default_gateway,
            is_default_gateway,
            force_address: fields.bool("forceAddress")?,
            ip_masq: fields.bool("ipMasq")?,
            ip_masq_backend: Backend::read(fields)?,
            mtu: u32::try_from(mtu).unwrap_or(0),
            hairpin: fields.bool("hairpinMode")?,
            promisc: fields.bool("promiscMode")?,
            preserve_default_vlan: fields.bool("preserveDefaultVlan")?,
            mac_spoof_check: fields.bool("macspoofchk")?,
            enable_dad: fields.bool("enabledad")?,
            disable_container_interface: fields.bool("disableContainerInterface")?,
            port_isolation: fields.bool("portIsolation")?,
            dns: Some(dns).filter(|dns| !dns.is_empty()),
            ipam: fields.object("ipam", "types.IPAM")?.string("type")?.to_owned(),
            ..Self::default()
        })
    }

    /// Refuses keys that exclude each other. ADD alone does this, so an old configuration can still be deleted.
    pub fn refuse_contradictions(&self) -> Result<(), Error> {
        self.mac()?;
        if self.hairpin && self.promisc {
            return Err(Error::internal(
                "cannot set hairpin mode and promiscuous mode at the same time",
            ));
        }
        if self.disable_container_interface && !self.ipam.is_empty() {
            return Err(Error::internal(
                "cannot use IPAM when DisableContainerInterface flag is set",
            ));
        }
        Ok(())
    }

    /// The hardware address the container's end is to have, if one is configured.
    pub fn mac(&self) -> Result<Option<Mac>, Error> {
        if self.mac_text.is_empty() {
            return Ok(None);
        }
        let text = || {
            format!(
                "failed to make veth pair: address {}: invalid MAC address",
                self.mac_text
            )
        };
        Mac::parse(&self.mac_text)
            .map(Some)
            .ok_or_else(|| Error::internal(text()))
    }

    /// Whether ADD sets up masquerading.
    pub fn masquerades(&self) -> bool {
        self.ip_masq && !self.ipam.is_empty()
    }

    /// Whether the bridge has to know VLANs.
    pub fn uses_vlans(&self) -> bool {
        self.vlan != 0 || !self.trunk.is_empty()
    }
}

fn load_error(error: DecodeError) -> Error {
    Error::internal(format!("failed to load netconf: {error}"))
}

/// Rising precedence: `CNI_ARGS`, `args.cni.mac`, `runtimeConfig.mac`.
fn read_mac(fields: &Fields<'_>, from_env: Option<String>) -> Result<String, Error> {
    let in_args = fields
        .object("args", "BridgeArgs")
        .and_then(|args| args.object("cni", "BridgeArgs"));
    let in_args = in_args.and_then(|args| args.string("mac")).map_err(load_error)?;
    let at_runtime = fields
        .object("runtimeConfig", "RuntimeConfig")
        .and_then(|runtime| runtime.string("mac"));
    let at_runtime = at_runtime.map_err(load_error)?;
    let text = [at_runtime.to_owned(), in_args.to_owned(), from_env.unwrap_or_default()];
    Ok(text.into_iter().find(|text| !text.is_empty()).unwrap_or_default())
}

fn read_trunk(fields: &Fields<'_>) -> Result<Vec<u16>, Error> {
    let mut ids = BTreeSet::new();
    for entry in fields.objects("vlanTrunk", "VlanTrunk").map_err(load_error)? {
        let number = |key: &'static str| entry.maybe_int(key).map_err(load_error);
        let checked = |name: &str, id: i64| match u16::try_from(id) {
            Ok(id) if (1..=MAX_VLAN).contains(&i64::from(id)) => Ok(id),
            _ => Err(Error::internal(format!(
                "failed to parse vlan trunks: incorrect trunk {name} parameter"
            ))),
        };
        match (number("minID")?, number("maxID")?) {
            (Some(min), Some(max)) => {
                let (min, max) = (checked("minID", min)?, checked("maxID", max)?);
                if max < min {
                    let text = "failed to parse vlan trunks: minID is greater than maxID in trunk parameter";
                    return Err(Error::internal(text));
                }
                ids.extend(min..=max);
            }
            (None, None) => {}
            (min, _) => {
                let missing = if min.is_none() { "minID" } else { "maxID" };
                let text = "failed to parse vlan trunks: minID and maxID should be configured simultaneously";
                return Err(Error::internal(format!("{text}, {missing} is missing")));
            }
        }
        if let Some(id) = number("id")? {
            ids.insert(checked("id", id)?);
        }
    }
    Ok(ids.into_iter().collect())
}

#[cfg(test)]
mod tests;
