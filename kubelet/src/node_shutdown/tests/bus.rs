//! What is said to logind, over a real bus.

use crate::dbus::bus::testing::{DEADLINE, Daemon};
use crate::dbus::bus::{Bus, BusError};
use crate::dbus::message::{Received, Value, testing};
use crate::node_shutdown::logind::{Logind, LogindError, Session, SystemBus};
use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;

const PATH: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";
const PREPARE: &str = "PrepareForShutdown";
/// No step takes long; on a machine that is busy all of them may.
const PATIENCE: Duration = Duration::from_secs(120);

/// A logind, and the systemd that has it read its settings.
struct Service {
    bus: Bus,
    settings: PathBuf,
    delay_micros: u64,
    preparing: bool,
    /// Where its locks go, and the names of those who ask.
    locks: mpsc::UnboundedSender<PipeReader>,
    askers: mpsc::UnboundedSender<String>,
}

impl Service {
    /// Answers until it is told to signal something, which it does then.
    async fn serve(mut self, mut signals: mpsc::UnboundedReceiver<bool>) {
        loop {
            tokio::select! {
                biased;
                signal = signals.recv() => match signal {
                    Some(preparing) => self.signal(preparing).await,
                    None => return,
                },
                call = self.bus.request() => match call {
                    Ok(call) => self.answer(&call).await,
                    Err(_) => return,
                },
            }
        }
    }

    async fn signal(&mut self, preparing: bool) {
        self.preparing = preparing;
        self.bus
            .say(&testing::signal(PATH, MANAGER, PREPARE, preparing, None), None)
            .await;
    }

    async fn answer(&mut self, call: &Received) {
        let (Some(member), Some(from)) = (call.member.as_deref(), call.sender.as_deref()) else {
            return;
        };
        let _ = self.askers.send(from.to_owned());
        let texts = call.texts();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let value = match (member, texts.as_slice()) {
            ("Get", [MANAGER, "InhibitDelayMaxUSec"]) => Some(Value::Number(self.delay_micros)),
            ("Get", [MANAGER, "PreparingForShutdown"]) => Some(Value::Bool(self.preparing)),
            ("KillUnit", ["systemd-logind.service", "all"]) => {
                self.read_settings();
                None
            }
            ("Inhibit", ["shutdown", "kubelet", _, "delay"]) if !self.preparing => {
                let (reader, writer) = std::io::pipe().expect("a pipe");
                let _ = self.locks.send(reader);
                let reply = testing::answer(call.serial, from, None, true);
                return self.bus.say(&reply, Some(writer.as_fd())).await;
            }
            ("Inhibit", _) => {
                let reply = testing::refused_to(call.serial, from, "org.freedesktop.login1.OperationInProgress", "no");
                return self.bus.say(&reply, None).await;
            }
            // What the bus tells everybody.
            _ => return,
        };
        let reply = testing::answer(call.serial, from, value, false);
        self.bus.say(&reply, None).await;
    }

    fn read_settings(&mut self) {
        let text = std::fs::read_to_string(self.settings.join("99-kubelet.conf")).expect("settings");
        let seconds = text.lines().find_map(|line| line.strip_prefix("InhibitDelayMaxSec="));
        assert!(text.contains("\n[Login]\n"), "{text}");
        self.delay_micros = seconds.and_then(|text| text.parse::<u64>().ok()).expect("seconds") * 1_000_000;
    }
}

/// A logind that runs, and what it tells the test.
struct Running {
    signals: mpsc::UnboundedSender<bool>,
    locks: mpsc::UnboundedReceiver<PipeReader>,
    askers: mpsc::UnboundedReceiver<String>,
    task: tokio::task::JoinHandle<()>,
}

async fn start(socket: &Path, settings: &Path) -> Running {
    let mut bus = Bus::connect(socket, DEADLINE).await.expect("a bus");
    for name in ["org.freedesktop.login1", "org.freedesktop.systemd1"] {
        bus.own(name).await;
    }
    let (signals, to_signal) = mpsc::unbounded_channel();
    let (lock, locks) = mpsc::unbounded_channel();
    let (asker, askers) = mpsc::unbounded_channel();
    let service = Service {
        bus,
        settings: settings.to_owned(),
        delay_micros: 5_000_000,
        preparing: false,
        locks: lock,
        askers: asker,
    };
    Running {
        signals,
        locks,
        askers,
        task: tokio::spawn(service.serve(to_signal)),
    }
}

impl Running {
    async fn stop(self) {
        drop(self.signals);
        self.task.await.expect("it ended well");
    }
}

/// Somebody else on the bus says the same to us alone.
async fn pretend(socket: &Path, to: &str) {
    let mut stranger = Bus::connect(socket, DEADLINE).await.expect("a bus");
    stranger
        .say(&testing::signal(PATH, MANAGER, PREPARE, true, Some(to)), None)
        .await;
    // What is too large for us, or in another byte order, is passed over.
    stranger.shout(&testing::large_signal(PATH, MANAGER, to)).await;
    stranger
        .shout(&testing::foreign_signal(PATH, MANAGER, PREPARE, to))
        .await;
    // The bus takes one after the other: what came before this was passed on.
    stranger.owner("org.freedesktop.login1").await.expect("an owner");
}

async fn expect_signal(session: &mut dyn Session, expected: bool) {
    assert_eq!(session.next().await.expect("a signal"), expected);
}

#[tokio::test]
async fn logind_is_spoken_to_over_a_bus() {
    let talk = async {
        let mut daemon = Daemon::start();
        let settings = tempfile::tempdir().expect("a directory");
        let directory = settings.path().join("logind.conf.d");
        let bus = SystemBus::new(daemon.socket(), &directory).patient();
        let mut logind = start(&daemon.socket(), &directory).await;
        let mut session = bus.connect().await.expect("a conversation");
        assert_eq!(session.delay_max().await.expect("a property"), Duration::from_secs(5));
        session.raise_delay_max(Duration::from_secs(30)).await.expect("raised");
        assert_eq!(session.delay_max().await.expect("a property"), Duration::from_secs(30));
        let files: Vec<_> = std::fs::read_dir(&directory).expect("a directory").flatten().collect();
        assert_eq!(files.len(), 1, "nothing else is left there");

        let lock = session.inhibit().await.expect("a lock");
        let mut held = logind.locks.recv().await.expect("the other end");
        assert!(!session.is_preparing().await.expect("a property"));
        let us = logind.askers.recv().await.expect("a name");
        pretend(&daemon.socket(), &us).await;
        logind.signals.send(false).expect("it runs");
        expect_signal(&mut *session, false).await;
        logind.signals.send(true).expect("it runs");
        expect_signal(&mut *session, true).await;
        assert!(session.is_preparing().await.expect("a property"));
        let refused = session.inhibit().await.expect_err("too late");
        assert!(
            matches!(&refused, LogindError::Bus(BusError::Refused { name, .. }) if name.ends_with("OperationInProgress")),
            "{refused:?}"
        );
        drop(lock);
        let end = client::blocking::spawn(move || held.read(&mut [0]).expect("a pipe"));
        assert_eq!(end.await.expect("read"), 0, "the lock was held by nobody else");

        logind.stop().await;
        assert!(matches!(session.next().await, Err(LogindError::Restarted)));
        let _another = start(&daemon.socket(), &directory).await;
        let mut session = bus.connect().await.expect("a conversation");
        assert!(!session.is_preparing().await.expect("a property"));
        daemon.kill();
        assert!(matches!(
            session.next().await,
            Err(LogindError::Bus(BusError::Talk { .. }))
        ));
    };
    tokio::time::timeout(PATIENCE, talk).await.expect("in time");
}

#[tokio::test]
async fn a_machine_without_a_bus_or_a_logind_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let nowhere = SystemBus::new(directory.path().join("bus"), directory.path()).patient();
    let error = nowhere.connect().await.err().expect("nobody there").to_string();
    assert!(error.starts_with("connect to the system bus at "), "{error}");
    let daemon = Daemon::start();
    let no_logind = SystemBus::new(daemon.socket(), directory.path()).patient();
    let error = no_logind.connect().await.err().expect("nobody there").to_string();
    assert!(error.contains("org.freedesktop.DBus.Error.NameHasNoOwner"), "{error}");
}
