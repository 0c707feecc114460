//! A service's side of a conversation, and a bus of a test's own.

use super::*;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{BufRead, BufReader, IoSlice};
use std::os::fd::BorrowedFd;
use std::process::{Child, Command, Stdio};

/// No step takes long; on a machine that is busy it may.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

impl Bus {
    /// Sends a message that is not short.
    pub(crate) async fn shout(&mut self, bytes: &[u8]) {
        self.send("shout", bytes).await.expect("sent");
    }

    /// Takes a well-known name.
    pub(crate) async fn own(&mut self, name: &str) {
        let mut call = Call::new(BUS, "RequestName", "su");
        call.text(name).number(0);
        self.call(&call).await.expect("the name");
    }

    /// The next message, whatever it is.
    pub(crate) async fn request(&mut self) -> Result<Received, BusError> {
        self.message("wait for a call").await.map(|(message, _)| message)
    }

    /// Sends a message, with a descriptor if there is one.
    pub(crate) async fn say(&mut self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) {
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        }
        self.stream.writable().await.expect("a connection");
        let sent = sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
        assert_eq!(sent.expect("sent"), bytes.len(), "it is short");
    }
}

/// A bus of its own, where everybody may own and say everything. Ends with it.
pub(crate) struct Daemon {
    directory: tempfile::TempDir,
    child: Child,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let config = format!(
            r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path={}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_type="*"/>
    <allow receive_type="*"/>
  </policy>
</busconfig>"#,
            directory.path().join("bus").display()
        );
        let path = directory.path().join("bus.conf");
        std::fs::write(&path, config).expect("written");
        let mut child = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", path.display()))
            .args(["--nofork", "--nopidfile", "--nosyslog", "--print-address=1"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("dbus-daemon, of the package dbus, which hack/test installs");
        // It tells its address once it listens.
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("its address");
        assert!(line.starts_with("unix:path="), "{line:?}");
        Self { directory, child }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("bus")
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}
