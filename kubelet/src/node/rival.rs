//! Notices another kubelet under this node's name: both write one Node object, and both run its pods.
//!
//! Pure; owns what was seen and told of the other. There are two signs of it: once this kubelet's status was seen on the
//! node, the node describes another machine or port; and somebody else renewed the node's lease. One sign may be an
//! accident (a reply that came late, a restored store), two within a short while are not. A restart, a reboot and a
//! takeover show neither: they happen before this kubelet's own first write.

use super::Facts;
use k8s_openapi::api::core::v1::NodeStatus;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// How far apart two signs may be to belong together.
const TOGETHER: Duration = Duration::from_secs(120);
/// How long the same is not told again.
const QUIET: Duration = Duration::from_secs(600);
/// The signs it takes.
const SIGNS_MIN: u32 = 2;

/// What a kubelet says of itself in the node's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    machine: String,
    system: String,
    address: String,
    port: i32,
}

impl Identity {
    /// This kubelet's.
    pub(super) fn of_facts(facts: &Facts) -> Self {
        Self {
            machine: facts.machine.machine_id.clone(),
            system: facts.machine.system_uuid.clone(),
            address: facts.ips.first().map(ToString::to_string).unwrap_or_default(),
            port: i32::from(facts.port),
        }
    }

    /// That of whoever wrote a status; `None` if no kubelet did yet.
    pub(super) fn of_status(status: &NodeStatus) -> Option<Self> {
        let info = status.node_info.as_ref()?;
        let mut addresses = status.addresses.iter().flatten();
        let address = addresses.find(|address| address.type_ == "InternalIP");
        let endpoint = status
            .daemon_endpoints
            .as_ref()
            .and_then(|e| e.kubelet_endpoint.as_ref());
        Some(Self {
            machine: info.machine_id.clone(),
            system: info.system_uuid.clone(),
            address: address.map(|address| address.address.clone()).unwrap_or_default(),
            port: endpoint.map_or(0, |endpoint| endpoint.port),
        })
    }

    /// Whether it is another kubelet's. An address alone says nothing: it may change, and others may write it.
    pub(super) fn is_another(&self, other: &Self) -> bool {
        let differs = |a: &str, b: &str| !a.is_empty() && !b.is_empty() && a != b;
        let ports = self.port != 0 && other.port != 0 && self.port != other.port;
        differs(&self.machine, &other.machine) || differs(&self.system, &other.system) || ports
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = match self.machine.as_str() {
            "" => self.system.as_str(),
            id => id,
        };
        let port = self.port;
        // An IPv6 address needs brackets before a port.
        match self.address.contains(':') {
            true => write!(f, "machine {machine:?} at [{}]:{port}", self.address),
            false => write!(f, "machine {machine:?} at {}:{port}", self.address),
        }
    }
}

/// What has been seen of another kubelet of this node's name.
#[derive(Debug, Default)]
pub(super) struct Rival {
    /// Whether our own status was seen on the node: only what comes after it is another's doing.
    confirmed: bool,
    other: Option<Identity>,
    signs: u32,
    last_sign: Option<Instant>,
    told: Option<(Instant, String)>,
}

impl Rival {
    /// Takes the node's status as it is now; tells whether another kubelet wrote over ours.
    pub(super) fn saw(&mut self, ours: &Identity, status: &NodeStatus, now: Instant) -> bool {
        let Some(theirs) = Identity::of_status(status) else {
            return false;
        };
        if !ours.is_another(&theirs) {
            self.confirmed = true;
            return false;
        }
        self.other = Some(theirs);
        if self.confirmed {
            self.sign(now);
        }
        self.confirmed
    }

    /// Somebody else renewed the lease.
    pub(super) fn lease_was_taken(&mut self, now: Instant) {
        self.sign(now);
    }

    /// The node object is another one now: nothing of ours is on it yet.
    pub(super) fn node_is_new(&mut self) {
        self.confirmed = false;
    }

    fn sign(&mut self, now: Instant) {
        let together = self.last_sign.is_some_and(|last| now - last <= TOGETHER);
        self.signs = if together { self.signs + 1 } else { 1 };
        self.last_sign = Some(now);
    }

    /// What is to be told now, if anything: each message once in a while, as long as there are signs.
    pub(super) fn message(&mut self, node: &str, ours: &Identity, now: Instant) -> Option<String> {
        if self.signs < SIGNS_MIN || self.last_sign.is_none_or(|last| now - last > TOGETHER) {
            return None;
        }
        let other = match &self.other {
            Some(other) => format!("the other on {other}"),
            None => "the other is known only by its renewals of the node's lease".to_owned(),
        };
        let message = format!(
            "another kubelet runs under the node name {node:?}: this one is on {ours}, {other}; give one of them another --hostname-override"
        );
        let told = self.told.as_ref();
        if told.is_some_and(|(at, text)| *text == message && now - *at < QUIET) {
            return None;
        }
        self.told = Some((now, message.clone()));
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::status::tests::facts;
    use serde_json::json;

    fn status(machine: &str, port: i32) -> NodeStatus {
        serde_json::from_value(json!({
            "addresses": [{"type": "InternalIP", "address": "192.0.2.77"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "nodeInfo": {"architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                "kubeletVersion": "", "machineID": machine, "operatingSystem": "", "osImage": "", "systemUUID": ""},
        }))
        .expect("a status")
    }

    fn ours() -> Identity {
        let mut facts = facts();
        facts.machine.machine_id = "aaa".into();
        Identity::of_facts(&facts)
    }

    fn later(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn the_past_of_a_node_is_no_sign_and_a_single_sign_is_none_either() {
        let mut rival = Rival::default();
        assert!(!rival.saw(&ours(), &NodeStatus::default(), later(0)), "a new node");
        assert!(!rival.saw(&ours(), &status("bbb", 10250), later(0)), "taken over");
        assert!(!rival.saw(&ours(), &status("bbb", 10250), later(10)), "seen late");
        assert!(!rival.saw(&ours(), &status("aaa", 10250), later(20)));
        assert_eq!(rival.message("n", &ours(), later(20)), None);
        assert!(rival.saw(&ours(), &status("bbb", 10250), later(30)));
        assert_eq!(rival.message("n", &ours(), later(30)), None, "once is an accident");
        assert!(rival.saw(&ours(), &status("bbb", 10250), later(300)));
        assert_eq!(rival.message("n", &ours(), later(300)), None, "too far apart");
        rival.node_is_new();
        assert!(
            !rival.saw(&ours(), &status("bbb", 10250), later(310)),
            "another node object"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn two_signs_are_told_once_in_a_while_and_name_both() {
        let mut rival = Rival::default();
        rival.saw(&ours(), &status("aaa", 10250), later(0));
        rival.saw(&ours(), &status("bbb", 10251), later(10));
        rival.lease_was_taken(later(12));
        let told = rival.message("n", &ours(), later(12)).expect("a message");
        assert!(told.contains("machine \"aaa\" at 192.0.2.10:10250"), "{told}");
        assert!(told.contains("machine \"bbb\" at 192.0.2.77:10251"), "{told}");
        for second in (20..600).step_by(10) {
            rival.lease_was_taken(later(second));
            assert_eq!(rival.message("n", &ours(), later(second)), None, "at {second}");
        }
        assert_eq!(
            rival.message("n", &ours(), later(613)).as_ref(),
            Some(&told),
            "still so"
        );
        assert_eq!(rival.message("n", &ours(), later(1300)), None, "the other is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_alone_is_enough_and_so_is_the_port() {
        let mut rival = Rival::default();
        rival.lease_was_taken(later(0));
        rival.lease_was_taken(later(10));
        let told = rival.message("n", &ours(), later(10)).expect("a message");
        assert!(told.contains("renewals of the node's lease"), "{told}");
        assert!(ours().is_another(&Identity::of_status(&status("aaa", 10251)).expect("one")));
        assert!(!ours().is_another(&Identity::of_status(&status("", 0)).expect("one")));
    }
}
