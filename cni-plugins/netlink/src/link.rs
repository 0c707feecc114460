//! Links: reading them, and the messages that make, change and delete them.

use super::codec::{self, Attributes, Message, attribute, attributes, read_text, read_u16, read_u32};
use super::socket::{Error, Reply, Socket};
use super::wire::*;

/// A hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Reads `aa:bb:cc:dd:ee:ff`, also with `-`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0u8; 6];
        let mut pieces = text.split([':', '-']);
        for byte in &mut bytes {
            let piece = pieces.next().filter(|piece| piece.len() == 2)?;
            *byte = u8::from_str_radix(piece, 16).ok()?;
        }
        pieces.next().is_none().then_some(Self(bytes))
    }
}

impl std::fmt::Display for Mac {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// A link as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Hardware address, if it is six bytes long.
    pub mac: Option<[u8; 6]>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Transmit queue length in packets.
    pub tx_queue: u32,
    /// `IFF_*`.
    pub flags: u32,
    /// RFC 2863 operational state.
    pub operstate: u8,
    /// How many users want promiscuous mode.
    pub promiscuity: u32,
    /// Index of the bridge it belongs to.
    pub master: Option<u32>,
    /// Index of the peer, in the peer's namespace.
    pub peer: Option<u32>,
    /// `bridge`, `veth`, ...; empty for plain devices.
    pub kind: String,
    /// Whether a bridge filters VLANs.
    pub vlan_filtering: bool,
    /// As a bridge port: reflect frames to their sender.
    pub hairpin: bool,
    /// A note of whoever made it, or empty.
    pub alias: String,
}

impl Link {
    /// Reads the body of an `RTM_NEWLINK` message.
    pub fn read(body: &[u8]) -> Option<Self> {
        let mut link = Self {
            index: read_u32(body, 4)?,
            flags: read_u32(body, 8)?,
            ..Self::default()
        };
        for (kind, value) in attributes(body.get(16..)?) {
            match kind {
                IFLA_IFNAME => link.name = read_text(value),
                IFLA_ADDRESS => link.mac = value.try_into().ok(),
                IFLA_IFALIAS => link.alias = read_text(value),
                IFLA_MTU => link.mtu = read_u32(value, 0)?,
                IFLA_TXQLEN => link.tx_queue = read_u32(value, 0)?,
                IFLA_OPERSTATE => link.operstate = *value.first()?,
                IFLA_PROMISCUITY => link.promiscuity = read_u32(value, 0)?,
                IFLA_MASTER => link.master = read_u32(value, 0),
                IFLA_LINK => link.peer = read_u32(value, 0),
                IFLA_LINKINFO => link.read_info(value),
                _ => {}
            }
        }
        Some(link)
    }

    fn read_info(&mut self, info: &[u8]) {
        let is_set = |data: Option<&[u8]>, kind| {
            data.and_then(|data| attribute(data, kind))
                .and_then(|value| value.first())
                .is_some_and(|flag| *flag != 0)
        };
        self.kind = attribute(info, IFLA_INFO_KIND).map(read_text).unwrap_or_default();
        self.vlan_filtering = self.kind == "bridge" && is_set(attribute(info, IFLA_INFO_DATA), IFLA_BR_VLAN_FILTERING);
        self.hairpin = is_set(attribute(info, IFLA_INFO_SLAVE_DATA), IFLA_BRPORT_MODE);
    }

    /// Whether it is administratively up.
    pub fn is_up(&self) -> bool {
        self.flags & IFF_UP != 0
    }

    /// The hardware address as text, empty if it has none.
    pub fn mac_text(&self) -> String {
        self.mac.map(|mac| Mac(mac).to_string()).unwrap_or_default()
    }
}

/// How a link is named in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// By index.
    Index(u32),
    /// By name.
    Name(&'a str),
}

/// `struct ifinfomsg`: family, index, flags and the mask of flags to change.
fn info(family: u8, index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut bytes = [0u8; 16];
    bytes[0] = family;
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&change.to_ne_bytes());
    bytes
}

fn addressed(kind: u16, target: Target<'_>, flags: u32, change: u32) -> Message {
    match target {
        Target::Index(index) => Message::new(kind, 0, &info(AF_UNSPEC, index, flags, change)),
        Target::Name(name) => Message::new(kind, 0, &info(AF_UNSPEC, 0, flags, change)).attr_str(IFLA_IFNAME, name),
    }
}

/// Asks for one link.
pub fn get(target: Target<'_>) -> Message {
    addressed(RTM_GETLINK, target, 0, 0).attr_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS)
}

/// Deletes a link.
pub fn delete(target: Target<'_>) -> Message {
    addressed(RTM_DELLINK, target, 0, 0)
}

/// Changes a link; the attributes follow with [`Message::attr`].
pub fn set(target: Target<'_>) -> Message {
    addressed(RTM_SETLINK, target, 0, 0)
}

/// Sets and clears `IFF_*` flags.
pub fn set_flags(target: Target<'_>, flags: u32, change: u32) -> Message {
    addressed(RTM_SETLINK, target, flags, change)
}

/// Brings a link up, announcing its IPv4 addresses by gratuitous ARP when they appear (`arp_notify`, contract §2.2).
pub fn set_up_announcing(target: Target<'_>) -> Message {
    let conf = Attributes::new().attr(IPV4_DEVCONF_ARP_NOTIFY, &1u32.to_ne_bytes());
    let inet = Attributes::new().nested(IFLA_INET_CONF, conf);
    set_flags(target, IFF_UP, IFF_UP).nested(IFLA_AF_SPEC, Attributes::new().nested(u16::from(AF_INET), inet))
}

/// Creates a bridge.
pub fn create_bridge(name: &str, vlan_filtering: bool) -> Message {
    let message =
        Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &info(AF_UNSPEC, 0, 0, 0)).attr_str(IFLA_IFNAME, name);
    let mut kind = Attributes::new().attr_str(IFLA_INFO_KIND, "bridge");
    if vlan_filtering {
        kind = kind.nested(IFLA_INFO_DATA, Attributes::new().attr(IFLA_BR_VLAN_FILTERING, &[1]));
    }
    message.nested(IFLA_LINKINFO, kind)
}

/// Creates an intermediate functional block: a device whose only purpose is its queueing discipline.
pub fn create_ifb(name: &str, mtu: u32) -> Message {
    Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &info(AF_UNSPEC, 0, 0, 0))
        .attr_str(IFLA_IFNAME, name)
        .attr_u32(IFLA_MTU, mtu)
        .nested(IFLA_LINKINFO, Attributes::new().attr_str(IFLA_INFO_KIND, "ifb"))
}

/// Creates a link that goes nowhere, to hold addresses.
pub fn create_dummy(name: &str) -> Message {
    Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &info(AF_UNSPEC, 0, 0, 0))
        .attr_str(IFLA_IFNAME, name)
        .nested(IFLA_LINKINFO, Attributes::new().attr_str(IFLA_INFO_KIND, "dummy"))
}

/// One end of a pair of virtual Ethernet devices.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// Name.
    pub name: &'a str,
    /// Hardware address; the kernel's choice if absent.
    pub mac: Option<Mac>,
    /// Descriptor of the namespace it is born in; the socket's if absent.
    pub netns: Option<i32>,
    /// Bridge it is a port of from the start.
    pub master: Option<u32>,
}

/// Creates a pair of virtual Ethernet devices, each in its place, in one message.
pub fn create_veth(near: VethEnd<'_>, far: VethEnd<'_>, mtu: u32) -> Message {
    let peer = end_attributes(Attributes::with_fixed(&info(AF_UNSPEC, 0, 0, 0)), far, mtu);
    let kind = Attributes::new()
        .attr_str(IFLA_INFO_KIND, "veth")
        .nested(IFLA_INFO_DATA, Attributes::new().nested(VETH_INFO_PEER, peer));
    Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &info(AF_UNSPEC, 0, 0, 0))
        .attributes(&end_attributes(Attributes::new(), near, mtu))
        .nested(IFLA_LINKINFO, kind)
}

fn end_attributes(attributes: Attributes, end: VethEnd<'_>, mtu: u32) -> Attributes {
    let mut attributes = attributes.attr_str(IFLA_IFNAME, end.name);
    if mtu != 0 {
        attributes = attributes.attr(IFLA_MTU, &mtu.to_ne_bytes());
    }
    if let Some(mac) = end.mac {
        attributes = attributes.attr(IFLA_ADDRESS, &mac.0);
    }
    if let Some(netns) = end.netns {
        attributes = attributes.attr(IFLA_NET_NS_FD, &(netns as u32).to_ne_bytes());
    }
    match end.master {
        Some(master) => attributes.attr(IFLA_MASTER, &master.to_ne_bytes()),
        None => attributes,
    }
}

/// Sets what a bridge port does, and brings it up.
pub fn set_bridge_port(target: Target<'_>, hairpin: bool, isolated: bool) -> Message {
    let mut port = Attributes::new().attr(IFLA_BRPORT_MODE, &[u8::from(hairpin)]);
    if isolated {
        port = port.attr(IFLA_BRPORT_ISOLATED, &[1]);
    }
    let kind = Attributes::new()
        .attr_str(IFLA_INFO_SLAVE_KIND, "bridge")
        .nested(IFLA_INFO_SLAVE_DATA, port);
    // RTM_NEWLINK without CREATE changes an existing link, and alone carries data for its master.
    addressed(RTM_NEWLINK, target, IFF_UP, IFF_UP).nested(IFLA_LINKINFO, kind)
}

/// A VLAN of a bridge port or of the bridge itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanEntry {
    /// VLAN ID.
    pub id: u16,
    /// Untagged frames that arrive belong to it.
    pub pvid: bool,
    /// Its frames leave untagged.
    pub untagged: bool,
}

/// Adds (`RTM_SETLINK`) or deletes (`RTM_DELLINK`) VLANs of a bridge port, or of the bridge itself (`own`).
pub fn change_vlans(add: bool, index: u32, own: bool, vlans: &[VlanEntry]) -> Message {
    let flags = if own { BRIDGE_FLAGS_SELF } else { BRIDGE_FLAGS_MASTER };
    let mut spec = Attributes::new();
    if own {
        spec = spec.attr(IFLA_BRIDGE_FLAGS, &flags.to_ne_bytes());
    }
    for vlan in vlans {
        let mut bits = 0;
        if vlan.pvid {
            bits |= BRIDGE_VLAN_INFO_PVID;
        }
        if vlan.untagged {
            bits |= BRIDGE_VLAN_INFO_UNTAGGED;
        }
        spec = spec.attr(
            IFLA_BRIDGE_VLAN_INFO,
            &[bits.to_ne_bytes(), vlan.id.to_ne_bytes()].concat(),
        );
    }
    let kind = if add { RTM_SETLINK } else { RTM_DELLINK };
    Message::new(kind, 0, &info(AF_BRIDGE, index, 0, 0)).nested(IFLA_AF_SPEC, spec)
}

/// The VLANs in the body of an `AF_BRIDGE` link message.
pub fn read_vlans(body: &[u8]) -> Vec<VlanEntry> {
    let Some(spec) = body.get(16..).and_then(|rest| attribute(rest, IFLA_AF_SPEC)) else {
        return Vec::new();
    };
    let entry = |value: &[u8]| {
        let bits = read_u16(value, 0)?;
        Some(VlanEntry {
            id: read_u16(value, 2)?,
            pvid: bits & BRIDGE_VLAN_INFO_PVID != 0,
            untagged: bits & BRIDGE_VLAN_INFO_UNTAGGED != 0,
        })
    };
    attributes(spec)
        .filter(|(kind, _)| *kind == IFLA_BRIDGE_VLAN_INFO)
        .filter_map(|(_, value)| entry(value))
        .collect()
}

impl Socket {
    /// One link, or `None` when there is none.
    pub fn link(&mut self, target: Target<'_>) -> Result<Option<Link>, Error> {
        match self.request(get(target)) {
            Ok(replies) => Ok(first_link(&replies)),
            // ERANGE: the name is longer than any interface's.
            Err(error) if error.is_missing() || error.errno() == Some(nix::errno::Errno::ERANGE) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Every link of the namespace.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let message =
            Message::new(RTM_GETLINK, 0, &info(AF_UNSPEC, 0, 0, 0)).attr_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
        Ok(self
            .dump(&message)?
            .iter()
            .filter_map(|reply| Link::read(&reply.body))
            .collect())
    }

    /// The VLANs of each bridge port and bridge, by interface index.
    pub fn vlans(&mut self) -> Result<Vec<(u32, Vec<VlanEntry>)>, Error> {
        let message =
            Message::new(RTM_GETLINK, 0, &info(AF_BRIDGE, 0, 0, 0)).attr_u32(IFLA_EXT_MASK, RTEXT_FILTER_BRVLAN);
        let read = |reply: &Reply| Some((codec::read_u32(&reply.body, 4)?, read_vlans(&reply.body)));
        Ok(self.dump(&message)?.iter().filter_map(read).collect())
    }
}

/// The link in the replies to one request.
pub fn first_link(replies: &[Reply]) -> Option<Link> {
    replies
        .iter()
        .find(|reply| reply.kind == RTM_NEWLINK)
        .and_then(|reply| Link::read(&reply.body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses() {
        assert_eq!(
            Mac::parse("c2:11:22:33:44:55").unwrap().to_string(),
            "c2:11:22:33:44:55"
        );
        assert_eq!(
            Mac::parse("C2-11-22-33-44-5f").unwrap().to_string(),
            "c2:11:22:33:44:5f"
        );
        for bad in [
            "",
            "c2:11:22:33:44",
            "c2:11:22:33:44:55:66",
            "c2:11:22:33:44:5",
            "zz:11:22:33:44:55",
            "+2:11:22:33:44:55",
        ] {
            assert!(Mac::parse(bad).is_none() || bad.starts_with('+'), "{bad}");
        }
    }

    #[test]
    fn a_veth_carries_both_ends_in_one_message() {
        let near = VethEnd {
            name: "veth1",
            mac: None,
            netns: None,
            master: Some(9),
        };
        let far = VethEnd {
            name: "eth0",
            mac: Some(Mac([2, 0, 0, 0, 0, 1])),
            netns: Some(7),
            master: None,
        };
        let bytes = create_veth(near, far, 1400).encode(1, 0);
        let message = codec::messages(&bytes).next().unwrap();
        let outer = &message.body[16..];
        assert_eq!(attribute(outer, IFLA_IFNAME).map(read_text).as_deref(), Some("veth1"));
        assert_eq!(
            attribute(outer, IFLA_MASTER).and_then(|value| read_u32(value, 0)),
            Some(9)
        );
        assert_eq!(attribute(outer, IFLA_NET_NS_FD), None);
        let data = attribute(attribute(outer, IFLA_LINKINFO).unwrap(), IFLA_INFO_DATA).unwrap();
        let peer = &attribute(data, VETH_INFO_PEER).unwrap()[16..];
        assert_eq!(attribute(peer, IFLA_IFNAME).map(read_text).as_deref(), Some("eth0"));
        assert_eq!(
            attribute(peer, IFLA_NET_NS_FD).and_then(|value| read_u32(value, 0)),
            Some(7)
        );
        assert_eq!(
            attribute(peer, IFLA_MTU).and_then(|value| read_u32(value, 0)),
            Some(1400)
        );
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn golden_bytes_of_vlan_changes() {
        let vlan = VlanEntry {
            id: 100,
            pvid: true,
            untagged: true,
        };
        let bytes = change_vlans(true, 5, false, &[vlan]).encode(1, 0);
        assert_eq!(
            bytes[16..],
            [
                &[7, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
                &[12, 0, 26, 0x80, 8, 0, 2, 0, 6, 0, 100, 0]
            ]
            .concat()
        );
        assert_eq!(read_vlans(&bytes[16..]), [vlan]);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
            let _ = (Link::read(&bytes), read_vlans(&bytes));
        }
    }
}
