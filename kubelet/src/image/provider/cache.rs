//! Answers of one plugin until they expire, so many of them and no more. Pure.

use super::answer::Login;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Answers kept of one plugin.
const ENTRIES_MAX: usize = 1000;
/// Bytes kept of them, roughly.
const WEIGHT_MAX: usize = 4 * 1024 * 1024;

/// The logins of one answer, by registry.
pub(super) type Logins = Arc<BTreeMap<String, Login>>;

/// What an answer is good for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Good {
    /// One repository.
    Image(String),
    /// One registry.
    Registry(String),
    /// Everything.
    Everything,
}

/// What an answer is good for, and for whom: a hash of the account, empty for all.
pub(super) type Key = (Good, String);

struct Entry {
    logins: Logins,
    expires: Timestamp,
    weight: usize,
}

/// The answers.
#[derive(Default)]
pub(super) struct Cache {
    entries: BTreeMap<Key, Entry>,
    weight: usize,
}

impl Cache {
    /// The logins kept under that key, if they have not expired.
    pub(super) fn get(&self, key: &Key, now: Timestamp) -> Option<Logins> {
        let entry = self.entries.get(key).filter(|entry| now <= entry.expires)?;
        Some(entry.logins.clone())
    }

    /// Keeps an answer; what has expired goes, then, if there is no room, what expires first.
    pub(super) fn put(&mut self, key: Key, logins: Logins, now: Timestamp, cache: Duration) {
        let expires = SignedDuration::try_from(cache)
            .ok()
            .and_then(|cache| now.checked_add(cache).ok())
            .unwrap_or(Timestamp::MAX);
        let weight = weight(&key, &logins);
        self.remove(&key);
        self.sweep(now);
        while self.entries.len() >= ENTRIES_MAX || self.weight + weight > WEIGHT_MAX {
            let first = self.entries.iter().min_by_key(|(_, entry)| entry.expires);
            let Some(first) = first.map(|(key, _)| key.clone()) else {
                return;
            };
            self.remove(&first);
        }
        self.weight += weight;
        let entry = Entry {
            logins,
            expires,
            weight,
        };
        self.entries.insert(key, entry);
    }

    /// Forgets what has expired.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.entries.retain(|_, entry| {
            let stays = entry.expires >= now;
            if !stays {
                self.weight -= entry.weight;
            }
            stays
        });
    }

    /// The passwords that are kept.
    pub(super) fn passwords(&self) -> Vec<String> {
        let logins = self.entries.values().flat_map(|entry| entry.logins.values());
        logins.map(|login| login.password.clone()).collect()
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.weight -= entry.weight;
        }
    }
}

fn weight(key: &Key, logins: &Logins) -> usize {
    let named = match &key.0 {
        Good::Image(name) | Good::Registry(name) => name.len(),
        Good::Everything => 0,
    };
    let each =
        |(registry, login): (&String, &Login)| 100 + registry.len() + login.username.len() + login.password.len();
    200 + named + key.1.len() + logins.iter().map(each).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn image(number: usize) -> Key {
        (Good::Image(format!("r.io/{number}")), String::new())
    }

    fn logins(bytes: usize) -> Logins {
        let login = Login {
            username: "u".into(),
            password: "p".repeat(bytes),
        };
        Arc::new([("r.io".to_owned(), login)].into())
    }

    #[test]
    fn answers_expire_and_belong_to_whom_they_were_given() {
        let mut cache = Cache::default();
        let mine = (Good::Everything, "me".to_owned());
        cache.put(mine.clone(), logins(1), at(0), Duration::from_secs(10));
        assert!(cache.get(&mine, at(10)).is_some());
        assert!(cache.get(&mine, at(11)).is_none());
        cache.sweep(at(10));
        assert_eq!(cache.passwords(), ["p"]);
        cache.sweep(at(11));
        assert!(
            cache.passwords().is_empty() && cache.weight == 0,
            "nothing of it is left"
        );
        assert!(cache.get(&(Good::Everything, "you".to_owned()), at(0)).is_none());
        cache.put(image(1), logins(1), at(0), Duration::MAX);
        assert!(
            cache.get(&image(1), at(200_000_000_000)).is_some(),
            "centuries are no trouble"
        );
    }

    #[test]
    fn thousands_of_images_do_not_make_it_grow() {
        let mut cache = Cache::default();
        for number in 0..5000 {
            cache.put(
                image(number),
                logins(1),
                at(0),
                Duration::from_secs(1000 + number as u64),
            );
        }
        assert_eq!(cache.entries.len(), ENTRIES_MAX);
        assert!(cache.get(&image(4999), at(0)).is_some() && cache.get(&image(0), at(0)).is_none());
        for number in 0..100 {
            cache.put(image(number), logins(200_000), at(0), Duration::from_secs(9000));
        }
        assert!(
            cache.weight <= WEIGHT_MAX && cache.entries.len() >= 20,
            "{}",
            cache.weight
        );
        cache.put(image(0), logins(5_000_000), at(0), Duration::from_secs(1));
        assert!(cache.get(&image(0), at(0)).is_none(), "too large for all of it");
        cache.put(image(1), logins(1), at(100_000), Duration::from_secs(1));
        assert_eq!(cache.entries.len(), 1, "what expired is gone");
        assert_eq!(cache.weight, weight(&image(1), &logins(1)));
    }
}
