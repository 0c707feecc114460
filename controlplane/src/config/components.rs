//! Which parts run in this process (`--components`), and what those that run without an API server beside them are told. Pure.
//!
//! Every flag says which parts read it; one that none of the running parts reads is refused by name.

use super::Reader;
use crate::leader::Times;
use crate::scheduler::config::ElectionWords;
use jiff::SignedDuration;
use std::path::PathBuf;
use std::time::Duration;

/// The ports of upstream's daemons.
const CONTROLLERS_PORT: u16 = 10257;
const SCHEDULER_PORT: u16 = 10259;

/// Parts of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Components {
    /// The API server with its store.
    pub apiserver: bool,
    /// The scheduler.
    pub scheduler: bool,
    /// The controllers.
    pub controllers: bool,
}

impl Components {
    /// All of them: the default.
    pub const ALL: Self = Self {
        apiserver: true,
        scheduler: true,
        controllers: true,
    };

    fn text(self) -> String {
        let each = [
            (self.apiserver, "apiserver"),
            (self.scheduler, "scheduler"),
            (self.controllers, "controllers"),
        ];
        let on: Vec<&str> = each.iter().filter(|(is_on, _)| *is_on).map(|(_, name)| *name).collect();
        on.join(",")
    }
}

/// Who reads a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadBy {
    /// Whatever runs.
    All,
    ApiServer,
    Scheduler,
    Controllers,
    /// The API server and controllers.
    ApiServerAndControllers,
    /// Scheduler or controllers that run without the API server.
    Alone,
    /// Controllers that run without the API server.
    ControllersAlone,
}

fn read_by(flag: &str) -> ReadBy {
    match flag {
        "components"
        | "bind-address"
        | "secure-port"
        | "tls-cert-file"
        | "tls-private-key-file"
        | "v"
        | "help"
        | "version" => ReadBy::All,
        "config" | "policy-config-file" => ReadBy::Scheduler,
        "cluster-cidr"
        | "controllers"
        | "large-cluster-size-threshold"
        | "mirroring-max-endpoints-per-subset"
        | "node-cidr-mask-size"
        | "node-cidr-mask-size-ipv4"
        | "node-cidr-mask-size-ipv6"
        | "node-eviction-rate"
        | "secondary-node-eviction-rate"
        | "terminated-pod-gc-threshold"
        | "unhealthy-zone-threshold" => ReadBy::Controllers,
        "cluster-signing-cert-file"
        | "cluster-signing-key-file"
        | "root-ca-file"
        | "service-account-private-key-file"
        | "use-service-account-credentials" => ReadBy::ControllersAlone,
        "service-node-port-range" => ReadBy::ApiServerAndControllers,
        "kubeconfig" => ReadBy::Alone,
        flag if flag.starts_with("leader-elect") => ReadBy::Alone,
        _ => ReadBy::ApiServer,
    }
}

impl ReadBy {
    /// Why the flag means nothing to what runs.
    fn refusal(self, runs: Components) -> Option<&'static str> {
        match self {
            Self::ApiServer if !runs.apiserver => Some("only the API server reads it"),
            Self::ApiServerAndControllers if !runs.apiserver && !runs.controllers => {
                Some("only the API server and the controllers read it")
            }
            Self::Scheduler if !runs.scheduler => Some("only the scheduler reads it"),
            Self::Controllers if !runs.controllers => Some("only the controllers read it"),
            Self::ControllersAlone if runs.apiserver || !runs.controllers => {
                Some("only controllers that run without the API server read it")
            }
            Self::Alone if runs.apiserver => {
                Some("only a scheduler and controllers that run without the API server read it")
            }
            _ => None,
        }
    }
}

/// What flags say of leader election; what they leave out comes from elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionConfig {
    /// Whether a leader is elected.
    pub is_on: bool,
    /// The times.
    pub times: Times,
    /// The Lease's name.
    pub name: String,
    /// The Lease's namespace.
    pub namespace: String,
}

/// What parts are told that run without an API server beside them.
#[derive(Clone, Debug, PartialEq)]
pub struct AloneConfig {
    /// How the API server is reached.
    pub kubeconfig: PathBuf,
    /// What flags say of leader election.
    pub election: ElectionWords,
    /// Port of the scheduler's health and metrics; `None` serves none.
    pub scheduler_port: Option<u16>,
    /// Port of the controllers' health and metrics; `None` serves none.
    pub controllers_port: Option<u16>,
    /// The CA that namespaces are told; the kubeconfig's otherwise.
    pub root_ca_file: Option<PathBuf>,
    /// Certificate and key that sign approved requests; without them nothing is signed.
    pub signing_files: Option<(PathBuf, PathBuf)>,
    /// The key that signs tokens for Secrets; without it they are not filled.
    pub token_key_file: Option<PathBuf>,
    /// Whether each controller has its own service account's credential, instead of the kubeconfig's.
    pub service_account_credentials: bool,
}

impl ElectionWords {
    /// The election of a part: these words, then those of `file`, then upstream's defaults.
    ///
    /// # Errors
    /// What does not go together.
    pub fn resolve(&self, file: &Self, name: &str) -> Result<ElectionConfig, String> {
        let default = Times::default();
        let times = Times {
            lease: self.lease.or(file.lease).unwrap_or(default.lease),
            renew: self.renew.or(file.renew).unwrap_or(default.renew),
            retry: self.retry.or(file.retry).unwrap_or(default.retry),
        };
        times
            .check()
            .map_err(|(which, why)| format!("leader election: {which} {why}"))?;
        let text = |own: &Option<String>, file: &Option<String>, default: &str| {
            own.clone().or(file.clone()).unwrap_or_else(|| default.to_owned())
        };
        Ok(ElectionConfig {
            is_on: self.is_on.or(file.is_on).unwrap_or(true),
            times,
            name: text(&self.name, &file.name, name),
            namespace: text(&self.namespace, &file.namespace, "kube-system"),
        })
    }
}

impl Reader<'_> {
    /// The parts that run; refuses what none of them reads.
    pub(super) fn components(&mut self) -> Components {
        let Some(words) = self.list("components") else {
            self.refuse_unread(Components::ALL);
            return Components::ALL;
        };
        let mut parts = Components {
            apiserver: false,
            scheduler: false,
            controllers: false,
        };
        for word in &words {
            match word.as_str() {
                "apiserver" => parts.apiserver = true,
                "scheduler" => parts.scheduler = true,
                "controllers" => parts.controllers = true,
                _ => {
                    let why = "components are apiserver, scheduler and controllers";
                    self.wrong("components", word, why);
                    return Components::ALL;
                }
            }
        }
        if words.is_empty() {
            self.wrong("components", "", "must name at least one");
            return Components::ALL;
        }
        self.refuse_unread(parts);
        parts
    }

    fn refuse_unread(&mut self, parts: Components) {
        for flag in self.flags.given() {
            if let Some(why) = read_by(flag).refusal(parts) {
                let text = format!("--{flag}: {why}, and --components is {}", parts.text());
                self.mistakes.push(text);
            }
        }
    }

    /// What parts without an API server are told; `None` with one.
    pub(super) fn alone(&mut self, parts: Components) -> Option<AloneConfig> {
        if parts.apiserver {
            return None;
        }
        let kubeconfig = self.path("kubeconfig");
        if kubeconfig.is_none() {
            self.mistakes
                .push("--kubeconfig is needed where --components leaves out apiserver".to_owned());
        }
        let (scheduler_port, controllers_port) = self.ports(parts);
        let election = self.election(parts);
        Some(AloneConfig {
            kubeconfig: kubeconfig.unwrap_or_default(),
            election,
            scheduler_port,
            controllers_port,
            root_ca_file: self.path("root-ca-file"),
            token_key_file: self.path("service-account-private-key-file"),
            signing_files: self.signing_files(),
            service_account_credentials: self.bool("use-service-account-credentials", false),
        })
    }

    fn ports(&mut self, parts: Components) -> (Option<u16>, Option<u16>) {
        let both = parts.scheduler && parts.controllers;
        let given = self.flags.last("secure-port").is_some();
        let port = self.parse("secure-port", 0u16);
        if given && port != 0 && both {
            let why = "scheduler and controllers have a port each: 0 turns both off, another needs a process for each";
            self.wrong("secure-port", &port.to_string(), why);
        }
        let of = |runs: bool, default: u16| match (runs, given) {
            (false, _) => None,
            (true, false) => Some(default),
            (true, true) => Some(port).filter(|port| *port != 0),
        };
        (
            of(parts.scheduler, SCHEDULER_PORT),
            of(parts.controllers, CONTROLLERS_PORT),
        )
    }

    fn signing_files(&mut self) -> Option<(PathBuf, PathBuf)> {
        let pair = (
            self.path("cluster-signing-cert-file"),
            self.path("cluster-signing-key-file"),
        );
        match pair {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                self.mistakes.push(
                    "--cluster-signing-cert-file and --cluster-signing-key-file must be given together".to_owned(),
                );
                None
            }
        }
    }

    fn election(&mut self, parts: Components) -> ElectionWords {
        let is_on = self.flags.last("leader-elect").is_some();
        let is_on = is_on.then(|| self.bool("leader-elect", true));
        if self.flags.last("leader-elect-resource-name").is_some() && parts.scheduler && parts.controllers {
            let why = "--leader-elect-resource-name: scheduler and controllers have a lease each; run them apart";
            self.mistakes.push(why.to_owned());
        }
        if let Some(lock) = self.flags.last("leader-elect-resource-lock")
            && lock != "leases"
        {
            self.wrong("leader-elect-resource-lock", lock, "only leases are supported");
        }
        let words = ElectionWords {
            is_on,
            lease: self.duration("leader-elect-lease-duration"),
            renew: self.duration("leader-elect-renew-deadline"),
            retry: self.duration("leader-elect-retry-period"),
            name: self.text("leader-elect-resource-name"),
            namespace: self.text("leader-elect-resource-namespace"),
        };
        if let Err(why) = words.resolve(&ElectionWords::default(), "") {
            self.mistakes.push(why);
        }
        words
    }

    fn text(&mut self, flag: &str) -> Option<String> {
        let text = self.flags.last(flag)?;
        if text.is_empty() {
            self.wrong(flag, text, "must not be empty");
        }
        Some(text.to_owned())
    }

    fn duration(&mut self, flag: &str) -> Option<Duration> {
        let text = self.flags.last(flag)?;
        let read = duration(text);
        if let Err(why) = &read {
            self.wrong(flag, text, why);
        }
        read.ok()
    }
}

/// A duration in Go's form, such as `15s` or `1m30s`.
///
/// # Errors
/// It is no such, or negative.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "is no duration such as 15s or 1m30s".to_owned();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == 'µ';
    if !text.chars().all(is_plain) {
        return Err(wrong());
    }
    let parsed: SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(parsed).map_err(|_| wrong())
}

#[cfg(test)]
mod tests;
