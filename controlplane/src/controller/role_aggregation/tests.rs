//! Sums of roles.

use super::*;
use crate::bootstrap::policy;
use serde_json::Value;

fn role(value: Value) -> Arc<ClusterRole> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn part(name: &str, to: &str, resources: &[&str]) -> Arc<ClusterRole> {
    let rules: Vec<Value> = resources
        .iter()
        .map(|r| json!({"verbs": ["get"], "apiGroups": [""], "resources": [r], "resourceNames": []}))
        .collect();
    role(json!({"metadata": {"name": name, "labels": {"to": to}}, "rules": rules}))
}

fn resources(rules: &[PolicyRule]) -> Vec<&str> {
    rules
        .iter()
        .map(|r| r.resources.as_ref().unwrap()[0].as_str())
        .collect()
}

fn whole(selectors: Value, rules: Value) -> Arc<ClusterRole> {
    role(
        json!({"metadata": {"name": "sum", "uid": "1", "resourceVersion": "7", "labels": {"to": "sum"}},
        "aggregationRule": {"clusterRoleSelectors": selectors}, "rules": rules}),
    )
}

#[test]
fn a_sum_has_each_rule_of_its_parts_once_by_selector_and_name() {
    let all = [
        part("z", "sum", &["pods", "secrets"]),
        part("b", "sum", &["nodes", "pods"]),
        part("a", "other", &["events"]),
        part("c", "none", &["services"]),
        whole(json!([]), json!([{"verbs": ["*"], "resources": ["own"]}])),
    ];
    let selectors = json!([
        {"matchExpressions": [{"key": "to", "operator": "In", "values": ["other"]}]},
        {"matchLabels": {"to": "sum"}},
    ]);
    let of = |selectors: Value| sum(&whole(selectors, json!(null)), &all);
    let rules = of(selectors).unwrap().unwrap();
    assert_eq!(resources(&rules), ["events", "nodes", "pods", "secrets"]);
    assert_eq!(of(json!([])), Ok(Some(Vec::new())));
    assert_eq!(sum(&all[0], &all), Ok(None));
    assert!(of(json!([{"matchExpressions": [{"key": "to", "operator": "Near"}]}])).is_err());
}

#[test]
fn rules_are_written_only_where_they_differ() {
    let pods = part("a", "sum", &["pods"]);
    let selectors = json!([{"matchLabels": {"to": "sum"}}]);
    let plan = |rules: Value| {
        let whole = whole(selectors.clone(), rules);
        let wanted = sum(&whole, std::slice::from_ref(&pods)).unwrap().unwrap();
        write(&whole, &wanted)
    };
    let same = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "nonResourceURLs": []}]);
    assert_eq!(plan(same), None);
    for other in [json!(null), json!([{"verbs": ["*"], "resources": ["own"]}])] {
        let write = plan(other).unwrap();
        let Verb::Patch(PatchKind::Apply(MANAGER), "", body) = &write.verb else {
            panic!("{write:?}")
        };
        assert_eq!(
            body["metadata"],
            json!({"name": "sum", "uid": "1", "resourceVersion": "7"}),
            "and of no other"
        );
        assert_eq!(
            body["rules"],
            json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}])
        );
    }
}

#[test]
fn the_default_sums_are_stored_as_they_would_be_written() {
    let all: Vec<Arc<ClusterRole>> = policy::cluster_roles().into_iter().map(role).collect();
    let mut sums = 0;
    for whole in &all {
        if let Some(rules) = sum(whole, &all).unwrap() {
            assert_eq!(write(whole, &rules), None, "{}", whole.name_any());
            sums += 1;
        }
    }
    assert_eq!(sums, 3);
}
