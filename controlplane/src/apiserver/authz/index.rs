//! RBAC's objects arranged for answering: bindings by subject, rules by role. Pure; rebuilt as a whole.

use super::rule::{Rule, rules_of};
use crate::apiserver::request::RequestInfo;
use crate::apiserver::user::User;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A role's name: namespace (empty for a ClusterRole) and name.
type RoleKey = (String, String);

/// Who a binding speaks of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SubjectKey {
    User(String),
    Group(String),
}

#[derive(Clone, Debug)]
struct Binding {
    /// Empty for a ClusterRoleBinding.
    namespace: String,
    name: String,
    role: RoleKey,
    /// The role's rules, if there is such a role.
    rules: Option<Arc<Vec<Rule>>>,
    /// How the answer names the subject, such as `Group "system:masters"`.
    subject: String,
}

/// Why a request is allowed, or what kept rules from being found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Whether some rule allows the request.
    pub allowed: bool,
    /// The binding that allows it, or bindings whose roles are missing.
    pub reason: String,
}

/// All RBAC objects of one moment.
#[derive(Clone, Debug, Default)]
pub struct Index {
    roles: BTreeMap<RoleKey, Arc<Vec<Rule>>>,
    bindings: BTreeMap<SubjectKey, Vec<Binding>>,
}

/// The stored objects an [`Index`] is built from.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// `roles` of all namespaces.
    pub roles: Vec<Arc<Value>>,
    /// `rolebindings` of all namespaces.
    pub role_bindings: Vec<Arc<Value>>,
    /// `clusterroles`.
    pub cluster_roles: Vec<Arc<Value>>,
    /// `clusterrolebindings`.
    pub cluster_role_bindings: Vec<Arc<Value>>,
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

impl Index {
    /// Arranges the objects.
    pub fn build(objects: &Objects) -> Self {
        let mut index = Self::default();
        for role in &objects.roles {
            let key = (
                text(role, "/metadata/namespace").to_owned(),
                text(role, "/metadata/name").to_owned(),
            );
            index.roles.insert(key, Arc::new(rules_of(role)));
        }
        for role in &objects.cluster_roles {
            let key = (String::new(), text(role, "/metadata/name").to_owned());
            index.roles.insert(key, Arc::new(rules_of(role)));
        }
        // Cluster-wide bindings first: the order answers are looked for in.
        for binding in objects.cluster_role_bindings.iter().chain(&objects.role_bindings) {
            index.add_binding(binding);
        }
        index
    }

    fn add_binding(&mut self, object: &Value) {
        let namespace = text(object, "/metadata/namespace").to_owned();
        let role_namespace = match text(object, "/roleRef/kind") {
            "ClusterRole" => String::new(),
            _ => namespace.clone(),
        };
        let role = (role_namespace, text(object, "/roleRef/name").to_owned());
        for subject in object.get("subjects").and_then(Value::as_array).into_iter().flatten() {
            let (kind, name) = (text(subject, "/kind"), text(subject, "/name"));
            let (key, subject) = match kind {
                "User" => (SubjectKey::User(name.to_owned()), format!("User \"{name}\"")),
                "Group" => (SubjectKey::Group(name.to_owned()), format!("Group \"{name}\"")),
                "ServiceAccount" => {
                    let home = match text(subject, "/namespace") {
                        "" => namespace.as_str(),
                        given => given,
                    };
                    let user = format!("system:serviceaccount:{home}:{name}");
                    (SubjectKey::User(user), format!("ServiceAccount \"{name}/{home}\""))
                }
                _ => continue,
            };
            self.bindings.entry(key).or_default().push(Binding {
                namespace: namespace.clone(),
                name: text(object, "/metadata/name").to_owned(),
                role: role.clone(),
                rules: self.roles.get(&role).cloned(),
                subject,
            });
        }
    }

    /// Bindings of the user that hold in `namespace` (cluster-wide ones always do).
    fn bindings_of<'a>(&'a self, user: &User, namespace: &'a str) -> impl Iterator<Item = &'a Binding> {
        let mut keys = vec![SubjectKey::User(user.name.clone())];
        keys.extend(user.groups.iter().cloned().map(SubjectKey::Group));
        let found = keys.into_iter().filter_map(|key| self.bindings.get(&key)).flatten();
        found.filter(move |binding| {
            binding.namespace.is_empty() || (!namespace.is_empty() && binding.namespace == namespace)
        })
    }

    /// Whether RBAC allows the request.
    pub fn authorize(&self, user: &User, info: &RequestInfo) -> Answer {
        let mut missing: Vec<String> = Vec::new();
        for binding in self.bindings_of(user, &info.namespace) {
            let Some(rules) = &binding.rules else {
                let error = missing_role(&binding.role);
                if !missing.contains(&error) {
                    missing.push(error);
                }
                continue;
            };
            if rules.iter().any(|rule| rule.allows(info)) {
                return Answer {
                    allowed: true,
                    reason: allowed_by(binding),
                };
            }
        }
        let reason = match missing.len() {
            0 => String::new(),
            1 => format!("RBAC: {}", missing[0]),
            _ => format!("RBAC: [{}]", missing.join(", ")),
        };
        Answer { allowed: false, reason }
    }

    /// Every rule that holds for the user in `namespace`; an empty namespace gives the cluster-wide ones alone.
    pub fn rules_for(&self, user: &User, namespace: &str) -> Vec<Rule> {
        let bindings = self.bindings_of(user, namespace);
        let rules = bindings.filter_map(|binding| binding.rules.as_ref());
        rules.flat_map(|rules| rules.iter().cloned()).collect()
    }

    /// The rules of a role (`namespace` empty for a ClusterRole).
    pub fn role(&self, namespace: &str, name: &str) -> Option<&[Rule]> {
        let key = (namespace.to_owned(), name.to_owned());
        self.roles.get(&key).map(|rules| rules.as_slice())
    }
}

fn missing_role((namespace, name): &RoleKey) -> String {
    let resource = if namespace.is_empty() { "clusterrole" } else { "role" };
    format!("{resource}.rbac.authorization.k8s.io \"{name}\" not found")
}

fn allowed_by(binding: &Binding) -> String {
    let role_kind = if binding.role.0.is_empty() {
        "ClusterRole"
    } else {
        "Role"
    };
    let role = &binding.role.1;
    if binding.namespace.is_empty() {
        let name = &binding.name;
        format!(
            "RBAC: allowed by ClusterRoleBinding \"{name}\" of {role_kind} \"{role}\" to {}",
            binding.subject
        )
    } else {
        let (name, home) = (&binding.name, &binding.namespace);
        let role = if role_kind == "Role" {
            format!("{role}/{home}")
        } else {
            role.clone()
        };
        format!(
            "RBAC: allowed by RoleBinding \"{name}/{home}\" of {role_kind} \"{role}\" to {}",
            binding.subject
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn index() -> Index {
        let pods = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        let secrets = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]);
        Index::build(&Objects {
            roles: vec![Arc::new(
                json!({"metadata": {"name": "r", "namespace": "a"}, "rules": pods.clone()}),
            )],
            role_bindings: vec![
                Arc::new(
                    json!({"metadata": {"name": "b", "namespace": "a"}, "roleRef": {"kind": "Role", "name": "r"},
                    "subjects": [{"kind": "User", "name": "alice"}, {"kind": "ServiceAccount", "name": "sa", "namespace": "x"}]}),
                ),
                Arc::new(
                    json!({"metadata": {"name": "c", "namespace": "a"}, "roleRef": {"kind": "ClusterRole", "name": "sum"},
                    "subjects": [{"kind": "Group", "name": "dev"}]}),
                ),
                Arc::new(
                    json!({"metadata": {"name": "d", "namespace": "a"}, "roleRef": {"kind": "Role", "name": "gone"},
                    "subjects": [{"kind": "User", "name": "bob"}]}),
                ),
            ],
            cluster_roles: vec![
                Arc::new(json!({"metadata": {"name": "sum"}, "aggregationRule":
                    {"clusterRoleSelectors": [{"matchLabels": {"to": "sum"}}]}, "rules": secrets})),
                Arc::new(json!({"metadata": {"name": "part", "labels": {"to": "sum"}}, "rules": pods})),
            ],
            cluster_role_bindings: Vec::new(),
        })
    }

    fn get(resource: &str, namespace: &str) -> RequestInfo {
        RequestInfo {
            is_resource: true,
            verb: "get".to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: "n".to_owned(),
            ..RequestInfo::default()
        }
    }

    #[test]
    fn bindings_hold_in_their_namespace_alone() {
        let index = index();
        let alice = User::named("alice", &[]);
        let answer = index.authorize(&alice, &get("pods", "a"));
        assert_eq!(
            answer.reason,
            r#"RBAC: allowed by RoleBinding "b/a" of Role "r/a" to User "alice""#
        );
        assert!(!index.authorize(&alice, &get("pods", "b")).allowed);
        assert!(!index.authorize(&alice, &get("pods", "")).allowed);
        assert!(
            index
                .authorize(&User::service_account("x", "sa"), &get("pods", "a"))
                .allowed
        );
    }

    #[test]
    fn aggregated_roles_hold_what_was_written_into_them() {
        let dev = User::named("carol", &["dev"]);
        assert!(index().authorize(&dev, &get("secrets", "a")).allowed);
        assert!(!index().authorize(&dev, &get("pods", "a")).allowed);
        assert_eq!(index().rules_for(&dev, "a").len(), 1);
        assert!(index().rules_for(&dev, "").is_empty());
    }

    #[test]
    fn a_missing_role_is_named() {
        let answer = index().authorize(&User::named("bob", &[]), &get("pods", "a"));
        assert!(!answer.allowed);
        assert_eq!(
            answer.reason,
            r#"RBAC: role.rbac.authorization.k8s.io "gone" not found"#
        );
    }
}
