//! Binding a pod to a node: `pods/NAME/binding` and `bindings` (control-plane contract §2.1).

mod splice;

use super::{Answer, Call, create, object, update};
use crate::apiserver::reader;
use crate::apiserver::status::ApiError;
use crate::resource::field::{list, set, text};
use crate::resource::field_error::FieldError;
use crate::store::window::Stored;
use serde_json::{Map, Value, json};
use std::sync::Arc;

pub(super) async fn bind(call: &mut Call<'_>, body: &[u8]) -> Result<Answer, ApiError> {
    let dry_run = call.query.dry_run("CreateOptions")?;
    let mut binding = call.decode_part(["", "v1", "Binding"], body).await?;
    create::place(call, &mut binding)?;
    let is_subresource = !call.info.subresource.is_empty();
    let named = object::name(&binding).to_owned();
    let name = match is_subresource {
        true => call.info.name.clone(),
        false => named.clone(),
    };
    if is_subresource && named != name {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Binding object",
        ));
    }
    let target_kind = text(&binding, &["target", "kind"]);
    let mut errors = Vec::new();
    if !matches!(target_kind, "" | "Node") {
        errors.push(FieldError::not_supported(
            "target.kind",
            target_kind,
            &["Node", "<empty>"],
        ));
    }
    if text(&binding, &["target", "name"]).is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    if !errors.is_empty() {
        return Err(ApiError::invalid("", "Binding", &name, errors));
    }
    admit(call, dry_run, &mut binding).await?;
    let now = object::time(call.server.now());
    let kind = Arc::clone(&call.kind);
    let splice = |stored: &Stored| {
        let known = (&reader::stored_as(&kind), stored.revision);
        splice::spliced(&stored.raw(), known, &binding, &now)
    };
    let make = |pod| bound(pod, &binding, &now);
    update::write_spliced(call, &name, dry_run, splice, make).await?;
    Ok(Answer::Object {
        code: 201,
        object: json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}),
    })
}

async fn admit(call: &Call<'_>, dry_run: bool, binding: &mut Value) -> Result<(), ApiError> {
    let create = super::Operation::Create;
    call.mutate(create, dry_run, binding, None).await?;
    call.admit(create, dry_run, binding, None).await
}

/// The pod with the binding's node, labels and annotations (pure).
fn bound(mut pod: Value, binding: &Value, now: &str) -> Result<Value, ApiError> {
    let name = object::name(&pod);
    let conflict = |why: String| ApiError::conflict("", "pods/binding", name, &why);
    let uid = object::uid(binding);
    if !uid.is_empty() && uid != object::uid(&pod) {
        let own = object::uid(&pod);
        return Err(conflict(format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {own}"
        )));
    }
    let revision = object::revision(binding);
    if !revision.is_empty() && revision != object::revision(&pod) {
        let own = object::revision(&pod);
        return Err(conflict(format!(
            "Precondition failed: ResourceVersion in precondition: {revision}, ResourceVersion in object meta: {own}"
        )));
    }
    if object::is_deleting(&pod) {
        return Err(conflict(format!(
            "pod {name} is being deleted, cannot be assigned to a host"
        )));
    }
    let node = text(&pod, &["spec", "nodeName"]);
    if !node.is_empty() {
        return Err(conflict(format!("pod {name} is already assigned to node \"{node}\"")));
    }
    if !list(&pod, &["spec", "schedulingGates"]).is_empty() {
        return Err(conflict(format!("pod {name} has non-empty .spec.schedulingGates")));
    }
    set(&mut pod, &["spec", "nodeName"], text(binding, &["target", "name"]));
    for part in ["labels", "annotations"] {
        if let Some(added) = binding["metadata"][part].as_object().filter(|added| !added.is_empty()) {
            let metadata = object::metadata_mut(&mut pod);
            let all = metadata.entry(part).or_insert_with(|| Value::Object(Map::new()));
            if let Some(all) = all.as_object_mut() {
                all.extend(added.clone());
            }
        }
    }
    if let Some(status) = pod["status"].as_object_mut() {
        status.remove("nominatedNodeName");
    }
    set_scheduled(&mut pod, now);
    Ok(pod)
}

fn set_scheduled(pod: &mut Value, now: &str) {
    let condition = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
        "observedGeneration": pod["metadata"]["generation"],
    });
    if !pod["status"].is_object() {
        pod["status"] = json!({});
    }
    let Some(status) = pod["status"].as_object_mut() else {
        return;
    };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    match conditions.iter_mut().find(|known| known["type"] == "PodScheduled") {
        Some(known) if known["status"] == "True" => {}
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(node: &str) -> Value {
        json!({"metadata": {"name": "p", "annotations": {"a": "b"}}, "target": {"kind": "Node", "name": node}})
    }

    #[test]
    fn binding_sets_node_condition_and_annotations() {
        let pod = json!({"metadata": {"name": "p", "generation": 3}, "spec": {}, "status": {"nominatedNodeName": "n0",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
        let new = bound(pod.clone(), &binding("n1"), "2026-01-01T00:00:00Z").unwrap();
        assert_eq!(new["spec"]["nodeName"], "n1");
        assert_eq!(new["metadata"]["annotations"], json!({"a": "b"}));
        assert_eq!(new["status"]["conditions"][0]["status"], "True");
        assert_eq!(new["status"]["conditions"][0]["observedGeneration"], 3);
        assert!(new["status"]["conditions"][0]["reason"].is_null());
        assert!(new["status"]["nominatedNodeName"].is_null());
    }

    #[test]
    fn pods_that_are_bound_gated_or_ending_conflict() {
        for pod in [
            json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n0"}}),
            json!({"metadata": {"name": "p"}, "spec": {"schedulingGates": [{"name": "g"}]}}),
            json!({"metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}),
        ] {
            assert_eq!(bound(pod.clone(), &binding("n1"), "").unwrap_err().code, 409, "{pod}");
        }
        let mut pinned = binding("n1");
        pinned["metadata"]["uid"] = json!("other");
        let pod = json!({"metadata": {"name": "p", "uid": "own"}, "spec": {}});
        assert_eq!(bound(pod, &pinned, "").unwrap_err().code, 409);
    }
}
