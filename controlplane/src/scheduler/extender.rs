//! HTTP extenders: programs beside the scheduler that are asked for nodes, scores and bindings of the pods that are theirs.
//!
//! [`words`] reads what a configuration says of them, [`message`] says what is sent and what an answer means (pure), [`call`] asks. Answers are
//! strangers' bytes: bounded in size and time, and refused whole when they name a node that was not asked about. Source: contract §11.

pub mod call;
pub mod message;
pub mod words;

use std::time::Duration;

/// A resource that an extender manages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedResource {
    /// Its name.
    pub name: String,
    /// Whether the scheduler's own plugins leave it to the extender.
    pub ignored: bool,
}

/// How an extender's server is known, and we to it. Data are PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Whether any certificate is good.
    pub insecure: bool,
    /// The name the server's certificate must have, if it is not the URL's.
    pub server_name: Option<String>,
    /// The CAs, in a file or as they are.
    pub authority: Option<Source>,
    /// Our certificate and its key.
    pub identity: Option<(Source, Source)>,
}

/// PEM text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a file.
    File(String),
    /// As it is.
    Text(String),
}

/// An extender as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extender {
    /// What verbs are appended to.
    pub url_prefix: String,
    /// Asked which nodes will do; empty if it is not.
    pub filter: String,
    /// Asked how good nodes are; empty if it is not.
    pub prioritize: String,
    /// Asked who should go for a pod; empty if it is not.
    pub preempt: String,
    /// Asked to bind; empty if it is not.
    pub bind: String,
    /// What its scores count.
    pub weight: i64,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Whether it knows the nodes, and wants names only.
    pub knows_nodes: bool,
    /// The resources it is for; it is asked about every pod if there are none.
    pub managed: Vec<ManagedResource>,
    /// Whether pods are scheduled without it where it fails.
    pub ignorable: bool,
    /// How it is reached.
    pub tls: Tls,
}

#[cfg(test)]
pub(in crate::scheduler) mod tests;
