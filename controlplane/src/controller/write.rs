//! What controllers want done: writes as data, and the API resources they go to. Pure.

use crate::tree;
use client::Key;
use k8s_openapi::api::core::v1::ObjectReference;
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// An API resource, as paths and references name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// API group; empty for core.
    pub group: Cow<'static, str>,
    /// API version without the group.
    pub version: Cow<'static, str>,
    /// Plural name in paths.
    pub plural: Cow<'static, str>,
    /// Kind in references.
    pub kind: Cow<'static, str>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
}

impl Resource {
    const fn known(group: &'static str, plural: &'static str, kind: &'static str, namespaced: bool) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed("v1"),
            plural: Cow::Borrowed(plural),
            kind: Cow::Borrowed(kind),
            namespaced,
        }
    }

    /// `v1` or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The collection's path in a namespace (empty for all, or for cluster-scoped resources).
    pub fn collection_path(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if self.namespaced && !namespace.is_empty() {
            format!("{root}/namespaces/{namespace}/{}", self.plural)
        } else {
            format!("{root}/{}", self.plural)
        }
    }

    /// One object's path.
    pub fn path(&self, key: &Key) -> String {
        format!("{}/{}", self.collection_path(&key.namespace), key.name)
    }
}

/// pods
pub const PODS: Resource = Resource::known("", "pods", "Pod", true);
/// nodes
pub const NODES: Resource = Resource::known("", "nodes", "Node", false);
/// namespaces
pub const NAMESPACES: Resource = Resource::known("", "namespaces", "Namespace", false);
/// serviceaccounts
pub const SERVICE_ACCOUNTS: Resource = Resource::known("", "serviceaccounts", "ServiceAccount", true);
/// configmaps
pub const CONFIG_MAPS: Resource = Resource::known("", "configmaps", "ConfigMap", true);
/// secrets
pub const SECRETS: Resource = Resource::known("", "secrets", "Secret", true);
/// endpoints
pub const ENDPOINTS: Resource = Resource::known("", "endpoints", "Endpoints", true);
/// endpointslices.discovery.k8s.io
pub const ENDPOINT_SLICES: Resource = Resource::known("discovery.k8s.io", "endpointslices", "EndpointSlice", true);
/// services
pub const SERVICES: Resource = Resource::known("", "services", "Service", true);
/// servicecidrs.networking.k8s.io
pub const SERVICE_CIDRS: Resource = Resource::known("networking.k8s.io", "servicecidrs", "ServiceCIDR", false);
/// deployments.apps
pub const DEPLOYMENTS: Resource = Resource::known("apps", "deployments", "Deployment", true);
/// jobs.batch
pub const JOBS: Resource = Resource::known("batch", "jobs", "Job", true);
/// cronjobs.batch
pub const CRON_JOBS: Resource = Resource::known("batch", "cronjobs", "CronJob", true);
/// replicasets.apps
pub const REPLICA_SETS: Resource = Resource::known("apps", "replicasets", "ReplicaSet", true);

/// statefulsets.apps
pub const STATEFUL_SETS: Resource = Resource::known("apps", "statefulsets", "StatefulSet", true);
/// daemonsets.apps
pub const DAEMON_SETS: Resource = Resource::known("apps", "daemonsets", "DaemonSet", true);
/// controllerrevisions.apps
pub const CONTROLLER_REVISIONS: Resource = Resource::known("apps", "controllerrevisions", "ControllerRevision", true);
/// replicationcontrollers
pub const REPLICATION_CONTROLLERS: Resource =
    Resource::known("", "replicationcontrollers", "ReplicationController", true);
/// persistentvolumeclaims
pub const CLAIMS: Resource = Resource::known("", "persistentvolumeclaims", "PersistentVolumeClaim", true);
/// resourceclaims.resource.k8s.io
pub const DEVICE_CLAIMS: Resource = Resource::known("resource.k8s.io", "resourceclaims", "ResourceClaim", true);
/// poddisruptionbudgets.policy
pub const BUDGETS: Resource = Resource::known("policy", "poddisruptionbudgets", "PodDisruptionBudget", true);

/// resourcequotas
pub const RESOURCE_QUOTAS: Resource = Resource::known("", "resourcequotas", "ResourceQuota", true);

/// horizontalpodautoscalers.autoscaling
pub const AUTOSCALERS: Resource = Resource {
    group: Cow::Borrowed("autoscaling"),
    version: Cow::Borrowed("v2"),
    plural: Cow::Borrowed("horizontalpodautoscalers"),
    kind: Cow::Borrowed("HorizontalPodAutoscaler"),
    namespaced: true,
};

/// certificatesigningrequests.certificates.k8s.io
pub const SIGNING_REQUESTS: Resource = Resource::known(
    "certificates.k8s.io",
    "certificatesigningrequests",
    "CertificateSigningRequest",
    false,
);

/// clusterroles.rbac.authorization.k8s.io
pub const CLUSTER_ROLES: Resource = Resource::known("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", false);

/// How a patch body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// JSON merge patch.
    Merge,
    /// Strategic merge patch.
    Strategic,
    /// JSON patch.
    Json,
    /// Server-side apply, forced, as this field manager.
    Apply(&'static str),
}

/// What to do to one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    /// POST; the key's name may be empty when the body has generateName.
    Create(Value),
    /// PUT.
    Replace(Value),
    /// PUT to a subresource such as `status` or `finalize`.
    ReplaceSub(&'static str, Value),
    /// PATCH, on a subresource if the second part is not empty.
    Patch(PatchKind, &'static str, Value),
    /// DELETE.
    Delete {
        /// Precondition.
        uid: String,
        /// A second one, where what was decided is true of this resourceVersion alone.
        revision: Option<String>,
        /// Grace period; the object's own when absent.
        grace: Option<u32>,
        /// `Background`, `Foreground`, `Orphan`; the resource's default when absent.
        propagation: Option<&'static str>,
    },
}

/// Text of an event. `{}` in the message stands for what the write made: the object's name, or the error.
#[derive(Clone, Debug, PartialEq)]
pub struct EventText {
    /// The object the event is about.
    pub regarding: ObjectReference,
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// Upstream's reason.
    pub reason: &'static str,
    /// The message, perhaps with `{}`.
    pub message: String,
}

/// Whose an object becomes: nothing is given to an owner that is gone, is another by now, or is on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopter {
    /// The owner's resource.
    pub resource: Resource,
    /// Its key.
    pub key: Key,
    /// Its UID.
    pub uid: String,
}

/// One write with what it means to the outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// Which resource.
    pub resource: Resource,
    /// Which object.
    pub key: Key,
    /// What to do.
    pub verb: Verb,
    /// Who has to be there when it is done, as the server says and no copy.
    pub adopter: Option<Arc<Adopter>>,
    /// Event when it worked.
    pub on_success: Option<EventText>,
    /// Event when it did not.
    pub on_failure: Option<EventText>,
}

fn body<T: Serialize>(resource: &Resource, object: &T) -> Value {
    let mut value = serde_json::to_value(object).expect("API types have string keys and serialise");
    value["apiVersion"] = json!(resource.api_version());
    value["kind"] = json!(resource.kind);
    value
}

impl Write {
    /// A write without events.
    pub fn new(resource: Resource, key: Key, verb: Verb) -> Self {
        Self {
            resource,
            key,
            verb,
            adopter: None,
            on_success: None,
            on_failure: None,
        }
    }

    /// Creates the object.
    pub fn create<K: kube::Resource + Serialize>(resource: Resource, object: &K) -> Self {
        let body = body(&resource, object);
        Self::new(resource, Key::of(object), Verb::Create(body))
    }

    /// Replaces the object; its resourceVersion is the precondition.
    pub fn replace<K: kube::Resource + Serialize>(resource: Resource, object: &K) -> Self {
        let body = body(&resource, object);
        Self::new(resource, Key::of(object), Verb::Replace(body))
    }

    /// Replaces the object's status; its resourceVersion is the precondition.
    pub fn replace_status<K: kube::Resource + Serialize>(resource: Resource, object: &K) -> Self {
        let body = body(&resource, object);
        Self::new(resource, Key::of(object), Verb::ReplaceSub("status", body))
    }

    /// Replaces a part of the object that has an endpoint of its own; its resourceVersion is the precondition.
    pub fn replace_part<K: kube::Resource + Serialize>(resource: Resource, part: &'static str, object: &K) -> Self {
        let body = body(&resource, object);
        Self::new(resource, Key::of(object), Verb::ReplaceSub(part, body))
    }

    /// Patches the object.
    pub fn patch(resource: Resource, key: Key, kind: PatchKind, body: Value) -> Self {
        Self::new(resource, key, Verb::Patch(kind, "", body))
    }

    /// Deletes the object if it is still the one of that UID.
    pub fn delete<K: kube::Resource>(resource: Resource, object: &K) -> Self {
        let uid = object.meta().uid.clone().unwrap_or_default();
        let verb = Verb::Delete {
            uid,
            revision: None,
            grace: None,
            propagation: None,
        };
        Self::new(resource, Key::of(object), verb)
    }

    /// About how many bytes of memory its body takes.
    pub fn held(&self) -> usize {
        match &self.verb {
            Verb::Create(body) | Verb::Replace(body) | Verb::ReplaceSub(_, body) | Verb::Patch(_, _, body) => {
                tree::held(body)
            }
            Verb::Delete { .. } => 0,
        }
    }

    /// Only for an owner that is there.
    pub fn adopted_by(mut self, adopter: &Arc<Adopter>) -> Self {
        self.adopter = Some(Arc::clone(adopter));
        self
    }

    /// With an event when it worked.
    pub fn success(mut self, event: EventText) -> Self {
        self.on_success = Some(event);
        self
    }

    /// With an event when it failed.
    pub fn failure(mut self, event: EventText) -> Self {
        self.on_failure = Some(event);
        self
    }
}

/// A reference to an object of a known resource, for events.
pub fn reference<K: kube::Resource>(resource: &Resource, object: &K) -> ObjectReference {
    let meta = object.meta();
    ObjectReference {
        api_version: Some(resource.api_version()),
        kind: Some(resource.kind.to_string()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

/// An event about an object of a known resource.
pub fn event<K: kube::Resource>(
    resource: &Resource,
    object: &K,
    kind: &'static str,
    reason: &'static str,
    message: impl Into<String>,
) -> EventText {
    EventText {
        regarding: reference(resource, object),
        kind,
        reason,
        message: message.into(),
    }
}

/// What a controller wants done about a key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Writes, done in slow-start batches (1, 2, 4, ...) in this order; the first failing batch is the last, but where each write is
    /// a matter of its own.
    pub writes: Vec<Write>,
    /// Events about decisions that are not writes.
    pub events: Vec<EventText>,
    /// When to look again even if nothing changes.
    pub again_in: Option<Duration>,
}

impl Plan {
    /// Nothing but these writes.
    pub fn of(writes: Vec<Write>) -> Self {
        Self {
            writes,
            ..Self::default()
        }
    }
}

/// Why a write failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Plural name of the resource written.
    pub resource: String,
    /// Whether it was a creation.
    pub creating: bool,
    /// Whether it was a deletion.
    pub deleting: bool,
    /// HTTP code; 0 when there was no answer.
    pub code: u16,
    /// Reason of the Status, such as `AlreadyExists`.
    pub reason: String,
    /// The server's text.
    pub message: String,
}

impl Failure {
    /// Whether the server has judged this very write: no answer, a failure of its own and too many requests are no word about it.
    pub fn is_refusal(&self) -> bool {
        (400..500).contains(&self.code) && self.code != 429
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let key = Key::new("default", "web");
        assert_eq!(PODS.path(&key), "/api/v1/namespaces/default/pods/web");
        assert_eq!(
            DEPLOYMENTS.path(&key),
            "/apis/apps/v1/namespaces/default/deployments/web"
        );
        assert_eq!(NODES.path(&Key::new("", "n1")), "/api/v1/nodes/n1");
        assert_eq!(PODS.collection_path(""), "/api/v1/pods");
    }
}
