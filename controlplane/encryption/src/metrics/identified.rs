//! What is told together with which API server it is of: uses of plugins' keys, and changed configurations.
//!
//! Labels are hashes of what plugins and the process call themselves. Of keys the last [`KEYS_MAX`] are told, as upstream does, so that
//! a plugin that has another each time fills nothing.

use super::Way;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Sets of labels with a key that are told.
const KEYS_MAX: usize = 10;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Use {
    transformation_type: &'static str,
    provider_name: String,
    key_id_hash: String,
    apiserver_id_hash: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Named {
    provider_name: String,
    key_id_hash: String,
    apiserver_id_hash: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reload {
    status: &'static str,
    apiserver_id_hash: String,
}

/// Seconds since 1970.
type Moment = Gauge<f64, AtomicU64>;

/// The labels used last, the newest at the end.
#[derive(Debug)]
struct Recent<L>(Mutex<VecDeque<L>>);

impl<L> Default for Recent<L> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<L: PartialEq + Clone> Recent<L> {
    /// Takes note of a use; tells whose turn it is to go.
    fn used(&self, labels: &L) -> Option<L> {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|known| known != labels);
        recent.push_back(labels.clone());
        (recent.len() > KEYS_MAX).then(|| recent.pop_front()).flatten()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Identified {
    /// Of the API server.
    hash: String,
    uses: Family<Use, Counter>,
    used_at: Family<Use, Moment>,
    recent_uses: Recent<Use>,
    named_at: Family<Named, Moment>,
    recent_names: Recent<Named>,
    reloads: Family<Reload, Counter>,
    reloaded_at: Family<Reload, Moment>,
}

fn hash(id: &str) -> String {
    match id {
        "" => String::new(),
        id => format!("sha256:{}", hex::encode(Sha256::digest(id))),
    }
}

fn note<L: Clone + Hash + Eq>(moments: &Family<L, Moment>, labels: &L) {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.map_or(0.0, |since| since.as_secs_f64());
    moments.get_or_create(labels).set(seconds);
}

impl Identified {
    pub(super) fn of(server: &str) -> Self {
        Self {
            hash: hash(server),
            ..Self::default()
        }
    }

    /// A value has been written or read with a plugin's key.
    pub(super) fn used(&self, way: Way, plugin: &str, key_id: &str) {
        let labels = Use {
            transformation_type: way.name(),
            provider_name: plugin.to_owned(),
            key_id_hash: hash(key_id),
            apiserver_id_hash: self.hash.clone(),
        };
        if let Some(old) = self.recent_uses.used(&labels) {
            self.uses.remove(&old);
            self.used_at.remove(&old);
        }
        self.uses.get_or_create(&labels).inc();
        note(&self.used_at, &labels);
    }

    /// A plugin says that it writes with this key.
    pub(super) fn named(&self, plugin: &str, key_id: &str) {
        let labels = Named {
            provider_name: plugin.to_owned(),
            key_id_hash: hash(key_id),
            apiserver_id_hash: self.hash.clone(),
        };
        if let Some(old) = self.recent_names.used(&labels) {
            self.named_at.remove(&old);
        }
        note(&self.named_at, &labels);
    }

    /// A changed configuration holds now, or is left aside.
    pub(super) fn reloaded(&self, is_taken: bool) {
        let labels = Reload {
            status: if is_taken { "success" } else { "failure" },
            apiserver_id_hash: self.hash.clone(),
        };
        self.reloads.get_or_create(&labels).inc();
        note(&self.reloaded_at, &labels);
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let name = |name: &str| format!("apiserver_envelope_encryption_key_id_hash{name}");
        registry.register(
            name(""),
            "Number of times a keyID is used split by transformation type, provider, and apiserver identity",
            self.uses.clone(),
        );
        registry.register(
            name("_last_timestamp_seconds"),
            "The last time in seconds when a keyID was used",
            self.used_at.clone(),
        );
        registry.register(
            name("_status_last_timestamp_seconds"),
            "The last time in seconds when a keyID was returned by the Status RPC call",
            self.named_at.clone(),
        );
        let name = |name: &str| format!("apiserver_encryption_config_controller_automatic_reload{name}");
        registry.register(
            name("s"),
            "Total number of reload successes and failures of encryption configuration split by apiserver identity",
            self.reloads.clone(),
        );
        registry.register(
            name("_last_timestamp_seconds"),
            "Timestamp of the last successful or failed automatic reload of encryption configuration split by apiserver identity",
            self.reloaded_at.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(identified: &Identified) -> Vec<String> {
        let mut registry = Registry::default();
        identified.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_names_are_upstreams() {
        // Upstream's own example.
        let identified = Identified::of("testAPIServerID");
        let server = "apiserver_id_hash=\"sha256:14f9d63e669337ac6bfda2e2162915ee6a6067743eddd4e5c374b572f951ff37\"";
        identified.used(Way::ToStorage, "one", "k");
        identified.used(Way::ToStorage, "one", "k");
        identified.named("one", "k");
        identified.reloaded(true);
        identified.reloaded(false);
        let lines = lines(&identified);
        let key = format!("provider_name=\"one\",key_id_hash=\"{}\",{server}", hash("k"));
        let (uses, reloads) = (
            "apiserver_envelope_encryption_key_id_hash",
            "apiserver_encryption_config_controller_automatic_reload",
        );
        let counted = [
            format!("{uses}_total{{transformation_type=\"to_storage\",{key}}} 2"),
            format!("{reloads}s_total{{status=\"success\",{server}}} 1"),
            format!("{reloads}s_total{{status=\"failure\",{server}}} 1"),
        ];
        for line in counted {
            assert!(lines.contains(&line), "{line} is not in\n{lines:#?}");
        }
        let timed = [
            format!("{uses}_last_timestamp_seconds{{transformation_type=\"to_storage\",{key}}} "),
            format!("{uses}_status_last_timestamp_seconds{{{key}}} "),
            format!("{reloads}_last_timestamp_seconds{{status=\"success\",{server}}} "),
            format!("{reloads}_last_timestamp_seconds{{status=\"failure\",{server}}} "),
        ];
        for start in timed {
            let at = lines.iter().find_map(|line| line.strip_prefix(&*start));
            let at = at.unwrap_or_else(|| panic!("{start} is not in\n{lines:#?}"));
            assert!(at.parse::<f64>().unwrap() > 1e9, "{at}");
        }
    }

    #[test]
    fn only_the_keys_used_last_are_told() {
        let identified = Identified::default();
        for number in 0..2 * KEYS_MAX {
            identified.used(Way::FromStorage, "one", "first");
            identified.used(Way::FromStorage, "one", &number.to_string());
            identified.named("one", &number.to_string());
        }
        let lines = lines(&identified);
        let told = |name: &str| lines.iter().filter(|line| line.starts_with(name)).count();
        for name in ["total", "last_timestamp_seconds", "status_last_timestamp_seconds"] {
            assert_eq!(
                told(&format!("apiserver_envelope_encryption_key_id_hash_{name}{{")),
                KEYS_MAX,
                "{name}"
            );
        }
        let first = format!("key_id_hash=\"{}\"", hash("first"));
        let first = lines
            .iter()
            .find(|line| line.contains("_total{") && line.contains(&first));
        assert!(first.is_some_and(|line| line.ends_with(" 20")), "{first:?}");
    }
}
