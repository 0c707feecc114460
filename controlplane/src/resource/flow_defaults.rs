//! The flow schemas and priority levels every cluster has, as upstream's (control-plane contract §8). Pure.
//!
//! The two mandatory ones of each kind are always as they stand here; the suggested ones are so for as long as nobody has taken
//! them over ([`AUTOUPDATE`]).

use serde_json::{Value, json};

/// API group of both kinds.
pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// Plural of the one kind.
pub const SCHEMAS: &str = "flowschemas";
/// Plural of the other.
pub const LEVELS: &str = "prioritylevelconfigurations";
/// Whether the server keeps an object's spec as it suggests: `true` or `false`.
pub const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
/// The level, and the schema, that nothing is limited by.
pub const EXEMPT: &str = "exempt";
/// The level, and the schema, of what no other schema matches.
pub const CATCH_ALL: &str = "catch-all";

/// Whether objects of this name are always as [`priority_levels`] and [`flow_schemas`] have them.
pub fn is_mandatory(name: &str) -> bool {
    matches!(name, EXEMPT | CATCH_ALL)
}

/// The priority levels.
pub fn priority_levels() -> Vec<Value> {
    let queue = |queues: u32, hand: u32| json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50}});
    let limited = |shares: u32, lendable: u32, response: Value| {
        json!({"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response,
        }})
    };
    let exempt = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    [
        (EXEMPT, exempt),
        (CATCH_ALL, limited(5, 0, json!({"type": "Reject"}))),
        ("system", limited(30, 33, queue(64, 6))),
        ("node-high", limited(40, 25, queue(64, 6))),
        ("leader-election", limited(10, 0, queue(16, 4))),
        ("workload-high", limited(40, 50, queue(128, 6))),
        ("workload-low", limited(100, 90, queue(128, 6))),
        ("global-default", limited(20, 50, queue(128, 6))),
    ]
    .into_iter()
    .map(|(name, spec)| object("PriorityLevelConfiguration", name, spec))
    .collect()
}

/// The flow schemas.
pub fn flow_schemas() -> Vec<Value> {
    let groups = |names: &[&str]| -> Vec<Value> {
        let group = |name: &&str| json!({"kind": "Group", "group": {"name": name}});
        names.iter().map(group).collect()
    };
    let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
    let everybody = || groups(&["system:unauthenticated", "system:authenticated"]);
    let of_kube_system =
        || json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}});
    let all = |subjects: Vec<Value>| {
        json!({
            "subjects": subjects,
            "resourceRules": [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]},
            ],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        })
    };
    let (by_user, by_namespace) = (Some("ByUser"), Some("ByNamespace"));
    let probes = json!({
        "subjects": everybody(),
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}],
    });
    let leases = json!({
        "subjects": [user("system:kube-controller-manager"), user("system:kube-scheduler"), of_kube_system()],
        "resourceRules": [{
            "verbs": ["get", "create", "update"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "namespaces": ["*"],
        }],
    });
    let nodes = json!({
        "subjects": groups(&["system:nodes"]),
        "resourceRules": [
            {
                "verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"], "clusterScope": true,
                "namespaces": ["*"],
            },
            {"verbs": ["*"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]},
        ],
    });
    let (manager, scheduler) = ("kube-controller-manager", "kube-scheduler");
    let high = "workload-high";
    [
        (EXEMPT, EXEMPT, 1, None, all(groups(&["system:masters"]))),
        (CATCH_ALL, CATCH_ALL, 10_000, by_user, all(everybody())),
        ("probes", EXEMPT, 2, None, probes),
        ("system-leader-election", "leader-election", 100, by_user, leases),
        ("system-node-high", "node-high", 400, by_user, nodes),
        ("system-nodes", "system", 500, by_user, all(groups(&["system:nodes"]))),
        (
            manager,
            high,
            800,
            by_namespace,
            all(vec![user("system:kube-controller-manager")]),
        ),
        (
            scheduler,
            high,
            800,
            by_namespace,
            all(vec![user("system:kube-scheduler")]),
        ),
        (
            "kube-system-service-accounts",
            high,
            900,
            by_namespace,
            all(vec![of_kube_system()]),
        ),
        (
            "service-accounts",
            "workload-low",
            9000,
            by_user,
            all(groups(&["system:serviceaccounts"])),
        ),
        ("global-default", "global-default", 9900, by_user, all(everybody())),
    ]
    .into_iter()
    .map(|(name, level, precedence, method, rule)| {
        let mut spec = json!({
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": [rule],
        });
        if let Some(method) = method {
            spec["distinguisherMethod"] = json!({"type": method});
        }
        object("FlowSchema", name, spec)
    })
    .collect()
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {"name": name, "annotations": {AUTOUPDATE: "true"}}, "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Registry;

    /// Or they would be written over again and again.
    #[test]
    fn they_are_valid_and_defaults_change_nothing() {
        for wanted in priority_levels().into_iter().chain(flow_schemas()) {
            let kind = wanted["kind"].as_str().unwrap().to_owned();
            let kind = Registry::built_in().by_gvk(GROUP, "v1", &kind).unwrap();
            let mut object = wanted.clone();
            kind.strategy.default(&mut object);
            assert_eq!(object["spec"], wanted["spec"], "{}", wanted["metadata"]["name"]);
            let errors = kind.strategy.validate(&object);
            assert!(errors.iter().next().is_none(), "{}", wanted["metadata"]["name"]);
        }
    }
}
