//! How well devices are, as their drivers tell (KEP-4680). What a driver does not repeat in time is not known any more. Pure.

use crate::reason::device_health;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// How long a report holds unless it says so itself (kubelet contract §8).
const HOLDS: SignedDuration = SignedDuration::from_secs(30);
/// The longest it may hold.
const HOLDS_MAX: SignedDuration = SignedDuration::from_hours(24 * 365);
/// The most devices of one driver.
const DEVICES_MAX: usize = 4096;
/// What is kept of a message, bytes, and of a name.
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
            Self::Unknown => "Unknown",
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
    until: Timestamp,
}

/// What is known of all devices, by driver, pool and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Health(BTreeMap<String, BTreeMap<(String, String), Known>>);

impl Health {
    /// Takes what a driver tells; tells whether anything is different from before.
    pub(super) fn take(&mut self, driver: &str, reports: Vec<Report>, now: Timestamp) -> bool {
        let known = self.0.entry(driver.to_owned()).or_default();
        let mut news = false;
        for report in reports {
            let holds = match report.holds_seconds {
                seconds if seconds > 0 => SignedDuration::from_secs(seconds).min(HOLDS_MAX),
                _ => HOLDS,
            };
            let place = (shortened(report.pool), shortened(report.device));
            if known.len() >= DEVICES_MAX && !known.contains_key(&place) {
                continue;
            }
            let told = Known {
                state: report.state,
                message: shortened(report.message),
                until: now.saturating_add(holds).unwrap_or(Timestamp::MAX),
            };
            let before = known.get(&place);
            news |= before.is_none_or(|known| (known.state, &known.message) != (told.state, &told.message));
            known.insert(place, told);
        }
        news
    }

    /// Forgets what holds no longer; tells whether there was any.
    pub(super) fn expire(&mut self, driver: &str, now: Timestamp) -> bool {
        let Some(known) = self.0.get_mut(driver) else {
            return false;
        };
        let before = known.len();
        known.retain(|_, device| device.until > now);
        known.len() != before
    }

    /// When something of a driver's stops holding next.
    pub(super) fn next_expiry(&self, driver: &str) -> Option<Timestamp> {
        self.0.get(driver)?.values().map(|device| device.until).min()
    }

    /// Forgets all a driver told; tells whether it had told any.
    pub(super) fn clear(&mut self, driver: &str) -> bool {
        self.0.remove(driver).is_some_and(|known| !known.is_empty())
    }

    /// How well a device is, and what its driver says about it.
    pub(super) fn of(&self, driver: &str, pool: &str, device: &str) -> (State, Option<&str>) {
        let place = (pool.to_owned(), device.to_owned());
        match self.0.get(driver).and_then(|known| known.get(&place)) {
            Some(known) => (
                known.state,
                Some(known.message.as_str()).filter(|text| !text.is_empty()),
            ),
            None => (State::Unknown, None),
        }
    }
}

/// A text as long as one may be, in upstream's manner.
fn shortened(mut text: String) -> String {
    if text.len() > MESSAGE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(MESSAGE_BYTES_MAX - 3));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn report(device: &str, state: State, message: &str, holds_seconds: i64) -> Report {
        Report {
            pool: "p".into(),
            device: device.into(),
            state,
            message: message.into(),
            holds_seconds,
        }
    }

    #[test]
    fn a_report_holds_for_its_time_and_only_changes_are_news() {
        let mut health = Health::default();
        let well = || {
            vec![
                report("a", State::Healthy, "", 0),
                report("b", State::Unhealthy, "hot", 5),
            ]
        };
        assert!(health.take("d", well(), at(0)));
        assert!(!health.take("d", well(), at(1)), "the same again");
        assert_eq!(health.of("d", "p", "b"), (State::Unhealthy, Some("hot")));
        assert_eq!(health.of("d", "p", "c"), (State::Unknown, None));
        assert_eq!(health.of("e", "p", "a"), (State::Unknown, None));
        assert_eq!(health.next_expiry("d"), Some(at(6)));
        assert!(!health.expire("d", at(5)));
        assert!(health.expire("d", at(6)));
        assert_eq!(health.of("d", "p", "b"), (State::Unknown, None));
        assert_eq!(health.of("d", "p", "a"), (State::Healthy, None));
        assert_eq!(health.next_expiry("d"), Some(at(31)));
        // Another message of the same state is news.
        assert!(health.take("d", vec![report("a", State::Healthy, "warm", -1)], at(7)));
        assert_eq!(health.next_expiry("d"), Some(at(37)));
        assert!(health.clear("d"));
        assert!(!health.clear("d"));
    }

    #[test]
    fn a_driver_that_tells_too_much_is_cut_short() {
        let mut health = Health::default();
        let many = (0..DEVICES_MAX + 10).map(|n| report(&n.to_string(), State::Healthy, "", i64::MAX));
        assert!(health.take("d", many.collect(), at(0)));
        assert_eq!(health.0["d"].len(), DEVICES_MAX);
        let long = vec![report("0", State::Unhealthy, &"é".repeat(1000), 1)];
        assert!(health.take("d", long, at(0)));
        let (_, message) = health.of("d", "p", "0");
        let message = message.expect("a message");
        assert!(
            message.len() <= MESSAGE_BYTES_MAX && message.ends_with("é..."),
            "{message}"
        );
    }
}
