//! Deletes what is in a namespace and counts what is left. Decides nothing but the order.

use super::condition::Remains;
use crate::controller::discovery::{self, Discovered, Discovery};
use crate::controller::write::{NAMESPACES, PODS, Resource};
use client::Key;
use http::{Method, Request};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);
/// Objects deleted or counted at a time: of each no more than its metadata is read.
const PAGE: usize = 500;
/// Not every aggregated server knows the form: whole objects do as well.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/// How long what holds an object by a finalizer is given, as upstream.
const FINALIZER_SECONDS: u64 = 15;

/// A request and its answer.
pub(super) async fn call(
    client: &kube::Client,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, kube::Error> {
    let accept = if path.contains("?limit=") {
        METADATA
    } else {
        "application/json"
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::ACCEPT, accept)
        .header(http::header::CONTENT_TYPE, "application/json");
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = request.body(body.into_bytes()).map_err(kube::Error::HttpError)?;
    match timeout(DEADLINE, client.request::<Value>(request)).await {
        Ok(reply) => reply,
        Err(elapsed) => Err(kube::Error::Service(Box::new(elapsed))),
    }
}

fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

/// Whether the server does not do such a thing, or has no such thing any more.
fn is_unsupported(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 || status.code == 405)
}

/// Deletes what is in the namespace and tells what is left. Nothing else is deleted before the last pod is gone, which takes
/// `grace_seconds` at most: policies, secrets and claims hold for pods as long as they run. `None`, with nothing more deleted, once the server
/// has no such namespace that is being deleted: what is in one that was made anew under its name is not to go.
pub(super) async fn empty(client: &kube::Client, namespace: &Namespace, grace_seconds: u64) -> Option<Remains> {
    let mut emptying = Emptying {
        client,
        namespace: namespace.metadata.name.as_deref().unwrap_or_default(),
        uid: namespace.metadata.uid.as_deref().unwrap_or_default(),
        remains: Remains::default(),
    };
    match emptying.empty(grace_seconds).await {
        Ok(()) => {}
        Err(Stop::Replaced) => return None,
        Err(Stop::Failed(error)) => emptying.remains.errors.push(text(&error)),
    }
    Some(emptying.remains)
}

/// Why a resource is not emptied.
enum Stop {
    /// The namespace is not there any more, or not being deleted: nothing else is to be deleted either.
    Replaced,
    /// The server's answer.
    Failed(kube::Error),
}

impl From<kube::Error> for Stop {
    fn from(error: kube::Error) -> Self {
        Self::Failed(error)
    }
}

struct Emptying<'a> {
    client: &'a kube::Client,
    namespace: &'a str,
    uid: &'a str,
    remains: Remains,
}

impl Emptying<'_> {
    async fn empty(&mut self, grace_seconds: u64) -> Result<(), Stop> {
        self.check().await?;
        let found = self.discover().await;
        let is_pods = |d: &Discovered| d.resource.plural == PODS.plural && d.resource.group.is_empty();
        let deletable = |d: &Discovered| d.resource.namespaced && d.can(&["delete"]);
        let pods = Discovered {
            resource: PODS,
            verbs: ["list", "delete", "deletecollection"].map(str::to_owned).to_vec(),
        };
        self.clear(&pods, grace_seconds).await?;
        if self.remains.objects.is_empty() && self.remains.errors.is_empty() {
            for discovered in found.iter().filter(|d| deletable(d) && !is_pods(d)) {
                self.clear(discovered, 0).await?;
            }
        }
        Ok(())
    }

    /// Asks the server whether the namespace is still the one that is being deleted. Before every request that deletes: a deletion of a
    /// collection has no precondition.
    async fn check(&self) -> Result<(), Stop> {
        let live = call(
            self.client,
            Method::GET,
            &NAMESPACES.path(&Key::new("", self.namespace)),
            None,
        )
        .await;
        match live {
            Ok(live) => {
                let metadata = &live["metadata"];
                let is_same = metadata["uid"] == self.uid && metadata["deletionTimestamp"].is_string();
                if is_same { Ok(()) } else { Err(Stop::Replaced) }
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Err(Stop::Replaced),
            Err(error) => Err(error.into()),
        }
    }

    async fn discover(&mut self) -> Vec<Discovered> {
        let discovery = discovery::resources(self.client).await.unwrap_or_else(|error| {
            self.remains.undiscovered = Some(error);
            Discovery::default()
        });
        if let Some(version) = discovery.unparsed.first() {
            self.remains.unparsed = Some(format!("unexpected GroupVersion string: {version}"));
        }
        if !discovery.failed.is_empty() {
            let count = discovery.failed.len();
            let causes: Vec<String> = discovery.failed.iter().map(ToString::to_string).collect();
            self.remains.undiscovered = Some(format!(
                "Discovery failed for some groups, {count} failing: unable to retrieve the complete list of server APIs: {}",
                causes.join(", ")
            ));
        }
        discovery.resources
    }

    /// Deletes the objects of a resource and counts what is left of them.
    async fn clear(&mut self, discovered: &Discovered, estimate_seconds: u64) -> Result<(), Stop> {
        match self.try_clear(discovered).await {
            Ok(left) => self.note(&discovered.resource, left, estimate_seconds),
            Err(Stop::Replaced) => return Err(Stop::Replaced),
            // A resource that vanished holds nothing.
            Err(Stop::Failed(error)) if is_unsupported(&error) => {}
            Err(Stop::Failed(error)) => self.remains.errors.push(text(&error)),
        }
        Ok(())
    }

    fn note(&mut self, resource: &Resource, left: Left, estimate_seconds: u64) {
        if left.count == 0 {
            return;
        }
        let estimate = match (estimate_seconds, left.finalizers.is_empty()) {
            (0, false) => FINALIZER_SECONDS,
            (seconds, _) => seconds,
        };
        if estimate == 0 {
            let (
                namespace,
                Resource {
                    group, version, plural, ..
                },
            ) = (self.namespace, resource);
            self.remains.errors.push(format!(
                "unexpected items still remain in namespace: {namespace} for gvr: {group}/{version}, Resource={plural}"
            ));
        }
        let remains = &mut self.remains;
        remains.estimate_seconds = remains.estimate_seconds.max(estimate);
        let name = format!("{}.{}", resource.plural, resource.group);
        remains.objects.insert(name, left.count);
        for (finalizer, count) in left.finalizers {
            *remains.finalizers.entry(finalizer).or_default() += count;
        }
    }

    async fn try_clear(&self, discovered: &Discovered) -> Result<Left, Stop> {
        let resource = &discovered.resource;
        let can_list = discovered.can(&["list"]);
        if can_list && self.page(resource, 1, "").await?.0.is_empty() {
            return Ok(Left::default());
        }
        let deleted = discovered.can(&["deletecollection"]) && self.delete_collection(resource).await?;
        let mut left = Left::default();
        if !can_list {
            return Ok(left);
        }
        if !deleted {
            self.delete_each(resource).await?;
        }
        let mut next = String::new();
        loop {
            let (items, more) = self.page(resource, PAGE, &next).await?;
            items.iter().for_each(|object| left.count(object));
            next = more;
            if next.is_empty() {
                return Ok(left);
            }
        }
    }

    /// Deletes a collection page by page: the answer has all that was deleted. False if there is no such thing, or no such way.
    async fn delete_collection(&self, resource: &Resource) -> Result<bool, Stop> {
        let mut next = String::new();
        loop {
            self.check().await?;
            let Some(deleted) = self.delete(&self.page_path(resource, PAGE, &next)).await? else {
                return Ok(false);
            };
            next = continuation(&deleted);
            if next.is_empty() {
                return Ok(true);
            }
        }
    }

    async fn delete_each(&self, resource: &Resource) -> Result<(), Stop> {
        let mut next = String::new();
        loop {
            self.check().await?;
            let (items, more) = self.page(resource, PAGE, &next).await?;
            for object in items {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                self.delete(&resource.path(&Key::new(self.namespace, name))).await?;
            }
            next = more;
            if next.is_empty() {
                return Ok(());
            }
        }
    }

    /// Deletes an object or a collection and gives the answer; `None` if there is no such thing, or no such way.
    async fn delete(&self, path: &str) -> Result<Option<Value>, kube::Error> {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
        match call(self.client, Method::DELETE, path, Some(&options)).await {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if is_unsupported(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A page of objects' metadata, and where the next one begins; empty at the end.
    async fn page(&self, resource: &Resource, limit: usize, next: &str) -> Result<(Vec<Value>, String), kube::Error> {
        let path = self.page_path(resource, limit, next);
        let mut list = call(self.client, Method::GET, &path, None).await?;
        let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let next = continuation(&list);
        Ok((items, next))
    }

    fn page_path(&self, resource: &Resource, limit: usize, next: &str) -> String {
        let collection = resource.collection_path(self.namespace);
        format!("{collection}?limit={limit}&continue={next}")
    }
}

/// Where a list goes on; empty at its end.
fn continuation(list: &Value) -> String {
    list["metadata"]["continue"].as_str().unwrap_or_default().to_owned()
}

/// What is left of one resource.
#[derive(Default)]
struct Left {
    count: usize,
    finalizers: BTreeMap<String, usize>,
}

impl Left {
    fn count(&mut self, object: &Value) {
        self.count += 1;
        let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
        for finalizer in finalizers.filter_map(Value::as_str) {
            *self.finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
    }
}
