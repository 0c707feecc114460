//! How well devices are, as their drivers tell (KEP-4680). What a driver does not repeat in time is not known any more. Pure: times are
//! the owner's, since it began; the machine's clock, which somebody may set, makes nothing older or newer.

use super::drivers::DRIVERS_MAX;
use crate::reason::device_health;
use proto::api::names;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a report holds unless it says so itself (kubelet contract §8).
const HOLDS: Duration = Duration::from_secs(30);
/// The longest it may hold: a year.
const HOLDS_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// What all drivers' devices may take together, bytes. Half of it is [`SHARE_BYTES`] for each, the other half is for whoever needs more.
const TOGETHER_MAX: usize = 8 << 20;
/// What one driver's may take, bytes: those of a thousand devices with much to say about each.
const DRIVER_BYTES_MAX: usize = 1 << 20;
/// What each driver's may take though others take all there is, bytes.
const SHARE_BYTES: usize = TOGETHER_MAX / 2 / DRIVERS_MAX;
/// What a device takes beside its names and its message, bytes.
const DEVICE_BYTES: usize = 192;
/// What is kept of a message, bytes.
const MESSAGE_BYTES_MAX: usize = 1024;

/// How well a device is, in the API's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// It works.
    Healthy,
    /// It does not.
    Unhealthy,
    /// Nobody says.
    #[default]
    Unknown,
}

impl State {
    /// The API's word.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => device_health::HEALTHY,
            Self::Unhealthy => device_health::UNHEALTHY,
            Self::Unknown => device_health::UNKNOWN,
        }
    }
}

/// What a driver tells of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) pool: String,
    pub(super) device: String,
    pub(super) state: State,
    pub(super) message: String,
    /// How long this holds; nothing or less for the usual time.
    pub(super) holds_seconds: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    state: State,
    message: String,
    until: Duration,
    /// Which instance of the driver told it.
    by: u64,
}

/// What is known of one driver's devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfDriver {
    /// Its instances. There is no driver without any.
    instances: BTreeSet<u64>,
    /// By pool and name.
    devices: BTreeMap<(String, String), Known>,
    /// What they take, bytes.
    weight: usize,
    /// Whether something that was told was left out.
    cut: bool,
}

/// What is known of all devices, by driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Health(BTreeMap<String, OfDriver>);

/// What became of reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Whether anything is different from before.
    pub(super) news: bool,
    /// Whether something was left out, of this driver's for the first time.
    pub(super) cut: bool,
}

impl Health {
    /// Takes note of an instance of a driver: from now on it is believed.
    pub(super) fn begin(&mut self, driver: &str, instance: u64) {
        let known = self.0.entry(driver.to_owned()).or_default();
        known.instances.insert(instance);
    }

    /// Takes what an instance of a driver tells. Of a device of which a newer one told, an older one, which is about to end, tells nothing;
    /// nor does one that ended of any. What there is no room for, and what no claim can name, is left out.
    pub(super) fn take(&mut self, driver: &str, instance: u64, reports: Vec<Report>, now: Duration) -> Taken {
        let room = self.room(driver);
        let mut taken = Taken::default();
        let known = self.0.get_mut(driver);
        let Some(known) = known.filter(|known| known.instances.contains(&instance)) else {
            return taken;
        };
        let was_cut = known.cut;
        for report in reports {
            let told = Known {
                state: report.state,
                message: shortened(report.message),
                until: now.saturating_add(holds(report.holds_seconds)),
                by: instance,
            };
            match can_be_named(&report.pool, &report.device) {
                true => taken.news |= known.put((report.pool, report.device), told, room, now),
                false => known.cut = true,
            }
        }
        taken.cut = known.cut && !was_cut;
        taken
    }

    /// What a driver's devices may take, bytes: its share, and what others leave of what is for all.
    fn room(&self, driver: &str) -> usize {
        let others = self.0.iter().filter(|(other, _)| *other != driver);
        let lent: usize = others.map(|(_, known)| known.weight.saturating_sub(SHARE_BYTES)).sum();
        let left = (TOGETHER_MAX / 2).saturating_sub(lent);
        DRIVER_BYTES_MAX.min(SHARE_BYTES + left)
    }

    /// Forgets what holds no longer; tells whether there was any.
    pub(super) fn expire(&mut self, driver: &str, now: Duration) -> bool {
        let known = self.0.get_mut(driver);
        known.is_some_and(|known| known.retain(|device| device.until > now))
    }

    /// When something of a driver's stops holding next.
    pub(super) fn next_expiry(&self, driver: &str) -> Option<Duration> {
        self.0.get(driver)?.devices.values().map(|device| device.until).min()
    }

    /// Forgets all an instance of a driver told that no other has told since; tells whether there was any.
    pub(super) fn clear(&mut self, driver: &str, instance: u64) -> bool {
        let known = self.0.get_mut(driver);
        known.is_some_and(|known| known.retain(|device| device.by != instance))
    }

    /// The same for good: an instance that is gone may be about to tell something still, and nobody would ever take that back.
    pub(super) fn end(&mut self, driver: &str, instance: u64) -> bool {
        let news = self.clear(driver, instance);
        if let Some(known) = self.0.get_mut(driver) {
            known.instances.remove(&instance);
            if known.instances.is_empty() {
                self.0.remove(driver);
            }
        }
        news
    }

    /// How well a device is, and what its driver says about it. What holds no longer counts for nothing, forgotten or not.
    pub(super) fn of(&self, driver: &str, pool: &str, device: &str, now: Duration) -> (State, Option<&str>) {
        let place = (pool.to_owned(), device.to_owned());
        let known = self.0.get(driver).and_then(|known| known.devices.get(&place));
        match known.filter(|known| known.until > now) {
            Some(known) => (
                known.state,
                Some(known.message.as_str()).filter(|text| !text.is_empty()),
            ),
            None => (State::Unknown, None),
        }
    }
}

impl OfDriver {
    /// Puts what is told of a device in place of what was told before; tells whether it is different. Where there is no room, bytes, for
    /// all of it the state alone is kept: it is what counts, and there is always room for that of a device that is known.
    fn put(&mut self, place: (String, String), mut told: Known, room: usize, now: Duration) -> bool {
        let before = self.devices.get(&place);
        let holding = before.filter(|before| before.until > now);
        if holding.is_some_and(|before| before.by > told.by) {
            return false;
        }
        let others = self.weight - before.map_or(0, |before| weight(&place, before));
        if others + weight(&place, &told) > room {
            self.cut = true;
            told.message = String::new();
            if others + weight(&place, &told) > room {
                return false;
            }
        }
        // What held no longer was Unknown for whoever asked meanwhile.
        let news = holding.is_none_or(|before| (before.state, &before.message) != (told.state, &told.message));
        self.weight = others + weight(&place, &told);
        self.devices.insert(place, told);
        news
    }

    /// Forgets all others; tells whether there were any.
    fn retain(&mut self, stays: impl Fn(&Known) -> bool) -> bool {
        let before = self.devices.len();
        self.devices.retain(|_, device| stays(device));
        let all = self.devices.iter();
        self.weight = all.map(|(place, device)| weight(place, device)).sum();
        self.devices.len() != before
    }
}

/// What a device takes with what is known of it, bytes.
fn weight((pool, device): &(String, String), known: &Known) -> usize {
    DEVICE_BYTES + pool.len() + device.len() + known.message.len()
}

/// How long a report holds that says so many seconds.
fn holds(seconds: i64) -> Duration {
    match u64::try_from(seconds) {
        Ok(seconds) if seconds > 0 => Duration::from_secs(seconds).min(HOLDS_MAX),
        _ => HOLDS,
    }
}

/// Whether a claim can name such a device: a pool is a path of DNS subdomains, a device's name a DNS label, as in the API.
fn can_be_named(pool: &str, device: &str) -> bool {
    let is_part = |part: &str| names::dns1123_subdomain_error(part).is_none();
    pool.len() <= names::SUBDOMAIN_MAX && pool.split('/').all(is_part) && names::dns1123_label_error(device).is_none()
}

/// A text as long as one may be, in upstream's manner. A long one is made anew: cut, it would take as much as before.
fn shortened(text: String) -> String {
    match text.len() <= MESSAGE_BYTES_MAX {
        true => text,
        false => [&text[..text.floor_char_boundary(MESSAGE_BYTES_MAX - 3)], "..."].concat(),
    }
}

#[cfg(test)]
mod tests;
