//! What the judges of controllers know of pods: when each was last Ready, what it is called, and who asked for its end.
//!
//! A controller acts on what it has seen, which may be older than what stands: what was so in the last moments counts as so. What it did
//! itself it knows at once.

use super::{controller_of, is_deleting, uid};
use controlplane::store::Revision;
use serde_json::Value;
use std::collections::BTreeMap;

/// How many revisions of the store a controller may be behind.
pub const LAG_REVISIONS: Revision = 150;
/// Still so.
const NOW: Revision = Revision::MAX;

#[derive(Default)]
pub struct Pods {
    /// By UID: until when it was Ready and not on its way out.
    ready_until: BTreeMap<String, Revision>,
    /// By UID: `NAMESPACE/NAME` and the UID of the controller.
    names: BTreeMap<String, (String, String)>,
    /// By `NAMESPACE/NAME`: the UID of the pod that has or had it last.
    last: BTreeMap<String, String>,
    /// By UID: who last asked for its deletion.
    deleted_by: BTreeMap<String, String>,
}

pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

pub fn is_terminal(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Whether it counts as one of its owner's.
pub fn is_active(pod: &Value) -> bool {
    !is_terminal(pod) && !is_deleting(pod)
}

impl Pods {
    pub fn on_pod(&mut self, revision: Revision, key: &str, before: Option<&Value>, after: Option<&Value>) {
        let serves = |pod: &Value| is_ready(pod) && is_active(pod);
        for (pod, until) in [(before, revision), (after, NOW)] {
            if let Some(pod) = pod.filter(|pod| serves(pod)) {
                self.ready_until.insert(uid(pod).to_owned(), until);
            }
        }
        if let Some(pod) = after {
            let name = key.trim_start_matches("/registry/pods/").to_owned();
            let owner = controller_of(pod).unwrap_or_default().to_owned();
            self.last.insert(name.clone(), uid(pod).to_owned());
            let known = self.names.entry(uid(pod).to_owned()).or_insert((name, String::new()));
            // A pod that lost its owner keeps its identity.
            if !owner.is_empty() {
                known.1 = owner;
            }
        }
    }

    pub fn asked_to_delete(&mut self, who: &str, uid: &str) {
        self.deleted_by.insert(uid.to_owned(), who.to_owned());
    }

    /// Whether that controller asked for the pod's end.
    pub fn is_deleted_by(&self, who: &str, pod: &Value) -> bool {
        self.deleted_by.get(uid(pod)).is_some_and(|asked| asked == who)
    }

    /// Whether it was Ready until a moment ago, or is.
    pub fn was_ready(&self, revision: Revision, uid: &str) -> bool {
        let until = self.ready_until.get(uid);
        until.is_some_and(|until| until.saturating_add(LAG_REVISIONS) >= revision)
    }

    /// Whether it has ever been Ready.
    pub fn has_been_ready(&self, uid: &str) -> bool {
        self.ready_until.contains_key(uid)
    }

    /// The UID of the pod that has that name, or had it last.
    pub fn last_of(&self, name: &str) -> Option<&str> {
        self.last.get(name).map(String::as_str)
    }

    /// `NAMESPACE/NAME` and the UID of the controller.
    pub fn name(&self, uid: &str) -> Option<&(String, String)> {
        self.names.get(uid)
    }
}
