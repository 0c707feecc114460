//! The kernel's news, and which of it concerns the overlay.

use crate::kernel::Turn;
use crate::settings::Settings;
use crate::state::{Family, PROTOCOL};
use client::ordered::CollectOrdered;
use netlink::address::Address;
use netlink::cidr::Cidr;
use netlink::link::Link;
use netlink::marked_route::MarkedRoute;
use netlink::monitor::{Heard, Monitor};
use netlink::socket::Reply;
use netlink::wire::{RTM_DELADDR, RTM_DELLINK, RTM_DELROUTE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE};
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use tokio::io::unix::AsyncFd;

/// Has the runtime wait for the socket.
#[expect(
    deprecated,
    reason = "what takes its place is unsafe; the socket stays open in it and is no other's"
)]
pub(super) fn watched(monitor: Monitor) -> io::Result<AsyncFd<Monitor>> {
    AsyncFd::new(monitor)
}

/// What of the kernel's news concerns the overlay.
#[derive(Debug, Default)]
pub(super) struct Interest {
    names: Vec<String>,
    links: Vec<u32>,
    addresses: Vec<IpAddr>,
    ranges: BTreeSet<Cidr>,
}

impl Interest {
    pub(super) fn of(turn: &Turn, settings: &Settings) -> Self {
        let underlays = Family::ALL
            .into_iter()
            .filter_map(|family| turn.own.underlay.of(family).as_ref());
        let internal = Family::ALL
            .into_iter()
            .filter_map(|family| turn.own.peer.ends.of(family).internal);
        Self {
            names: Family::ALL.map(|family| family.device(settings.vni)).to_vec(),
            links: underlays
                .map(|underlay| underlay.index)
                .chain(turn.tunnels.iter().copied())
                .collect(),
            addresses: settings.underlay.iter().copied().chain(internal).collect(),
            ranges: turn.plan.owners.keys().copied().collect_ordered(),
        }
    }

    fn concerns(&self, change: &Reply) -> bool {
        match change.kind {
            RTM_NEWLINK | RTM_DELLINK => Link::read(&change.body)
                .is_some_and(|link| self.names.contains(&link.name) || self.links.contains(&link.index)),
            RTM_NEWADDR | RTM_DELADDR => Address::read(&change.body)
                .is_some_and(|a| self.links.contains(&a.index) || self.addresses.contains(&a.cidr.addr)),
            RTM_NEWROUTE => MarkedRoute::read(&change.body)
                .is_some_and(|route| route.protocol != PROTOCOL && self.ranges.contains(&route.dst)),
            RTM_DELROUTE => MarkedRoute::read(&change.body).is_some_and(|route| self.ranges.contains(&route.dst)),
            _ => false,
        }
    }
}

/// Waits for news that concern us. Cancel safe: what is taken is judged before anything else is waited for.
pub(super) async fn hear(monitor: &mut AsyncFd<Monitor>, interest: &Interest) -> io::Result<()> {
    loop {
        let mut ready = monitor.readable_mut().await?;
        match ready.get_inner_mut().take()? {
            Heard::Nothing => ready.clear_ready(),
            Heard::Lost => return Ok(()),
            Heard::Changes(changes) if changes.iter().any(|change| interest.concerns(change)) => return Ok(()),
            Heard::Changes(_) => {}
        }
    }
}
