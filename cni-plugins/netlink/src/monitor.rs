//! What the kernel tells of changes: links, addresses and routes as they come, go and change. Never waits: whoever has an
//! event loop waits for the descriptor.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket};

use super::codec;
use super::socket::{Error, Reply};
use super::wire::{RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_IFADDR, RTMGRP_IPV6_ROUTE, RTMGRP_LINK};

/// The largest datagram the kernel sends.
const RECEIVE_BYTES: usize = 32 << 10;

/// A socket that hears of changes in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Monitor {
    descriptor: OwnedFd,
    buffer: Vec<u8>,
}

/// What was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// These changes: `RTM_NEWLINK`, `RTM_DELADDR`, ... with their bodies.
    Changes(Vec<Reply>),
    /// There were more than the kernel could keep for us: look at everything.
    Lost,
    /// Nothing for now.
    Nothing,
}

impl Monitor {
    /// Hears of links, addresses and routes from now on.
    pub fn open() -> Result<Self, Error> {
        let groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_IFADDR | RTMGRP_IPV6_ROUTE;
        let fail = |errno: Errno| Error::Open(errno.into());
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let descriptor =
            socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute).map_err(fail)?;
        bind(descriptor.as_raw_fd(), &NetlinkAddr::new(0, groups)).map_err(fail)?;
        Ok(Self {
            descriptor,
            buffer: vec![0; RECEIVE_BYTES],
        })
    }

    /// Takes what is there, one datagram at most.
    ///
    /// # Errors
    /// The socket is of no use any more.
    pub fn take(&mut self) -> io::Result<Heard> {
        match recv(self.descriptor.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
            Ok(size) => {
                let changes = codec::messages(&self.buffer[..size]).map(|message| Reply {
                    kind: message.kind,
                    body: message.body.to_vec(),
                });
                Ok(Heard::Changes(changes.collect()))
            }
            Err(Errno::EAGAIN) => Ok(Heard::Nothing),
            Err(Errno::EINTR) => Ok(Heard::Changes(Vec::new())),
            Err(Errno::ENOBUFS) => Ok(Heard::Lost),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}
