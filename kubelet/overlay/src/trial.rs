//! Tests of the tunnels, apart from the turns: what is to be tried ([`Trials`]), trying it, and what came of it ([`Tried`]). A
//! test waits for answers, seconds where nobody gives any; nodes that change meanwhile are not to wait for it.

use crate::own::Way;
use crate::probe::{self, Verdict};
use crate::state::Family;
use netlink::link::Target;
use netlink::{Protocol, Socket};
use std::io;
use std::net::IpAddr;

/// How far the tunnels are tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tested {
    /// It is known what arrives.
    Done,
    /// There is no other node to ask.
    Alone,
    /// Nobody answered.
    Silent,
    /// Something does not arrive; it is too early to say that it never does.
    Doubtful,
}

/// What is to be tried of one tunnel.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) family: Family,
    /// The tunnel's device.
    pub(crate) device: String,
    pub(crate) way: Way,
    /// Tunnel addresses of other nodes, at least one.
    pub(crate) ends: Vec<IpAddr>,
    /// This node's own address.
    pub(crate) underlay: IpAddr,
    /// The device's MTU, in bytes.
    pub(crate) mtu: u32,
    /// What the settings say of checksums, if anything.
    pub(crate) asked: Option<bool>,
    /// Whether they are left to the network card now.
    pub(crate) is_on: bool,
}

/// What is to be found out of the tunnels.
#[derive(Clone, Debug, Default)]
pub struct Trials {
    pub(crate) trials: Vec<Trial>,
    /// Whether a tunnel has nobody behind it who could be asked.
    pub(crate) is_alone: bool,
}

/// What was found out.
#[derive(Debug, Default)]
pub struct Tried {
    /// Of each tunnel and the way it was tried by. Nothing: nobody answered.
    pub(crate) outcomes: Vec<(Family, Way, Option<Verdict>)>,
    /// Whether a tunnel had nobody behind it who could be asked.
    pub(crate) is_alone: bool,
}

impl Trials {
    /// Whether nobody is to be asked.
    pub fn is_empty(&self) -> bool {
        self.trials.is_empty()
    }

    /// Asks, in the calling thread's namespace. Blocks, some seconds for each tunnel where nobody answers; ends early, as if
    /// nobody had answered any more, once `is_stopped`.
    pub fn run(self, is_stopped: &dyn Fn() -> bool) -> Tried {
        let tried = |trial: Trial| {
            let verdict = probe::test(&trial.path(), |on| trial.switch(on), is_stopped);
            (trial.family, trial.way, verdict)
        };
        Tried {
            outcomes: self.trials.into_iter().map(tried).collect(),
            is_alone: self.is_alone,
        }
    }
}

impl Trial {
    fn path(&self) -> probe::Path<'_> {
        probe::Path {
            ends: &self.ends,
            underlay: self.underlay,
            mtu: self.mtu,
            asked: self.asked,
            is_on: self.is_on,
        }
    }

    /// Leaves checksums to the network card, or not: of the device that is tried, not of one that has its name by now.
    fn switch(&self, on: bool) -> io::Result<()> {
        let mut socket = Socket::open(Protocol::Route).map_err(io::Error::other)?;
        let link = socket.link(Target::Name(&self.device)).map_err(io::Error::other)?;
        if link.is_none_or(|link| !self.way.is_by(link.index)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        socket.set_transmit_checksum_offload(&self.device, on)
    }
}
