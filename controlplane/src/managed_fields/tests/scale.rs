use super::*;

fn parent() -> Value {
    json!({"metadata": {"managedFields": [
        {"manager": "applier", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "time": "2026-01-01T00:00:00Z",
            "fieldsV1": {"f:spec": {"f:replicas": {}, "f:selector": {}}}},
        {"manager": "other", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:paused": {}}}}]}})
}

#[test]
fn the_scale_shows_who_owns_the_replicas_and_says_who_does_afterwards() {
    let mut scale = json!({"metadata": {}, "spec": {"replicas": 1}});
    to_scale(&parent(), &mut scale);
    assert_eq!(managers(&scale), ["applier"]);
    assert_eq!(fields(&scale, "applier"), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(entry(&scale, "applier")["apiVersion"], "autoscaling/v1");
    let mut unchanged = parent();
    to_object(&scale, &mut unchanged, "apps/v1");
    assert_eq!(unchanged, parent());
    let mut scaled = scale.clone();
    scaled["spec"]["replicas"] = json!(3);
    let through = Writer {
        api_version: "autoscaling/v1",
        subresource: "scale",
        ..writer("kubectl", 1)
    };
    let typing = typing("", "ConfigMap");
    track(typing, Scope::WHOLE, Some(&scale), &mut scaled, &through);
    let mut object = parent();
    to_object(&scaled, &mut object, "apps/v1");
    assert_eq!(fields(&object, "applier"), json!({"f:spec": {"f:selector": {}}}));
    let expected = json!({"manager": "kubectl", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
        "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}});
    assert_eq!(entry(&object, "kubectl"), expected);
    assert_eq!(entry(&object, "other"), entry(&parent(), "other"));
}
