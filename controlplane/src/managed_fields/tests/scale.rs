use super::*;

const REPLICAS: &[&str] = &["spec", "replicas"];

fn parent() -> Value {
    json!({"metadata": {"managedFields": [
        {"manager": "applier", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "time": "2026-01-01T00:00:00Z",
            "fieldsV1": {"f:spec": {"f:replicas": {}, "f:selector": {}}}},
        {"manager": "other", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:paused": {}}}}]}})
}

/// An object with these managedFields and nothing else.
fn owned(owners: Option<&str>) -> Value {
    let mut object = json!({"metadata": {}});
    put(&mut object, owners);
    object
}

#[test]
fn the_scale_shows_who_owns_the_replicas_and_says_who_does_afterwards() {
    let (_, stored) = split(&parent());
    let mut scale = json!({"metadata": {}, "spec": {"replicas": 1}});
    let owners = to_scale(stored.as_deref(), REPLICAS);
    let shown = owned(owners.as_deref());
    assert_eq!(managers(&shown), ["applier"]);
    assert_eq!(fields(&shown, "applier"), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(entry(&shown, "applier")["apiVersion"], "autoscaling/v1");
    assert_eq!(
        to_object(owners.as_deref(), stored.as_deref(), "apps/v1", REPLICAS),
        stored
    );
    put(&mut scale, owners.as_deref());
    let mut scaled = scale.clone();
    scaled["spec"]["replicas"] = json!(3);
    let through = Writer {
        api_version: "autoscaling/v1",
        subresource: "scale",
        ..writer("kubectl", 1)
    };
    track(
        typing("", "ConfigMap"),
        Scope::WHOLE,
        Some(&scale),
        &mut scaled,
        &through,
    );
    let (_, owners) = split(&scaled);
    let object = owned(to_object(owners.as_deref(), stored.as_deref(), "apps/v1", REPLICAS).as_deref());
    assert_eq!(fields(&object, "applier"), json!({"f:spec": {"f:selector": {}}}));
    let expected = json!({"manager": "kubectl", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
        "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}});
    assert_eq!(entry(&object, "kubectl"), expected);
    assert_eq!(entry(&object, "other"), entry(&parent(), "other"));
}
