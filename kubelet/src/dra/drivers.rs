//! The drivers that are registered on this node. Of one there may be several instances: its plugin is replaced by starting the new one
//! before the old one ends.

use super::driver::{Driver, Service};
use super::{DraError, HealthBoard};
use crate::metrics::DraMetrics;
use crate::plugin::{Handler, Plugin, Refusal};
use crate::rpc::budget::Budget;
use futures::FutureExt;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// The longest name of a driver, as in the API.
const NAME_BYTES_MAX: usize = 63;
/// The most instances of one driver.
const INSTANCES_MAX: usize = 16;
/// The most drivers.
pub(super) const DRIVERS_MAX: usize = 256;
/// What the drivers may have sent at a time that is not whole yet, bytes.
pub(super) const UNREAD_BYTES_MAX: usize = 32 << 20;

struct Instance {
    driver: Arc<Driver>,
    _task: AbortOnDropHandle<()>,
}

/// Owns which drivers there are. Clones share them.
#[derive(Clone)]
pub(super) struct Drivers(Arc<Inner>);

struct Inner {
    held: Mutex<BTreeMap<String, Vec<Instance>>>,
    /// Counts instances.
    numbers: AtomicU64,
    /// Drivers that were registered here, and whether one can be asked now.
    usable: watch::Sender<BTreeMap<String, bool>>,
    /// Whether somebody does something about drivers that are gone, and has them forgotten then.
    wiped: bool,
    board: HealthBoard,
    unread: Budget,
    metrics: DraMetrics,
}

impl Drivers {
    pub(super) fn new(wiped: bool, board: HealthBoard, metrics: DraMetrics) -> Self {
        Self(Arc::new(Inner {
            held: Mutex::default(),
            numbers: AtomicU64::new(0),
            usable: watch::Sender::default(),
            wiped,
            board,
            unread: Budget::new(UNREAD_BYTES_MAX),
            metrics,
        }))
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Instance>>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The instance of a driver that is to be asked: the newest one with a connection, or the newest.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn get(&self, name: &str) -> Result<Arc<Driver>, DraError> {
        let held = self.held();
        let instances = held.get(name).map(Vec::as_slice).unwrap_or_default();
        let connected = instances.iter().rev().find(|instance| instance.driver.is_connected());
        match connected.or(instances.last()) {
            Some(instance) => Ok(instance.driver.clone()),
            None => Err(DraError::NoDriver(name.to_owned())),
        }
    }

    /// What they have sent that is not whole yet.
    #[cfg(test)]
    pub(super) fn unread(&self) -> &Budget {
        &self.0.unread
    }

    /// Which drivers can be asked.
    pub(super) fn usable(&self) -> watch::Receiver<BTreeMap<String, bool>> {
        self.0.usable.subscribe()
    }

    /// A driver that is gone for good is not spoken of any more.
    pub(super) fn forget(&self, name: &str) {
        let held = self.held();
        if !held.contains_key(name) {
            self.0.usable.send_if_modified(|usable| usable.remove(name).is_some());
        }
    }

    /// Tells whether a driver can be asked now.
    pub(super) fn note(&self, name: &str) {
        let held = self.held();
        let instances = held.get(name).map(Vec::as_slice).unwrap_or_default();
        let now = instances.iter().any(|instance| instance.driver.is_connected());
        self.0
            .usable
            .send_if_modified(|usable| usable.insert(name.to_owned(), now) != Some(now));
    }

    fn add(&self, plugin: &Plugin, service: Service) -> Result<(), String> {
        let mut held = self.held();
        let drivers = held.len();
        let instances = held.get(&plugin.name).map(Vec::as_slice).unwrap_or_default();
        if instances.iter().any(|other| other.driver.endpoint == plugin.endpoint) {
            let (name, endpoint) = (&plugin.name, plugin.endpoint.display());
            return Err(format!(
                "endpoint {endpoint} already registered for DRA driver plugin {name}"
            ));
        }
        if instances.len() >= INSTANCES_MAX || drivers >= DRIVERS_MAX {
            return Err("there are too many DRA driver plugins on this node".to_owned());
        }
        // Under the lock: who is behind another in the list is newer.
        let number = self.0.numbers.fetch_add(1, Ordering::Relaxed);
        let (unread, metrics) = (self.0.unread.clone(), self.0.metrics.clone());
        let driver = Arc::new(Driver::new(plugin, number, service, unread, metrics));
        self.0.board.begin(&plugin.name, number);
        let (attended, board) = (driver.clone(), self.0.board.clone());
        // Weak: a task that held them would keep them alive, and they it.
        let drivers = Arc::downgrade(&self.0);
        let note = move |name: &str| {
            if let Some(inner) = drivers.upgrade() {
                Self(inner).note(name);
            }
        };
        let task = tokio::spawn(async move { attended.attend(note, &board).await }.boxed());
        held.entry(plugin.name.clone()).or_default().push(Instance {
            driver,
            _task: AbortOnDropHandle::new(task),
        });
        Ok(())
    }
}

#[tonic::async_trait]
impl Handler for Drivers {
    async fn register(&self, plugin: &Plugin) -> Result<(), Refusal> {
        let service = Service::choose(plugin).map_err(Refusal::Invalid)?;
        let name = &plugin.name;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(plain) {
            let shown = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
            return Err(Refusal::Invalid(format!(
                "{shown:?} is no name of a DRA driver: a DNS subdomain of {NAME_BYTES_MAX} characters at most is"
            )));
        }
        if !plugin.endpoint.is_absolute() {
            let endpoint = plugin.endpoint.display();
            return Err(Refusal::Invalid(format!(
                "the endpoint {endpoint} is no absolute path of a socket"
            )));
        }
        self.add(plugin, service).map_err(Refusal::Failed)?;
        self.note(name);
        Ok(())
    }

    fn deregister(&self, plugin: &Plugin) {
        let mut held = self.held();
        if let Some(instances) = held.get_mut(&plugin.name) {
            let gone = instances.extract_if(.., |instance| instance.driver.endpoint == plugin.endpoint);
            let numbers: Vec<u64> = gone.map(|instance| instance.driver.number).collect();
            if instances.is_empty() {
                held.remove(&plugin.name);
            }
            for number in numbers {
                self.0.board.end(&plugin.name, number);
            }
        }
        drop(held);
        match self.0.wiped {
            true => self.note(&plugin.name),
            false => self.forget(&plugin.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::health::{Report, State};
    use super::*;

    #[tokio::test]
    async fn what_an_instance_brings_after_its_end_is_not_kept() {
        let board = HealthBoard::new();
        let metrics = crate::metrics::Metrics::new("n").dra.clone();
        let drivers = Drivers::new(false, board.clone(), metrics);
        let plugin = Plugin {
            name: "a.example".into(),
            socket: "/nobody".into(),
            endpoint: "/nobody".into(),
            versions: vec!["v1.DRAPlugin".into()],
        };
        drivers.register(&plugin).await.expect("registered");
        let number = drivers.get("a.example").expect("it is there").number;
        let brings = || {
            let report = Report {
                pool: "p".into(),
                device: "a".into(),
                state: State::Healthy,
                message: String::new(),
                holds_seconds: i64::MAX,
            };
            board.take("a.example", number, vec![report]);
            board.of("a.example", "p", "a").0
        };
        assert_eq!(brings(), State::Healthy);
        drivers.deregister(&plugin);
        // Its task may be at this very place on another thread while it is ended.
        assert_eq!(brings(), State::Unknown);
        assert_eq!(board.until_expiry("a.example"), None);
    }
}
