//! What arrives through a tunnel: packets whose checksums the network card makes, and packets of the tunnel's full size.
//!
//! A datagram to a port of the far end's tunnel address where nobody listens is answered ("port unreachable") only by who
//! found its checksum right. So one answer says that the way there and back is, that checksums arrive and, of a datagram as
//! large as the device lets through, that the network between the nodes takes it. It is sent from the tunnel's address and
//! from the node's, which the masquerading rules change on the way (where kernels have got checksums wrong: network.md §3).
//! Silence says nothing as long as nobody answered at all: then nothing is decided, and checksums stay the processor's. That one
//! thing arrives and another does not may be a moment's loss: [`crate::kernel`] believes it only when it was found again and again.

use crate::run::Notice;
use crate::state::Family;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Where traceroute looks for nobody.
const PORT: u16 = 33434;
/// How long an answer may take.
const ANSWER: Duration = Duration::from_millis(400);
/// How often it is asked whether anybody is there.
const KNOCKS: usize = 2;
/// How often it is asked what arrives. For longer than a second: by then each host may answer once more (`icmp_ratelimit`).
const TRIES: usize = 4;
/// How many far ends are asked before nobody answers.
const ENDS_MAX: usize = 3;

/// What is known of a way.
#[derive(Clone, Debug)]
pub(crate) struct Path<'p> {
    /// Tunnel addresses of other nodes.
    pub(crate) ends: &'p [IpAddr],
    /// This node's own address.
    pub(crate) underlay: IpAddr,
    /// The tunnel device's MTU, in bytes.
    pub(crate) mtu: u32,
    /// What the settings say of checksums, if anything.
    pub(crate) asked: Option<bool>,
    /// Whether they are left to the network card now.
    pub(crate) is_on: bool,
}

/// What was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Who answered.
    pub(crate) end: IpAddr,
    /// Whether checksums may be left to the network card.
    pub(crate) offload: bool,
    /// Whether that was a choice, not a finding.
    pub(crate) is_set: bool,
    /// The largest packet, in bytes.
    pub(crate) mtu: u32,
    /// Whether it arrives.
    pub(crate) is_full_size: bool,
}

impl Verdict {
    /// Whether nothing is wrong.
    pub(crate) fn is_good(&self) -> bool {
        self.is_full_size && (self.offload || self.is_set)
    }

    /// What the operator is told of it.
    pub(crate) fn notice(&self, family: Family) -> Option<Notice> {
        let Self { end, mtu, .. } = self;
        let checksums = match (self.offload, self.is_set) {
            (true, false) => "checksums are left to the network card, as they arrive right",
            (true, true) => "checksums are left to the network card, as it is set",
            (false, true) => "checksums are made by the processor, as it is set",
            (false, false) => "checksums are made by the processor, as those of the network card do not arrive right",
        };
        let size = match self.is_full_size {
            true => format!("packets of {mtu} bytes arrive"),
            false => format!(
                "packets of {mtu} bytes do not arrive: the network between the nodes takes smaller ones than this node's interface"
            ),
        };
        Some(Notice {
            reason: "PodNetworkTested",
            message: format!("{family:?} tunnel, tested with {end}: {checksums}; {size}"),
            is_warning: !self.is_good(),
        })
    }
}

/// Tries the way. `switch` has checksums left to the network card, or not. Nobody is asked any more once `is_stopped`. Nothing:
/// nobody answers (yet), and it is as before.
pub(crate) fn test(
    path: &Path<'_>,
    switch: impl Fn(bool) -> io::Result<()>,
    is_stopped: &dyn Fn() -> bool,
) -> Option<Verdict> {
    decide(path, &switch, |end, from, size, tries| {
        (0..tries).any(|_| !is_stopped() && answers(end, from, size).unwrap_or(false))
    })
}

/// The same, with `reaches` for asking: an end, from an address if it is to be another than the tunnel's, by a packet of so many
/// bytes, so often at most.
fn decide(
    path: &Path<'_>,
    switch: &impl Fn(bool) -> io::Result<()>,
    reaches: impl Fn(IpAddr, Option<IpAddr>, u32, usize) -> bool,
) -> Option<Verdict> {
    const SMALL: u32 = 100;
    let arrives = |end, tries| reaches(end, None, SMALL, tries) && reaches(end, Some(path.underlay), SMALL, TRIES);
    let ends = || path.ends.iter().copied().take(ENDS_MAX);
    // One that was left on is asked as it is: nobody's packets are put to a test that was passed before.
    let passed = path.asked.unwrap_or(path.is_on);
    let verdict = |end, offload| Verdict {
        end,
        offload,
        is_set: path.asked.is_some(),
        mtu: path.mtu,
        is_full_size: reaches(end, None, path.mtu, TRIES),
    };
    if let Some(end) = ends().find(|end| arrives(*end, KNOCKS)) {
        if path.asked.is_some() || passed {
            return Some(verdict(end, passed));
        }
        let is_on = switch(true).is_ok();
        let offload = is_on && arrives(end, TRIES);
        if is_on && !offload {
            switch(false).ok()?;
        }
        return Some(verdict(end, offload));
    }
    // It may be what was passed that is wrong now.
    if path.asked.is_none() && passed {
        switch(false).ok()?;
        if let Some(end) = ends().find(|end| arrives(*end, KNOCKS)) {
            return Some(verdict(end, false));
        }
        switch(true).ok()?;
    }
    None
}

/// Asks once, by a packet of `size` bytes; whether it was answered.
fn answers(end: IpAddr, from: Option<IpAddr>, size: u32) -> io::Result<bool> {
    let unspecified = match end {
        IpAddr::V4(_) => IpAddr::from([0u8; 4]),
        IpAddr::V6(_) => IpAddr::from([0u8; 16]),
    };
    let headers = if end.is_ipv4() { 28 } else { 48 };
    let socket = UdpSocket::bind(SocketAddr::new(from.unwrap_or(unspecified), 0))?;
    socket.connect(SocketAddr::new(end, PORT))?;
    socket.set_read_timeout(Some(ANSWER))?;
    socket.send(&vec![0; size.saturating_sub(headers) as usize])?;
    match socket.recv(&mut [0; 1]) {
        // Somebody listens there after all.
        Ok(_) => Ok(true),
        Err(error) => Ok(error.kind() == io::ErrorKind::ConnectionRefused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A way on which so much works.
    struct Way {
        answers: bool,
        offload_works: bool,
        largest: u32,
    }

    fn found(way: &Way, asked: Option<bool>, is_on: bool) -> (Option<Verdict>, bool) {
        let on = Cell::new(asked.unwrap_or(is_on));
        let ends: [IpAddr; 2] = ["10.244.1.0".parse().unwrap(), "10.244.2.0".parse().unwrap()];
        let path = Path {
            ends: &ends,
            underlay: "192.0.2.1".parse().unwrap(),
            mtu: 1450,
            asked,
            is_on,
        };
        let switch = |to: bool| {
            on.set(to);
            Ok(())
        };
        // The first end is down. What the card gets wrong is what was masqueraded.
        let verdict = decide(&path, &switch, |end, from, size, _| {
            let is_right = way.offload_works || !on.get() || from.is_none();
            way.answers && end == ends[1] && is_right && size <= way.largest
        });
        (verdict, on.get())
    }

    #[test]
    fn offload_is_on_only_where_it_works() {
        let good = Way {
            answers: true,
            offload_works: true,
            largest: 1450,
        };
        let bad = Way {
            offload_works: false,
            ..good
        };
        let silent = Way { answers: false, ..good };
        for (way, asked, was, expected, is_on) in [
            (&good, None, false, Some(true), true),
            (&good, None, true, Some(true), true),
            (&bad, None, false, Some(false), false),
            (&bad, None, true, Some(false), false),
            (&silent, None, false, None, false),
            (&silent, None, true, None, true),
            (&good, Some(false), false, Some(false), false),
            (&good, Some(true), true, Some(true), true),
        ] {
            let (verdict, on) = found(way, asked, was);
            assert_eq!(
                (verdict.map(|verdict| verdict.offload), on),
                (expected, is_on),
                "{asked:?} {was}"
            );
        }
    }

    #[test]
    fn a_network_that_takes_less_is_told() {
        let narrow = Way {
            answers: true,
            offload_works: true,
            largest: 1400,
        };
        let notice = found(&narrow, None, false).0.unwrap().notice(Family::V4).unwrap();
        assert!(notice.is_warning);
        assert!(
            notice.message.contains("packets of 1450 bytes do not arrive"),
            "{}",
            notice.message
        );
        let good = Way {
            largest: 1450,
            ..narrow
        };
        let notice = found(&good, None, false).0.unwrap().notice(Family::V4).unwrap();
        assert!(!notice.is_warning);
        assert!(
            notice.message.contains("left to the network card"),
            "{}",
            notice.message
        );
    }
}
