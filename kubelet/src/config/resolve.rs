//! From what was written to what it means: defaults, ranges, rules between fields (kubelet contract §1). Pure.

mod cgroups;
mod cluster_network;
mod collect;
pub(super) mod eviction;
mod images;
mod logging;
mod node;
pub(super) mod pinning;
mod pods;
mod server;
mod shutdown;
mod statics;
mod tls;

use super::duration;
use super::{Config, Flags, KubeletConfiguration};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Collects mistakes while values are taken, so that one run reports all of them.
#[derive(Default)]
struct Reader {
    mistakes: Vec<String>,
}

impl Reader {
    fn wrong(&mut self, field: &str, why: impl std::fmt::Display) {
        self.mistakes.push(format!("{field}: {why}"));
    }

    fn time(&mut self, field: &str, text: Option<&str>, default: Duration) -> Duration {
        match text.map(duration::parse) {
            None => default,
            // A zero in the file means the default, as upstream's own defaulting has it.
            Some(Ok(Duration::ZERO)) => default,
            Some(Ok(time)) => time,
            Some(Err(why)) => {
                self.wrong(field, why);
                default
            }
        }
    }

    fn range(&mut self, field: &str, value: Option<i64>, default: i64, min: i64, max: i64) -> i64 {
        match value {
            None => default,
            Some(value) if (min..=max).contains(&value) => value,
            Some(value) => {
                self.wrong(field, format!("{value} must be between {min} and {max}, inclusive"));
                default
            }
        }
    }

    fn port(&mut self, field: &str, value: Option<i64>, default: u16, min: i64) -> u16 {
        let value = self.range(field, value, i64::from(default), min, 65535);
        u16::try_from(value).unwrap_or(default)
    }

    fn count(&mut self, field: &str, value: Option<i64>, default: u32) -> u32 {
        let value = self.range(field, value, i64::from(default), 0, i64::from(i32::MAX));
        u32::try_from(value).unwrap_or(default)
    }

    fn address(&mut self, field: &str, text: Option<&str>, default: &str) -> IpAddr {
        let text = text.filter(|t| !t.is_empty()).unwrap_or(default);
        match text.parse() {
            Ok(address) => address,
            Err(_) => {
                self.wrong(field, format!("{text:?} is not an IP address"));
                IpAddr::from([0, 0, 0, 0])
            }
        }
    }
}

fn given(text: Option<&String>) -> Option<PathBuf> {
    text.filter(|t| !t.is_empty()).map(PathBuf::from)
}

/// What flags and file mean together. `from_file` says whether a configuration file was given: without one the older, laxer
/// defaults of the servers hold.
pub fn resolve(written: &KubeletConfiguration, flags: &Flags, from_file: bool) -> Result<Config, Vec<String>> {
    let mut reader = Reader::default();
    flags_alone(&mut reader, flags);
    let cgroups = cgroups::cgroups(&mut reader, written);
    let dns = pods::dns(&mut reader, written);
    let config = Config {
        node: node::node(&mut reader, written, flags),
        paths: pods::paths(written, flags),
        runtime: pods::runtime(&mut reader, written, flags),
        pods: pods::pods(&mut reader, written, flags),
        rotate_certificates: written.rotate_certificates.unwrap_or(false),
        statics: statics::read(&mut reader, written),
        pinning: pinning::rules(&mut reader, written, cgroups.reserved.cpu_milli),
        eviction: eviction::rules(&mut reader, written, from_file, cgroups.enforce_pods),
        cgroups,
        shutdown: shutdown::periods(&mut reader, written),
        cluster_network: cluster_network::read(&mut reader, flags, &dns),
        dns,
        server: server::server(&mut reader, written, from_file),
        logging: logging::read(&mut reader, &written.logging, flags.sets("logging.verbosity")),
        oom_score_adj: reader.range("oomScoreAdj", written.oom_score_adj, -999, -1000, 1000),
        exit_on_lock_contention: flags.bool("exit-on-lock-contention").unwrap_or(false),
        fail_swap_on: written.fail_swap_on.unwrap_or(true),
        fail_cgroup_v1: written.fail_cgroup_v1.unwrap_or(true),
        protect_kernel_defaults: written.protect_kernel_defaults.unwrap_or(false),
        autonomy: flags.bool("node-autonomy").unwrap_or(false),
        local_storage: written.local_storage_capacity_isolation.unwrap_or(true),
        stop_signals: written.stop_signals,
        provider_tokens: !written.no_provider_tokens,
        graceful_shutdown: !written.no_graceful_shutdown,
        shutdown_by_priority: !written.no_shutdown_by_priority,
        max_open_files: pods::open_files(&mut reader, written),
        container_logs: collect::logs(&mut reader, written),
        dead_containers: collect::containers(&mut reader, flags),
        image_collection: collect::images(&mut reader, written),
        warnings: Vec::new(),
        effective: serde_json::Value::Null,
        flags: flags.shown.clone(),
    };
    if reader.mistakes.is_empty() {
        Ok(config)
    } else {
        Err(reader.mistakes)
    }
}

/// Rules of flags that have no field.
fn flags_alone(reader: &mut Reader, flags: &Flags) {
    let text = |name| flags.text(name).unwrap_or_default();
    if !matches!(text("cloud-provider"), "" | "external") {
        let why = format!(
            "{:?} is not supported: must be empty or \"external\"",
            text("cloud-provider")
        );
        reader.wrong("--cloud-provider", why);
    }
    if flags.bool("node-autonomy") == Some(true) && text("kubeconfig").is_empty() {
        let why = "there are no pods of an API server to keep, give --kubeconfig";
        reader.wrong("--node-autonomy", why);
    }
    if flags.bool("exit-on-lock-contention") == Some(true) && text("lock-file").is_empty() {
        reader.wrong("--exit-on-lock-contention", "no lock file specified, give --lock-file");
    }
}

#[cfg(test)]
mod tests;
