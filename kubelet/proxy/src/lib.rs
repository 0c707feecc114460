//! Services, their endpoints and this node, made into rules of the kernel. Runs no program and owns no rule outside its own
//! tables; knows nothing of pods, of the kubelet's configuration or of how it was started.
//!
//! | module | owns |
//! |---|---|
//! | [`model`] | values: a Service's ports, its endpoints, what was chosen of them; how they are read (pure) |
//! | [`settings`] | what the node and its configuration decide |
//! | [`choose`] | which endpoints traffic goes to from this node (pure) |
//! | [`desired`] | the elements of the sets for a port (pure) |
//! | [`rules`] | the rules that use the sets: a fixed number, whatever the number of Services (pure) |
//! | [`diff`], [`ledger`] | from one state to the next: what comes and goes (pure) |
//! | [`apply`] | batches for the kernel, and the look whether they are still there |
//! | [`run`] | the loop from watched objects to written rules |
//! | [`notice`] | what the run loop tells whoever listens |
//!
//! Around the rules, for a proxy as upstream's:
//!
//! | module | owns |
//! |---|---|
//! | [`config`], [`flags`] | KubeProxyConfiguration and the command line, checked and resolved |
//! | [`healthz`], [`metrics`] | `/healthz`, `/livez`; what is counted, and its pages |
//! | [`health_check`] | the servers of `healthCheckNodePort` |
//! | [`conntrack`] | UDP flows that go to no endpoint any more; the kernel's limits of connection tracking |
//! | [`node_ports`] | node ports kept out of the kernel's choice for connections of the node's own |
//! | [`others`] | the look for rules of another proxy |
//! | [`http`] | connections of probes and scrapers, bounded |
//! | [`told`] | events, for whoever writes them |
//! | [`serve`] | a whole proxy for one node |
//! | [`program`] | the program `kube-proxy` |

pub mod apply;
pub mod choose;
pub mod desired;
pub mod diff;
pub mod ledger;
pub mod model;
pub mod notice;
pub mod rules;
pub mod run;
pub mod settings;

pub mod config;
pub mod conntrack;
mod duration;
pub mod flags;
pub mod health_check;
pub mod healthz;
pub mod http;
pub mod metrics;
pub mod node_ports;
pub mod others;
pub mod program;
pub mod serve;
#[cfg(test)]
mod testing;
pub mod told;
