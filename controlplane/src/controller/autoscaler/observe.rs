//! What a decision needs to know and no informer does: the target's scale, and what its pods use. All I/O of this controller is here.

use super::decide::METRICS_MAX;
use super::served::{self, AllServed};
use crate::controller::ask::ask;
use crate::controller::discovery;
use crate::controller::disruption::scale::is_segment;
use crate::controller::write::Resource;
use crate::resource::usage::Unlabelled;
use client::Key;
use http::Request;
use k8s_openapi::api::autoscaling::v2::{CrossVersionObjectReference, HorizontalPodAutoscaler};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectList};
use kube::{Client, Resource as _, ResourceExt};
use proto::api::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What a decision may wait for all that it asks, together: whoever serves metrics must not hold up the autoscalers of others for longer.
const DEADLINE: Duration = Duration::from_secs(30);
/// The longest answer of the server of the cluster's metrics, in bytes; and of one that describes objects.
const USAGE_MAX: usize = 16 << 20;
const OBJECT_MAX: usize = 4 << 20;
/// What upstream's client says where an API is not served.
pub(super) const ABSENT: &str = "the server could not find the requested resource";

/// What is to be scaled.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    /// Its resource.
    pub(super) resource: Resource,
    /// Its key.
    pub(super) key: Key,
    /// Its scale, as it was read.
    pub(super) scale: Value,
}

impl Target {
    /// The replicas there should be.
    pub(super) fn replicas(&self) -> i32 {
        let replicas = self.scale["spec"]["replicas"].as_i64().unwrap_or(0);
        i32::try_from(replicas).unwrap_or(i32::MAX)
    }

    /// The replicas there are.
    pub(super) fn there(&self) -> i32 {
        let replicas = self.scale["status"]["replicas"].as_i64().unwrap_or(0);
        i32::try_from(replicas).unwrap_or(i32::MAX)
    }

    /// What chooses its pods.
    pub(super) fn selector(&self) -> &str {
        self.scale["status"]["selector"].as_str().unwrap_or_default()
    }
}

/// What one pod's containers use: amounts in thousandths by container and resource.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodUsage {
    pub(super) pod: String,
    pub(super) at: Timestamp,
    pub(super) window: SignedDuration,
    pub(super) containers: BTreeMap<String, BTreeMap<String, i64>>,
}

/// What was found out for one decision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Observed {
    pub(super) target: Result<Target, String>,
    /// Of the pods that the target's selector chooses, if a metric asks for it.
    pub(super) usage: Result<Vec<PodUsage>, String>,
    /// The metrics that others serve.
    pub(super) served: AllServed,
}

/// What comes of `asking`, if that is known by then.
pub(super) async fn by<T>(until: Instant, asking: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let asked = timeout_at(until, asking).await;
    asked.unwrap_or_else(|_| Err("deadline exceeded".to_owned()))
}

/// An error as it is told.
pub(super) fn told(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message,
        error => error.to_string(),
    }
}

/// Finds out what the autoscaler's next decision needs.
pub(super) async fn observe(client: &Client, autoscaler: &HorizontalPodAutoscaler) -> Observed {
    let until = Instant::now() + DEADLINE;
    let namespace = autoscaler.namespace().unwrap_or_default();
    let target = by(until, target(client, &namespace, &autoscaler.spec.scale_target_ref)).await;
    let metrics = autoscaler.spec.metrics.as_deref().unwrap_or_default();
    let is_asked = metrics
        .iter()
        .any(|metric| matches!(&*metric.type_, "Resource" | "ContainerResource"));
    let used = async {
        match &target {
            Ok(target) if is_asked && target.replicas() > 0 && !target.selector().is_empty() => {
                usage(client, &namespace, target.selector(), until).await
            }
            _ => Ok(Vec::new()),
        }
    };
    let served = async {
        match &target {
            Ok(target) if is_followed(autoscaler, target) => {
                let asked = &metrics[..metrics.len().min(METRICS_MAX)];
                served::ask(client, &namespace, target.selector(), asked, until).await
            }
            _ => AllServed::new(),
        }
    };
    // One that hangs takes nothing of the other's time.
    let (usage, served) = futures::join!(used, served);
    Observed { target, usage, served }
}

/// Whether metrics are looked at: not where nothing is scaled, or bounds alone decide.
fn is_followed(autoscaler: &HorizontalPodAutoscaler, target: &Target) -> bool {
    let (replicas, spec) = (target.replicas(), &autoscaler.spec);
    let min = spec.min_replicas.unwrap_or(1);
    let bounds = min..=spec.max_replicas.max(min);
    !target.selector().is_empty() && bounds.contains(&replicas)
}

async fn target(client: &Client, namespace: &str, reference: &CrossVersionObjectReference) -> Result<Target, String> {
    let resource = resource(client, reference).await?;
    let key = Key::new(namespace, reference.name.clone());
    if !is_segment(&reference.name) || !resource.namespaced {
        return Err(ABSENT.to_owned());
    }
    let request = Request::get(format!("{}/scale", resource.path(&key))).body(Vec::new());
    let request = request.map_err(|error| error.to_string())?;
    let scale = ask::<Value>(client, request, OBJECT_MAX).await.map_err(told)?;
    Ok(Target { resource, key, scale })
}

/// The resource of a kind, in whatever version of its group has it, that of the reference first.
async fn resource(client: &Client, reference: &CrossVersionObjectReference) -> Result<Resource, String> {
    let (own, kind) = (reference.api_version.as_deref().unwrap_or("v1"), &reference.kind);
    let group = own.split_once('/').map_or("", |(group, _)| group);
    let mut first_error = None;
    for version in versions(client, reference).await? {
        match discovery::of_kind(client, &version, kind).await {
            Ok(Some((resource, true))) => return Ok(resource),
            Ok(Some((_, false))) => first_error = first_error.or_else(|| Some(ABSENT.to_owned())),
            // A version that is not served has no kinds: the others are asked.
            Ok(None) | Err(_) => {}
        }
    }
    Err(first_error.unwrap_or_else(|| format!("no matches for kind {kind:?} in group {group:?}")))
}

/// The versions in which a kind is looked for, that of the reference first.
pub(super) async fn versions(client: &Client, reference: &CrossVersionObjectReference) -> Result<Vec<String>, String> {
    let own = reference
        .api_version
        .as_deref()
        .filter(|own| !own.is_empty())
        .unwrap_or("v1");
    let (group, version) = own.split_once('/').unwrap_or(("", own));
    if !is_segment(version) || !(group.is_empty() || is_segment(group)) {
        return Err(format!("unexpected GroupVersion string: {own}"));
    }
    let mut versions = vec![own.to_owned()];
    if !group.is_empty() {
        versions.extend(
            of_group(client, group)
                .await
                .into_iter()
                .filter(|version| version != own),
        );
    }
    Ok(versions)
}

async fn of_group(client: &Client, group: &str) -> Vec<String> {
    let Ok(request) = Request::get(format!("/apis/{group}")).body(Vec::new()) else {
        return Vec::new();
    };
    let found = ask::<APIGroup>(client, request, OBJECT_MAX).await;
    let versions = found.map(|group| group.versions).unwrap_or_default();
    versions.into_iter().map(|version| version.group_version).collect()
}

async fn usage(client: &Client, namespace: &str, selector: &str, until: Instant) -> Result<Vec<PodUsage>, String> {
    let kind = GroupVersionKind::gvk("metrics.k8s.io", "v1beta1", "PodMetrics");
    let resource = ApiResource::from_gvk_with_plural(&kind, "pods");
    let asked = kube::api::Request::new(DynamicObject::url_path(&resource, Some(namespace)));
    let asked = asked.list(&ListParams::default().labels(selector));
    let mut asked = asked.map_err(|error| error.to_string())?;
    asked.extensions_mut().insert(Unlabelled);
    let listing = async {
        let listed = ask::<ObjectList<DynamicObject>>(client, asked, USAGE_MAX).await;
        listed.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 404 => format!("{ABSENT} (get pods.metrics.k8s.io)"),
            error => told(error),
        })
    };
    let listed = by(until, listing).await;
    let listed = listed.map_err(|error| format!("unable to fetch metrics from resource metrics API: {error}"))?;
    let pods: Vec<PodUsage> = listed.items.iter().filter_map(pod_usage).collect();
    match pods.is_empty() {
        true => Err("no metrics returned from resource metrics API".to_owned()),
        false => Ok(pods),
    }
}

/// What an item says; one that says no time says nothing.
fn pod_usage(item: &DynamicObject) -> Option<PodUsage> {
    let containers = item.data["containers"].as_array().into_iter().flatten();
    let amounts = |container: &Value| -> BTreeMap<String, i64> {
        let usage = container["usage"].as_object().into_iter().flatten();
        let amounts = usage.filter_map(|(name, amount)| Some((name, Quantity::parse(amount.as_str()?).ok()?)));
        amounts
            .map(|(name, amount)| (name.clone(), amount.milli_value()))
            .collect()
    };
    Some(PodUsage {
        pod: item.name_any(),
        at: item.data["timestamp"].as_str()?.parse().ok()?,
        window: go_duration(item.data["window"].as_str()?)?,
        containers: containers
            .map(|container| {
                let name = container["name"].as_str().unwrap_or_default();
                (name.to_owned(), amounts(container))
            })
            .collect(),
    })
}

/// A duration as Go writes it: numbers with units from hours to nanoseconds.
fn go_duration(text: &str) -> Option<SignedDuration> {
    let mut seconds = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let unit = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * unit;
        rest = after;
    }
    SignedDuration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, millis) in [
            ("15.2s", Some(15_200)),
            ("1m0s", Some(60_000)),
            ("1h0m0.5s", Some(3_600_500)),
            ("500ms", Some(500)),
            ("15", None),
            ("s", None),
            ("1d", None),
        ] {
            let read = go_duration(text).map(|read| read.as_millis());
            assert_eq!(read, millis, "{text}");
        }
    }

    #[test]
    fn an_item_is_read_whole_or_not() {
        let item = |data: Value| DynamicObject {
            types: None,
            metadata: Default::default(),
            data,
        };
        let containers = json!([{"name": "c", "usage": {"cpu": "250m", "memory": "1Ki", "odd": "?"}}]);
        let whole = json!({"timestamp": "2026-01-01T00:00:00Z", "window": "15s", "containers": containers});
        let read = pod_usage(&item(whole)).expect("whole");
        let amounts: Vec<(&str, i64)> = read.containers["c"].iter().map(|(k, v)| (k.as_str(), *v)).collect();
        assert_eq!(amounts, [("cpu", 250), ("memory", 1_024_000)]);
        assert_eq!(pod_usage(&item(json!({"window": "15s", "containers": []}))), None);
    }
}
