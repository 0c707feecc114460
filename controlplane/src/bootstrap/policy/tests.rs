//! The tables are whole, and repair adds only.

use super::*;

fn find(all: &[Value], name: &str) -> Value {
    all.iter()
        .find(|object| object["metadata"]["name"] == name)
        .unwrap()
        .clone()
}

#[test]
fn every_binding_names_a_role_that_is_there() {
    let roles = cluster_roles();
    for binding in cluster_role_bindings() {
        let role = &binding["roleRef"]["name"];
        assert!(roles.iter().any(|object| object["metadata"]["name"] == *role), "{role}");
    }
}

#[test]
fn names_are_unique() {
    for all in [cluster_roles(), cluster_role_bindings()] {
        let mut names: Vec<String> = all
            .iter()
            .map(|object| object["metadata"]["name"].to_string())
            .collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}

#[test]
fn admin_edit_and_view_add_up() {
    let roles = cluster_roles();
    let (admin, edit, view) = (find(&roles, "admin"), find(&roles, "edit"), find(&roles, "view"));
    assert_eq!(
        edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"],
        "true"
    );
    assert_eq!(
        view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"],
        "true"
    );
    let count = |role: &Value| role["rules"].as_array().unwrap().len();
    assert!(count(&admin) > count(&edit) && count(&edit) > count(&view));
    assert!(!view["rules"].to_string().contains("secrets"));
    assert!(edit["rules"].to_string().contains("pods/exec"));
    let reader = find(&roles, "system:aggregated-metrics-reader");
    for (name, role) in [("admin", admin), ("edit", edit), ("view", view)] {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{name}");
        assert_eq!(reader["metadata"]["labels"][label], "true");
        assert!(
            role["rules"].as_array().unwrap().contains(&reader["rules"][0]),
            "{name}"
        );
    }
}

#[test]
fn what_is_missing_is_added_and_nothing_taken_away() {
    let default = find(&cluster_role_bindings(), "system:monitoring");
    assert_eq!(missing(&default, &default), None);
    let mut stored = default.clone();
    stored["subjects"] = json!([{"kind": "User", "name": "mine"}]);
    let merged = missing(&stored, &default).unwrap();
    assert_eq!(merged["subjects"].as_array().unwrap().len(), 2);
    stored["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] = json!("false");
    assert_eq!(missing(&stored, &default), None);
}

#[test]
fn core_events_are_in_both_groups() {
    let role = find(&cluster_roles(), "system:node-problem-detector");
    assert_eq!(role["rules"][2]["apiGroups"], json!(["", "events.k8s.io"]));
}
