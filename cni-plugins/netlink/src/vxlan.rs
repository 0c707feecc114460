//! VXLAN tunnels (RFC 7348) without learning and flooding: whom they lead to is told them, see [`crate::neighbour`].

use std::net::IpAddr;

use super::codec::{Attributes, Message, attribute, attributes, read_text, read_u32};
use super::link::{Mac, Target};
use super::socket::{Error, Socket};
use super::wire::*;
use crate::cidr;

/// What a tunnel is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vxlan {
    /// Network identifier.
    pub vni: u32,
    /// UDP port.
    pub port: u16,
    /// The address tunnelled packets are sent from.
    pub local: Option<IpAddr>,
    /// The link they are sent by.
    pub underlay: u32,
    /// Whether something else is set that changes whom packets go to: a group or a remote end, learning, misses told, policies.
    pub extras: bool,
}

impl Vxlan {
    /// Reads the body of an `RTM_NEWLINK` message; `None` for links of other kinds.
    pub fn read(body: &[u8]) -> Option<Self> {
        let info = attribute(body.get(16..)?, IFLA_LINKINFO)?;
        if attribute(info, IFLA_INFO_KIND).map(read_text).as_deref() != Some("vxlan") {
            return None;
        }
        let mut vxlan = Self {
            vni: 0,
            port: 0,
            local: None,
            underlay: 0,
            extras: false,
        };
        for (kind, value) in attributes(attribute(info, IFLA_INFO_DATA)?) {
            match kind {
                IFLA_VXLAN_ID => vxlan.vni = read_u32(value, 0)?,
                IFLA_VXLAN_LINK => vxlan.underlay = read_u32(value, 0)?,
                IFLA_VXLAN_LOCAL | IFLA_VXLAN_LOCAL6 => vxlan.local = cidr::from_octets(value),
                IFLA_VXLAN_PORT => vxlan.port = u16::from_be_bytes(value.get(..2)?.try_into().ok()?),
                IFLA_VXLAN_GROUP | IFLA_VXLAN_GROUP6 | IFLA_VXLAN_GBP => vxlan.extras = true,
                IFLA_VXLAN_LEARNING | IFLA_VXLAN_L2MISS => vxlan.extras |= value.first() != Some(&0),
                _ => {}
            }
        }
        Some(vxlan)
    }
}

/// Creates a tunnel, still down. Its hardware address is set with it, so that nobody takes it for one the kernel chose.
pub fn create(name: &str, mac: Mac, mtu: u32, vxlan: &Vxlan) -> Message {
    let mut data = Attributes::new()
        .attr(IFLA_VXLAN_ID, &vxlan.vni.to_ne_bytes())
        .attr(IFLA_VXLAN_LINK, &vxlan.underlay.to_ne_bytes())
        .attr(IFLA_VXLAN_LEARNING, &[0])
        .attr(IFLA_VXLAN_PORT, &vxlan.port.to_be_bytes());
    if let Some(local) = vxlan.local {
        let kind = if local.is_ipv4() {
            IFLA_VXLAN_LOCAL
        } else {
            IFLA_VXLAN_LOCAL6
        };
        data = data.attr(kind, &cidr::octets(&local));
    }
    let kind = Attributes::new()
        .attr_str(IFLA_INFO_KIND, "vxlan")
        .nested(IFLA_INFO_DATA, data);
    Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &[0; 16])
        .attr_str(IFLA_IFNAME, name)
        .attr(IFLA_ADDRESS, &mac.0)
        .attr_u32(IFLA_MTU, mtu)
        .nested(IFLA_LINKINFO, kind)
}

impl Socket {
    /// What the tunnel of this name was made with; `None` when the link is none, or not there.
    pub fn vxlan(&mut self, name: &str) -> Result<Option<Vxlan>, Error> {
        match self.request(super::link::get(Target::Name(name))) {
            Ok(replies) => Ok(replies
                .iter()
                .filter(|reply| reply.kind == RTM_NEWLINK)
                .find_map(|reply| Vxlan::read(&reply.body))),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_reads_back_as_it_was_asked_for() {
        for local in ["192.0.2.1", "2001:db8::1"] {
            let vxlan = Vxlan {
                vni: 1,
                port: 8472,
                local: Some(local.parse().unwrap()),
                underlay: 3,
                extras: false,
            };
            let bytes = create("flannel.1", Mac([2, 0, 0, 0, 0, 1]), 1450, &vxlan).encode(1, 0);
            assert_eq!(Vxlan::read(&bytes[16..]), Some(vxlan));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
            let _ = Vxlan::read(&bytes);
        }
    }
}
