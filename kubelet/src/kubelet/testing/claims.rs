//! Resource claims of the scripted API server, each allocated by somebody.

use super::reply::{not_found, reply};
use super::{Api, Reply};
use http::Response;
use serde_json::json;

impl Api {
    /// Adds a claim of one device of a driver, reserved for a pod.
    pub(crate) fn add_claim(&self, name: &str, driver: &str, pod_uid: &str) {
        let results = json!([{"request": "r", "driver": driver, "pool": "pool", "device": "dev"}]);
        let claim = json!({
            "kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1",
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
            "status": {
                "allocation": {"devices": {"results": results}},
                "reservedFor": [{"resource": "pods", "name": "p", "uid": pod_uid}],
            },
        });
        self.state().claims.insert(name.to_owned(), claim);
    }

    pub(super) fn claim(&self, path: &str) -> Response<Reply> {
        let name = path.rsplit('/').next().unwrap_or_default();
        match self.state().claims.get(name) {
            Some(claim) => reply(200, claim),
            None => not_found(),
        }
    }
}
