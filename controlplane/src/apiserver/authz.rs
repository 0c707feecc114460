//! May this identity do that? The Node authorizer for kubelets, then RBAC over the stored roles and bindings (control-plane contract §6).
//!
//! RBAC's answer comes from an [`Index`] that is rebuilt only when one of its four resources has changed; the Node authorizer's
//! from what the pods of the node refer to ([`node`]).

mod escalation;
mod index;
mod node;
mod rule;

pub use escalation::check_escalation;
pub use index::{Answer, Index};
pub use node::node_of;
pub use rule::Rule;

use super::reader::Reader;
use super::request::RequestInfo;
use super::status::ApiError;
use super::user::User;
use crate::store::Revision;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};

/// The API group of RBAC.
pub(crate) const RBAC: &str = "rbac.authorization.k8s.io";
/// The group that may do everything.
const MASTERS: &str = "system:masters";

/// The outcome of an authorization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request may go on.
    pub allowed: bool,
    /// What allowed it, or what kept rules from being found; may be empty.
    pub reason: String,
}

/// Authorizes requests.
#[derive(Default)]
pub struct Authz {
    /// Judges kubelets before RBAC does, if the mode `Node` is on.
    nodes: Option<node::Nodes>,
    cached: Mutex<Option<Arc<Cached>>>,
}

/// An index, and the last changes of the resources it was built from.
struct Cached {
    from: [Revision; 4],
    index: Index,
}

const SOURCES: [&str; 4] = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"];

impl Authz {
    /// Both modes, `Node` and `RBAC`; the role says what every node may do beyond its own objects.
    pub fn with_nodes(role: &Value) -> Self {
        Self {
            nodes: Some(node::Nodes::new(rule::rules_of(role))),
            cached: Mutex::default(),
        }
    }

    /// Decides.
    pub fn authorize(&self, user: &User, info: &RequestInfo, reader: &Reader) -> Decision {
        if user.is_in(MASTERS) {
            return Decision {
                allowed: true,
                reason: String::new(),
            };
        }
        let nodes = self.nodes.as_ref();
        let first = nodes
            .map(|nodes| nodes.authorize(user, info, reader))
            .unwrap_or_default();
        if first.allowed {
            return first;
        }
        let Answer { allowed, reason } = self.current(reader).index.authorize(user, info);
        // As upstream: what each mode had to say, a line each.
        let reason = match (allowed, first.reason.is_empty(), reason.is_empty()) {
            (true, ..) | (_, true, _) => reason,
            (_, false, true) => first.reason,
            (_, false, false) => format!("{}\n{reason}", first.reason),
        };
        Decision { allowed, reason }
    }

    /// Every rule the user holds in `namespace`.
    pub fn rules_for(&self, user: &User, namespace: &str, reader: &Reader) -> Vec<Rule> {
        if user.is_in(MASTERS) {
            let all = vec!["*".to_owned()];
            let resources = Rule {
                verbs: all.clone(),
                api_groups: all.clone(),
                resources: all.clone(),
                ..Rule::default()
            };
            let paths = Rule {
                verbs: all.clone(),
                non_resource_urls: all,
                ..Rule::default()
            };
            return vec![resources, paths];
        }
        self.current(reader).index.rules_for(user, namespace)
    }

    /// Whether the user may write this RBAC object: it must not give rights the user does not hold.
    ///
    /// # Errors
    /// 403 with upstream's text.
    pub fn may_grant(
        &self,
        user: &User,
        info: &RequestInfo,
        (old, object): (Option<&Value>, &Value),
        reader: &Reader,
    ) -> Result<(), ApiError> {
        if user.is_in(MASTERS) {
            return Ok(());
        }
        check_escalation(&self.current(reader).index, user, info, (old, object))
    }

    fn current(&self, reader: &Reader) -> Arc<Cached> {
        // Asked before the objects are read: a change in between makes the next request build again, and none is missed.
        let from = SOURCES.map(|resource| reader.changed(RBAC, resource));
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = cached.as_ref()
            && cached.from == from
        {
            return Arc::clone(cached);
        }
        let [roles, role_bindings, cluster_roles, cluster_role_bindings] =
            SOURCES.map(|resource| reader.list(RBAC, resource, ""));
        let index = Index::build(&index::Objects {
            roles,
            role_bindings,
            cluster_roles,
            cluster_role_bindings,
        });
        let fresh = Arc::new(Cached { from, index });
        *cached = Some(Arc::clone(&fresh));
        fresh
    }
}

/// The 403 for a request that is not allowed (contract §3), `&<>` escaped as upstream does.
pub fn forbidden(user: &User, info: &RequestInfo, reason: &str) -> ApiError {
    let mut why = if info.is_resource {
        let subresource = if info.subresource.is_empty() {
            String::new()
        } else {
            format!("/{}", info.subresource)
        };
        let scope = if info.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{}\"", info.namespace)
        };
        format!(
            "User \"{}\" cannot {} resource \"{}{subresource}\" in API group \"{}\" {scope}",
            user.name, info.verb, info.resource, info.group
        )
    } else {
        format!("User \"{}\" cannot {} path \"{}\"", user.name, info.verb, info.path)
    };
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    let why = escape(&why);
    if info.is_resource {
        ApiError::forbidden(&info.group, &info.resource, &info.name, &why)
    } else {
        ApiError::new(403, "Forbidden", format!("forbidden: {why}"))
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::value::testing::as_stored;
    use crate::store::window::Window;
    use crate::store::{Expect, Store, memory::Memory};

    #[test]
    fn refusals_read_as_upstreams() {
        let user = User::named("a<b>", &[]);
        let info = RequestInfo {
            is_resource: true,
            verb: "get".to_owned(),
            resource: "pods".to_owned(),
            subresource: "log".to_owned(),
            namespace: "ns".to_owned(),
            name: "p".to_owned(),
            ..RequestInfo::default()
        };
        let error = forbidden(&user, &info, "");
        assert_eq!(
            error.message,
            "pods \"p\" is forbidden: User \"a&lt;b&gt;\" cannot get resource \"pods/log\" in API group \"\" in the namespace \"ns\""
        );
        let path = RequestInfo {
            verb: "get".to_owned(),
            path: "/metrics".to_owned(),
            ..RequestInfo::default()
        };
        let error = forbidden(&User::named("u", &[]), &path, "no");
        assert_eq!(error.message, "forbidden: User \"u\" cannot get path \"/metrics\": no");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_binding_takes_effect_and_an_unrelated_write_rebuilds_nothing() {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let window = Window::open(Arc::clone(&store)).await.unwrap();
        let reader = Reader::new(&window);
        let authz = Authz::default();
        let user = User::named("alice", &[]);
        let info = RequestInfo {
            verb: "get".to_owned(),
            path: "/x".to_owned(),
            ..RequestInfo::default()
        };
        assert!(!authz.authorize(&user, &info, &reader).allowed);
        let write = async |key: &str, text: &str| {
            let bytes = as_stored(key, &serde_json::from_str(text).unwrap());
            let revision = store.put(key, bytes, Expect::Absent).await.unwrap();
            assert!(revision > 0);
            reader.refresh().await.unwrap();
        };
        write(
            "/registry/clusterroles/r",
            r#"{"metadata":{"name":"r"},"rules":[{"verbs":["get"],"nonResourceURLs":["/x"]}]}"#,
        )
        .await;
        write(
            "/registry/clusterrolebindings/b",
            r#"{"metadata":{"name":"b"},"roleRef":{"kind":"ClusterRole","name":"r"},"subjects":[{"kind":"User","name":"alice"}]}"#,
        )
        .await;
        assert!(authz.authorize(&user, &info, &reader).allowed);
        let before = authz.current(&reader);
        write("/registry/configmaps/a/b", r#"{"metadata":{"name":"b"}}"#).await;
        assert!(Arc::ptr_eq(&before, &authz.current(&reader)));
    }
}
