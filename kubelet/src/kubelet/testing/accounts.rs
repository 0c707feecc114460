//! Service accounts of the scripted API server, and their tokens: texts that say whose they are.

use super::reply::{not_found, reply};
use super::{Api, Reply};
use http::{Method, Response};
use serde_json::{Value, json};

impl Api {
    /// Adds a service account; it is there from the first question on and never changes.
    pub(crate) fn add_service_account(&self, name: &str, annotations: &[(&str, &str)]) {
        let annotations: serde_json::Map<String, Value> = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let account = json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "annotations": annotations}});
        self.state().service_accounts.insert(name.to_owned(), account);
    }

    pub(super) fn service_account(&self, method: &Method, name: &str, request: Value) -> Response<Reply> {
        let Some(account) = self.state().service_accounts.get(name).cloned() else {
            return not_found();
        };
        if method == Method::GET {
            return reply(200, &account);
        }
        let (spec, mut answer) = (request["spec"].clone(), request.clone());
        let bound = &spec["boundObjectRef"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let token = format!(
            "token of ns/{name} ({}) for {} bound to {} ({})",
            text(&request["metadata"]["uid"]),
            text(&spec["audiences"][0]),
            text(&bound["name"]),
            text(&bound["uid"])
        );
        answer["status"] = json!({"token": token, "expirationTimestamp": "2099-01-01T00:00:00Z"});
        reply(201, &answer)
    }
}
