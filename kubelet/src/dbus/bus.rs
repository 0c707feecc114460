//! One conversation over a bus of the machine: calls with a deadline, the signals that were asked for, descriptors that come with replies.
//!
//! What nobody asked for is thrown away, whoever sends it: on a bus everybody may write to everybody.

use super::message::{Call, MESSAGE_BYTES_MAX, Received, Target, Value, announced_length, decode};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;

/// How long a call may take, and the greeting.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// The two lines that answer the greeting.
const LINE_BYTES_MAX: usize = 256;
/// The kernel passes no more with one message.
const DESCRIPTORS_MAX: usize = 253;
/// Signals that wait to be taken: those we ask for come a few in a machine's life.
const SIGNALS_MAX: usize = 64;
/// What is being done before the first call.
const GREETING: &str = "authenticate with the bus";
/// The bus itself.
const BUS: Target = Target {
    destination: "org.freedesktop.DBus",
    path: "/org/freedesktop/DBus",
    interface: "org.freedesktop.DBus",
};

/// A conversation that failed.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The socket does not take a connection.
    #[error("connect to the system bus at {socket}")]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The bus does not let this process in, or passes no descriptors.
    #[error("the bus refuses authentication: {0:?}")]
    Authenticate(String),
    /// The connection broke.
    #[error("{doing}")]
    Talk {
        /// What was being done.
        doing: &'static str,
        /// Why.
        source: io::Error,
    },
    /// No answer came in the time there is.
    #[error("{0}: no answer in time")]
    Late(&'static str),
    /// What was sent is not what is documented to be sent.
    #[error("malformed: {0}")]
    Malformed(&'static str),
    /// A call was answered with an error.
    #[error("{call}: {message} ({name})")]
    Refused {
        /// The call.
        call: &'static str,
        /// The error's name.
        name: String,
        /// The error's text.
        message: String,
    },
}

/// What a call was answered with.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) values: Vec<Value>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Reply {
    /// Its first text.
    pub(crate) fn text(self) -> Result<String, BusError> {
        match self.values.into_iter().next() {
            Some(Value::Text(text)) => Ok(text),
            _ => Err(BusError::Malformed("a reply without its text")),
        }
    }
}

/// A signal that is listened to: by that sender, whose name is the one the bus gave him, or one the bus keeps for itself.
#[derive(Debug)]
struct Subscribed {
    sender: String,
    interface: &'static str,
    member: &'static str,
}

/// A connection that is let in.
#[derive(Debug)]
pub struct Bus {
    stream: UnixStream,
    deadline: Duration,
    received: Vec<u8>,
    /// Bytes of a message too large for us that are still to come.
    skip: usize,
    descriptors: VecDeque<OwnedFd>,
    serial: u32,
    subscribed: Vec<Subscribed>,
    signals: VecDeque<Received>,
}

impl Bus {
    /// Connects to the bus at `socket`; this and every call may take until the `deadline`.
    ///
    /// # Errors
    /// There is none, it does not let us in, or does not answer in time.
    pub async fn connect(socket: &Path, deadline: Duration) -> Result<Self, BusError> {
        in_time(deadline, GREETING, async {
            let stream = UnixStream::connect(socket).await;
            let stream = stream.map_err(|source| BusError::Connect {
                socket: socket.to_owned(),
                source,
            })?;
            let mut bus = Self {
                stream,
                deadline,
                received: Vec::new(),
                skip: 0,
                descriptors: VecDeque::new(),
                serial: 0,
                subscribed: Vec::new(),
                signals: VecDeque::new(),
            };
            bus.authenticate().await?;
            bus.call(&Call::new(BUS, "Hello", "")).await?;
            Ok(bus)
        })
        .await
    }

    /// As ourselves: the kernel tells the bus who that is.
    async fn authenticate(&mut self) -> Result<(), BusError> {
        let user = hex::encode(nix::unistd::geteuid().to_string());
        let greeting = format!("\0AUTH EXTERNAL {user}\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n");
        self.send(GREETING, greeting.as_bytes()).await?;
        for expected in ["OK ", "AGREE_UNIX_FD"] {
            let line = self.line().await?;
            if !line.starts_with(expected) {
                return Err(BusError::Authenticate(line));
            }
        }
        Ok(())
    }

    async fn line(&mut self) -> Result<String, BusError> {
        loop {
            if let Some(end) = self.received.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(&self.received[..end]).into_owned();
                self.received.drain(..end + 2);
                return Ok(line);
            }
            if self.received.len() > LINE_BYTES_MAX {
                return Err(BusError::Malformed("no end of the line that answers authentication"));
            }
            self.read_more(GREETING).await?;
        }
    }

    async fn send(&mut self, doing: &'static str, bytes: &[u8]) -> Result<(), BusError> {
        let sent = self.stream.write_all(bytes).await;
        sent.map_err(|source| BusError::Talk { doing, source })
    }

    /// Reads what there is. Nothing is lost when the wait for it is given up.
    async fn read_more(&mut self, doing: &'static str) -> Result<(), BusError> {
        let failed = |source| BusError::Talk { doing, source };
        loop {
            self.stream.readable().await.map_err(failed)?;
            let Self {
                stream,
                received,
                descriptors,
                ..
            } = self;
            match stream.try_io(Interest::READABLE, || receive(stream, received, descriptors)) {
                Ok(0) => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => return Ok(()),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// The next message with its descriptors.
    async fn message(&mut self, doing: &'static str) -> Result<(Received, Vec<OwnedFd>), BusError> {
        loop {
            let skipped = self.skip.min(self.received.len());
            self.received.drain(..skipped);
            self.skip -= skipped;
            let length = announced_length(&self.received).map_err(BusError::Malformed)?;
            if let Some(length) = length.filter(|length| *length > MESSAGE_BYTES_MAX) {
                // Anybody may send such a thing. Nothing that follows is there yet, so all descriptors that are came with it.
                self.descriptors.clear();
                self.skip = length;
                continue;
            }
            if let Some(length) = length.filter(|length| self.received.len() >= *length) {
                let bytes: Vec<u8> = self.received.drain(..length).collect();
                let message = decode(&bytes).ok_or(BusError::Malformed("a message ends early"))?;
                let count = usize::try_from(message.descriptors).unwrap_or(usize::MAX);
                if count > self.descriptors.len() {
                    return Err(BusError::Malformed("descriptors are missing"));
                }
                return Ok((message, self.descriptors.drain(..count).collect()));
            }
            self.read_more(doing).await?;
        }
    }

    /// Calls and waits for the reply.
    ///
    /// # Errors
    /// The call is refused, no answer came in time, or the connection broke: after all but a refusal it is of no use any more.
    pub(crate) async fn call(&mut self, call: &Call) -> Result<Reply, BusError> {
        in_time(self.deadline, call.member(), async {
            self.serial += 1;
            self.send(call.member(), &call.encode(self.serial)).await?;
            loop {
                let (message, descriptors) = self.message(call.member()).await?;
                if message.reply_to != Some(self.serial) {
                    self.keep(message)?;
                    continue;
                }
                return match message.error {
                    None => Ok(Reply {
                        values: message.values(),
                        descriptors,
                    }),
                    Some(ref name) => Err(BusError::Refused {
                        call: call.member(),
                        name: name.clone(),
                        message: message.texts().into_iter().next().unwrap_or_default(),
                    }),
                };
            }
        })
        .await
    }

    /// Keeps a signal that was asked for.
    fn keep(&mut self, message: Received) -> Result<(), BusError> {
        let is_of = |subscribed: &Subscribed| {
            message.sender.as_deref() == Some(&subscribed.sender)
                && message.interface.as_deref() == Some(subscribed.interface)
                && message.member.as_deref() == Some(subscribed.member)
        };
        if message.reply_to.is_none() && self.subscribed.iter().any(is_of) {
            if self.signals.len() >= SIGNALS_MAX {
                return Err(BusError::Malformed("too many signals at once"));
            }
            self.signals.push_back(message);
        }
        Ok(())
    }

    /// The name the bus gave to whoever has that well-known name now; a service that can be started is.
    pub(crate) async fn owner(&mut self, name: &str) -> Result<String, BusError> {
        // Refused if it runs already, or cannot be started: what follows tells.
        let mut start = Call::new(BUS, "StartServiceByName", "su");
        start.text(name).number(0);
        match self.call(&start).await {
            Ok(_) | Err(BusError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut owner = Call::new(BUS, "GetNameOwner", "s");
        owner.text(name);
        self.call(&owner).await?.text()
    }

    /// Has a signal delivered from now on.
    pub(crate) async fn subscribe(
        &mut self,
        sender: String,
        interface: &'static str,
        member: &'static str,
    ) -> Result<(), BusError> {
        self.add_match(&format!(
            "type='signal',sender='{sender}',interface='{interface}',member='{member}'"
        ))
        .await?;
        self.subscribed.push(Subscribed {
            sender,
            interface,
            member,
        });
        Ok(())
    }

    /// Has it told from now on when the well-known name gets another owner, or none.
    pub(crate) async fn subscribe_to_owner(&mut self, name: &str) -> Result<(), BusError> {
        let (interface, member) = (BUS.interface, "NameOwnerChanged");
        let sender = BUS.destination.to_owned();
        self.add_match(&format!(
            "type='signal',sender='{sender}',interface='{interface}',member='{member}',arg0='{name}'"
        ))
        .await?;
        self.subscribed.push(Subscribed {
            sender,
            interface,
            member,
        });
        Ok(())
    }

    async fn add_match(&mut self, rule: &str) -> Result<(), BusError> {
        let mut call = Call::new(BUS, "AddMatch", "s");
        call.text(rule);
        self.call(&call).await.map(drop)
    }

    /// The next signal of those that were asked for. Nothing is lost when the wait for it is given up.
    ///
    /// # Errors
    /// The connection ended.
    pub(crate) async fn next(&mut self) -> Result<Received, BusError> {
        loop {
            if let Some(signal) = self.signals.pop_front() {
                return Ok(signal);
            }
            let (message, _descriptors) = self.message("wait for a signal").await?;
            self.keep(message)?;
        }
    }
}

/// Takes what the kernel has; the count of bytes is 0 at the end of the connection.
fn receive(stream: &UnixStream, received: &mut Vec<u8>, descriptors: &mut VecDeque<OwnedFd>) -> io::Result<usize> {
    let mut buffer = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let taken = recvmsg(stream, &mut [IoSliceMut::new(&mut buffer)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if taken.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("more descriptors than a bus passes"));
    }
    received.extend(&buffer[..taken.bytes]);
    Ok(taken.bytes)
}

async fn in_time<T>(
    deadline: Duration,
    doing: &'static str,
    work: impl Future<Output = Result<T, BusError>>,
) -> Result<T, BusError> {
    let done = tokio::time::timeout(deadline, work).await;
    done.unwrap_or(Err(BusError::Late(doing)))
}

#[cfg(test)]
pub(crate) mod testing;
