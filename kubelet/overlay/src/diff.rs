//! The steps from what the kernel holds to what it is to hold. Pure.
//!
//! Their order leaves no moment without a way where there was one: whom a route leads to is known before the route is set, a
//! route that moves is replaced, and what nobody uses any more goes last.

use crate::state::{Device, Family, Hop, Port, State};
use netlink::cidr::Cidr;
use netlink::link::Mac;
use std::net::IpAddr;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Make the tunnel device, up.
    CreateDevice(Family, Device),
    /// Delete the tunnel device; the kernel takes all that is on it.
    DeleteDevice(Family),
    /// Change what can be changed of the tunnel device while it is there, and bring it up.
    ChangeDevice(Family, Device),
    /// Give the tunnel device an address.
    AddAddress(Family, Cidr),
    /// Take one.
    DeleteAddress(Family, Cidr),
    /// Say whose hardware address an address has.
    SetNeighbour(Family, IpAddr, Mac),
    /// Forget it.
    DeleteNeighbour(Family, IpAddr, Mac),
    /// Say behind which host a hardware address is.
    SetForwarding(Family, Mac, IpAddr),
    /// Forget it.
    DeleteForwarding(Family, Mac, IpAddr),
    /// Set a route, in place of ours to that range if there is one.
    SetRoute {
        /// Where to.
        range: Cidr,
        /// How.
        hop: Hop,
        /// Whether there is one of ours.
        replace: bool,
    },
    /// Delete our route.
    DeleteRoute(Cidr, Hop),
}

/// Ranges where a route of somebody else leads elsewhere. It stays, and ours is not set.
pub fn conflicts(wanted: &State, found: &State) -> Vec<Cidr> {
    let stand = wanted.routes.iter().filter(|(range, hop)| {
        let foreign = found.foreign.get(range);
        foreign.is_some_and(|foreign| foreign != *hop) && !found.routes.contains_key(range)
    });
    stand.map(|(range, _)| *range).collect()
}

/// The steps, in order.
pub fn diff(wanted: &State, found: &State) -> Vec<Change> {
    let remade = |family: &Family| match (wanted.devices.get(family), found.devices.get(family)) {
        (Some(wanted), Some(found)) => wanted.vxlan != found.vxlan,
        _ => false,
    };
    let gone = |family: &Family| found.devices.contains_key(family) && !wanted.devices.contains_key(family);
    // What is left of what was found once devices that cannot stay as they are have gone.
    let mut left = found.clone();
    let mut changes = Vec::new();
    for family in Family::ALL.iter().filter(|family| remade(family)) {
        changes.push(Change::DeleteDevice(*family));
        forget(&mut left, *family);
    }
    devices(wanted, &left, &mut changes);
    entries(wanted, &left, &mut changes);
    routes(wanted, &left, &mut changes);
    stale(wanted, &left, &gone, &mut changes);
    changes.extend(
        Family::ALL
            .into_iter()
            .filter(|family| gone(family))
            .map(Change::DeleteDevice),
    );
    changes
}

/// What a device's end takes with it.
fn forget(state: &mut State, family: Family) {
    state.devices.remove(&family);
    state.addresses.retain(|(of, _)| *of != family);
    state.neighbours.retain(|(of, _), _| *of != family);
    state.forwarding.retain(|(of, _), _| *of != family);
    state.routes.retain(|_, hop| hop.port != Port::Tunnel(family));
}

fn devices(wanted: &State, left: &State, changes: &mut Vec<Change>) {
    for (family, device) in &wanted.devices {
        match left.devices.get(family) {
            None => changes.push(Change::CreateDevice(*family, *device)),
            Some(found) if found != device => changes.push(Change::ChangeDevice(*family, *device)),
            Some(_) => {}
        }
    }
    let added = wanted.addresses.difference(&left.addresses);
    changes.extend(added.map(|(family, cidr)| Change::AddAddress(*family, *cidr)));
}

fn entries(wanted: &State, left: &State, changes: &mut Vec<Change>) {
    for ((family, mac), hosts) in &wanted.forwarding {
        let none = Default::default();
        let found = left.forwarding.get(&(*family, *mac)).unwrap_or(&none);
        let Some(host) = hosts.first() else { continue };
        // Setting replaces one host; with several, the others go first.
        let keep = if found.contains(host) {
            Some(host)
        } else {
            found.first()
        };
        let surplus = found.iter().filter(|other| Some(*other) != keep);
        changes.extend(surplus.map(|other| Change::DeleteForwarding(*family, Mac(*mac), *other)));
        if keep != Some(host) {
            changes.push(Change::SetForwarding(*family, Mac(*mac), *host));
        }
    }
    for ((family, addr), mac) in &wanted.neighbours {
        if left.neighbours.get(&(*family, *addr)) != Some(mac) {
            changes.push(Change::SetNeighbour(*family, *addr, *mac));
        }
    }
}

fn routes(wanted: &State, left: &State, changes: &mut Vec<Change>) {
    for (range, hop) in &wanted.routes {
        let ours = left.routes.get(range);
        let is_there = match ours {
            Some(ours) => ours == hop,
            // Somebody else's that leads there serves as well; one that leads elsewhere stays.
            None => left.foreign.contains_key(range),
        };
        if !is_there {
            let replace = ours.is_some();
            let (range, hop) = (*range, *hop);
            changes.push(Change::SetRoute { range, hop, replace });
        }
    }
}

/// What nobody wants any more, on devices that stay.
fn stale(wanted: &State, left: &State, gone: &impl Fn(&Family) -> bool, changes: &mut Vec<Change>) {
    for (range, hop) in &left.routes {
        let ends_with_device = matches!(&hop.port, Port::Tunnel(family) if gone(family));
        if !wanted.routes.contains_key(range) && !ends_with_device {
            changes.push(Change::DeleteRoute(*range, *hop));
        }
    }
    for ((family, addr), mac) in &left.neighbours {
        if !wanted.neighbours.contains_key(&(*family, *addr)) && !gone(family) {
            changes.push(Change::DeleteNeighbour(*family, *addr, *mac));
        }
    }
    for ((family, mac), hosts) in &left.forwarding {
        if !wanted.forwarding.contains_key(&(*family, *mac)) && !gone(family) {
            changes.extend(
                hosts
                    .iter()
                    .map(|host| Change::DeleteForwarding(*family, Mac(*mac), *host)),
            );
        }
    }
    let surplus = left
        .addresses
        .difference(&wanted.addresses)
        .filter(|(family, _)| !gone(family));
    changes.extend(surplus.map(|(family, cidr)| Change::DeleteAddress(*family, *cidr)));
}

#[cfg(test)]
mod tests;
