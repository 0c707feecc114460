//! Whose bodies, replies and watches have rooms of their own: the cluster's parts, and everybody else. Pure.
//!
//! Fixed, unlike priority levels: no object makes a user a part of the cluster.

use crate::apiserver::request::RequestInfo;
use crate::apiserver::user::User;

/// Whose rooms a request's bytes are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Administrators, and who asks whether the server lives.
    Exempt,
    /// Nodes, controllers, the scheduler, service accounts of kube-system.
    Vital,
    /// Everybody else.
    Other,
}

impl Class {
    /// The class of a request.
    pub(super) fn of(user: &User, info: &RequestInfo) -> Self {
        let is_probe = !info.is_resource && matches!(info.path.as_str(), "/healthz" | "/livez" | "/readyz");
        let is_control_plane = matches!(
            user.name.as_str(),
            "system:kube-controller-manager" | "system:kube-scheduler"
        );
        if user.is_in("system:masters") || is_probe {
            Self::Exempt
        } else if is_control_plane || user.is_in("system:nodes") || user.is_in("system:serviceaccounts:kube-system") {
            Self::Vital
        } else {
            Self::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::request::Query;

    #[test]
    fn the_clusters_own_parts_are_known() {
        for (user, path, class) in [
            (User::named("admin", &["system:masters"]), "/api/v1/pods", Class::Exempt),
            (
                User::named("system:node:n", &["system:nodes"]),
                "/api/v1/pods",
                Class::Vital,
            ),
            (User::named("system:kube-scheduler", &[]), "/api/v1/pods", Class::Vital),
            (
                User::service_account("kube-system", "dns"),
                "/api/v1/services",
                Class::Vital,
            ),
            (User::service_account("a", "b"), "/api/v1/services", Class::Other),
            (User::named("jane", &[]), "/api/v1/pods", Class::Other),
            (User::default(), "/livez", Class::Exempt),
            (User::default(), "/openapi/v2", Class::Other),
        ] {
            let info = RequestInfo::parse(&http::Method::GET, path, &Query::default());
            assert_eq!(Class::of(&user, &info), class, "{} {path}", user.name);
        }
    }
}
