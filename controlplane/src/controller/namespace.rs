//! Namespace deletion: pods first, then everything else, then the finalizer.
//!
//! Source: control-plane contract §12. What is in a namespace is known only to the server, so this controller asks it; what that
//! means is decided in [`conditions`].

use super::discovery::{self, Discovered};
use super::harness::Environment;
use super::queue::Queue;
use super::write::{NAMESPACES, PODS, Resource};
use client::{Backoff, Key};
use http::{Method, Request};
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use proto::api::condition;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Upstream's service account name.
pub const NAME: &str = "namespace-controller";
const FINALIZER: &str = "kubernetes";
const DEADLINE: Duration = Duration::from_secs(30);

/// What is left in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemainingContent {
    /// Objects by `resource.group`.
    pub objects: BTreeMap<String, usize>,
    /// How many objects each finalizer holds.
    pub finalizers: BTreeMap<String, usize>,
    /// What could not be deleted or listed.
    pub errors: Vec<String>,
    /// What could not be discovered.
    pub undiscovered: Vec<String>,
}

/// Deletes the content of namespaces until shutdown.
pub async fn run(environment: Environment) {
    let queue = Arc::new(Queue::default());
    let mut namespaces = environment.informers.namespaces.subscribe();
    let mut pods = environment.informers.pods.subscribe();
    let mut delays: BTreeMap<Key, Backoff> = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            () = environment.shutdown.cancelled() => return,
            changes = namespaces.next() => for change in changes {
                if change.new.as_ref().is_some_and(|n| n.metadata.deletion_timestamp.is_some()) {
                    queue.add(change.key);
                }
            },
            changes = pods.next() => for change in changes {
                let key = Key::new("", change.key.namespace);
                // Each pod that goes may be the last.
                if change.new.is_none() && delays.contains_key(&key) {
                    queue.add(key);
                }
            },
            key = queue.next() => {
                match reconcile(&environment, &key).await {
                    Ok(true) => {
                        delays.remove(&key);
                    }
                    Ok(false) => {
                        let delay = delay(&mut delays, &key);
                        queue.add_after(key.clone(), delay);
                    }
                    Err(error) => {
                        let delay = delay(&mut delays, &key);
                        tracing::warn!(namespace = key.name, error, "namespace not emptied, retrying");
                        queue.add_after(key.clone(), delay);
                    }
                }
                queue.done(&key);
            }
        }
    }
}

fn delay(delays: &mut BTreeMap<Key, Backoff>, key: &Key) -> Duration {
    let new = || Backoff::new(Duration::from_millis(100), Duration::from_secs(15), 0);
    delays.entry(key.clone()).or_insert_with(new).fail()
}

fn finalizers(namespace: &Namespace) -> Vec<String> {
    namespace
        .spec
        .as_ref()
        .and_then(|s| s.finalizers.clone())
        .unwrap_or_default()
}

/// One look at a namespace; true when nothing is left to do.
async fn reconcile(environment: &Environment, key: &Key) -> Result<bool, String> {
    let Some(namespace) = environment.informers.namespaces.get_key(key) else {
        return Ok(true);
    };
    let ours = finalizers(&namespace).iter().any(|f| f == FINALIZER);
    if namespace.metadata.deletion_timestamp.is_none() || !ours {
        return Ok(true);
    }
    let remains = empty(&environment.client, &key.name).await?;
    report(environment, &namespace, &remains).await?;
    let clean = remains.objects.is_empty() && remains.errors.is_empty() && remains.undiscovered.is_empty();
    if clean {
        finalize(environment, &namespace).await?;
    }
    Ok(clean)
}

async fn call(client: &kube::Client, method: Method, path: &str, body: Option<&Value>) -> Result<Value, kube::Error> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, "application/json");
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = request.body(body.into_bytes()).map_err(kube::Error::HttpError)?;
    match timeout(DEADLINE, client.request::<Value>(request)).await {
        Ok(reply) => reply,
        Err(elapsed) => Err(kube::Error::Service(Box::new(elapsed))),
    }
}

/// Deletes what is in the namespace, pods before all else, and tells what is left.
async fn empty(client: &kube::Client, namespace: &str) -> Result<RemainingContent, String> {
    let discovery::Discovery { resources: found, failed, .. } = discovery::resources(client).await?;
    let undiscovered = failed.iter().map(ToString::to_string).collect();
    let mut remains = RemainingContent {
        undiscovered,
        ..RemainingContent::default()
    };
    let listable = |d: &&Discovered| d.resource.namespaced && d.can(&["list", "delete"]);
    let (pods, others): (Vec<_>, Vec<_>) = found
        .iter()
        .filter(listable)
        .partition(|d| d.resource.plural == PODS.plural && d.resource.group.is_empty());
    for discovered in pods {
        clear(client, namespace, discovered, &mut remains).await;
    }
    if remains.objects.is_empty() && remains.errors.is_empty() {
        for discovered in others {
            clear(client, namespace, discovered, &mut remains).await;
        }
    }
    Ok(remains)
}

async fn clear(client: &kube::Client, namespace: &str, discovered: &Discovered, remains: &mut RemainingContent) {
    let resource = &discovered.resource;
    let name = format!("{}.{}", resource.plural, resource.group);
    if let Err(error) = try_clear(client, namespace, discovered, &name, remains).await {
        // A resource that vanished holds nothing.
        if !matches!(&error, kube::Error::Api(status) if status.code == 404 || status.code == 405) {
            remains.errors.push(format!("{name}: {error}"));
        }
    }
}

async fn items(client: &kube::Client, resource: &Resource, namespace: &str) -> Result<Vec<Value>, kube::Error> {
    let mut list = call(client, Method::GET, &resource.collection_path(namespace), None).await?;
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

async fn try_clear(
    client: &kube::Client,
    namespace: &str,
    discovered: &Discovered,
    name: &str,
    remains: &mut RemainingContent,
) -> Result<(), kube::Error> {
    let resource = &discovered.resource;
    let before = items(client, resource, namespace).await?;
    if before.is_empty() {
        return Ok(());
    }
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    if discovered.can(&["deletecollection"]) {
        call(
            client,
            Method::DELETE,
            &resource.collection_path(namespace),
            Some(&options),
        )
        .await?;
    } else {
        for object in &before {
            let key = Key::new(namespace, object["metadata"]["name"].as_str().unwrap_or_default());
            call(client, Method::DELETE, &resource.path(&key), Some(&options)).await?;
        }
    }
    let after = items(client, resource, namespace).await?;
    if !after.is_empty() {
        remains.objects.insert(name.to_owned(), after.len());
    }
    for finalizer in after
        .iter()
        .flat_map(|o| o["metadata"]["finalizers"].as_array().into_iter().flatten())
    {
        *remains
            .finalizers
            .entry(finalizer.as_str().unwrap_or_default().to_owned())
            .or_default() += 1;
    }
    Ok(())
}

/// The conditions that tell what is left.
pub fn conditions(
    old: Option<Vec<NamespaceCondition>>,
    remains: &RemainingContent,
    now: Timestamp,
) -> Vec<NamespaceCondition> {
    let mut list = old.unwrap_or_default();
    let mut set = |kind: &str, bad: Option<(&str, String)>, good: (&str, &str)| {
        let (status, reason, message) = match bad {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", good.0, good.1.to_owned()),
        };
        condition::set(
            &mut list,
            NamespaceCondition {
                type_: kind.into(),
                status: status.into(),
                reason: Some(reason.into()),
                message: Some(message),
                last_transition_time: Some(Time(now)),
            },
        );
    };
    let join = |parts: Vec<String>| parts.join(", ");
    let undiscovered = (!remains.undiscovered.is_empty()).then(|| {
        let text = format!(
            "Discovery failed for some groups, {} failing: {}",
            remains.undiscovered.len(),
            join(remains.undiscovered.clone())
        );
        ("DiscoveryFailed", text)
    });
    set(
        "NamespaceDeletionDiscoveryFailure",
        undiscovered,
        ("ResourcesDiscovered", "All resources successfully discovered"),
    );
    let parsed = ("ParsedGroupVersions", "All legacy kube types successfully parsed");
    set("NamespaceDeletionGroupVersionParsingFailure", None, parsed);
    let failed = (!remains.errors.is_empty()).then(|| {
        let text = format!(
            "Failed to delete all resource types, {} remaining: {}",
            remains.errors.len(),
            join(remains.errors.clone())
        );
        ("ContentDeletionFailed", text)
    });
    let deleted = (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    );
    set("NamespaceDeletionContentFailure", failed, deleted);
    let content = (!remains.objects.is_empty()).then(|| {
        let parts = remains
            .objects
            .iter()
            .map(|(name, n)| format!("{name} has {n} resource instances"))
            .collect();
        (
            "SomeResourcesRemain",
            format!("Some resources are remaining: {}", join(parts)),
        )
    });
    set(
        "NamespaceContentRemaining",
        content,
        ("ContentRemoved", "All content successfully removed"),
    );
    let held = (!remains.finalizers.is_empty()).then(|| {
        let parts = remains
            .finalizers
            .iter()
            .map(|(name, n)| format!("{name} in {n} resource instances"))
            .collect();
        (
            "SomeFinalizersRemain",
            format!(
                "Some content in the namespace has finalizers remaining: {}",
                join(parts)
            ),
        )
    });
    set(
        "NamespaceFinalizersRemaining",
        held,
        ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
    );
    list
}

async fn report(environment: &Environment, namespace: &Namespace, remains: &RemainingContent) -> Result<(), String> {
    let old = namespace.status.as_ref().and_then(|s| s.conditions.clone());
    let new = conditions(old.clone(), remains, environment.clock.now());
    if old.as_ref() == Some(&new) {
        return Ok(());
    }
    let mut body = serde_json::to_value(namespace).expect("API types have string keys and serialise");
    body["apiVersion"] = json!("v1");
    body["kind"] = json!("Namespace");
    body["status"]["conditions"] = json!(new);
    // Whoever wrote in between must not be overwritten, but conditions are no precondition of finalizing.
    let path = format!("{}/status", NAMESPACES.path(&Key::of(namespace)));
    match call(&environment.client, Method::PUT, &path, Some(&body)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

async fn finalize(environment: &Environment, namespace: &Namespace) -> Result<(), String> {
    let path = NAMESPACES.path(&Key::of(namespace));
    let mut live = match call(&environment.client, Method::GET, &path, None).await {
        Ok(live) => live,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    if live["metadata"]["uid"].as_str() != namespace.metadata.uid.as_deref() {
        return Ok(());
    }
    let kept: Vec<String> = finalizers(namespace).into_iter().filter(|f| f != FINALIZER).collect();
    live["spec"]["finalizers"] = json!(kept);
    match call(
        &environment.client,
        Method::PUT,
        &format!("{path}/finalize"),
        Some(&live),
    )
    .await
    {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_tell_what_is_left() {
        let now = Timestamp::UNIX_EPOCH;
        let remains = RemainingContent {
            objects: BTreeMap::from([("pods.".to_owned(), 1)]),
            finalizers: BTreeMap::from([("example.com/x".to_owned(), 2)]),
            ..RemainingContent::default()
        };
        let list = conditions(None, &remains, now);
        let find = |list: &Vec<NamespaceCondition>, kind: &str| {
            let c = condition::find(Some(list), kind).unwrap();
            (c.status.clone(), c.reason.clone().unwrap(), c.message.clone().unwrap())
        };
        let want = (
            "True".into(),
            "SomeResourcesRemain".into(),
            "Some resources are remaining: pods. has 1 resource instances".into(),
        );
        assert_eq!(find(&list, "NamespaceContentRemaining"), want);
        let held = find(&list, "NamespaceFinalizersRemaining").2;
        assert_eq!(
            held,
            "Some content in the namespace has finalizers remaining: example.com/x in 2 resource instances"
        );
        let done = conditions(Some(list), &RemainingContent::default(), now);
        assert_eq!(done.len(), 5);
        assert!(done.iter().all(|c| c.status == "False"), "{done:?}");
    }
}
