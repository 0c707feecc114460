//! Nobody grants what he does not hold (control-plane contract §6). Pure.

use super::index::Index;
use super::rule::{Rule, not_covered, rules_of};
use super::{RBAC, RequestInfo, User};
use crate::apiserver::status::ApiError;
use serde_json::Value;

/// Whether the user may write this role or binding, given what it was: he holds all its rules, or the verb `escalate` (roles) or
/// `bind` (bindings). Who makes a role a sum of others, or changes one that is, may get whatever there is.
///
/// # Errors
/// 403 naming the rights that are not held; 404 for a binding to a role that does not exist.
pub fn check_escalation(
    index: &Index,
    user: &User,
    info: &RequestInfo,
    (old, object): (Option<&Value>, &Value),
) -> Result<(), ApiError> {
    let is_role = matches!(info.resource.as_str(), "roles" | "clusterroles");
    let is_binding = matches!(info.resource.as_str(), "rolebindings" | "clusterrolebindings");
    if info.group != RBAC || !(is_role || is_binding) {
        return Ok(());
    }
    if is_role {
        if index
            .authorize(user, &on(info, "escalate", &info.resource, &info.name))
            .allowed
        {
            return Ok(());
        }
        let is_sum = |role: &Value| role.get("aggregationRule").is_some_and(|rule| !rule.is_null());
        if (is_sum(object) || old.is_some_and(is_sum)) && !holds_everything(index, user) {
            return Err(refuse(
                info,
                "must have cluster-admin privileges to use the aggregationRule".to_owned(),
            ));
        }
        return held(index, user, info, &rules_of(object));
    }
    let name = object
        .pointer("/roleRef/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let kind = object.pointer("/roleRef/kind").and_then(Value::as_str);
    let (resource, namespace) = match kind {
        Some("Role") => ("roles", info.namespace.as_str()),
        _ => ("clusterroles", ""),
    };
    if index.authorize(user, &on(info, "bind", resource, name)).allowed {
        return Ok(());
    }
    match index.role(namespace, name) {
        Some(rules) => held(index, user, info, rules),
        None => Err(ApiError::not_found(RBAC, resource, name)),
    }
}

fn on(info: &RequestInfo, verb: &str, resource: &str, name: &str) -> RequestInfo {
    RequestInfo {
        is_resource: true,
        verb: verb.to_owned(),
        group: RBAC.to_owned(),
        version: "v1".to_owned(),
        namespace: info.namespace.clone(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..RequestInfo::default()
    }
}

fn holds_everything(index: &Index, user: &User) -> bool {
    let all = vec!["*".to_owned()];
    let everything = [
        Rule {
            verbs: all.clone(),
            api_groups: all.clone(),
            resources: all.clone(),
            ..Rule::default()
        },
        Rule {
            verbs: all.clone(),
            non_resource_urls: all,
            ..Rule::default()
        },
    ];
    not_covered(&index.rules_for(user, ""), &everything).is_empty()
}

fn held(index: &Index, user: &User, info: &RequestInfo, wanted: &[Rule]) -> Result<(), ApiError> {
    let missing = not_covered(&index.rules_for(user, &info.namespace), wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let groups: Vec<String> = user.groups.iter().map(|group| format!("\"{group}\"")).collect();
    Err(refuse(
        info,
        format!(
            "user \"{}\" (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
            user.name,
            groups.join(" "),
            missing.join("\n")
        ),
    ))
}

fn refuse(info: &RequestInfo, why: String) -> ApiError {
    ApiError::forbidden(RBAC, &info.resource, &info.name, &why)
}

#[cfg(test)]
mod tests {
    use super::super::index::Objects;
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn index() -> Index {
        let role = |name: &str, rules: Value| Arc::new(json!({"metadata": {"name": name}, "rules": rules}));
        let bind = |user: &str, role: &str| {
            Arc::new(
                json!({"metadata": {"name": user, "namespace": "ns"}, "roleRef": {"kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "name": user}]}),
            )
        };
        let rbac = json!({"verbs": ["*"], "apiGroups": [RBAC], "resources": ["roles", "rolebindings"]});
        let narrow = json!({"verbs": ["create"], "apiGroups": [RBAC], "resources": ["roles", "rolebindings"]});
        let pods = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        Index::build(&Objects {
            cluster_roles: vec![
                role("all", json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}])),
                role("pods", json!([pods])),
                role("limited", json!([pods, narrow])),
                role("escalator", json!([rbac])),
            ],
            role_bindings: vec![bind("limited", "limited"), bind("escalator", "escalator")],
            ..Objects::default()
        })
    }

    fn write(resource: &str) -> RequestInfo {
        on(
            &RequestInfo {
                namespace: "ns".to_owned(),
                ..RequestInfo::default()
            },
            "create",
            resource,
            "new",
        )
    }

    #[test]
    fn only_held_rights_can_be_granted() {
        let (index, user) = (index(), User::named("limited", &[]));
        let role = |verb: &str| json!({"rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}]});
        assert!(check_escalation(&index, &user, &write("roles"), (None, &role("get"))).is_ok());
        let error = check_escalation(&index, &user, &write("roles"), (None, &role("delete"))).unwrap_err();
        assert_eq!(error.code, 403);
        assert!(error.message.contains("is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\"]}"), "{}", error.message);
        let to = |name: &str| json!({"roleRef": {"kind": "ClusterRole", "name": name}});
        assert!(check_escalation(&index, &user, &write("rolebindings"), (None, &to("pods"))).is_ok());
        assert_eq!(
            check_escalation(&index, &user, &write("rolebindings"), (None, &to("all")))
                .unwrap_err()
                .code,
            403
        );
        assert_eq!(
            check_escalation(&index, &user, &write("rolebindings"), (None, &to("none")))
                .unwrap_err()
                .code,
            404
        );
    }

    #[test]
    fn the_verb_escalate_lifts_the_check() {
        let user = User::named("escalator", &[]);
        let role = json!({"rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]});
        assert!(check_escalation(&index(), &user, &write("roles"), (None, &role)).is_ok());
        let aggregate = json!({"aggregationRule": {"clusterRoleSelectors": []}});
        let limited = User::named("limited", &[]);
        let none = json!({});
        for (old, new) in [(None, &aggregate), (Some(&aggregate), &none)] {
            assert!(check_escalation(&index(), &limited, &write("roles"), (old, new)).is_err());
        }
        assert!(check_escalation(&index(), &limited, &write("roles"), (Some(&none), &none)).is_ok());
    }
}
