//! `get` and `list` of metrics.k8s.io, as metrics-server answers them.
//!
//! What is listed are nodes and running pods, chosen by the selectors those kinds have; of one whose usage is not known there is no item.

use super::Usage;
use super::history::{PodRates, Rate};
use crate::apiserver::negotiate::{Output, Shape, not_acceptable};
use crate::apiserver::reader;
use crate::apiserver::reply::{self, Allowance};
use crate::apiserver::request::{Query, RequestInfo};
use crate::apiserver::status::ApiError;
use crate::apiserver::user::User;
use crate::apiserver::verbs::{Filter, Keeps};
use crate::apiserver::{ApiServer, Body};
use crate::resource::{Kind, Registry, usage};
use crate::store::window::{Selectable, Stored};
use http::Response;
use http::request::Parts;
use jiff::Timestamp;
use proto::api::quantity::{Format, Quantity};
use serde_json::{Map, Value, json};
use std::ops::Bound;
use std::sync::Arc;

/// About what one container takes in an item while the reply is made, in bytes.
const CONTAINER_BYTES: usize = 256;
/// After so many bytes of objects others have a turn.
const TURN_BYTES: usize = 64 << 10;
/// An object counts for at least so many.
const LEAST_BYTES: usize = 256;

/// What is listed, and what is known of it.
struct Found {
    stored: Arc<Stored>,
    usage: Of,
}

enum Of {
    Node(Rate),
    Pod(PodRates),
}

/// How an item is written.
#[derive(Clone, Copy)]
struct Form<'a> {
    kind: &'a Arc<Kind>,
    has_labels: bool,
    now: Timestamp,
}

impl Found {
    /// About what its item takes while the reply is made, in bytes: its labels may be most of the object.
    fn cost(&self) -> usize {
        let containers = match &self.usage {
            Of::Node(_) => 1,
            Of::Pod(rates) => rates.len(),
        };
        self.stored.size().max(LEAST_BYTES) + containers * CONTAINER_BYTES
    }
}

/// Counts bytes, and lets others have a turn.
#[derive(Default)]
struct Turns {
    bytes: usize,
}

impl Turns {
    async fn after(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= TURN_BYTES {
            self.bytes = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Answers an authorized `get` or `list`.
pub(in crate::apiserver) async fn answer(
    own: &Usage,
    server: &ApiServer,
    user: &User,
    info: &RequestInfo,
    parts: &Parts,
) -> Result<Response<Body>, ApiError> {
    let query = Query::parse(parts.uri.query().unwrap_or(""));
    let output = Output::negotiate_of(&parts.headers, &query, false)?;
    let registry = server.registry();
    let not_found = || ApiError::not_found(&info.group, &info.resource, &info.name);
    let kind = registry.by_resource(usage::GROUP, &info.version, &info.resource);
    let kind = kind.ok_or_else(not_found)?;
    let is_one = info.verb == "get";
    match output.shape {
        Shape::Partial(_) if !is_one => return Err(not_acceptable()),
        Shape::PartialList(_) if is_one => return Err(not_acceptable()),
        _ => {}
    }
    own.ask().await;
    let found = find(own, server, info).await?;
    if is_one && found.is_empty() {
        return Err(not_found());
    }
    let is_remote = parts.extensions.get::<Keeps>().is_some_and(Keeps::is_remote);
    let wanted = match is_remote {
        true => Allowance::wanted(found.iter().map(Found::cost).sum(), output),
        false => 0,
    };
    let room = match wanted {
        0 => None,
        bytes => Some(server.flow().reply(user, info, bytes).await?),
    };
    let form = Form {
        kind,
        has_labels: parts.extensions.get::<usage::Unlabelled>().is_none(),
        now: server.now(),
    };
    let value = value(form, found, (output.shape, is_one), &query).await?;
    let mut response = reply::finish(200, reply::encode(&value, output)?, output.encoding, &parts.headers);
    if let Some(room) = room {
        response.extensions_mut().insert(Arc::new(room));
    }
    Ok(response)
}

/// The nodes or pods asked for, of which something is known, in order.
async fn find(own: &Usage, server: &ApiServer, info: &RequestInfo) -> Result<Vec<Found>, ApiError> {
    let plural = info.resource.as_str();
    let core = Registry::built_in().by_resource("", "v1", plural);
    let core = core.ok_or_else(|| ApiError::not_found(&info.group, plural, &info.name))?;
    let filter = Filter::parse(core, info)?;
    let prefix = reader::prefix(core);
    let mut within = reader::key(&prefix, &info.namespace, "");
    if !info.name.is_empty() {
        within = reader::key(&prefix, &info.namespace, &info.name);
    }
    let objects = server.reader().objects("", plural).unwrap_or_default();
    let from = (Bound::Included(within.as_str()), Bound::Unbounded);
    let mut found = Vec::new();
    let mut turns = Turns::default();
    for (key, stored) in objects.range::<_, str>(from) {
        if !key.starts_with(&within) {
            break;
        }
        // What selectors ask may have to be read of the object first.
        turns.after(stored.size().max(LEAST_BYTES)).await;
        let is_asked = info.name.is_empty() || stored.name() == info.name;
        if !is_asked || !filter.matches(stored) {
            continue;
        }
        let known = match plural {
            "nodes" => node(own, stored),
            _ => pod(own, &filter.selectable(stored)),
        };
        found.extend(known.map(|usage| Found {
            stored: Arc::clone(stored),
            usage,
        }));
    }
    Ok(found)
}

fn node(own: &Usage, stored: &Stored) -> Option<Of> {
    own.node(stored.name())?.node_rate().map(Of::Node)
}

/// A pod's usage is what its own node says of it, while it runs.
fn pod(own: &Usage, selectable: &Selectable) -> Option<Of> {
    if selectable.field("status.phase") != "Running" {
        return None;
    }
    let node = own.node(selectable.field("spec.nodeName"))?;
    let (namespace, name) = (
        selectable.field("metadata.namespace"),
        selectable.field("metadata.name"),
    );
    node.pod_rates(namespace, name).map(Of::Pod)
}

async fn value(
    form: Form<'_>,
    found: Vec<Found>,
    (shape, is_one): (Shape, bool),
    query: &Query,
) -> Result<Value, ApiError> {
    let Form { kind, now, .. } = form;
    let mut items = Vec::with_capacity(found.len());
    let mut turns = Turns::default();
    for found in found {
        turns.after(found.cost()).await;
        items.push(object(form, &found));
    }
    Ok(match shape {
        Shape::Whole if is_one => items.pop().unwrap_or_default(),
        Shape::Whole => {
            // Items say no kind of their own in a list.
            for item in items.iter_mut().filter_map(Value::as_object_mut) {
                item.remove("kind");
                item.remove("apiVersion");
            }
            json!({"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": {}, "items": items})
        }
        Shape::Table(version) => {
            let objects: Vec<Arc<Value>> = items.into_iter().map(Arc::new).collect();
            reply::table_of(kind, &objects, version, query.text("includeObject"), now, json!({}))?
        }
        Shape::Partial(version) => reply::partial(&items.pop().unwrap_or_default(), version),
        Shape::PartialList(version) => {
            let items: Vec<Value> = items.iter().map(|item| reply::partial(item, version)).collect();
            json!({"kind": "PartialObjectMetadataList", "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": {}, "items": items})
        }
    })
}

fn object(form: Form<'_>, found: &Found) -> Value {
    let Form { kind, has_labels, now } = form;
    let tree = found.stored.tree();
    let own = &tree["metadata"];
    let mut metadata = Map::new();
    for key in ["name", "namespace", "labels"] {
        if !own[key].is_null() && (has_labels || key != "labels") {
            metadata.insert(key.to_owned(), own[key].clone());
        }
    }
    metadata.insert("creationTimestamp".to_owned(), json!(seconds(now)));
    let mut object = json!({"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata});
    let oldest = match &found.usage {
        Of::Node(rate) => {
            object["usage"] = amounts(rate);
            Some(rate)
        }
        Of::Pod(rates) => {
            let container = |(name, rate): &(Box<str>, Rate)| json!({"name": name, "usage": amounts(rate)});
            object["containers"] = rates.iter().map(container).collect();
            rates.iter().map(|(_, rate)| rate).min_by_key(|rate| rate.at_ms)
        }
    };
    if let Some(rate) = oldest {
        let at = Timestamp::from_millisecond(rate.at_ms).unwrap_or(now);
        object["timestamp"] = json!(seconds(at));
        object["window"] = json!(go_duration(rate.window_ms));
    }
    object
}

fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn amounts(rate: &Rate) -> Value {
    let cpu = Quantity::parse(&format!("{}n", rate.nanocores)).unwrap_or_default();
    let memory = i64::try_from(rate.memory).unwrap_or(i64::MAX);
    let memory = Quantity::from_units(memory, Format::BinarySi);
    json!({"cpu": cpu.to_string(), "memory": memory.to_string()})
}

/// As Go writes a duration: `15.2s`, `1m0s`, `500ms`.
fn go_duration(ms: i64) -> String {
    if ms < 1000 {
        return format!("{ms}ms");
    }
    let (hours, minutes, rest) = (ms / 3_600_000, ms / 60_000 % 60, ms % 60_000);
    let mut text = String::new();
    if hours > 0 {
        text.push_str(&format!("{hours}h"));
    }
    if hours > 0 || minutes > 0 {
        text.push_str(&format!("{minutes}m"));
    }
    let fraction = format!(".{:03}", rest % 1000);
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{}{fraction}s", rest / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_go_does() {
        for (ms, text) in [
            (1, "1ms"),
            (999, "999ms"),
            (1000, "1s"),
            (15_032, "15.032s"),
            (15_200, "15.2s"),
            (60_000, "1m0s"),
            (3_600_500, "1h0m0.5s"),
        ] {
            assert_eq!(go_duration(ms), text);
        }
    }

    #[test]
    fn an_item_costs_what_its_object_and_its_containers_take() {
        let rate = Rate {
            at_ms: 1,
            window_ms: 1,
            nanocores: 1,
            memory: 1,
        };
        let cost = |bytes: usize, usage: Of| {
            let raw = vec![b' '; bytes].into();
            let stored = Arc::new(Stored::new(Arc::from("k"), 1, 1, raw));
            Found { stored, usage }.cost()
        };
        assert_eq!(cost(2 << 20, Of::Node(rate)), (2 << 20) + 256);
        let containers: PodRates = (0..1000).map(|i| (format!("c{i}").into(), rate)).collect();
        assert_eq!(cost(1000, Of::Pod(containers)), 1000 + 256_000);
    }

    #[test]
    fn amounts_are_canonical() {
        let rate = |nanocores, memory| Rate {
            at_ms: 1,
            window_ms: 1,
            nanocores,
            memory,
        };
        let said = |nanocores, memory| amounts(&rate(nanocores, memory));
        assert_eq!(said(123_456_789, 5000), json!({"cpu": "123456789n", "memory": "5000"}));
        assert_eq!(said(250_000_000, 64 << 20), json!({"cpu": "250m", "memory": "64Mi"}));
        assert_eq!(said(0, 1024), json!({"cpu": "0", "memory": "1Ki"}));
    }
}
