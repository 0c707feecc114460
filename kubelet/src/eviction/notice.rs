//! The kernel's notices that memory runs short: work stalls for want of it (PSI, `/proc/pressure/memory`), or pods together are at their
//! limit (`memory.events.local`). Where the kernel has none, memory is only looked at; so it is anyway, and a notice makes it sooner.
//!
//! What a notice says is never read: that there was one is all.

use crate::host::machine::Roots;
use crate::host::readiness;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// Some task waits for memory for 70 ms of 2 s: a window that takes no privilege.
const TRIGGER: &[u8] = b"some 70000 2000000\0";

/// The notices.
#[derive(Default)]
pub(super) struct Notices {
    stalls: Option<AsyncFd<File>>,
    limit: Option<AsyncFd<File>>,
}

impl Notices {
    /// Asks for notices of stalls, and of the limit whose file is `limit_events`. Must be called inside a tokio runtime.
    pub(super) fn open(roots: &Roots, limit_events: Option<&Path>) -> Self {
        let stalls = stalls(roots);
        if let Err(error) = &stalls {
            tracing::debug!(%error, "the kernel tells of no stalls for want of memory");
        }
        let limit = limit_events.map(limit).transpose();
        if let Err(error) = &limit {
            tracing::debug!(%error, "the kernel does not tell that pods are at their limit of memory");
        }
        Self {
            stalls: stalls.ok(),
            limit: limit.ok().flatten(),
        }
    }

    /// Whether the kernel tells of stalls.
    pub(super) fn are_told(&self) -> bool {
        self.stalls.is_some()
    }

    /// Waits for a notice: of stalls, which the kernel tells of once in two seconds at most, from `stalls` on, and of the limit from
    /// `limit` on. One that comes before is told then. Cancel safe.
    pub(super) async fn next(&self, stalls: Instant, limit: Instant) {
        tokio::select! {
            biased;
            () = told_from(limit, self.limit.as_ref()) => {
                tracing::debug!("the kernel tells that pods together are at their limit of memory");
                if let Some(limit) = &self.limit {
                    arm(limit.get_ref());
                }
            }
            () = told_from(stalls, self.stalls.as_ref()) => {}
        }
    }
}

fn stalls(roots: &Roots) -> io::Result<AsyncFd<File>> {
    let path = roots.proc.join("pressure/memory");
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    file.write_all(TRIGGER)?;
    readiness::watched(file, Interest::PRIORITY)
}

fn limit(events: &Path) -> io::Result<AsyncFd<File>> {
    let file = File::open(events)?;
    arm(&file);
    readiness::watched(file, Interest::PRIORITY)
}

/// A file of the kernel's tells of what was written since it was last read, and of nothing more.
fn arm(file: &File) {
    // One whose cgroup is gone fails, and tells no more.
    let _ = file.read_at(&mut [0; 256], 0);
}

async fn told_from(begin: Instant, file: Option<&AsyncFd<File>>) {
    if begin > Instant::now() {
        tokio::time::sleep_until(begin).await;
    }
    told(file).await;
}

async fn told(file: Option<&AsyncFd<File>>) {
    let Some(file) = file else {
        return std::future::pending().await;
    };
    match file.ready(Interest::PRIORITY).await {
        Ok(mut ready) => ready.clear_ready(),
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use nix::sys::socket::{MsgFlags, send};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::time::Duration;

    /// Somebody whose urgent bytes the other end is told of as of the kernel's notices.
    fn teller() -> (AsyncFd<File>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let told = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (tells, _) = listener.accept().expect("accepted");
        let file = File::from(OwnedFd::from(told));
        let file = readiness::watched(file, Interest::PRIORITY).expect("watched");
        (file, tells)
    }

    fn now() -> Instant {
        Instant::now()
    }

    /// Notices of stalls and of the limit, and who tells of each.
    pub(in super::super) fn told_by() -> (Notices, impl Fn(), impl Fn()) {
        let ((stalls, stall), (limit, at_limit)) = (teller(), teller());
        let notices = Notices {
            stalls: Some(stalls),
            limit: Some(limit),
        };
        let tell = |teller: TcpStream| {
            move || {
                send(teller.as_raw_fd(), b"!", MsgFlags::MSG_OOB).expect("sent");
            }
        };
        (notices, tell(stall), tell(at_limit))
    }

    #[tokio::test]
    async fn each_notice_of_either_kind_is_told_once() {
        let (notices, stall, at_limit) = told_by();
        let (stall, at_limit): (&dyn Fn(), &dyn Fn()) = (&stall, &at_limit);
        for tell in [at_limit, stall, at_limit, at_limit] {
            tell();
            let told = tokio::time::timeout(Duration::from_secs(60), notices.next(now(), now())).await;
            told.expect("a notice");
            let more = tokio::time::timeout(Duration::ZERO, notices.next(now(), now())).await;
            assert!(more.is_err(), "one notice is told once");
        }
    }

    #[tokio::test]
    async fn what_the_kernel_does_not_tell_of_is_waited_for_without_end() {
        let dir = tempfile::tempdir().expect("temp dir");
        let roots = Roots {
            proc: dir.path().to_owned(),
            ..Roots::default()
        };
        let notices = Notices::open(&roots, Some(&dir.path().join("memory.events.local")));
        assert!(!notices.are_told());
        let told = tokio::time::timeout(Duration::ZERO, notices.next(now(), now())).await;
        assert!(told.is_err(), "nobody tells");
    }
}
