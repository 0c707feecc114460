//! Metrics that other servers serve: of pods and of objects (custom.metrics.k8s.io), and from outside the cluster
//! (external.metrics.k8s.io). All I/O of these is here; what they ask for is computed in [`super::elsewhere`].
//!
//! The API server that is asked hands the questions on (its aggregation layer). One that serves no such API says so, and that is what
//! is said of the metric. Errors are in upstream's words (`k8s.io/metrics`, `metrics/client.go`).

use super::calculate::{Sample, Samples};
use super::observe::{self, ABSENT, by, told};
use crate::controller::ask::ask as question;
use crate::controller::discovery;
use crate::controller::write::Resource;
use futures::StreamExt;
use http::Request;
use k8s_openapi::api::autoscaling::v2::{CrossVersionObjectReference, MetricSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, LabelSelector};
use kube::Client;
use proto::api::selector::Selector;
use std::collections::BTreeMap;
use tokio::sync::OnceCell;
use tokio::time::Instant;

mod answer;

use answer::{Item, Listed};

const CUSTOM: &str = "custom.metrics.k8s.io";
const EXTERNAL: &str = "external.metrics.k8s.io";
/// Versions of the custom metrics that are understood, the better one first.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// In place of a name: every object that is chosen.
const ALL: &str = "*";
/// Questions of one decision at the same time.
const AT_ONCE: usize = 8;
/// The longest answer, in bytes: so much is read at once for each question of each decision.
const ANSWER_MAX: usize = 4 << 20;

/// What a metric was found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// Of each pod that the target's selector chooses.
    Pods(Samples),
    /// Of one object, or the sum from outside, in thousandths.
    Milli(i64),
}

/// By the place of the metric in the autoscaler's list.
pub(super) type AllServed = BTreeMap<usize, Result<Served, String>>;

/// Who asks for what.
struct Asking<'a> {
    client: &'a Client,
    namespace: &'a str,
    /// Of the target.
    selector: &'a str,
    /// When all answers are to be there.
    until: Instant,
    /// The version of custom metrics that is served, or why there is none; not known if no metric needs it.
    custom: Result<&'static str, String>,
    /// By version and kind, the resources of what is described: found out once, whoever of the metrics asks first.
    resources: BTreeMap<Kind<'a>, OnceCell<Result<Resource, String>>>,
}

/// Version, if one is named, and kind of what a metric describes.
type Kind<'a> = (Option<&'a str>, &'a str);

/// Asks for all metrics that others serve, those of `specs` that are. What is not known by `until` is told to be missing.
pub(super) async fn ask(
    client: &Client,
    namespace: &str,
    selector: &str,
    specs: &[MetricSpec],
    until: Instant,
) -> AllServed {
    let is_custom = |spec: &MetricSpec| matches!(&*spec.type_, "Pods" | "Object");
    let custom = match specs.iter().any(is_custom) {
        true => by(until, version(client)).await,
        false => Err(String::new()),
    };
    let described = specs.iter().filter_map(|spec| spec.object.as_ref());
    let asking = Asking {
        client,
        namespace,
        selector,
        until,
        custom,
        resources: described
            .map(|source| (kind_of(&source.described_object), OnceCell::new()))
            .collect(),
    };
    let asked = specs.iter().enumerate();
    let asked = asked.filter(|(_, spec)| is_custom(spec) || spec.type_ == "External");
    // Boxed one by one: a future that borrows both is no general enough closure's.
    let asked: Vec<_> = asked.map(|(at, spec)| Box::pin(asking.one(at, spec))).collect();
    futures::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await
}

fn kind_of(about: &CrossVersionObjectReference) -> (Option<&str>, &str) {
    (about.api_version.as_deref(), &about.kind)
}

/// The version of custom metrics to ask in.
async fn version(client: &Client) -> Result<&'static str, String> {
    let request = Request::get(format!("/apis/{CUSTOM}")).body(Vec::new());
    let request = request.map_err(|error| error.to_string())?;
    let group = question::<APIGroup>(client, request, ANSWER_MAX).await;
    let group = group.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 404 => format!("no custom metrics API ({CUSTOM}) registered"),
        error => told(error),
    })?;
    let known = |served: &str| VERSIONS.into_iter().find(|version| *version == served);
    let preferred = group
        .preferred_version
        .as_ref()
        .and_then(|version| known(&version.version));
    let first = group.versions.iter().find_map(|version| known(&version.version));
    preferred
        .or(first)
        .ok_or_else(|| "no known available metric versions found".to_owned())
}

/// A text as a part of a path or of a query: all but letters, digits and four signs is written in hexadecimal.
fn encoded(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => all.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => all.push(char::from(byte)),
            byte => all.push_str(&format!("%{byte:02X}")),
        }
    }
    all
}

/// A path and the parameters that are not empty.
fn uri(path: String, parameters: &[(&str, &str)]) -> String {
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    let given: Vec<String> = given.map(|(key, value)| format!("{key}={}", encoded(value))).collect();
    match given.is_empty() {
        true => path,
        false => format!("{path}?{}", given.join("&")),
    }
}

/// A selector of metrics as text; none chooses by nothing.
fn text_of(selector: Option<&LabelSelector>) -> Result<String, String> {
    let Some(selector) = selector else {
        return Ok(String::new());
    };
    let read = Selector::from_api(selector).map_err(|error| error.to_string())?;
    Ok(read.to_string())
}

impl Asking<'_> {
    async fn one(&self, at: usize, spec: &MetricSpec) -> (usize, Result<Served, String>) {
        let found = match (&spec.pods, &spec.object, &spec.external) {
            (Some(source), _, _) if spec.type_ == "Pods" => {
                self.pods(&source.metric.name, source.metric.selector.as_ref()).await
            }
            (_, Some(source), _) if spec.type_ == "Object" => {
                let selector = source.metric.selector.as_ref();
                self.object(&source.described_object, &source.metric.name, selector)
                    .await
            }
            (_, _, Some(source)) if spec.type_ == "External" => {
                self.external(&source.metric.name, source.metric.selector.as_ref())
                    .await
            }
            _ => Err("nothing says which metric it is".to_owned()),
        };
        (at, found)
    }

    async fn list(&self, uri: String, what: &str) -> Result<Vec<Item>, String> {
        let request = Request::get(uri).body(Vec::new()).map_err(|error| error.to_string())?;
        let asked = async {
            let listed = question::<Listed>(self.client, request, ANSWER_MAX).await;
            listed.map_err(|error| match error {
                // A server of metrics says itself what it has not; who knows no such path says no more than that.
                kube::Error::Api(status) if status.code == 404 && status.reason != "NotFound" => {
                    format!("{ABSENT} (get {what})")
                }
                error => told(error),
            })
        };
        Ok(by(self.until, asked).await?.items)
    }

    async fn custom(
        &self,
        resource: &str,
        name: &str,
        metric: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Vec<Item>, String> {
        let version = self.custom.as_ref().map_err(String::clone)?;
        let root = format!("/apis/{CUSTOM}/{version}/namespaces/{}", self.namespace);
        let object = if name == ALL { ALL.to_owned() } else { encoded(name) };
        let path = format!("{root}/{resource}/{object}/{}", encoded(metric));
        self.list(uri(path, parameters), &format!("{resource}.{CUSTOM} {name}"))
            .await
    }

    async fn pods(&self, metric: &str, selector: Option<&LabelSelector>) -> Result<Served, String> {
        let failed = |error: String| format!("unable to fetch metrics from custom metrics API: {error}");
        let selector = text_of(selector)?;
        let parameters = [("labelSelector", self.selector), ("metricLabelSelector", &selector)];
        let items = self.custom("pods", ALL, metric, &parameters).await.map_err(failed)?;
        if items.is_empty() {
            return Err("no metrics returned from custom metrics API".to_owned());
        }
        let samples = items.iter().map(Item::sample).collect::<Result<Samples, String>>();
        samples.map(Served::Pods).map_err(failed)
    }

    async fn object(
        &self,
        about: &CrossVersionObjectReference,
        metric: &str,
        selector: Option<&LabelSelector>,
    ) -> Result<Served, String> {
        let selector = text_of(selector)?;
        let found = self.value_of(about, metric, &selector).await;
        found
            .map(Served::Milli)
            .map_err(|error| format!("unable to fetch metrics from custom metrics API: {error}"))
    }

    async fn value_of(&self, about: &CrossVersionObjectReference, metric: &str, selector: &str) -> Result<i64, String> {
        // Before the kind is looked for: without the API nothing else is said.
        let version = self.custom.as_ref().map_err(String::clone)?;
        let parameters = [("metricLabelSelector", selector)];
        let group = about.api_version.as_deref().unwrap_or_default();
        let group = group.split_once('/').map_or("", |(group, _)| group);
        let items = if about.kind == "Namespace" && group.is_empty() {
            // Its own namespace, whatever it is called: no reference leads out of it.
            let path = format!(
                "/apis/{CUSTOM}/{version}/namespaces/{}/metrics/{}",
                self.namespace,
                encoded(metric)
            );
            self.list(uri(path, &parameters), &format!("metrics.{CUSTOM} {metric}"))
                .await?
        } else {
            let found = || by(self.until, self.resource_of(about, group));
            let resource = match self.resources.get(&kind_of(about)) {
                Some(known) => known.get_or_init(found).await.clone()?,
                None => found().await?,
            };
            let name = if resource.group.is_empty() {
                resource.plural.to_string()
            } else {
                format!("{}.{}", resource.plural, resource.group)
            };
            self.custom(&name, &about.name, metric, &parameters).await?
        };
        match items.as_slice() {
            [item] => item.milli(),
            items => Err(format!(
                "the custom metrics API server returned {} results when we asked for exactly one",
                items.len()
            )),
        }
    }

    async fn resource_of(&self, about: &CrossVersionObjectReference, group: &str) -> Result<Resource, String> {
        let kind = &about.kind;
        let whole = if group.is_empty() {
            kind.clone()
        } else {
            format!("{kind}.{group}")
        };
        for version in observe::versions(self.client, about).await? {
            if let Ok(Some((resource, _))) = discovery::of_kind(self.client, &version, kind).await {
                return Ok(resource);
            }
        }
        Err(format!(
            "unable to map kind {whole} to resource: no matches for kind {kind:?} in group {group:?}"
        ))
    }

    async fn external(&self, metric: &str, selector: Option<&LabelSelector>) -> Result<Served, String> {
        let selector = text_of(selector)?;
        let path = format!(
            "/apis/{EXTERNAL}/v1beta1/namespaces/{}/{}",
            self.namespace,
            encoded(metric)
        );
        let items = self
            .list(
                uri(path, &[("labelSelector", &selector)]),
                &format!("{metric}.{EXTERNAL}"),
            )
            .await;
        let items = items.map_err(|error| format!("unable to fetch metrics from external metrics API: {error}"))?;
        if items.is_empty() {
            return Err("no metrics returned from external metrics API".to_owned());
        }
        let values = items.iter().map(Item::milli).collect::<Result<Vec<i64>, String>>();
        let values = values.map_err(|error| format!("unable to fetch metrics from external metrics API: {error}"))?;
        Ok(Served::Milli(values.into_iter().fold(0, i64::saturating_add)))
    }
}

#[cfg(test)]
mod tests;
