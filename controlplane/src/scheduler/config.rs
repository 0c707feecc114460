//! KubeSchedulerConfiguration v1: a file's words, and the profiles they mean. Pure.
//!
//! Nothing is accepted and ignored: a field that is not known, or is known upstream and means nothing here yet, is an error that
//! names it. Source: contract §11; limits are upstream's validation.

mod args;
mod plugins;
pub mod policy;

use super::extender::Extender;
use super::extender::words::{self, ExtenderWords};
use super::profile::Profile;
use super::queue::BackoffTimes;
use crate::config::components::duration;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// What the scheduler is told.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerConfig {
    /// At least one, of different names.
    pub profiles: Vec<Profile>,
    /// How long pods wait after failures.
    pub backoff: BackoffTimes,
    /// What the file says of leader election.
    pub election: ElectionWords,
    /// Who else is asked.
    pub extenders: Vec<Extender>,
}

/// What somebody says of leader election; what is left out is left to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElectionWords {
    /// Whether a leader is elected.
    pub is_on: Option<bool>,
    /// How long a lease holds others off.
    pub lease: Option<Duration>,
    /// How long a leader goes on that cannot renew.
    pub renew: Option<Duration>,
    /// Pause between tries.
    pub retry: Option<Duration>,
    /// The Lease's name.
    pub name: Option<String>,
    /// The Lease's namespace.
    pub namespace: Option<String>,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            profiles: vec![Profile::default()],
            backoff: BackoffTimes::default(),
            election: ElectionWords::default(),
            extenders: Vec::new(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    #[serde(default)]
    parallelism: Option<i64>,
    #[serde(default)]
    leader_election: Option<LeaderElection>,
    #[serde(default)]
    client_connection: Option<Value>,
    #[serde(default)]
    percentage_of_nodes_to_score: Option<i64>,
    #[serde(default)]
    pod_initial_backoff_seconds: Option<i64>,
    #[serde(default)]
    pod_max_backoff_seconds: Option<i64>,
    #[serde(default)]
    profiles: Vec<ProfileWords>,
    #[serde(default)]
    extenders: Vec<ExtenderWords>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LeaderElection {
    #[serde(default)]
    leader_elect: Option<bool>,
    #[serde(default)]
    lease_duration: Option<String>,
    #[serde(default)]
    renew_deadline: Option<String>,
    #[serde(default)]
    retry_period: Option<String>,
    #[serde(default)]
    resource_lock: Option<String>,
    #[serde(default)]
    resource_name: Option<String>,
    #[serde(default)]
    resource_namespace: Option<String>,
}

impl LeaderElection {
    fn read(self) -> Result<ElectionWords, String> {
        let time = |field: &str, text: Option<String>| {
            let read = text.map(|text| duration(&text).map_err(|why| format!("{field}: {text:?} {why}")));
            read.transpose()
        };
        let name = |field: &str, text: Option<String>| match text.as_deref() {
            Some("") => Err(format!("{field}: Required value")),
            _ => Ok(text),
        };
        if let Some(other) = self.resource_lock.filter(|lock| lock != "leases") {
            return Err(format!(
                "resourceLock: Invalid value: {other:?}: resourceLock value must be \"leases\""
            ));
        }
        let words = ElectionWords {
            is_on: self.leader_elect,
            lease: time("leaseDuration", self.lease_duration)?,
            renew: time("renewDeadline", self.renew_deadline)?,
            retry: time("retryPeriod", self.retry_period)?,
            name: name("resourceName", self.resource_name)?,
            namespace: name("resourceNamespace", self.resource_namespace)?,
        };
        words.resolve(&ElectionWords::default(), "").map(drop)?;
        Ok(words)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProfileWords {
    #[serde(default)]
    scheduler_name: Option<String>,
    #[serde(default)]
    percentage_of_nodes_to_score: Option<i64>,
    #[serde(default)]
    plugins: plugins::Plugins,
    #[serde(default)]
    plugin_config: Vec<args::PluginConfig>,
}

/// Back-offs end at moments that can be told: 136 years.
const BACKOFF_SECONDS_MAX: i64 = 4_294_967_295;
/// Upstream's number of threads that look at nodes; cycles here look at them in turn.
const PARALLELISM: i64 = 16;

impl SchedulerConfig {
    /// Reads a file, in YAML or JSON.
    ///
    /// # Errors
    /// The first mistake, with its field.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut file: File = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let known = ("kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration");
        if (file.api_version.as_str(), file.kind.as_str()) != known {
            let (version, kind) = (file.api_version, file.kind);
            return Err(format!("want {} {}, found {version} {kind}", known.0, known.1));
        }
        file.check()?;
        let backoff = file.backoff()?;
        let election = file.leader_election.take().map(LeaderElection::read).transpose();
        let election = election
            .map_err(|why| format!("leaderElection.{why}"))?
            .unwrap_or_default();
        let extenders = words::read(std::mem::take(&mut file.extenders))?;
        let shared = percentage("percentageOfNodesToScore", file.percentage_of_nodes_to_score)?;
        let mut profiles = Vec::new();
        let mut names = BTreeSet::new();
        for (index, words) in file.profiles.into_iter().enumerate() {
            let at = format!("profiles[{index}]");
            let profile = words.resolve(shared).map_err(|why| format!("{at}.{why}"))?;
            if !names.insert(profile.name.clone()) {
                return Err(format!("{at}.schedulerName: Duplicate value: {:?}", profile.name));
            }
            profiles.push(profile);
        }
        if profiles.is_empty() {
            profiles.push(Profile {
                percentage: shared,
                ..Profile::default()
            });
        }
        leave_out(&mut profiles, &extenders);
        Ok(Self {
            profiles,
            backoff,
            election,
            extenders,
        })
    }
}

/// What extenders look after by themselves plugins leave to them.
fn leave_out(profiles: &mut [Profile], extenders: &[Extender]) {
    let ignored = extenders.iter().flat_map(|extender| &extender.managed);
    let ignored: Vec<String> = ignored
        .filter(|resource| resource.ignored)
        .map(|resource| resource.name.clone())
        .collect();
    for profile in profiles {
        profile.args.fit.ignored.extend_from_slice(&ignored);
    }
}

fn percentage(field: &str, given: Option<i64>) -> Result<usize, String> {
    let given = given.unwrap_or(0);
    match usize::try_from(given) {
        Ok(percent) if percent <= 100 => Ok(percent),
        _ => Err(format!("{field}: Invalid value: {given}: not in valid range [0-100]")),
    }
}

impl File {
    fn check(&self) -> Result<(), String> {
        if self.parallelism.is_some_and(|threads| threads != PARALLELISM) {
            return Err(format!(
                "parallelism: nodes are looked at in turn here, and another value than {PARALLELISM} would have no effect"
            ));
        }
        if self.client_connection.is_some() {
            return Err(
                "clientConnection: without an API server in the process --kubeconfig says how it is reached, and requests are \
                 not throttled"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn backoff(&self) -> Result<BackoffTimes, String> {
        let default = BackoffTimes::default();
        for (field, given) in [
            ("podInitialBackoffSeconds", self.pod_initial_backoff_seconds),
            ("podMaxBackoffSeconds", self.pod_max_backoff_seconds),
        ] {
            if given.is_some_and(|given| given > BACKOFF_SECONDS_MAX) {
                return Err(format!("{field}: must be at most {BACKOFF_SECONDS_MAX}"));
            }
        }
        let seconds = |given: Option<i64>, default: Duration| match given {
            None => Some(default),
            Some(given) => u64::try_from(given).ok().filter(|s| *s > 0).map(Duration::from_secs),
        };
        let first = seconds(self.pod_initial_backoff_seconds, default.first)
            .ok_or("podInitialBackoffSeconds: must be greater than 0")?;
        let cap = seconds(self.pod_max_backoff_seconds, default.cap.max(first))
            .filter(|cap| *cap >= first)
            .ok_or("podMaxBackoffSeconds: must be greater than or equal to PodInitialBackoffSeconds")?;
        Ok(BackoffTimes { first, cap })
    }
}

impl ProfileWords {
    fn resolve(self, shared: usize) -> Result<Profile, String> {
        let mut profile = Profile::default();
        if let Some(name) = self.scheduler_name {
            profile.name = name;
        }
        if profile.name.is_empty() {
            return Err("schedulerName: Required value".to_owned());
        }
        profile.percentage = match self.percentage_of_nodes_to_score {
            None => shared,
            given => percentage("percentageOfNodesToScore", given)?,
        };
        self.plugins
            .apply(&mut profile)
            .map_err(|why| format!("plugins.{why}"))?;
        let mut names = BTreeSet::new();
        for (index, config) in self.plugin_config.into_iter().enumerate() {
            let at = format!("pluginConfig[{index}]");
            if !names.insert(config.name.clone()) {
                return Err(format!("{at}: repeated config for plugin {}", config.name));
            }
            config.apply(&mut profile.args).map_err(|why| format!("{at}.{why}"))?;
        }
        Ok(profile)
    }
}

#[cfg(test)]
mod tests;
