//! The lock in systemd's hands (`FileDescriptorStoreMax=` of the kubelet's unit, `sd_notify(3)`): a kubelet that dies lets go of its own,
//! and a machine that is going down would not wait for the next one, nor for the pods that are ending.
//!
//! Decides nothing. Without systemd, or with a unit that stores nothing, the lock ends with the kubelet.

use super::logind::Lock;
use nix::libc::c_int;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// What the lock is called there.
const NAME: &str = "shutdown-lock";
/// Where systemd listens, for whom it has started.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Who holds a lock beyond this kubelet's end. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    socket: Option<PathBuf>,
    /// What was held for this kubelet until it began; open until it is let go of.
    inherited: Arc<Mutex<Vec<RawFd>>>,
}

impl Kept {
    /// systemd, if it started this process, and what it gave it. To be asked once, before there are other children.
    pub(super) fn by_systemd() -> Self {
        let given = sd_notify::listen_fds_with_names().map(|given| {
            let ours = given.filter(|(_, name)| name == NAME);
            ours.map(|(lock, _)| lock).collect()
        });
        let inherited = given.unwrap_or_else(|error| {
            tracing::warn!(%error, "what systemd kept for this kubelet is not understood");
            Vec::new()
        });
        Self {
            socket: std::env::var_os(SOCKET).map(PathBuf::from),
            inherited: Arc::new(Mutex::new(inherited)),
        }
    }

    /// Has this lock held, and no other.
    pub(super) fn put(&self, lock: &Lock) {
        self.release();
        let stored = self.say("FDSTORE=1", &[lock.as_raw_fd()]);
        if let Err(error) = stored {
            tracing::debug!(%error, "the lock on shutdowns ends with this kubelet");
        }
    }

    /// Has none held.
    pub(super) fn release(&self) {
        if let Err(error) = self.say("FDSTOREREMOVE=1", &[]) {
            tracing::warn!(%error, "systemd is not told to let go of the lock on shutdowns");
        }
        let inherited = std::mem::take(&mut *self.inherited.lock().unwrap_or_else(PoisonError::into_inner));
        for lock in inherited {
            if let Err(error) = nix::unistd::close(lock) {
                tracing::debug!(%error, "a lock of an earlier kubelet was closed already");
            }
        }
    }

    fn say(&self, what: &str, locks: &[c_int]) -> io::Result<()> {
        let Some(path) = &self.socket else { return Ok(()) };
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        let message = format!("{what}\nFDNAME={NAME}\n");
        let rights = [ControlMessage::ScmRights(locks)];
        let with = rights.get(..usize::from(!locks.is_empty())).unwrap_or_default();
        let parts = [IoSlice::new(message.as_bytes())];
        sendmsg::<()>(socket.as_raw_fd(), &parts, with, MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{ControlMessageOwned, recvmsg};
    use std::io::{IoSliceMut, Read};
    use std::os::fd::IntoRawFd;

    /// The next message, and what came with it.
    fn heard(socket: &UnixDatagram) -> (String, Vec<RawFd>) {
        let mut text = [0; 200];
        let mut space = nix::cmsg_space!([RawFd; 2]);
        let mut parts = [IoSliceMut::new(&mut text)];
        let told =
            recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty()).expect("a message");
        let mut locks = Vec::new();
        for part in told.cmsgs().expect("whole") {
            if let ControlMessageOwned::ScmRights(given) = part {
                locks.extend(given);
            }
        }
        let length = told.bytes;
        (String::from_utf8_lossy(&text[..length]).into_owned(), locks)
    }

    #[test]
    fn systemd_holds_the_last_lock_until_it_is_told_to_let_go() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let systemd = UnixDatagram::bind(&path).expect("a socket");
        let (_, old) = std::io::pipe().expect("a pipe");
        let inherited = Arc::new(Mutex::new(vec![old.into_raw_fd()]));
        let kept = Kept {
            socket: Some(path),
            inherited: inherited.clone(),
        };
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let lock = Lock::from(writer);
        kept.put(&lock);
        assert!(
            inherited.lock().expect("no panic").is_empty(),
            "the one before is closed"
        );
        let remove = "FDSTOREREMOVE=1\nFDNAME=shutdown-lock\n".to_owned();
        assert_eq!(heard(&systemd), (remove.clone(), Vec::new()));
        let (told, locks) = heard(&systemd);
        assert_eq!((told.as_str(), locks.len()), ("FDSTORE=1\nFDNAME=shutdown-lock\n", 1));
        drop(lock);
        // Another's now: closing it is the end of the pipe.
        nix::unistd::close(locks[0]).expect("systemd's own");
        assert_eq!(reader.read(&mut [0; 1]).expect("the end"), 0);
        kept.release();
        assert_eq!(heard(&systemd), (remove, Vec::new()));
    }

    #[test]
    fn without_systemd_nothing_is_said_and_the_lock_ends_with_the_kubelet() {
        let (mut old_reader, old) = std::io::pipe().expect("a pipe");
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let kept = Kept {
            socket: None,
            inherited: Arc::new(Mutex::new(vec![old.into_raw_fd()])),
        };
        let lock = Lock::from(writer);
        assert!(kept.say("FDSTORE=1", &[lock.as_raw_fd()]).is_ok(), "that is no fault");
        kept.put(&lock);
        // Nobody else has either of them: the ends are there to be read.
        assert_eq!(old_reader.read(&mut [0; 1]).expect("the end"), 0);
        drop(lock);
        assert_eq!(reader.read(&mut [0; 1]).expect("the end"), 0);
        kept.release();
    }
}
