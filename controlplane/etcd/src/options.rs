//! What a store on etcd is told, and what can be wrong with it.

use crate::address::Address;
use std::path::PathBuf;
use std::time::Duration;

/// Everything a store on etcd needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// URLs of the cluster's members (`--etcd-servers`); at least one.
    pub servers: Vec<String>,
    /// Who is trusted, and who we are.
    pub tls: TlsFiles,
    /// What all keys begin with (`--etcd-prefix`).
    pub prefix: String,
    /// How often history is compacted (`--etcd-compaction-interval`); `None`: by others.
    pub compaction_interval: Option<Duration>,
    /// How long is waited.
    pub deadlines: Deadlines,
}

impl Options {
    /// The servers that are no addresses, and why not.
    pub fn wrong_servers(&self) -> Vec<(String, String)> {
        if self.servers.is_empty() {
            return vec![(String::new(), "it names no server".to_owned())];
        }
        let judged = self.servers.iter().map(|server| (server, Address::parse(server)));
        let wrong = judged.filter_map(|(server, read)| Some((server.clone(), read.err()?)));
        wrong.collect()
    }
}

/// Files of the connections to etcd, read anew for each connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// CA bundle that members' certificates are verified against (`--etcd-cafile`).
    pub ca: Option<PathBuf>,
    /// Our certificate (`--etcd-certfile`).
    pub cert: Option<PathBuf>,
    /// Its key (`--etcd-keyfile`).
    pub key: Option<PathBuf>,
}

/// How long is waited for etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// For one member's answer. etcd itself gives up after 7 s (5 s and two elections of 1 s), and its reason is worth hearing.
    pub attempt: Duration,
    /// For a request, over all members.
    pub request: Duration,
    /// For the first answer after the start.
    pub start: Duration,
    /// How long a watch may tell nothing although there is something newer, before another member is watched.
    pub stall: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            attempt: Duration::from_secs(8),
            request: Duration::from_secs(20),
            start: Duration::from_secs(30),
            stall: Duration::from_secs(3),
        }
    }
}

/// Why a store on etcd cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No member is named.
    #[error("--etcd-servers names no server")]
    NoServer,
    /// A URL is none.
    #[error("--etcd-servers: {url}: {why}")]
    Server {
        /// The URL as given.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// A file cannot be used.
    #[error("{0}")]
    Tls(String),
    /// What is there is being moved, or has been moved away.
    #[error("the keys under --etcd-prefix={prefix} cannot be used: {why}")]
    Moving {
        /// The prefix.
        prefix: String,
        /// What the move says of itself.
        why: String,
    },
    /// What is there is of a form that only newer binaries read.
    #[error("the objects under --etcd-prefix={prefix} {why}")]
    Form {
        /// The prefix.
        prefix: String,
        /// Which form, and which this binary knows.
        why: String,
    },
    /// Its user may not do what is needed.
    #[error(
        "the servers of --etcd-servers refuse ({0}): their user for --etcd-certfile needs the right to read all keys, and to write those \
         under --etcd-prefix and compact_rev_key"
    )]
    Refused(String),
    /// What the servers have cannot be used.
    #[error("--etcd-servers: {0}")]
    Unusable(String),
    /// Nobody answers.
    #[error("no server of --etcd-servers answers: {0}")]
    NoAnswer(String),
}
