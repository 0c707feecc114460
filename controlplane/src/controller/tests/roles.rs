//! Roles that are sums of others.

use super::*;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

fn part(name: &str, labels: Value) -> Value {
    let rules = json!([{"verbs": ["get"], "apiGroups": ["zoo.example"], "resources": ["lions"]}]);
    json!({"kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name, "labels": labels}, "rules": rules})
}

fn has_lions(role: &Value) -> bool {
    let rules = role["rules"].as_array().into_iter().flatten();
    rules.into_iter().any(|rule| rule["resources"] == json!(["lions"]))
}

#[tokio::test(start_paused = true)]
async fn what_is_labelled_for_view_is_in_edit_and_admin_too() {
    let world = World::start(0).await;
    let label = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    world.create(ROLES, part("lions", label)).await;
    for sum in ["view", "edit", "admin"] {
        world.until(&format!("{ROLES}/{sum}"), has_lions).await;
    }
    let view = world.get(&format!("{ROLES}/view")).await.unwrap();
    let owner = |fields: &Value| {
        fields["fieldsV1"]["f:rules"]
            .is_object()
            .then(|| fields["manager"].clone())
    };
    let owners: Vec<Value> = view["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(owner)
        .collect();
    assert!(
        owners.contains(&json!("clusterrole-aggregation-controller")),
        "{owners:?}"
    );
    world.call("DELETE", &format!("{ROLES}/lions"), None).await.unwrap();
    for sum in ["view", "edit", "admin"] {
        world.until(&format!("{ROLES}/{sum}"), |role| !has_lions(role)).await;
    }
    // What somebody writes into a sum does not stay.
    world
        .patch(
            &format!("{ROLES}/view"),
            json!({"rules": [{"verbs": ["*"], "apiGroups": ["zoo.example"], "resources": ["lions"]}]}),
        )
        .await;
    world.until(&format!("{ROLES}/view"), |role| !has_lions(role)).await;
}

#[tokio::test(start_paused = true)]
async fn a_label_gives_no_rights_that_its_writer_has_not() {
    let world = World::start(0).await;
    world.create(ROLES, part("lions", json!({}))).await;
    let rules =
        json!([{"verbs": ["get", "patch"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"]}]);
    let role = json!({"kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "labeller"}, "rules": rules});
    world.create(ROLES, role).await;
    let binding = json!({"kind": "ClusterRoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "labeller"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "labeller"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "labeller"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    world.create(bindings, binding).await;
    let labeller = world
        .server
        .client_as(User::named("labeller", &["system:authenticated"]));
    let lions = format!("{ROLES}/lions");
    let label = json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}});
    let refused = call(&labeller, "PATCH", &lions, Some(label.clone())).await;
    assert!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains("not currently held")),
        "{refused:?}"
    );
    let sum = call(
        &labeller,
        "PATCH",
        &format!("{ROLES}/view"),
        Some(json!({"aggregationRule": null})),
    )
    .await;
    assert!(
        matches!(&sum, Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains("cluster-admin privileges")),
        "{sum:?}"
    );
    world.patch(&lions, label).await;
    world.until(&format!("{ROLES}/view"), has_lions).await;
}
