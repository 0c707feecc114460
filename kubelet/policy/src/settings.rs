//! What the node decides about enforcement, and what is told of it. Values only.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::Key;
use netlink::cidr::Cidr;

/// Between two looks whether somebody else has removed our rules.
pub const LOOK_PERIOD: Duration = Duration::from_secs(2);

/// How long the cluster's pods are followed after the last policy has gone.
pub const KEEP_PERIOD: Duration = Duration::from_secs(600);

/// How long the cluster may take to be read before what was known of it last counts.
pub const AWAY_PERIOD: Duration = Duration::from_secs(5);

/// Settings of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its name; pods bound to it are its pods.
    pub node_name: String,
    /// The ranges its pods have addresses of (`spec.podCIDRs`). While there is any policy, addresses in them that are no
    /// known pod's are held back; without ranges, nothing is. Bridges that carry an address in them are the pods'.
    pub pod_cidrs: Vec<Cidr>,
    /// Path of the network namespace the pods' traffic goes through; the process's own if absent.
    pub netns: Option<String>,
    /// Between two looks whether our rules are still there, while there is any policy.
    pub look_period: Duration,
    /// How long pods and namespaces are followed after the last policy has gone.
    pub keep_period: Duration,
    /// How long the cluster may take to be read before what was known last counts.
    pub away_period: Duration,
    /// Where [`crate::last::Last`] is kept; nowhere if absent.
    pub last: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            node_name: String::new(),
            pod_cidrs: Vec::new(),
            netns: None,
            look_period: LOOK_PERIOD,
            keep_period: KEEP_PERIOD,
            away_period: AWAY_PERIOD,
            last: None,
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Something in a policy cannot be enforced as written; told once for each version of the policy.
    Flawed {
        /// The policy.
        policy: Key,
        /// Its UID.
        uid: String,
        /// The field, what is wrong with it, and what is done instead.
        text: String,
    },
    /// The kernel does not take the rules; what it has stays in force, and it is tried again.
    Failed(String),
    /// Somebody else had removed the rules.
    Rebuilt,
}

/// Called by the loop, in order, on its own task: it must not block.
pub type Observer = Arc<dyn Fn(&Notice) + Send + Sync>;
