//! What the control plane adds to a request, and what it refuses, between authorization and storage (control-plane contract §7).
//!
//! Plugins run in upstream's order: NamespaceLifecycle, LimitRanger, ServiceAccount, NodeRestriction, TaintNodesByCondition, Priority, DefaultTolerationSeconds,
//! RuntimeClass, the three of certificate requests, PodResizeValidator, DenyServiceExternalIPs where the configuration has it, then Service addresses. Each is a pure function over what was looked up; this module looks up.
//! ResourceQuota, the last, charges beside the store ([`super::quota`]). Not here yet: PodSecurity, webhooks, policies.

mod certificate;
mod external_ip;
mod limit_ranger;
mod namespace;
mod node;
mod node_restriction;
mod pod_resize;
mod priority;
mod runtime_class;
mod service_account;
mod service_address;
mod toleration;

use super::authz::{Authz, RBAC};
use super::reader::Reader;
use super::request::RequestInfo;
use super::status::ApiError;
use super::user::User;
use crate::config::AdmissionConfig;
use crate::resource::Kind;
use crate::resource::service::Ranges;
use futures::StreamExt;
use prometheus_client::registry::Registry;
use proto::api::names::random_suffix;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What the request does to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object, or a POST to a subresource such as `binding`.
    Create,
    /// A changed object.
    Update,
    /// An object goes.
    Delete,
    /// `exec`, `attach`, `portforward`, `proxy`.
    Connect,
}

/// What a plugin may know of a request beside the object.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a User,
    /// What is asked; `subresource` is empty for the object itself.
    pub info: &'a RequestInfo,
    /// The kind of the resource.
    pub kind: &'a Kind,
    /// What is done.
    pub operation: Operation,
    /// The object's namespace, empty at cluster scope.
    pub namespace: &'a str,
    /// The object's name; empty if it is not known yet.
    pub name: &'a str,
    /// Whether nothing is to be stored.
    pub dry_run: bool,
}

impl Attributes<'_> {
    fn is(&self, group: &str, resource: &str) -> bool {
        self.kind.group == group && self.kind.plural == resource && self.info.subresource.is_empty()
    }

    fn forbid(&self, why: &str) -> ApiError {
        ApiError::forbidden(&self.kind.group, &self.kind.plural, self.name, why)
    }
}

/// The chain of plugins.
pub struct Admission {
    authz: Arc<Authz>,
    services: service_address::Allocator,
    config: AdmissionConfig,
    rng: Mutex<StdRng>,
}

/// How long a pod waits for its namespace's new `default` service account: as long as upstream at most, which looks ten times,
/// 100 to 200 ms apart. Who is refused after that comes again.
const ACCOUNT_PATIENCE: Duration = Duration::from_millis(1800);
/// Until the accounts are watched anew, should a watch of them end.
const ACCOUNT_PAUSE: Duration = Duration::from_millis(100);

/// Group and resource of priority classes.
const CLASSES: (&str, &str) = ("scheduling.k8s.io", "priorityclasses");

/// What admission says of a creation in a namespace, by the namespace alone.
///
/// # Errors
/// 403 if it is terminating, 404 if it is gone.
pub(super) fn still_admits(attributes: &Attributes<'_>, namespace: Option<&Value>) -> Result<(), ApiError> {
    match namespace::applies(attributes) {
        true => namespace::check(attributes, namespace),
        false => Ok(()),
    }
}

impl Admission {
    /// A chain with the plugins that `config` adds; Services get addresses from `services`, `seed` starts its random source (volume names, addresses).
    pub fn new(authz: Arc<Authz>, services: Ranges, config: AdmissionConfig, seed: u64) -> Self {
        Self {
            authz,
            services: service_address::Allocator::new(services, config.node_ports),
            config,
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
        }
    }

    /// Adds what the allocation of addresses and ports counted to `registry`.
    pub fn register(&self, reader: &Reader, registry: &mut Registry) {
        self.services.register(reader, registry);
    }

    /// Runs the mutating plugins on a new or changed object, before it is validated.
    ///
    /// # Errors
    /// The refusal of the first plugin that refuses.
    pub async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        old: Option<&Value>,
        reader: &Reader,
    ) -> Result<(), ApiError> {
        self.namespace_lifecycle(attributes, reader).await?;
        let create = attributes.operation == Operation::Create;
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        if let Some(ranges) = self.ranges(attributes, old, reader) {
            limit_ranger::fill(attributes, object, &ranges);
        }
        if create && attributes.is("", "pods") {
            self.service_account(attributes, object, reader).await?;
        }
        node_restriction::admit(attributes, object, old, reader, &self.authz)?;
        if attributes.is("", "pods") {
            let mut classes = reader.list(CLASSES.0, CLASSES.1, "");
            if create && !priority::knows(&classes, object) {
                // It may have been made a moment ago, by the same file.
                reader.refresh().await.map_err(ApiError::internal)?;
                classes = reader.list(CLASSES.0, CLASSES.1, "");
            }
            priority::admit_pod(attributes, object, old, &classes)?;
            if writes {
                toleration::add_defaults(object);
            }
            if create && let Some(class) = class_of(attributes, object, reader).await? {
                runtime_class::admit(attributes, object, &class)?;
            }
        } else if writes && attributes.is("", "services") {
            let start = self.random();
            self.services.assign(attributes, object, old, reader, start)?;
        } else if create && attributes.is("", "nodes") {
            node::taint_new(object);
        } else if create && certificate::applies(attributes) && attributes.info.subresource.is_empty() {
            certificate::identify(attributes, object);
        }
        Ok(())
    }

    /// Runs the validating plugins, after everything else has agreed. For a deletion `object` is the stored object, or null.
    ///
    /// # Errors
    /// The refusal of the first plugin that refuses.
    pub async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        old: Option<&Value>,
        reader: &Reader,
    ) -> Result<(), ApiError> {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        match attributes.operation {
            Operation::Delete => namespace::check_delete(attributes)?,
            Operation::Connect => self.namespace_lifecycle(attributes, reader).await?,
            Operation::Create | Operation::Update => {}
        }
        if let Some(ranges) = self.ranges(attributes, old, reader) {
            limit_ranger::check(attributes, object, &ranges)?;
        }
        if attributes.operation == Operation::Create && attributes.is("", "pods") {
            let class = class_of(attributes, object, reader).await?;
            runtime_class::check(attributes, object, class.as_deref())?;
        }
        if certificate::applies(attributes) {
            certificate::check(attributes, object, old, &self.authz, reader)?;
        }
        if pod_resize::applies(attributes, object, old) {
            let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
            pod_resize::check(attributes, object, reader.get("", "nodes", "", node).as_deref())?;
        }
        if self.config.deny_service_external_ips && writes && attributes.is("", "services") {
            external_ip::check(attributes, object, old)?;
        }
        if writes && attributes.is("scheduling.k8s.io", "priorityclasses") {
            priority::admit_class(attributes, object, &reader.list(CLASSES.0, CLASSES.1, ""))?;
        }
        if writes && attributes.kind.group == RBAC && attributes.info.subresource.is_empty() {
            let unchanged = old.is_some_and(|old| is_collecting(old, object));
            if !unchanged {
                let mut info = attributes.info.clone();
                info.name = attributes.name.to_owned();
                self.authz.may_grant(attributes.user, &info, (old, object), reader)?;
            }
        }
        Ok(())
    }

    /// Whether writes are charged to ResourceQuotas.
    pub(super) fn enforces_quota(&self) -> bool {
        !self.config.without_resource_quota
    }

    /// The LimitRanges of the namespace, if the request is one they are about.
    fn ranges(&self, attributes: &Attributes<'_>, old: Option<&Value>, reader: &Reader) -> Option<Vec<Arc<Value>>> {
        let applies = !self.config.without_limit_ranger && limit_ranger::applies(attributes, old);
        applies.then(|| reader.list("", "limitranges", attributes.namespace))
    }

    fn random(&self) -> u64 {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).random()
    }

    async fn namespace_lifecycle(&self, attributes: &Attributes<'_>, reader: &Reader) -> Result<(), ApiError> {
        if attributes.operation == Operation::Delete {
            return namespace::check_delete(attributes);
        }
        if !namespace::applies(attributes) {
            return Ok(());
        }
        let name = attributes.namespace;
        let mut found = reader.get("", "namespaces", "", name);
        if found.is_none() {
            reader.refresh().await.map_err(ApiError::internal)?;
            found = reader.get("", "namespaces", "", name);
        }
        namespace::check(attributes, found.as_deref())
    }

    async fn service_account(
        &self,
        attributes: &Attributes<'_>,
        pod: &mut Value,
        reader: &Reader,
    ) -> Result<(), ApiError> {
        if service_account::is_mirror(pod) {
            return service_account::check_mirror(attributes, pod);
        }
        let name = service_account::set_name(pod);
        let account = find_account(reader, attributes.namespace, &name).await?;
        let Some(account) = account else {
            let namespace = attributes.namespace;
            let why =
                format!("error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found");
            return Err(attributes.forbid(&why));
        };
        let volume = format!("{}{}", service_account::VOLUME_PREFIX, random_suffix(self.random()));
        service_account::admit(pod, &account, &volume);
        Ok(())
    }
}

/// The class a new pod names, if it names one.
async fn class_of(attributes: &Attributes<'_>, pod: &Value, reader: &Reader) -> Result<Option<Arc<Value>>, ApiError> {
    const OF: (&str, &str) = ("node.k8s.io", "runtimeclasses");
    let Some(name) = runtime_class::named(pod) else {
        return Ok(None);
    };
    if let Some(found) = reader.get(OF.0, OF.1, "", name) {
        return Ok(Some(found));
    }
    reader.refresh().await.map_err(ApiError::internal)?;
    let found = reader.get(OF.0, OF.1, "", name);
    found.map(Some).ok_or_else(|| runtime_class::unknown(attributes, name))
}

/// Whether an update of an RBAC object changes only what garbage collection needs. Anything else may give somebody rights: a label makes
/// a role part of another.
fn is_collecting(old: &Value, new: &Value) -> bool {
    let rest = |object: &Value| {
        let mut rest = object.clone();
        if let Some(metadata) = rest.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                metadata.remove(field);
            }
        }
        rest
    };
    rest(old) == rest(new)
}

/// The service account; `default` is made by a controller shortly after its namespace, so it is waited for.
async fn find_account(reader: &Reader, namespace: &str, name: &str) -> Result<Option<Arc<Value>>, ApiError> {
    const RESOURCE: &str = "serviceaccounts";
    if let Some(found) = reader.get("", RESOURCE, namespace, name) {
        return Ok(Some(found));
    }
    let window = reader.window_of("", RESOURCE);
    let deadline = tokio::time::Instant::now() + ACCOUNT_PATIENCE;
    loop {
        // Watch first, look second: an account made in between is seen by one of the two.
        let changes = window
            .as_ref()
            .and_then(|window| window.watch(window.cached().revision).ok());
        reader.refresh().await.map_err(ApiError::internal)?;
        let found = reader.get("", RESOURCE, namespace, name);
        if found.is_some() || name != "default" {
            return Ok(found);
        }
        if let Some(mut changes) = changes.map(Box::pin) {
            while let Ok(Some(_)) = tokio::time::timeout_at(deadline, changes.next()).await {
                if let Some(found) = reader.get("", RESOURCE, namespace, name) {
                    return Ok(Some(found));
                }
            }
        }
        let again = tokio::time::Instant::now() + ACCOUNT_PAUSE;
        if again >= deadline {
            return Ok(None);
        }
        tokio::time::sleep_until(again).await;
    }
}

/// The object in `field`, made if it is missing or something else.
fn object_at<'a>(value: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let inner = &mut value[field];
    if !inner.is_object() {
        *inner = Value::Object(Map::new());
    }
    inner.as_object_mut().expect("it was made an object above")
}

/// The list in `field`, made if it is missing or something else.
fn array_at<'a>(map: &'a mut Map<String, Value>, field: &str) -> &'a mut Vec<Value> {
    let inner = map.entry(field).or_insert(Value::Null);
    if !inner.is_array() {
        *inner = Value::Array(Vec::new());
    }
    inner.as_array_mut().expect("it was made a list above")
}

#[cfg(test)]
mod tests;
