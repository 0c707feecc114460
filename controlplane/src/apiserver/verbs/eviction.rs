//! Evicting a pod: `pods/NAME/eviction` (control-plane contract §2.1). A pod that matches a disruption budget is evicted only
//! if the budget's status, kept by its controller, allows it.

use super::delete::{self, Options};
use super::{ATTEMPTS, Answer, Call, create, list, object, store_failed, update};
use crate::apiserver::reader;
use crate::apiserver::status::{ApiError, Cause};
use crate::resource::field::{at, int, set, text};
use crate::store::value::{TypeMeta, canonical};
use crate::store::window::Stored;
use crate::store::{Expect, StoreError};
use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proto::api::selector::Selector;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) async fn evict(call: &mut Call<'_>, body: &[u8]) -> Result<Answer, ApiError> {
    let dry_run = call.query.dry_run("CreateOptions")?;
    let mut eviction = call.decode_part(["policy", "v1", "Eviction"], body).await?;
    create::place(call, &mut eviction)?;
    let name = call.info.name.clone();
    let named = object::name(&eviction);
    if !named.is_empty() && named != name {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let mut options = match &eviction["deleteOptions"] {
        Value::Null => Options::default(),
        given => Options::from_value(given)?,
    };
    options.dry_run |= dry_run;
    let create = super::Operation::Create;
    call.mutate(create, options.dry_run, &mut eviction, None).await?;
    call.admit(create, options.dry_run, &eviction, None).await?;
    let pod = call.whole(&*call.current(&name).await?);
    if !bypasses_budgets(&pod) {
        spend(call, &pod, options.dry_run).await?;
        if !options.dry_run {
            let now = object::time(call.server.now());
            update::write_part(call, &name, false, |pod| Ok(disrupted(pod, &now))).await?;
        }
    }
    delete::remove(call, &name, &options).await?;
    Ok(Answer::Object {
        code: 201,
        object: json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}),
    })
}

fn bypasses_budgets(pod: &Value) -> bool {
    object::is_deleting(pod) || matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed" | "Pending")
}

/// Takes one disruption from the budget that the pod falls under, if any.
async fn spend(call: &Call<'_>, pod: &Value, dry_run: bool) -> Result<(), ApiError> {
    let Some(budgets) = call.served.resource("policy", "poddisruptionbudgets") else {
        return Ok(());
    };
    let window = &budgets.window;
    let prefix = reader::key(&budgets.prefix, call.namespace, "");
    for _ in 0..ATTEMPTS {
        let snapshot = window.latest().await.map_err(|error| store_failed(&error))?;
        let all: Vec<Arc<Stored>> = list::range(&snapshot.objects, &prefix, None).map(Arc::clone).collect();
        let values: Vec<Arc<Value>> = all.iter().map(|stored| stored.value()).collect();
        let Some(index) = allowed(pod, &values)? else {
            return Ok(());
        };
        let (Some(stored), false) = (all.get(index), dry_run) else {
            return Ok(());
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
            Ok(_) => return Ok(()),
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
    if !new["status"]["disruptedPods"].is_object() {
        new["status"]["disruptedPods"] = json!({});
    }
    new["status"]["disruptedPods"][pod] = json!(now);
    new
}

/// Which of the namespace's budgets the pod falls under, if that budget lets it go (pure).
fn allowed(pod: &Value, budgets: &[Arc<Value>]) -> Result<Option<usize>, ApiError> {
    let labels: BTreeMap<String, String> =
        serde_json::from_value(at(pod, &["metadata", "labels"]).clone()).unwrap_or_default();
    let mut matching = Vec::new();
    for (index, budget) in budgets.iter().enumerate() {
        let selector = at(budget, &["spec", "selector"]);
        let typed: Option<LabelSelector> = serde_json::from_value(selector.clone()).map_err(ApiError::internal)?;
        let selector = Selector::from_optional(typed.as_ref()).map_err(ApiError::internal)?;
        if selector.matches(&labels) {
            matching.push((index, budget));
        }
    }
    let (index, budget) = match matching.as_slice() {
        [] => return Ok(None),
        [one] => *one,
        _ => {
            return Err(ApiError::internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    let generation = int(budget, &["metadata", "generation"]).unwrap_or(0);
    let observed = int(budget, &["status", "observedGeneration"]).unwrap_or(0);
    let name = object::name(budget);
    if observed < generation {
        let message = format!("The disruption budget {name} is still being processed by the server.");
        return Err(refused(message, Some(10)));
    }
    if int(budget, &["status", "disruptionsAllowed"]).unwrap_or(0) > 0 {
        return Ok(Some(index));
    }
    let needed = int(budget, &["status", "desiredHealthy"]).unwrap_or(0);
    let healthy = int(budget, &["status", "currentHealthy"]).unwrap_or(0);
    let message = format!("The disruption budget {name} needs {needed} healthy pods and has {healthy} currently");
    Err(refused(message, None))
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

fn disrupted(pod: &Value, now: &str) -> Value {
    let mut new = pod.clone();
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": now,
    });
    if !new["status"]["conditions"].is_array() {
        new["status"]["conditions"] = json!([]);
    }
    if let Some(conditions) = new["status"]["conditions"].as_array_mut() {
        conditions.retain(|known| known["type"] != "DisruptionTarget");
        conditions.push(condition);
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(status: Value) -> Arc<Value> {
        Arc::new(json!({"metadata": {"name": "b", "generation": 1}, "status": status,
            "spec": {"selector": {"matchLabels": {"app": "web"}}}}))
    }

    #[test]
    fn budgets_refuse_unless_they_are_known_to_allow() {
        let pod = json!({"metadata": {"name": "p", "labels": {"app": "web"}}});
        let tight =
            budget(json!({"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 2, "currentHealthy": 2}));
        let generous = budget(json!({"observedGeneration": 1, "disruptionsAllowed": 1}));
        let stale = budget(json!({"disruptionsAllowed": 1}));
        assert_eq!(allowed(&pod, &[]).unwrap(), None);
        assert_eq!(allowed(&pod, std::slice::from_ref(&generous)).unwrap(), Some(0));
        assert_eq!(
            spent(&generous, "p", "now")["status"],
            json!({"observedGeneration": 1, "disruptionsAllowed": 0, "disruptedPods": {"p": "now"}})
        );
        let error = allowed(&pod, std::slice::from_ref(&tight)).unwrap_err();
        assert_eq!((error.code, error.causes[0].kind.as_str()), (429, "DisruptionBudget"));
        assert_eq!(
            error.causes[0].message,
            "The disruption budget b needs 2 healthy pods and has 2 currently"
        );
        assert_eq!(allowed(&pod, &[stale]).unwrap_err().retry_after_seconds, Some(10));
        assert_eq!(allowed(&pod, &[tight, generous]).unwrap_err().code, 500);
        let other = json!({"metadata": {"name": "p", "labels": {"app": "db"}}});
        assert_eq!(allowed(&other, &[budget(json!({}))]).unwrap(), None);
    }
}
