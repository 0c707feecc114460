//! Evicting a pod: `pods/NAME/eviction` (control-plane contract §2.1). A pod that matches a disruption budget is evicted only
//! if the budget's status, kept by its controller, allows it, or if the pod is not ready and nobody counts on it.

use super::delete::{self, Options};
use super::{ATTEMPTS, Answer, Call, create, list, object, store_failed, update};
use crate::apiserver::reader;
use crate::apiserver::status::{ApiError, Cause};
use crate::resource::field::{at, entries, int, list as items, set, text};
use crate::store::value::{TypeMeta, canonical};
use crate::store::window::Stored;
use crate::store::{Expect, StoreError};
use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proto::api::selector::Selector;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most pods a budget remembers whose end its controller has not seen yet.
const DISRUPTED_PODS_MAX: usize = 2000;

pub(super) async fn evict(call: &mut Call<'_>, body: &[u8]) -> Result<Answer, ApiError> {
    call.query.dry_run("CreateOptions")?;
    let mut eviction = call.decode_part(["policy", "v1", "Eviction"], body).await?;
    create::place(call, &mut eviction)?;
    let name = call.info.name.clone();
    if object::name(&eviction) != name {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let options = options(call, &eviction["deleteOptions"])?;
    let create = super::Operation::Create;
    call.mutate(create, options.dry_run, &mut eviction, None).await?;
    call.admit(create, options.dry_run, &eviction, None).await?;
    remove(call, &name, &options).await?;
    Ok(Answer::Object {
        code: 201,
        object: json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}),
    })
}

/// The options of the deletion. The query and the body may both ask for a dry run, if they ask for the same.
fn options(call: &Call<'_>, given: &Value) -> Result<Options, ApiError> {
    let asked: Vec<&str> = call.query.all("dryRun").collect();
    let inside = delete::dry_run_of(given);
    if !asked.is_empty() && !inside.is_empty() && asked != inside {
        let (asked, inside) = (asked.join(" "), inside.join(" "));
        let text = format!("Non-matching dry-run options in request and content: [{asked}] and [{inside}]");
        return Err(ApiError::new(500, "", text));
    }
    let mut options = Options::of_eviction(given)?;
    options.dry_run |= !asked.is_empty();
    Ok(options)
}

/// Deletes the pod, if no budget is against it.
async fn remove(call: &Call<'_>, name: &str, asked: &Options) -> Result<(), ApiError> {
    for _ in 0..ATTEMPTS {
        let stored = call.current(name).await?;
        let pod = call.whole(&stored);
        // First of all: what is refused spends no disruption.
        check_preconditions(&pod, asked)?;
        if !bypasses_budgets(&pod) {
            return remove_guarded(call, &stored, &pod, asked).await;
        }
        let options = match is_ending(&pod) {
            true => asked.clone(),
            // It may become ready meanwhile, and then a budget counts on it.
            false => pinned(asked, &stored),
        };
        match mark_and_delete(call, name, &options).await {
            Err(error) if error.reason == "Conflict" && asked.revision.is_none() => {}
            done => return done,
        }
    }
    Err(call.modified(name))
}

async fn remove_guarded(call: &Call<'_>, stored: &Stored, pod: &Value, asked: &Options) -> Result<(), ApiError> {
    let name = object::name(pod);
    match spend(call, pod, asked.dry_run).await? {
        None => mark_and_delete(call, name, asked).await,
        Some(budget) => match mark_and_delete(call, name, &pinned(asked, stored)).await {
            // It may have become ready: the budget is asked again.
            Err(error) if error.reason == "Conflict" && asked.revision.is_none() => Err(in_process(&budget)),
            done => done,
        },
    }
}

/// The options, for the object as it was read.
fn pinned(asked: &Options, stored: &Stored) -> Options {
    let mut options = asked.clone();
    options.revision.get_or_insert_with(|| stored.revision.to_string());
    options
}

/// Says on the pod why it ends, and deletes it.
async fn mark_and_delete(call: &Call<'_>, name: &str, asked: &Options) -> Result<(), ApiError> {
    let mut options = asked.clone();
    if !options.dry_run {
        let now = object::time(call.server.now());
        let mark = |pod: Value| -> Result<Value, ApiError> {
            check_preconditions(&pod, asked)?;
            Ok(disrupted(pod, &now))
        };
        let written = update::write_part(call, name, false, mark).await?;
        if options.revision.is_some() {
            // The change since then is this one.
            options.revision = written.map(|revision| revision.to_string());
        }
    }
    delete::remove(call, name, &options).await.map(drop)
}

fn check_preconditions(pod: &Value, options: &Options) -> Result<(), ApiError> {
    let (uid, revision) = (object::uid(pod), object::revision(pod));
    let why = match (&options.uid, &options.revision) {
        (Some(wanted), _) if wanted != uid => format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been \
             deleted and then recreated"
        ),
        (_, Some(wanted)) if wanted != revision => format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({revision}). \
             The object might have been modified"
        ),
        _ => return Ok(()),
    };
    Err(ApiError::conflict("", "Pod", object::name(pod), &why))
}

fn bypasses_budgets(pod: &Value) -> bool {
    is_ending(pod) || text(pod, &["status", "phase"]) == "Pending"
}

/// Whether the pod has ended, or is about to.
fn is_ending(pod: &Value) -> bool {
    object::is_deleting(pod) || matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed")
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = items(pod, &["status", "conditions"]).iter();
    conditions.any(|known| known["type"] == "Ready" && known["status"] == "True")
}

/// Takes one disruption from the budget that the pod falls under, if any. Gives the name of a budget that lets the pod go as long as
/// it stays as it is.
async fn spend(call: &Call<'_>, pod: &Value, dry_run: bool) -> Result<Option<String>, ApiError> {
    let Some(budgets) = call.served.resource("policy", "poddisruptionbudgets") else {
        return Ok(None);
    };
    let window = &budgets.window;
    let prefix = reader::key(&budgets.prefix, call.namespace, "");
    for _ in 0..ATTEMPTS {
        let snapshot = window.latest().await.map_err(|error| store_failed(&error))?;
        let all: Vec<Arc<Stored>> = list::range(&snapshot.objects, &prefix, None).map(Arc::clone).collect();
        let values: Vec<Arc<Value>> = all.iter().map(|stored| stored.value()).collect();
        let index = match allowed(pod, &values)? {
            Allowed::Freely => return Ok(None),
            Allowed::AsItIs(budget) => return Ok(Some(budget)),
            Allowed::ByBudget(index) => index,
        };
        let (Some(stored), false) = (all.get(index), dry_run) else {
            return Ok(None);
        };
        let new = spent(
            &stored.owned_tree(),
            object::name(pod),
            &object::time(call.server.now()),
        );
        let raw = Bytes::from(canonical(&TypeMeta::new("policy/v1", "PodDisruptionBudget"), &new));
        match call
            .server
            .store()
            .put(&stored.key, raw, Expect::At(stored.revision))
            .await
        {
            Ok(_) => return Ok(None),
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(store_failed(&error)),
        }
    }
    Err(refused(
        "The disruption budget is being changed by many.".to_owned(),
        Some(1),
    ))
}

/// The budget with one disruption less and the pod remembered (pure).
fn spent(budget: &Value, pod: &str, now: &str) -> Value {
    let mut new = budget.clone();
    let left = int(budget, &["status", "disruptionsAllowed"]).unwrap_or(0) - 1;
    set(&mut new, &["status", "disruptionsAllowed"], left);
    if left == 0 {
        let observed = int(budget, &["status", "observedGeneration"]).unwrap_or(0);
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
            "observedGeneration": observed, "lastTransitionTime": now,
        });
        put_condition(&mut new, condition);
    }
    if !new["status"]["disruptedPods"].is_object() {
        new["status"]["disruptedPods"] = json!({});
    }
    new["status"]["disruptedPods"][pod] = json!(now);
    new
}

/// Why a pod may go.
#[derive(Debug, PartialEq, Eq)]
enum Allowed {
    /// No budget selects it.
    Freely,
    /// It is not ready, and the named budget counts on ready pods alone.
    AsItIs(String),
    /// The budget at this place has a disruption left.
    ByBudget(usize),
}

/// Whether the namespace's budgets let the pod go (pure).
fn allowed(pod: &Value, budgets: &[Arc<Value>]) -> Result<Allowed, ApiError> {
    let labels: BTreeMap<String, String> =
        serde_json::from_value(at(pod, &["metadata", "labels"]).clone()).unwrap_or_default();
    let selects = |budget: &Value| {
        let typed: Result<Option<LabelSelector>, _> = serde_json::from_value(at(budget, &["spec", "selector"]).clone());
        // A selector that says nothing sensible selects nothing.
        let selector = typed.ok().map(|typed| Selector::from_optional(typed.as_ref()));
        selector.is_some_and(|selector| selector.is_ok_and(|selector| selector.matches(&labels)))
    };
    let matching: Vec<(usize, &Arc<Value>)> = budgets
        .iter()
        .enumerate()
        .filter(|(_, budget)| selects(budget))
        .collect();
    match matching.as_slice() {
        [] => Ok(Allowed::Freely),
        [(index, budget)] => allowed_by(pod, *index, budget),
        _ => Err(ApiError::new(
            500,
            "",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )),
    }
}

fn allowed_by(pod: &Value, index: usize, budget: &Value) -> Result<Allowed, ApiError> {
    let name = object::name(budget);
    let number = |key: &str| int(budget, &["status", key]).unwrap_or(0);
    let (needed, healthy) = (number("desiredHealthy"), number("currentHealthy"));
    if !is_ready(pod) {
        let always = text(budget, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow";
        if always || (healthy >= needed && needed > 0) {
            return Ok(Allowed::AsItIs(name.to_owned()));
        }
    }
    let generation = int(budget, &["metadata", "generation"]).unwrap_or(0);
    if number("observedGeneration") < generation {
        return Err(in_process(name));
    }
    let forbidden = |why: &str| Err(ApiError::forbidden("policy", "poddisruptionbudget", name, why));
    let left = number("disruptionsAllowed");
    if left < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if entries(budget, &["status", "disruptedPods"]).count() > DISRUPTED_PODS_MAX {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if left > 0 {
        return Ok(Allowed::ByBudget(index));
    }
    let message = format!("The disruption budget {name} needs {needed} healthy pods and has {healthy} currently");
    Err(refused(message, None))
}

/// The budget's controller has not looked at it, or at the pod, for long enough.
fn in_process(budget: &str) -> ApiError {
    let message = format!("The disruption budget {budget} is still being processed by the server.");
    refused(message, Some(10))
}

fn refused(message: String, retry_after_seconds: Option<u32>) -> ApiError {
    let text = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut error = ApiError::new(429, "TooManyRequests", text);
    error.causes.push(Cause {
        kind: "DisruptionBudget".to_owned(),
        message,
        field: String::new(),
    });
    error.retry_after_seconds = retry_after_seconds;
    error
}

fn disrupted(mut pod: Value, now: &str) -> Value {
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": now,
        "observedGeneration": pod["metadata"]["generation"],
    });
    put_condition(&mut pod, condition);
    pod
}

/// Puts a condition in the place of the one of its type, which gives its time if it said the same.
fn put_condition(object: &mut Value, mut condition: Value) {
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = object["status"]["conditions"].as_array_mut() else {
        return;
    };
    match conditions.iter_mut().find(|known| known["type"] == condition["type"]) {
        None => conditions.push(condition),
        Some(known) => {
            let since = known.get("lastTransitionTime").filter(|since| since.is_string());
            if let Some(since) = since.filter(|_| known["status"] == condition["status"]) {
                condition["lastTransitionTime"] = since.clone();
            }
            *known = condition;
        }
    }
}

#[cfg(test)]
mod tests;
