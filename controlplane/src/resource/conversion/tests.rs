use super::*;
use crate::resource::Registry;
use crate::schema::{Schema, Shape, TypeId, normalize};
use proptest::prelude::*;
use serde_json::json;

fn kind(group: &str, version: &str, kind: &str) -> &'static Arc<Kind> {
    Registry::built_in().by_gvk(group, version, kind).expect("built in")
}

fn metric(source: usize, value: i64, selects: bool) -> Value {
    let selector = if selects {
        json!({"matchLabels": {"a": "b"}})
    } else {
        Value::Null
    };
    let named = json!({"name": "requests", "selector": selector});
    match source {
        0 => {
            json!({"type": "Object", "object": {"metric": named, "target": {"type": "Value", "value": value.to_string()},
            "describedObject": {"kind": "Service", "name": "s", "apiVersion": "v1"}}})
        }
        1 => {
            json!({"type": "Pods", "pods": {"metric": named, "target": {"type": "AverageValue", "averageValue": "5"}}})
        }
        2 => json!({"type": "Resource", "resource": {"name": "memory",
            "target": {"type": "Utilization", "averageUtilization": value}}}),
        3 => json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "AverageValue", "averageValue": "500m"}}}),
        4 => json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
            "target": {"type": "Utilization", "averageUtilization": value}}}),
        _ => json!({"type": "External", "external": {"metric": named,
            "target": {"type": "AverageValue", "averageValue": value.to_string()}}}),
    }
}

fn autoscaler(cpu: Option<i64>, others: &[(usize, i64, bool)], has_more: bool) -> Value {
    let cpu = cpu.map(|percent| {
        json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": percent}}})
    });
    let others = others
        .iter()
        .map(|(source, value, selects)| metric(*source, *value, *selects));
    let metrics: Vec<Value> = cpu.into_iter().chain(others).collect();
    let mut object = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h", "annotations": {"own": "kept"}},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 1, "maxReplicas": 3, "metrics": metrics},
        "status": {"desiredReplicas": 2, "currentReplicas": 1}});
    if has_more {
        object["spec"]["behavior"] = json!({"scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max"}});
        object["status"]["conditions"] = json!([{"type": "AbleToScale", "status": "True"}]);
        object["status"]["currentMetrics"] = json!([{"type": "Resource", "resource": {"name": "cpu",
            "current": {"averageUtilization": 40, "averageValue": "40m"}}}]);
    }
    normalize(kind("autoscaling", "v2", "HorizontalPodAutoscaler"), &mut object).expect("made to fit");
    object
}

proptest! {
    /// v1 loses nothing of an autoscaler: what it has no field for is in annotations.
    #[test]
    fn autoscalers_come_back_from_v1_as_they_were(
        cpu in proptest::option::of(1i64..200),
        others in proptest::collection::vec((0usize..6, 1i64..1000, any::<bool>()), 0..4),
        has_more in any::<bool>(),
    ) {
        let older = kind("autoscaling", "v1", "HorizontalPodAutoscaler");
        let object = autoscaler(cpu, &others, has_more);
        let mut presented = older.presented(object.clone());
        prop_assert_eq!(&presented["apiVersion"], "autoscaling/v1");
        prop_assert!(normalize(older, &mut presented).expect("of v1's types").is_empty(), "{}", presented);
        prop_assert_eq!(older.stored(presented), object);
    }
}

#[test]
fn one_target_of_cpu_has_a_field_of_its_own_and_the_rest_is_annotated() {
    let older = kind("autoscaling", "v1", "HorizontalPodAutoscaler");
    let object = older.presented(autoscaler(Some(70), &[(0, 9, true)], true));
    assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 70);
    assert_eq!(object["status"]["currentCPUUtilizationPercentage"], 40);
    assert!(object["spec"].get("metrics").is_none() && object["spec"].get("behavior").is_none());
    let annotations = &object["metadata"]["annotations"];
    assert_eq!(annotations["own"], "kept");
    let note: Value =
        serde_json::from_str(annotations["autoscaling.alpha.kubernetes.io/metrics"].as_str().unwrap()).unwrap();
    let expected = json!([{"type": "Object", "object": {"metricName": "requests", "targetValue": "9",
        "selector": {"matchLabels": {"a": "b"}}, "target": {"kind": "Service", "name": "s", "apiVersion": "v1"}}}]);
    assert_eq!(note, expected);
    let mut broken = object.clone();
    broken["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"] = json!("{");
    let stored = older.stored(broken);
    assert_eq!(
        stored["spec"]["metrics"].as_array().unwrap().len(),
        1,
        "what is no JSON says nothing"
    );
}

#[test]
fn events_have_the_same_fields_under_other_names() {
    let newer = kind("events.k8s.io", "v1", "Event");
    let core = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "a"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "a"}, "message": "m", "reason": "R", "type": "Normal",
        "reportingComponent": "x.io/y", "reportingInstance": "i", "action": "A", "count": 2,
        "source": {"component": "kubelet"}, "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:01Z", "related": {"kind": "Node", "name": "n"}});
    let mut presented = newer.presented(core.clone());
    assert!(
        normalize(newer, &mut presented).unwrap().is_empty(),
        "every name is one of the version's"
    );
    assert_eq!(
        (&presented["note"], &presented["regarding"]["name"]),
        (&json!("m"), &json!("p"))
    );
    assert_eq!(
        (&presented["deprecatedCount"], &presented["reportingController"]),
        (&json!(2), &json!("x.io/y"))
    );
    assert_eq!(newer.stored(presented), core);
    let status = json!({"kind": "Status", "apiVersion": "v1", "message": "m"});
    assert_eq!(newer.presented(status.clone()), status, "a Status is nobody's event");
}

/// Where two types differ in what becomes of a value that is read as one of them.
fn differences(schema: &Schema, (one, other): (TypeId, TypeId), renamed: &[(&str, &str)]) -> Vec<String> {
    let (one, other) = (schema.get(one), schema.get(other));
    let mut found = Vec::new();
    for field in &one.fields {
        let name = renamed.iter().find(|(newer, _)| *newer == &*field.name);
        let twin = other.field(name.map_or(&field.name, |(_, stored)| stored));
        let Some(twin) = twin else {
            found.push(field.name.to_string());
            continue;
        };
        // Only of these an empty one is left out, or not.
        let may_be_empty = matches!(
            field.shape,
            Shape::String | Shape::Bytes | Shape::List(_) | Shape::Map(_)
        );
        let is_kept = may_be_empty && field.required != twin.required;
        match (&field.shape, &twin.shape) {
            _ if is_kept || field.default != twin.default => found.push(field.name.to_string()),
            (Shape::Object(one), Shape::Object(other)) => found.extend(differences(schema, (*one, *other), &[])),
            (one, other) if one == other => {}
            _ => found.push(field.name.to_string()),
        }
    }
    if one.fields.len() != other.fields.len() {
        found.push(format!("{} has other fields than {}", one.definition, other.definition));
    }
    found
}

/// What has been read as one of them is not read again as the other.
#[test]
fn where_only_names_differ_values_are_read_alike() {
    let mut count = 0;
    for kind in Registry::built_in().kinds() {
        let Some(Conversion { storage, converter }) = &kind.conversion else {
            continue;
        };
        let Some(renamed) = converter.renamed() else { continue };
        let ((schema, newer), (_, stored)) = (kind.schema(), storage.schema());
        let types = (newer.expect("a type"), stored.expect("a type"));
        assert_eq!(
            differences(schema, types, renamed),
            [""; 0],
            "{} {}",
            kind.api_version,
            kind.kind
        );
        count += 1;
    }
    assert_eq!(count, 1, "events");
}
