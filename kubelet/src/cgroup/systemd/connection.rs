//! One conversation with systemd over its socket: authentication, calls, waiting for jobs. Blocks, with a deadline for
//! the whole of it.

use crate::dbus::message::{Call, Received, decode, message_length};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A slice takes milliseconds; a systemd that is busy starting a machine takes longer.
const DEADLINE: Duration = Duration::from_secs(30);
/// The answer to authentication is one line.
const LINE_BYTES_MAX: usize = 256;
const JOB_REMOVED: &str = "JobRemoved";
/// How a job ends well; `skipped` is a condition's doing and not ours.
const DONE: &str = "done";

/// A conversation with systemd that failed.
#[derive(Debug, thiserror::Error)]
pub enum SystemdError {
    /// The socket does not take a connection.
    #[error("connect to systemd at {socket}")]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// systemd does not let this process in.
    #[error("systemd refuses authentication: {0:?}")]
    Authenticate(String),
    /// The connection broke, or systemd took longer than 30 seconds.
    #[error("{doing}")]
    Talk {
        /// What was being done.
        doing: &'static str,
        /// Why.
        source: io::Error,
    },
    /// What systemd sent is not what it is documented to send.
    #[error("systemd's message is malformed: {0}")]
    Malformed(&'static str),
    /// systemd answered a call with an error.
    #[error("{call}: {message} ({name})")]
    Refused {
        /// The call.
        call: &'static str,
        /// The error's name.
        name: String,
        /// The error's text.
        message: String,
    },
    /// A unit could not be started or stopped.
    #[error("{call} {unit} ended as {result:?}")]
    Job {
        /// The call.
        call: &'static str,
        /// The unit.
        unit: String,
        /// systemd's word for it.
        result: String,
    },
}

/// A connection that is let in.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    until: Instant,
    received: Vec<u8>,
    serial: u32,
    /// Jobs that ended before the reply that names them: job, result.
    ended: Vec<(String, String)>,
}

impl Connection {
    pub(super) fn open(socket: &Path) -> Result<Self, SystemdError> {
        let stream = UnixStream::connect(socket).map_err(|source| SystemdError::Connect {
            socket: socket.to_owned(),
            source,
        })?;
        let mut connection = Self {
            stream,
            until: Instant::now() + DEADLINE,
            received: Vec::new(),
            serial: 0,
            ended: Vec::new(),
        };
        connection.authenticate()?;
        Ok(connection)
    }

    /// As ourselves: the kernel tells systemd who that is.
    ///
    /// `BEGIN` goes out with the request and not after the answer: systemd does not look at a whole message it has read
    /// together with `BEGIN` until something else arrives, which would be never.
    fn authenticate(&mut self) -> Result<(), SystemdError> {
        let user = hex::encode(nix::unistd::geteuid().to_string());
        self.send(
            "authenticate with systemd",
            format!("\0AUTH EXTERNAL {user}\r\nBEGIN\r\n").as_bytes(),
        )?;
        let end = loop {
            if let Some(end) = self.received.windows(2).position(|pair| pair == b"\r\n") {
                break end;
            }
            if self.received.len() > LINE_BYTES_MAX {
                return Err(SystemdError::Malformed(
                    "no end of the line that answers authentication",
                ));
            }
            self.read_more("authenticate with systemd")?;
        };
        let line = String::from_utf8_lossy(&self.received[..end]).into_owned();
        self.received.drain(..end + 2);
        match line.starts_with("OK ") {
            true => Ok(()),
            false => Err(SystemdError::Authenticate(line)),
        }
    }

    fn remaining(&self, doing: &'static str) -> Result<Duration, SystemdError> {
        let left = self.until.saturating_duration_since(Instant::now());
        let late = || io::Error::from(io::ErrorKind::TimedOut);
        match left.is_zero() {
            true => Err(SystemdError::Talk { doing, source: late() }),
            false => Ok(left),
        }
    }

    fn send(&mut self, doing: &'static str, bytes: &[u8]) -> Result<(), SystemdError> {
        let left = self.remaining(doing)?;
        let sent = self
            .stream
            .set_write_timeout(Some(left))
            .and_then(|()| self.stream.write_all(bytes));
        sent.map_err(|source| SystemdError::Talk { doing, source })
    }

    fn read_more(&mut self, doing: &'static str) -> Result<(), SystemdError> {
        let left = self.remaining(doing)?;
        let mut buffer = [0; 4096];
        let read = self
            .stream
            .set_read_timeout(Some(left))
            .and_then(|()| self.stream.read(&mut buffer));
        match read {
            Ok(0) => Err(SystemdError::Talk {
                doing,
                source: io::ErrorKind::UnexpectedEof.into(),
            }),
            Ok(count) => {
                self.received.extend(&buffer[..count]);
                Ok(())
            }
            Err(source) if source.kind() == io::ErrorKind::Interrupted => Ok(()),
            // How a socket says that its time is over.
            Err(source) if source.kind() == io::ErrorKind::WouldBlock => Err(SystemdError::Talk {
                doing,
                source: io::ErrorKind::TimedOut.into(),
            }),
            Err(source) => Err(SystemdError::Talk { doing, source }),
        }
    }

    /// The next message; the end of a job is noted on the way.
    fn next(&mut self, doing: &'static str) -> Result<Received, SystemdError> {
        loop {
            if let Some(length) = message_length(&self.received).map_err(SystemdError::Malformed)?
                && self.received.len() >= length
            {
                let bytes: Vec<u8> = self.received.drain(..length).collect();
                let message = decode(&bytes).ok_or(SystemdError::Malformed("a message ends early"))?;
                if message.member.as_deref() == Some(JOB_REMOVED)
                    && let [job, _unit, result] = message.texts().as_slice()
                {
                    self.ended.push((job.clone(), result.clone()));
                }
                return Ok(message);
            }
            self.read_more(doing)?;
        }
    }

    /// Calls and waits for the reply: its texts.
    pub(super) fn call(&mut self, call: &Call) -> Result<Vec<String>, SystemdError> {
        self.serial += 1;
        self.send(call.member(), &call.encode(self.serial))?;
        loop {
            let message = self.next(call.member())?;
            if message.reply_to != Some(self.serial) {
                continue;
            }
            let texts = message.texts();
            return match message.error {
                None => Ok(texts),
                Some(name) => Err(SystemdError::Refused {
                    call: call.member(),
                    name,
                    message: texts.into_iter().next().unwrap_or_default(),
                }),
            };
        }
    }

    /// Calls what starts a job, and waits for the job's end.
    pub(super) fn run_job(&mut self, call: &Call, unit: &str) -> Result<(), SystemdError> {
        let reply = self.call(call)?;
        let job = reply.first().ok_or(SystemdError::Malformed("a job without a name"))?;
        loop {
            if let Some((_, result)) = self.ended.iter().find(|(ended, _)| ended == job) {
                return match result == DONE {
                    true => Ok(()),
                    false => Err(SystemdError::Job {
                        call: call.member(),
                        unit: unit.to_owned(),
                        result: result.clone(),
                    }),
                };
            }
            self.next(call.member())?;
        }
    }
}
