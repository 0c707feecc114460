//! Which share of the server a request is served from: upstream's suggested priority levels (control-plane contract §8). Pure.
//!
//! Levels and rules are upstream's defaults written down; that they are objects, that levels lend to one another and that one
//! user's requests are spread over several queues comes with priority and fairness in full.

use crate::apiserver::request::RequestInfo;
use crate::apiserver::user::User;

/// Requests under way at once over all levels: upstream's 400 reads and 200 writes (contract §8).
const SEATS: usize = 600;

/// A share of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Administrators, and who asks whether the server lives: never waits.
    Exempt,
    /// Leases of the controllers and the scheduler.
    LeaderElection,
    /// Nodes' own objects and leases: without them nodes are taken for dead.
    NodeHigh,
    /// What else nodes do.
    System,
    /// Controllers and scheduler, service accounts of kube-system.
    WorkloadHigh,
    /// Other service accounts.
    WorkloadLow,
    /// Everybody else.
    GlobalDefault,
}

impl Level {
    /// Those that have a limit.
    pub(super) const LIMITED: [Self; 6] = [
        Self::LeaderElection,
        Self::NodeHigh,
        Self::System,
        Self::WorkloadHigh,
        Self::WorkloadLow,
        Self::GlobalDefault,
    ];

    /// Requests of this level under way at once.
    pub(super) fn seats(self) -> usize {
        /// All shares, the 5 of upstream's `catch-all` included, which nothing reaches.
        const SHARES: usize = 245;
        let shares = match self {
            Self::Exempt => return SEATS,
            Self::LeaderElection => 10,
            Self::NodeHigh | Self::WorkloadHigh => 40,
            Self::System => 30,
            Self::WorkloadLow => 100,
            Self::GlobalDefault => 20,
        };
        (SEATS * shares).div_ceil(SHARES)
    }

    /// The level of a request, by upstream's flow schemas in their order.
    pub(super) fn of(user: &User, info: &RequestInfo) -> Self {
        let is_control_plane = matches!(
            user.name.as_str(),
            "system:kube-controller-manager" | "system:kube-scheduler"
        ) || user.is_in("system:serviceaccounts:kube-system");
        let resource = (info.group.as_str(), info.resource.as_str());
        let is_probe = !info.is_resource && matches!(info.path.as_str(), "/healthz" | "/livez" | "/readyz");
        let is_lease = resource == ("coordination.k8s.io", "leases");
        if user.is_in("system:masters") || is_probe {
            Self::Exempt
        } else if is_control_plane && is_lease && matches!(info.verb.as_str(), "get" | "create" | "update") {
            Self::LeaderElection
        } else if user.is_in("system:nodes") && (is_lease || resource == ("", "nodes")) {
            Self::NodeHigh
        } else if user.is_in("system:nodes") {
            Self::System
        } else if is_control_plane {
            Self::WorkloadHigh
        } else if user.is_in("system:serviceaccounts") {
            Self::WorkloadLow
        } else {
            Self::GlobalDefault
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::request::Query;

    #[test]
    fn requests_find_upstreams_levels() {
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n";
        let node = User::named("system:node:n", &["system:nodes"]);
        let scheduler = User::named("system:kube-scheduler", &[]);
        for (user, method, path, level) in [
            (
                User::named("admin", &["system:masters"]),
                "GET",
                "/api/v1/pods",
                Level::Exempt,
            ),
            (node.clone(), "PUT", lease, Level::NodeHigh),
            (node.clone(), "PATCH", "/api/v1/nodes/n/status", Level::NodeHigh),
            (node, "PATCH", "/api/v1/namespaces/a/pods/p/status", Level::System),
            (scheduler.clone(), "PUT", lease, Level::LeaderElection),
            (
                scheduler,
                "POST",
                "/api/v1/namespaces/a/pods/p/binding",
                Level::WorkloadHigh,
            ),
            (
                User::service_account("kube-system", "dns"),
                "GET",
                "/api/v1/services",
                Level::WorkloadHigh,
            ),
            (
                User::service_account("a", "b"),
                "GET",
                "/api/v1/services",
                Level::WorkloadLow,
            ),
            (User::named("jane", &[]), "PUT", lease, Level::GlobalDefault),
            (User::default(), "GET", "/api/v1/pods", Level::GlobalDefault),
            (User::default(), "GET", "/livez", Level::Exempt),
            (User::default(), "GET", "/openapi/v2", Level::GlobalDefault),
        ] {
            let info = RequestInfo::parse(&method.parse().unwrap(), path, &Query::default());
            assert_eq!(Level::of(&user, &info), level, "{} {method} {path}", user.name);
        }
        let seats: usize = Level::LIMITED.iter().map(|level| level.seats()).sum();
        assert!(seats <= SEATS);
        assert_eq!((Level::NodeHigh.seats(), Level::GlobalDefault.seats()), (98, 49));
    }
}
