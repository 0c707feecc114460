//! logind over the machine's bus: what is asked of it, and what it is asked with.
//!
//! The seam of this part: the real one is [`SystemBus`], tests have one that follows a script. Nothing here decides.

use super::kept::Kept;
use crate::dbus::bus::{Bus, BusError, DEADLINE};
use crate::dbus::message::{Call, Target, Value};
use async_trait::async_trait;
use std::fmt::Debug;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the machine's bus is.
pub const SOCKET: &str = "/run/dbus/system_bus_socket";
/// Where logind's settings may be added to.
pub const SETTINGS: &str = "/etc/systemd/logind.conf.d";
/// The name of what is added.
const OURS: &str = "99-kubelet.conf";

const NAME: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";
const PREPARE: &str = "PrepareForShutdown";
const LOGIND: Target = Target {
    destination: NAME,
    path: PATH,
    interface: MANAGER,
};
const PROPERTIES: Target = Target {
    destination: NAME,
    path: PATH,
    interface: "org.freedesktop.DBus.Properties",
};
const SYSTEMD: Target = Target {
    destination: "org.freedesktop.systemd1",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
};
const UNIT: &str = "systemd-logind.service";
const SIGHUP: i32 = 1;

/// Why nothing is heard of logind.
#[derive(Debug, thiserror::Error)]
pub enum LogindError {
    /// The conversation failed.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// It is another one by now, or none.
    #[error("logind was restarted")]
    Restarted,
    /// Its settings cannot be added to.
    #[error("write {path}")]
    Settings {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A property has another type than it is documented to have.
    #[error("logind's property {0} is not of its type")]
    Property(&'static str),
    /// The lock came without its descriptor.
    #[error("logind gave no lock")]
    NoLock,
}

/// As long as it is open, the machine's shutdown is delayed.
pub type Lock = OwnedFd;

/// Where logind is found.
#[async_trait]
pub trait Logind: Debug + Send + Sync + 'static {
    /// Begins a conversation: from then on no shutdown is missed.
    async fn connect(&self) -> Result<Box<dyn Session>, LogindError>;
    /// Has this lock held also while no kubelet runs, in place of one before.
    fn keep(&self, lock: &Lock);
    /// Has none held any more, nor one of an earlier kubelet's.
    fn release(&self);
}

/// A conversation with logind. After an error it is of no use any more.
#[async_trait]
pub trait Session: Send {
    /// Which logind it is: another one after a restart.
    fn owner(&self) -> &str;
    /// How long locks delay a shutdown at most (`InhibitDelayMaxUSec`).
    async fn delay_max(&mut self) -> Result<Duration, LogindError>;
    /// Has logind told to allow that much. It may take a moment.
    async fn raise_delay_max(&mut self, to: Duration) -> Result<(), LogindError>;
    /// Takes a lock. Refused once a shutdown was asked for.
    async fn inhibit(&mut self) -> Result<Lock, LogindError>;
    /// Whether a shutdown was asked for.
    async fn is_preparing(&mut self) -> Result<bool, LogindError>;
    /// Waits until that changes: whether it was asked for then. Nothing is lost when the wait is given up.
    async fn next(&mut self) -> Result<bool, LogindError>;
}

/// The real one.
#[derive(Clone, Debug)]
pub struct SystemBus {
    socket: PathBuf,
    deadline: Duration,
    settings: PathBuf,
    kept: Kept,
}

impl SystemBus {
    /// The logind on the bus at `socket` ([`SOCKET`]), whose settings are added to in `settings` ([`SETTINGS`]).
    pub fn new(socket: impl Into<PathBuf>, settings: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            deadline: DEADLINE,
            settings: settings.into(),
            kept: Kept::default(),
        }
    }

    /// The same, with locks that systemd holds beyond this process' end. To be asked for once.
    #[must_use]
    pub fn kept_by_systemd(self) -> Self {
        let kept = Kept::by_systemd();
        Self { kept, ..self }
    }

    /// The same for a test on a machine that may be busy.
    #[cfg(test)]
    pub(crate) fn patient(self) -> Self {
        let deadline = crate::dbus::bus::testing::DEADLINE;
        Self { deadline, ..self }
    }
}

#[async_trait]
impl Logind for SystemBus {
    async fn connect(&self) -> Result<Box<dyn Session>, LogindError> {
        let mut bus = Bus::connect(&self.socket, self.deadline).await?;
        // Before it is asked who that is: who comes after is not missed.
        bus.subscribe_to_owner(NAME).await?;
        let owner = bus.owner(NAME).await?;
        bus.subscribe(owner.clone(), MANAGER, PREPARE).await?;
        let settings = self.settings.clone();
        Ok(Box::new(Conversation { bus, owner, settings }))
    }

    fn keep(&self, lock: &Lock) {
        self.kept.put(lock);
    }

    fn release(&self) {
        self.kept.release();
    }
}

struct Conversation {
    bus: Bus,
    owner: String,
    settings: PathBuf,
}

impl Conversation {
    async fn property(&mut self, name: &'static str) -> Result<Value, LogindError> {
        let mut call = Call::new(PROPERTIES, "Get", "ss");
        call.text(MANAGER).text(name);
        let reply = self.bus.call(&call).await?;
        reply.values.into_iter().next().ok_or(LogindError::Property(name))
    }
}

#[async_trait]
impl Session for Conversation {
    fn owner(&self) -> &str {
        &self.owner
    }

    async fn delay_max(&mut self) -> Result<Duration, LogindError> {
        let name = "InhibitDelayMaxUSec";
        match self.property(name).await? {
            Value::Number(micros) => Ok(Duration::from_micros(micros)),
            _ => Err(LogindError::Property(name)),
        }
    }

    async fn raise_delay_max(&mut self, to: Duration) -> Result<(), LogindError> {
        let path = self.settings.join(OURS);
        let (directory, file) = (self.settings.clone(), path.clone());
        let written = client::blocking::spawn(move || add_setting(&directory, &file, to)).await;
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        written.map_err(|source| LogindError::Settings { path, source })?;
        let mut call = Call::new(SYSTEMD, "KillUnit", "ssi");
        call.text(UNIT).text("all").signed(SIGHUP);
        Ok(self.bus.call(&call).await.map(drop)?)
    }

    async fn inhibit(&mut self) -> Result<Lock, LogindError> {
        let mut call = Call::new(LOGIND, "Inhibit", "ssss");
        call.text("shutdown")
            .text("kubelet")
            .text("pods end before the machine does")
            .text("delay");
        let reply = self.bus.call(&call).await?;
        reply.descriptors.into_iter().next().ok_or(LogindError::NoLock)
    }

    async fn is_preparing(&mut self) -> Result<bool, LogindError> {
        let name = "PreparingForShutdown";
        match self.property(name).await? {
            Value::Bool(preparing) => Ok(preparing),
            _ => Err(LogindError::Property(name)),
        }
    }

    async fn next(&mut self) -> Result<bool, LogindError> {
        let signal = self.bus.next().await?;
        match (signal.member.as_deref(), signal.values().first()) {
            (Some(PREPARE), Some(Value::Bool(preparing))) => Ok(*preparing),
            (Some(PREPARE), _) => Err(BusError::Malformed("a signal without its value").into()),
            _ => Err(LogindError::Restarted),
        }
    }
}

/// Whole or not at all, as logind may read it at any time; under a name it does not read before that.
fn add_setting(directory: &Path, file: &Path, delay: Duration) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let text = format!(
        "# Written by the kubelet: its shutdownGracePeriod needs it.\n[Login]\nInhibitDelayMaxSec={}\n",
        delay.as_secs()
    );
    let beside = file.with_extension("new");
    fs::write(&beside, text)?;
    fs::rename(&beside, file)
}
