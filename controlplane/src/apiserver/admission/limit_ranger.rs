//! LimitRanger: what containers leave open is filled in, and what pods and claims ask for stays within a namespace's LimitRanges
//! (control-plane contract §7). Texts are upstream's. Pure.

use super::{Attributes, Operation, object_at};
use crate::apiserver::status::ApiError;
use crate::resource::field::{at, entries, list, list_mut, text};
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use proto::api::quantity::Quantity;
use proto::api::resources::{ResourceList, allowed_at_pod_level, parse_list, total_over_containers};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Says on a pod what was filled in.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// Up to here a ratio is compared in thousandths.
const MILLI_MAX: i64 = i64::MAX / 1000;

/// Whether LimitRanges are about the request.
pub(super) fn applies(attributes: &Attributes<'_>, old: Option<&Value>) -> bool {
    if !attributes.kind.group.is_empty()
        || old.is_some_and(|old| !at(old, &["metadata", "deletionTimestamp"]).is_null())
    {
        return false;
    }
    let (create, update) = (
        attributes.operation == Operation::Create,
        attributes.operation == Operation::Update,
    );
    match (&*attributes.kind.plural, attributes.info.subresource.as_str()) {
        ("pods", "") => create,
        ("pods", "resize") => update,
        ("persistentvolumeclaims", "") => create || update,
        _ => false,
    }
}

/// Fills in what the containers of a pod leave open.
pub(super) fn fill(attributes: &Attributes<'_>, pod: &mut Value, ranges: &[Arc<Value>]) {
    if &*attributes.kind.plural == "pods" {
        ranges.iter().for_each(|range| fill_by(pod, range));
    }
}

fn fill_by(pod: &mut Value, range: &Value) {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    for item in list(range, &["spec", "limits"]) {
        if text(item, &["type"]) == "Container" {
            requests.extend(at(item, &["defaultRequest"]).as_object().cloned().unwrap_or_default());
            limits.extend(at(item, &["default"]).as_object().cloned().unwrap_or_default());
        }
    }
    let mut done = Vec::new();
    for (field, what) in [("containers", "container"), ("initContainers", "init container")] {
        for container in list_mut(pod, &["spec", field]).into_iter().flatten() {
            let name = text(container, &["name"]).to_owned();
            for (part, defaults, said) in [("requests", &requests, "request"), ("limits", &limits, "limit")] {
                let set = complete(container, part, defaults);
                if !set.is_empty() {
                    done.push(format!("{} {said} for {what} {name}", set.join(", ")));
                }
            }
        }
    }
    if !done.is_empty() {
        let text = format!("LimitRanger plugin set: {}", done.join("; "));
        object_at(pod, "metadata");
        object_at(&mut pod["metadata"], "annotations").insert(ANNOTATION.to_owned(), Value::from(text));
    }
}

/// Puts in what a container does not say, and tells what that was.
fn complete(container: &mut Value, part: &str, defaults: &Map<String, Value>) -> Vec<String> {
    let known = at(container, &["resources", part]).as_object();
    let missing: BTreeMap<&String, &Value> = defaults
        .iter()
        .filter(|(name, _)| known.is_none_or(|known| !known.contains_key(*name)))
        .collect();
    if missing.is_empty() {
        return Vec::new();
    }
    object_at(container, "resources");
    let own = object_at(&mut container["resources"], part);
    let set = missing.into_iter().map(|(name, value)| {
        own.insert(name.clone(), value.clone());
        name.clone()
    });
    set.collect()
}

/// Refuses what is outside the namespace's LimitRanges, by the first that is against it.
pub(super) fn check(attributes: &Attributes<'_>, object: &Value, ranges: &[Arc<Value>]) -> Result<(), ApiError> {
    for range in ranges {
        let problems = match &*attributes.kind.plural {
            "pods" => of_pod(object, range)
                .map_err(|error| ApiError::bad_request(format!("failed to convert pod: {error}")))?,
            _ => of_claim(object, range),
        };
        if !problems.is_empty() {
            return Err(attributes.forbid(&together(problems)));
        }
    }
    Ok(())
}

/// Several texts as upstream's aggregate writes them: each once.
fn together(problems: Vec<String>) -> String {
    let mut seen = BTreeSet::new();
    let mut all: Vec<String> = Vec::new();
    for problem in problems {
        if seen.insert(problem.clone()) {
            all.push(problem);
        }
    }
    match all.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", all.join(", ")),
    }
}

fn of_claim(claim: &Value, range: &Value) -> Vec<String> {
    let requests = amounts(at(claim, &["spec", "resources", "requests"]));
    let asked = Asked {
        requests: &requests,
        limits: None,
    };
    let items = list(range, &["spec", "limits"]).iter();
    items
        .filter(|item| text(item, &["type"]) == "PersistentVolumeClaim")
        .flat_map(|item| {
            let least =
                entries(item, &["min"]).filter_map(|(name, most)| asked.least("PersistentVolumeClaim", name, most));
            let most =
                entries(item, &["max"]).filter_map(|(name, most)| asked.most("PersistentVolumeClaim", name, most));
            least.chain(most).collect::<Vec<String>>()
        })
        .collect()
}

fn of_pod(pod: &Value, range: &Value) -> Result<Vec<String>, serde_json::Error> {
    let spec = PodSpec::deserialize(at(pod, &["spec"]))?;
    let mut problems = Vec::new();
    for item in list(range, &["spec", "limits"]) {
        match text(item, &["type"]) {
            "Container" => {
                for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
                    let own = container.resources.as_ref();
                    let requests = parse_list(own.and_then(|own| own.requests.as_ref()));
                    let limits = parse_list(own.and_then(|own| own.limits.as_ref()));
                    problems.extend(bounds("Container", item, &requests, &limits));
                }
            }
            "Pod" => {
                let own = spec.resources.as_ref();
                let requests = total(&spec, own.and_then(|own| own.requests.as_ref()), |r| {
                    r.requests.as_ref()
                });
                let limits = total(&spec, own.and_then(|own| own.limits.as_ref()), |r| r.limits.as_ref());
                problems.extend(bounds("Pod", item, &requests, &limits));
            }
            _ => {}
        }
    }
    Ok(problems)
}

type Pick = fn(&k8s_openapi::api::core::v1::ResourceRequirements) -> Option<&BTreeMap<String, ApiQuantity>>;

/// What a pod asks for in all, as it says itself where it does; without its class's overhead.
fn total(spec: &PodSpec, own: Option<&BTreeMap<String, ApiQuantity>>, pick: Pick) -> ResourceList {
    let mut total = total_over_containers(spec, |container| {
        parse_list(container.resources.as_ref().and_then(pick))
    });
    let own = parse_list(own).into_iter();
    total.extend(own.filter(|(name, _)| allowed_at_pod_level(name)));
    total
}

fn amounts(list: &Value) -> ResourceList {
    let entries = list.as_object().into_iter().flatten();
    entries
        .filter_map(|(name, value)| Some((name.clone(), quantity(value)?)))
        .collect()
}

fn quantity(value: &Value) -> Option<Quantity> {
    value.as_str().and_then(|text| Quantity::parse(text).ok())
}

fn bounds(kind: &str, item: &Value, requests: &ResourceList, limits: &ResourceList) -> Vec<String> {
    let asked = Asked {
        requests,
        limits: Some(limits),
    };
    let least = entries(item, &["min"]).filter_map(|(name, least)| asked.least(kind, name, least));
    let most = entries(item, &["max"]).filter_map(|(name, most)| asked.most(kind, name, most));
    let ratios = entries(item, &["maxLimitRequestRatio"]).filter_map(|(name, most)| asked.ratio(kind, name, most));
    least.chain(most).chain(ratios).collect()
}

/// What somebody asks for.
struct Asked<'a> {
    requests: &'a ResourceList,
    /// `None` for what has no limits.
    limits: Option<&'a ResourceList>,
}

impl Asked<'_> {
    fn of(&self, name: &str) -> (Option<Quantity>, Option<Quantity>) {
        let limit = self.limits.and_then(|limits| limits.get(name));
        (self.requests.get(name).copied(), limit.copied())
    }

    fn least(&self, kind: &str, name: &str, least: &Value) -> Option<String> {
        let least = quantity(least)?;
        let (request, limit) = self.of(name);
        let why = match (request, limit) {
            (None, _) => ".  No request is specified".to_owned(),
            (Some(request), _) if request < least => format!(", but request is {request}"),
            (_, Some(limit)) if limit < least => format!(", but limit is {limit}"),
            _ => return None,
        };
        Some(format!("minimum {name} usage per {kind} is {least}{why}"))
    }

    fn most(&self, kind: &str, name: &str, most: &Value) -> Option<String> {
        let most = quantity(most)?;
        let (request, limit) = self.of(name);
        let why = match (request, limit) {
            (None, _) if self.limits.is_none() => ".  No request is specified".to_owned(),
            (_, None) if self.limits.is_some() => ".  No limit is specified".to_owned(),
            (_, Some(limit)) if limit > most => format!(", but limit is {limit}"),
            (Some(request), _) if request > most => format!(", but request is {request}"),
            _ => return None,
        };
        Some(format!("maximum {name} usage per {kind} is {most}{why}"))
    }

    fn ratio(&self, kind: &str, name: &str, most: &Value) -> Option<String> {
        let most = quantity(most)?;
        let (request, limit) = self.of(name);
        let is_set = |amount: &Quantity| !amount.is_zero();
        let why = match (request.filter(is_set), limit.filter(is_set)) {
            (None, _) => "no request is specified or request is 0".to_owned(),
            (_, None) => "no limit is specified or limit is 0".to_owned(),
            (Some(request), Some(limit)) => {
                let ratio = ratio(limit, request);
                let (found, allowed) = match most.value() <= MILLI_MAX {
                    true => (ratio * 1000.0, most.milli_value() as f64),
                    false => (ratio, most.value() as f64),
                };
                if found <= allowed {
                    return None;
                }
                format!("provided ratio is {ratio:.6}")
            }
        };
        Some(format!(
            "{name} max limit to request ratio per {kind} is {most}, but {why}"
        ))
    }
}

/// In thousandths where they fit.
fn ratio(limit: Quantity, request: Quantity) -> f64 {
    match limit.value() <= MILLI_MAX && request.value() <= MILLI_MAX {
        true => limit.milli_value() as f64 / request.milli_value() as f64,
        false => limit.value() as f64 / request.value() as f64,
    }
}

#[cfg(test)]
mod tests;
