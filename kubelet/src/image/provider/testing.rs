//! Plugins that a test plays.

use super::config::{self, Provider};
use super::{ExecError, Run, lock};
use futures::FutureExt;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

/// What a played plugin was asked.
pub(crate) type Asked = Arc<Mutex<Vec<Value>>>;

/// A plugin that answers after a second what `answer` makes of the request.
pub(crate) fn played(asked: &Asked, answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Run {
    let (asked, answer) = (asked.clone(), Arc::new(answer));
    Arc::new(move |request| {
        let (asked, answer) = (asked.clone(), answer.clone());
        async move {
            let request: Value = serde_json::from_slice(&request).expect("JSON");
            lock(&asked).push(request.clone());
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut full = answer(&request);
            if full.is_null() {
                return Err(ExecError::TooLong);
            }
            full["kind"] = "CredentialProviderResponse".into();
            full["apiVersion"] = V1.into();
            Ok(full.to_string().into_bytes())
        }
        .boxed()
    })
}

/// A plugin for `r.io` and all below it, whose answers are kept for a minute.
pub(crate) fn provider(name: &str, token: Option<Value>) -> Provider {
    let mut written =
        json!({"name": name, "matchImages": ["r.io", "*.r.io"], "defaultCacheDuration": "1m", "apiVersion": V1});
    if let Some(token) = token {
        written["tokenAttributes"] = token;
    }
    let file =
        json!({"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [written]});
    let decoded = config::decode(&file.to_string()).expect("decodes");
    config::validate(decoded, true).expect("sound").remove(0)
}

/// An answer of one login.
pub(crate) fn login(scope: &str, registry: &str, password: &str) -> Value {
    json!({"cacheKeyType": scope, "auth": {registry: {"username": "u", "password": password}}})
}
