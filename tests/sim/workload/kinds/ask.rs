//! Steps that need to look before they ask.

use crate::workload::send;
use serde_json::{Value, json};

fn path(kind: &str, name: &str) -> String {
    format!("/api/v1/namespaces/default/{kind}/{name}")
}

fn is(error: &kube::Error, codes: &[u16]) -> bool {
    matches!(error, kube::Error::Api(status) if codes.contains(&status.code))
}

/// An answer, unless it is one of these refusals.
fn unless(answer: Result<Value, kube::Error>, codes: &[u16]) -> Result<Option<Value>, kube::Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if is(&error, codes) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn items(client: &kube::Client, path: &str) -> Result<Vec<Value>, kube::Error> {
    let list = send(client, "GET", path, &Value::Null).await?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// Evicts a pod; a budget may say that now is not the time (429).
pub async fn evict(client: &kube::Client, app: &str, place: usize) -> Result<(), kube::Error> {
    let pods = "/api/v1/namespaces/default/pods";
    let found = items(client, &format!("{pods}?labelSelector=app%3D{app}")).await?;
    let Some(pod) = (!found.is_empty()).then(|| &found[place % found.len()]) else {
        return Ok(());
    };
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let body =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}});
    let answer = send(client, "POST", &format!("{pods}/{name}/eviction"), &body).await;
    // What ended or changed meanwhile is a conflict.
    unless(answer, &[404, 409, 429]).map(drop)
}

async fn reference(client: &kube::Client, owner: &(&'static str, String)) -> Result<Option<Value>, kube::Error> {
    let found = unless(
        send(client, "GET", &path(owner.0, &owner.1), &Value::Null).await,
        &[404],
    )?;
    let kind = if owner.0 == "secrets" { "Secret" } else { "ConfigMap" };
    Ok(found.map(|found| {
        json!({"apiVersion": "v1", "kind": kind, "name": owner.1, "uid": found["metadata"]["uid"],
            "blockOwnerDeletion": true})
    }))
}

/// Makes an object with owners.
pub async fn own(
    client: &kube::Client,
    kind: &str,
    name: &str,
    owners: &[(&'static str, String)],
) -> Result<(), kube::Error> {
    let mut references = Vec::new();
    for owner in owners {
        references.extend(reference(client, owner).await?);
    }
    let body = json!({"metadata": {"name": name, "ownerReferences": references}});
    send(client, "POST", &format!("/api/v1/namespaces/default/{kind}"), &body)
        .await
        .map(drop)
}

/// Gives an object one more owner.
pub async fn adopt(
    client: &kube::Client,
    kind: &str,
    name: &str,
    owner: &(&'static str, String),
) -> Result<(), kube::Error> {
    let Some(reference) = reference(client, owner).await? else {
        return Ok(());
    };
    let body = json!({"metadata": {"ownerReferences": [reference]}});
    send(client, "STRATEGIC", &path(kind, name), &body).await.map(drop)
}

/// Takes the owners from a replica set, or from a pod of a set: whoever made it has to find it again.
pub async fn strip(client: &kube::Client, path: &str, place: usize) -> Result<(), kube::Error> {
    let mut found = items(client, path).await?;
    // A Job lets go of what is not its own any more: it would not count it.
    found.retain(|object| {
        let owner = &object["metadata"]["ownerReferences"][0]["kind"];
        !owner.is_null() && owner != "Job" && object["metadata"]["deletionTimestamp"].is_null()
    });
    let Some(object) = (!found.is_empty()).then(|| &found[place % found.len()]) else {
        return Ok(());
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let body = json!({"metadata": {"uid": object["metadata"]["uid"], "ownerReferences": null}});
    let answer = send(client, "MERGE", &format!("{path}/{name}"), &body).await;
    unless(answer, &[404, 409]).map(drop)
}
