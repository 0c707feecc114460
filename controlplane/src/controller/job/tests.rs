use super::*;
use crate::controller::write::{EventText, PatchKind};
use k8s_openapi::api::batch::v1::JobStatus;
use serde_json::Value;

mod ends;
mod steps;
mod world;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A Job with `extra` merged into it.
fn job(extra: Value) -> Job {
    let mut value = json!({
        "metadata": {"name": "j", "namespace": "default", "uid": "job", "generation": 1, "resourceVersion": "1",
            "creationTimestamp": "1970-01-01T00:00:00Z"},
        "spec": {"parallelism": 2, "completions": 3, "backoffLimit": 6, "podReplacementPolicy": "TerminatingOrFailed",
            "completionMode": "NonIndexed", "suspend": false,
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "job"}},
            "template": {"metadata": {"labels": {"batch.kubernetes.io/controller-uid": "job", "job-name": "j"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}}},
        "status": {"startTime": "1970-01-01T00:00:00Z"},
    });
    json_patch::merge(&mut value, &extra);
    serde_json::from_value(value).unwrap()
}

fn indexed(extra: Value) -> Job {
    let mut value = json!({"spec": {"completionMode": "Indexed"}});
    json_patch::merge(&mut value, &extra);
    job(value)
}

/// A pod of the Job that runs, with `extra` merged into it.
fn pod(name: &str, extra: Value) -> Arc<Pod> {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "finalizers": [FINALIZER],
            "labels": {"batch.kubernetes.io/controller-uid": "job"}, "creationTimestamp": "1970-01-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job", "controller": true}]},
        "spec": {"containers": [], "nodeName": "n"},
        "status": {"phase": "Running"},
    });
    json_patch::merge(&mut value, &extra);
    Arc::new(serde_json::from_value(value).unwrap())
}

/// As [`pod`], with that phase.
fn ended(name: &str, phase: &str) -> Arc<Pod> {
    pod(name, json!({"status": {"phase": phase}}))
}

/// As [`pod`], with that phase and index.
fn at_index(name: &str, index: u32, phase: &str) -> Arc<Pod> {
    let annotations = json!({INDEX: index.to_string()});
    pod(
        name,
        json!({"metadata": {"annotations": annotations}, "status": {"phase": phase}}),
    )
}

use view::INDEX;

fn decide_at(job: &Job, pods: &[Arc<Pod>], second: i64) -> Decision {
    let view = View::new(job, pods.to_vec(), at(second)).unwrap();
    let mut memory = Memory::default();
    memory.record.observe(&view);
    let taken: Vec<String> = pods.iter().map(|pod| pod.name_any()).collect();
    plan(&view, &memory, &|name| taken.iter().any(|other| other == name))
}

/// The step, long after everything.
fn decide(job: &Job, pods: &[Arc<Pod>]) -> Decision {
    decide_at(job, pods, 1_000_000)
}

/// The status that a step writes, and the event that comes with it.
fn told(decision: &Decision) -> (JobStatus, Option<&EventText>) {
    let [write] = &decision.plan.writes[..] else {
        panic!("{:?}", decision.plan)
    };
    let Verb::ReplaceSub("status", body) = &write.verb else {
        panic!("{write:?}")
    };
    (
        serde_json::from_value(body["status"].clone()).unwrap(),
        write.on_success.as_ref(),
    )
}

/// What a step does, in words: `create NAME`, `delete NAME`, `untrack NAME`, `status`.
fn words(decision: &Decision) -> Vec<String> {
    let word = |write: &Write| match &write.verb {
        Verb::Create(_) => "create".to_owned(),
        Verb::Delete { .. } => format!("delete {}", write.key.name),
        Verb::Patch(PatchKind::Strategic, "", _) => format!("untrack {}", write.key.name),
        Verb::ReplaceSub("status", _) => "status".to_owned(),
        other => panic!("{other:?}"),
    };
    decision.plan.writes.iter().map(word).collect()
}

/// The names of the conditions that are true.
fn conditions(status: &JobStatus) -> Vec<&str> {
    let conditions = status
        .conditions
        .iter()
        .flatten()
        .filter(|condition| condition.status == "True");
    conditions.map(|condition| condition.type_.as_str()).collect()
}
