//! A systemd of the tests: speaks the wire, remembers what it was asked, keeps no unit but its name.

use crate::dbus::message::{decode, message_length, testing};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Answers on a socket of its own until it is dropped with its directory.
pub(crate) struct FakeSystemd {
    directory: tempfile::TempDir,
    calls: Arc<Mutex<Vec<String>>>,
}

impl FakeSystemd {
    pub(crate) fn start() -> Self {
        Self::ending_jobs_as("done")
    }

    pub(crate) fn ending_jobs_as(result: &'static str) -> Self {
        let directory = tempfile::tempdir().expect("temp dir");
        let listener = UnixListener::bind(directory.path().join("private")).expect("listen");
        let calls: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = calls.clone();
        std::thread::spawn(move || {
            let mut units = BTreeSet::new();
            for stream in listener.incoming().flatten() {
                serve(stream, &mut units, &seen, result);
            }
        });
        Self { directory, calls }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("private")
    }

    /// What it was asked since the last time: call and unit.
    pub(crate) fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn serve(mut stream: UnixStream, units: &mut BTreeSet<String>, calls: &Mutex<Vec<String>>, result: &str) {
    let mut received = Vec::new();
    let mut let_in = false;
    let mut buffer = [0; 512];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        received.extend(&buffer[..count]);
        while let Some(end) = received.windows(2).position(|pair| pair == b"\r\n").filter(|_| !let_in) {
            let line: Vec<u8> = received.drain(..end + 2).collect();
            let_in = line == b"BEGIN\r\n";
            if let_in {
                // The real one would not look at it until more arrives.
                assert!(received.is_empty(), "a message in one piece with BEGIN");
            } else {
                assert!(line.starts_with(b"\0AUTH EXTERNAL "), "{line:?}");
                stream.write_all(b"OK 0123456789abcdef\r\n").expect("answer");
            }
        }
        while let Ok(Some(length)) = message_length(&received)
            && let_in
            && received.len() >= length
        {
            let bytes: Vec<u8> = received.drain(..length).collect();
            let answer = answer(&bytes, units, calls, result);
            // In two pieces: a reader must not take one read for one message.
            let (first, second) = answer.split_at(answer.len() / 2);
            stream
                .write_all(first)
                .and_then(|()| stream.write_all(second))
                .expect("answer");
        }
    }
}

fn answer(bytes: &[u8], units: &mut BTreeSet<String>, calls: &Mutex<Vec<String>>, result: &str) -> Vec<u8> {
    let call = decode(bytes).expect("a call");
    let member = call.member.clone().expect("a name");
    let unit = call.texts().first().cloned().expect("a unit");
    let asked = format!("{member} {unit}");
    calls.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
    let serial = testing::serial(bytes);
    let job = format!("/org/freedesktop/systemd1/job/{serial}");
    match member.as_str() {
        "StartTransientUnit" if !units.insert(unit.clone()) => {
            let message = format!("Unit {unit} was already loaded or has a fragment file.");
            testing::refused(serial, super::UNIT_EXISTS, &message)
        }
        "StopUnit" if !units.remove(&unit) => testing::refused(serial, super::NO_SUCH_UNIT, "not loaded"),
        "SetUnitProperties" => testing::done(serial),
        // Another job's end and then ours before the reply that names it: both happen.
        _ => [
            testing::job_removed("/org/freedesktop/systemd1/job/0", "other.service", "failed"),
            testing::job_removed(&job, &unit, result),
            testing::job_started(serial, &job),
        ]
        .concat(),
    }
}
