//! Notes the use of tokens that lie in Secrets, and since when it does (control-plane contract §12; upstream's
//! legacy-token-tracking-controller and its authenticator).
//!
//! The ConfigMap with that day is made again when it is gone, at most every half hour: of several API servers one may not track.

use super::{LOOK, apiserver};
use crate::apiserver::ApiServer;
use crate::apiserver::authn::legacy::{Use, is_noted};
use crate::controller::well_known::account_token::{LAST_USED, TRACKING_KEY, TRACKING_NAME, TRACKING_NAMESPACE};
use http::{Method, Request};
use jiff::{SignedDuration, Timestamp, civil::Date};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Between two makings of the ConfigMap.
const MADE_EVERY: SignedDuration = SignedDuration::from_mins(30);
const DEADLINE: Duration = Duration::from_secs(10);

/// Notes and makes until shutdown.
pub async fn keep(server: ApiServer, mut uses: mpsc::Receiver<Use>, shutdown: CancellationToken) {
    let client = server.client_as(apiserver());
    let mut made_at = None;
    let mut seen = None;
    loop {
        let state = server.reader().changed("", "configmaps");
        if seen != Some(state) {
            let is_done = look(&server, &client, &mut made_at).await;
            seen = is_done.then_some(state);
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            Some(used) = uses.recv() => note(&server, &client, &used).await,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Sees to the ConfigMap; whether all is done.
async fn look(server: &ApiServer, client: &kube::Client, made_at: &mut Option<Timestamp>) -> bool {
    let there = server.reader().get("", "configmaps", TRACKING_NAMESPACE, TRACKING_NAME);
    let now = server.now();
    let path = format!("/api/v1/namespaces/{TRACKING_NAMESPACE}/configmaps");
    let Some((is_new, body)) = wanted(there.as_ref().map(AsRef::as_ref), now) else {
        return true;
    };
    if !is_new {
        return send(client, Method::PUT, format!("{path}/{TRACKING_NAME}"), &body).await;
    }
    if made_at.is_some_and(|at| now.duration_since(at) < MADE_EVERY) {
        return false;
    }
    let is_made = send(client, Method::POST, path, &body).await;
    if is_made {
        *made_at = Some(now);
    }
    is_made
}

/// The ConfigMap as it is to be, and whether it is made anew; `None` if it is as it should be. Pure.
fn wanted(there: Option<&Value>, now: Timestamp) -> Option<(bool, Value)> {
    let today = now.strftime("%Y-%m-%d").to_string();
    let Some(there) = there else {
        let metadata = json!({"name": TRACKING_NAME, "namespace": TRACKING_NAMESPACE});
        let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": {TRACKING_KEY: today}});
        return Some((true, map));
    };
    let said = there["data"][TRACKING_KEY].as_str();
    if said.is_some_and(|said| said.len() == today.len() && Date::strptime("%Y-%m-%d", said).is_ok()) {
        return None;
    }
    let mut mended = there.clone();
    mended["data"][TRACKING_KEY] = json!(today);
    mended["kind"] = json!("ConfigMap");
    mended["apiVersion"] = json!("v1");
    Some((false, mended))
}

/// Writes the day of a use to the Secret, unless somebody did.
async fn note(server: &ApiServer, client: &kube::Client, used: &Use) {
    let now = server.now();
    let secret = server.reader().get("", "secrets", &used.namespace, &used.secret);
    let label = |secret: &Value| is_noted(secret["metadata"]["labels"][LAST_USED].as_str(), now);
    if secret.is_none_or(|secret| label(secret.as_ref())) {
        return;
    }
    let today = now.strftime("%Y-%m-%d").to_string();
    let body = json!({"metadata": {"uid": used.uid, "labels": {LAST_USED: today}}});
    let path = format!("/api/v1/namespaces/{}/secrets/{}", used.namespace, used.secret);
    send(client, Method::PATCH, path, &body).await;
}

/// Whether it was done, by anybody.
async fn send(client: &kube::Client, method: Method, path: String, body: &Value) -> bool {
    let content = if method == Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, content)
        .body(body.to_string().into_bytes());
    let Ok(request) = request else { return false };
    match timeout(DEADLINE, client.request::<Value>(request)).await {
        Ok(Ok(_)) => true,
        // Somebody else wrote first, or it is gone: the next look sees it.
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => true,
        Ok(Err(error)) => {
            tracing::warn!(%error, "the use of tokens in Secrets cannot be noted now");
            false
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests;
