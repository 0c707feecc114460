//! How well devices are, as their drivers tell (KEP-4680). What a driver does not repeat in time is not known any more. Pure: times are
//! the owner's, since it began; the machine's clock, which somebody may set, makes nothing older or newer.

use crate::reason::device_health;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a report holds unless it says so itself (kubelet contract §8).
const HOLDS: Duration = Duration::from_secs(30);
/// The longest it may hold: a year.
const HOLDS_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
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

/// What is known of all devices, by driver, pool and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Health(BTreeMap<String, BTreeMap<(String, String), Known>>);

/// What became of reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Whether anything is different from before.
    pub(super) news: bool,
    /// Whether some were left out, because there are too many devices.
    pub(super) cut: bool,
}

impl Health {
    /// Takes what an instance of a driver tells. Of a device of which a newer one told, an older one, which is about to end, tells nothing.
    pub(super) fn take(&mut self, driver: &str, instance: u64, reports: Vec<Report>, now: Duration) -> Taken {
        let known = self.0.entry(driver.to_owned()).or_default();
        let mut taken = Taken::default();
        for report in reports {
            let holds = match u64::try_from(report.holds_seconds) {
                Ok(seconds) if seconds > 0 => Duration::from_secs(seconds).min(HOLDS_MAX),
                _ => HOLDS,
            };
            let place = (shortened(report.pool), shortened(report.device));
            if known.len() >= DEVICES_MAX && !known.contains_key(&place) {
                taken.cut = true;
                continue;
            }
            let told = Known {
                state: report.state,
                message: shortened(report.message),
                until: now.saturating_add(holds),
                by: instance,
            };
            let before = known.get(&place);
            if before.is_some_and(|known| known.by > instance && known.until > now) {
                continue;
            }
            taken.news |= before.is_none_or(|known| (known.state, &known.message) != (told.state, &told.message));
            known.insert(place, told);
        }
        taken
    }

    /// Forgets what holds no longer; tells whether there was any.
    pub(super) fn expire(&mut self, driver: &str, now: Duration) -> bool {
        let Some(known) = self.0.get_mut(driver) else {
            return false;
        };
        let before = known.len();
        known.retain(|_, device| device.until > now);
        known.len() != before
    }

    /// When something of a driver's stops holding next.
    pub(super) fn next_expiry(&self, driver: &str) -> Option<Duration> {
        self.0.get(driver)?.values().map(|device| device.until).min()
    }

    /// Forgets all an instance of a driver told that no other has told since; tells whether there was any.
    pub(super) fn clear(&mut self, driver: &str, instance: u64) -> bool {
        let Some(known) = self.0.get_mut(driver) else {
            return false;
        };
        let before = known.len();
        known.retain(|_, device| device.by != instance);
        let left = known.len();
        if left == 0 {
            self.0.remove(driver);
        }
        left != before
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

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
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
        let is_news = |health: &mut Health, reports, now| health.take("d", 1, reports, at(now)).news;
        assert!(is_news(&mut health, well(), 0));
        assert!(!is_news(&mut health, well(), 1), "the same again");
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
        assert!(is_news(&mut health, vec![report("a", State::Healthy, "warm", -1)], 7));
        assert_eq!(health.next_expiry("d"), Some(at(37)));
        assert!(health.clear("d", 1));
        assert!(!health.clear("d", 1));
    }

    #[test]
    fn an_old_instances_end_takes_nothing_back_that_the_new_one_told() {
        let mut health = Health::default();
        let told = |name: &str, message: &str| vec![report(name, State::Healthy, message, 60)];
        health.take("d", 1, told("a", "old"), at(0));
        health.take("d", 1, told("b", "old"), at(0));
        assert!(health.take("d", 2, told("a", "new"), at(1)).news);
        assert!(!health.take("d", 1, told("a", "old"), at(2)).news, "it is behind");
        assert_eq!(health.of("d", "p", "a").1, Some("new"));
        assert!(health.clear("d", 1));
        assert_eq!(health.of("d", "p", "a"), (State::Healthy, Some("new")));
        assert_eq!(
            health.of("d", "p", "b"),
            (State::Unknown, None),
            "nobody else told of it"
        );
        assert!(!health.clear("d", 1));
        assert!(
            health.take("d", 1, told("a", "again"), at(61)).news,
            "what the new one told is over"
        );
        assert!(!health.clear("d", 2));
        assert!(health.clear("d", 1));
    }

    #[test]
    fn a_driver_that_tells_too_much_is_cut_short() {
        let mut health = Health::default();
        let many = (0..DEVICES_MAX + 10).map(|n| report(&n.to_string(), State::Healthy, "", i64::MAX));
        let (news, cut) = (true, true);
        assert_eq!(health.take("d", 1, many.collect(), at(0)), Taken { news, cut });
        assert_eq!(health.0["d"].len(), DEVICES_MAX);
        let long = vec![report("0", State::Unhealthy, &"é".repeat(1000), 1)];
        let cut = false;
        assert_eq!(health.take("d", 1, long, at(0)), Taken { news, cut });
        let (_, message) = health.of("d", "p", "0");
        let message = message.expect("a message");
        assert!(
            message.len() <= MESSAGE_BYTES_MAX && message.ends_with("é..."),
            "{message}"
        );
    }
}
