//! One blocking netlink socket. It numbers requests, matches replies, and repeats dumps the kernel had to interrupt.
//! A socket belongs to the network namespace of the thread that opened it, for as long as it lives.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, sendmsg,
    sendto, setsockopt, socket, socketpair,
    sockopt::{ReceiveTimeout, SndBufForce},
};
use nix::sys::time::TimeVal;

use super::codec::{self, Message};
use super::wire::{
    NETLINK_CAP_ACK, NETLINK_GET_STRICT_CHK, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_MULTI, NLM_F_REQUEST,
    NLMSG_DONE, NLMSG_ERROR,
};

/// How long one reply may take, in seconds.
const REPLY_DEADLINE_SECONDS: i64 = 30;
/// How often an interrupted dump is repeated (contract §2.5).
const MAX_DUMP_ATTEMPTS: usize = 5;
/// A datagram up to which the socket's own room is enough everywhere.
const SEND_BYTES: usize = 64 << 10;
/// The largest datagram the kernel sends for a dump.
const RECEIVE_BYTES: usize = 64 << 10;

/// Which part of the kernel a socket talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Links, addresses, routes.
    Route,
    /// nf_tables and connection tracking.
    Netfilter,
}

/// What went wrong with a request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket cannot be opened.
    #[error("open netlink socket")]
    Open(#[source] io::Error),
    /// Sending failed.
    #[error("send netlink request")]
    Send(#[source] io::Error),
    /// Receiving failed, or nothing came in time.
    #[error("receive netlink reply")]
    Receive(#[source] io::Error),
    /// The kernel refused the request.
    #[error("{}", refusal(.0))]
    Refused(Errno),
    /// Every attempt at a dump was interrupted by changes.
    #[error("results may be incomplete or inconsistent")]
    Interrupted,
}

fn refusal(errno: &Errno) -> String {
    crate::errno::text(&io::Error::from(*errno))
}

impl Error {
    /// The kernel's error number, when it refused the request.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused(errno) => Some(*errno),
            _ => None,
        }
    }

    /// Whether the kernel said that the object exists already.
    pub fn is_exists(&self) -> bool {
        self.errno() == Some(Errno::EEXIST)
    }

    /// Whether the kernel said that there is no such object or device.
    pub fn is_missing(&self) -> bool {
        matches!(
            self.errno(),
            Some(Errno::ENODEV | Errno::ENOENT | Errno::ESRCH | Errno::ENXIO)
        )
    }
}

/// A reply that is not an acknowledgement, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Message type.
    pub kind: u16,
    /// Everything behind the header.
    pub body: Vec<u8>,
}

/// The socket.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open(protocol: Protocol) -> Result<Self, Error> {
        let opened = |protocol| {
            let descriptor = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
            bind(descriptor.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
            setsockopt(&descriptor, ReceiveTimeout, &TimeVal::new(REPLY_DEADLINE_SECONDS, 0))?;
            Ok::<_, Errno>(descriptor)
        };
        let fail = |errno: Errno| Error::Open(errno.into());
        let descriptor = match protocol {
            Protocol::Route => {
                let descriptor = opened(SockProtocol::NetlinkRoute).map_err(fail)?;
                // Lets the kernel filter dumps by interface. Before 4.20 it does not know this, and our own filter works alone.
                let _ = crate::sys::enable_netlink_option(descriptor.as_fd(), NETLINK_GET_STRICT_CHK);
                descriptor
            }
            Protocol::Netfilter => opened(SockProtocol::NetlinkNetFilter).map_err(fail)?,
        };
        Ok(Self {
            descriptor,
            sequence: 1,
            buffer: vec![0; RECEIVE_BYTES],
        })
    }

    /// Asks for the carrier of `interface`, which makes the kernel process the link event it may still be holding back.
    ///
    /// # Errors
    /// The kernel's: there is no such interface, or it cannot tell.
    pub fn carrier(&self, interface: &str) -> io::Result<bool> {
        crate::sys::carrier(self.descriptor.as_fd(), interface)
    }

    /// Whether `interface` leaves the checksums of what it sends to hardware, or to whoever needs them.
    ///
    /// # Errors
    /// The kernel's: there is no such interface, or it cannot tell.
    pub fn transmit_checksum_offload(&self, interface: &str) -> io::Result<bool> {
        crate::sys::transmit_checksum_offload(self.descriptor.as_fd(), interface)
    }

    /// Switches that on or off.
    ///
    /// # Errors
    /// The kernel's: there is no such interface, or it cannot.
    pub fn set_transmit_checksum_offload(&self, interface: &str, on: bool) -> io::Result<()> {
        crate::sys::set_transmit_checksum_offload(self.descriptor.as_fd(), interface, on)
    }

    /// Closes the socket without waiting. Closing a netfilter socket waits until the kernel has freed all deleted rules,
    /// some ten milliseconds. So the descriptor is left in a message no one can receive any more, in the queue of a socket
    /// that only this message refers to; the kernel's collector of such sockets closes both, in its own time. Where this
    /// fails, or on kernels whose collector runs at once (before 6.9), closing waits as usual.
    pub fn close_later(self) {
        let Ok((sender, receiver)) = socketpair(AddressFamily::Unix, SockType::Datagram, None, SockFlag::SOCK_CLOEXEC)
        else {
            return;
        };
        let descriptors = [receiver.as_raw_fd(), self.descriptor.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let _ = sendmsg::<()>(
            sender.as_raw_fd(),
            &[IoSlice::new(&[0])],
            &rights,
            MsgFlags::empty(),
            None,
        );
        drop(self);
        drop(receiver);
        // The last reference to the sender goes last: it is what wakes the collector.
        drop(sender);
    }

    /// Sends one request and waits for its acknowledgement. Returns what came before it.
    pub fn request(&mut self, message: Message) -> Result<Vec<Reply>, Error> {
        let mut outcomes = self.batch(&[message])?;
        outcomes.pop().unwrap_or(Err(Error::Interrupted))
    }

    /// Sends several requests in one datagram. The kernel serves them in order and goes on past a refusal; the
    /// result holds one outcome per request.
    pub fn batch(&mut self, requests: &[Message]) -> Result<Vec<Result<Vec<Reply>, Error>>, Error> {
        let first = self.reserve(requests.len());
        let mut bytes = Vec::with_capacity(requests.len() * 256);
        for (offset, message) in requests.iter().enumerate() {
            bytes.extend(message.encode(first.wrapping_add(offset as u32), NLM_F_REQUEST | NLM_F_ACK));
        }
        self.send(&bytes)?;
        let mut outcomes: Vec<Option<Result<Vec<Reply>, Error>>> = requests.iter().map(|_| None).collect();
        let mut replies: Vec<Vec<Reply>> = vec![Vec::new(); requests.len()];
        let mut open = requests.len();
        while open > 0 {
            let size = self.receive()?;
            for message in codec::messages(&self.buffer[..size]) {
                let position = message.sequence.wrapping_sub(first) as usize;
                if position >= requests.len() || outcomes[position].is_some() {
                    continue;
                }
                if message.kind == NLMSG_ERROR {
                    let replies = std::mem::take(&mut replies[position]);
                    outcomes[position] = Some(acknowledged(message.body).map(|()| replies));
                    open -= 1;
                } else {
                    replies[position].push(Reply {
                        kind: message.kind,
                        body: message.body.to_vec(),
                    });
                }
            }
        }
        Ok(outcomes
            .into_iter()
            .map(|outcome| outcome.unwrap_or(Err(Error::Interrupted)))
            .collect())
    }

    /// Like [`Self::batch`], but the first refusal is the error.
    pub fn batch_all(&mut self, requests: &[Message]) -> Result<(), Error> {
        self.batch(requests)?
            .into_iter()
            .try_for_each(|outcome| outcome.map(drop))
    }

    /// Lists objects, from the start again when the kernel says that they changed meanwhile.
    pub fn dump(&mut self, message: &Message) -> Result<Vec<Reply>, Error> {
        self.gather(message, |replies: &mut Vec<Reply>, kind, body| {
            let body = body.to_vec();
            replies.push(Reply { kind, body });
        })
    }

    /// What `visit` makes of the listed objects (type, body), each once: what was gathered when the kernel says that something changed
    /// meanwhile is thrown away, and all is listed again.
    pub fn gather<T: Default>(
        &mut self,
        message: &Message,
        mut visit: impl FnMut(&mut T, u16, &[u8]),
    ) -> Result<T, Error> {
        for _ in 0..MAX_DUMP_ATTEMPTS {
            let mut gathered = T::default();
            match self.visit_once(message, &mut |kind, body| visit(&mut gathered, kind, body)) {
                Ok(()) => return Ok(gathered),
                Err(Error::Interrupted | Error::Refused(Errno::EINTR)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Interrupted)
    }

    /// Shows each listed object to `visit` (type, body) as it arrives, so that a long list is never in memory. From the start again
    /// when the kernel says that something changed meanwhile: `visit` may see an object several times.
    pub fn visit(&mut self, message: &Message, visit: &mut dyn FnMut(u16, &[u8])) -> Result<(), Error> {
        for _ in 0..MAX_DUMP_ATTEMPTS {
            match self.visit_once(message, visit) {
                Err(Error::Interrupted | Error::Refused(Errno::EINTR)) => {}
                other => return other,
            }
        }
        Err(Error::Interrupted)
    }

    fn visit_once(&mut self, message: &Message, visit: &mut dyn FnMut(u16, &[u8])) -> Result<(), Error> {
        let sequence = self.reserve(1);
        self.send(&message.encode(sequence, NLM_F_REQUEST | NLM_F_DUMP))?;
        let mut interrupted = false;
        loop {
            let size = self.receive()?;
            for message in codec::messages(&self.buffer[..size]).filter(|message| message.sequence == sequence) {
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.kind {
                    NLMSG_DONE if interrupted => return Err(Error::Interrupted),
                    NLMSG_DONE => return done(message.body),
                    NLMSG_ERROR => return acknowledged(message.body),
                    kind => visit(kind, message.body),
                }
                if message.flags & NLM_F_MULTI == 0 {
                    return Ok(());
                }
            }
        }
    }

    /// Takes `count` sequence numbers; returns the first.
    pub(crate) fn reserve(&mut self, count: usize) -> u32 {
        let first = self.sequence;
        self.sequence = self.sequence.wrapping_add(count as u32);
        first
    }

    /// Makes the socket take a datagram of `bytes`, and answer refusals without repeating what was refused.
    pub(crate) fn make_room(&self, bytes: usize) -> Result<(), Error> {
        // Before 4.3 refusals repeat the request; that works too, in more memory.
        let _ = crate::sys::enable_netlink_option(self.descriptor.as_fd(), NETLINK_CAP_ACK);
        if bytes < SEND_BYTES {
            return Ok(());
        }
        // The kernel doubles it, and takes a little for itself.
        setsockopt(&self.descriptor, SndBufForce, &bytes).map_err(|errno| Error::Send(errno.into()))
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        loop {
            match sendto(
                self.descriptor.as_raw_fd(),
                bytes,
                &NetlinkAddr::new(0, 0),
                MsgFlags::empty(),
            ) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(Error::Send(errno.into())),
            }
        }
    }

    /// Receives one datagram into the buffer; returns its size.
    pub(crate) fn receive(&mut self) -> Result<usize, Error> {
        loop {
            match recv(self.descriptor.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Ok(size) => return Ok(size),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(Error::Receive(errno.into())),
            }
        }
    }

    /// The datagram [`Self::receive`] wrote.
    pub(crate) fn received(&self, size: usize) -> &[u8] {
        &self.buffer[..size]
    }
}

/// Reads `struct nlmsgerr`: zero is an acknowledgement.
pub(crate) fn acknowledged(body: &[u8]) -> Result<(), Error> {
    let code = codec::read_u32(body, 0).unwrap_or(0) as i32;
    if code == 0 {
        Ok(())
    } else {
        Err(Error::Refused(Errno::from_raw(code.wrapping_neg())))
    }
}

/// Reads the end of a dump, which carries an error code too.
fn done(body: &[u8]) -> Result<(), Error> {
    if body.len() < 4 { Ok(()) } else { acknowledged(body) }
}

#[cfg(test)]
mod tests;
