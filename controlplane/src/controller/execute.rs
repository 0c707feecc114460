//! Carries writes to the API server and tells what came of them. Decides nothing.

use super::write::{Failure, PatchKind, Verb, Write};
use client::Key;
use http::{Method, Request};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

/// Deadline of one write.
const DEADLINE: Duration = Duration::from_secs(30);

/// A write that worked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The object is now at this revision.
    At {
        /// The object's key (with the generated name).
        key: Key,
        /// Its revision.
        revision: u64,
    },
    /// The object of that UID is gone, or on its way.
    Deleted {
        /// The object's key.
        key: Key,
        /// Its UID.
        uid: String,
    },
}

impl Applied {
    /// The key of the object written.
    pub fn key(&self) -> &Key {
        match self {
            Applied::At { key, .. } | Applied::Deleted { key, .. } => key,
        }
    }
}

fn request(write: &Write) -> Result<Request<Vec<u8>>, http::Error> {
    let path = write.resource.path(&write.key);
    let (method, path, content, body) = match &write.verb {
        Verb::Create(body) => (
            Method::POST,
            write.resource.collection_path(&write.key.namespace),
            "application/json",
            body.clone(),
        ),
        Verb::Replace(body) => (Method::PUT, path, "application/json", body.clone()),
        Verb::ReplaceSub(sub, body) => (Method::PUT, format!("{path}/{sub}"), "application/json", body.clone()),
        Verb::Patch(kind, sub, body) => {
            let content = match kind {
                PatchKind::Merge => "application/merge-patch+json",
                PatchKind::Strategic => "application/strategic-merge-patch+json",
                PatchKind::Json => "application/json-patch+json",
            };
            let path = if sub.is_empty() { path } else { format!("{path}/{sub}") };
            (Method::PATCH, path, content, body.clone())
        }
        Verb::Delete {
            uid,
            grace,
            propagation,
        } => {
            let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
            if let Some(grace) = grace {
                options["gracePeriodSeconds"] = json!(grace);
            }
            if let Some(propagation) = propagation {
                options["propagationPolicy"] = json!(propagation);
            }
            (Method::DELETE, path, "application/json", options)
        }
    };
    let builder = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, content);
    builder.body(body.to_string().into_bytes())
}

fn failure(write: &Write, code: u16, reason: &str, message: String) -> Failure {
    Failure {
        resource: write.resource.plural.to_string(),
        creating: matches!(write.verb, Verb::Create(_)),
        code,
        reason: reason.to_owned(),
        message,
    }
}

/// Does the write.
///
/// # Errors
/// What the server refused, or why it could not be asked. Deleting what is not there is no error.
pub async fn execute(client: &kube::Client, write: &Write) -> Result<Applied, Failure> {
    let request = request(write).map_err(|e| failure(write, 0, "", e.to_string()))?;
    let reply = match timeout(DEADLINE, client.request::<Value>(request)).await {
        Ok(reply) => reply,
        Err(_) => return Err(failure(write, 0, "Timeout", "deadline exceeded".into())),
    };
    let deleting = match &write.verb {
        Verb::Delete { uid, .. } => Some(uid),
        _ => None,
    };
    match (reply, deleting) {
        (Ok(_), Some(uid)) => Ok(Applied::Deleted {
            key: write.key.clone(),
            uid: uid.clone(),
        }),
        (Ok(object), None) => {
            let meta = &object["metadata"];
            let name = meta["name"].as_str().unwrap_or(&write.key.name);
            let revision = meta["resourceVersion"].as_str().and_then(|r| r.parse().ok());
            Ok(Applied::At {
                key: Key::new(write.key.namespace.clone(), name),
                revision: revision.unwrap_or(0),
            })
        }
        (Err(kube::Error::Api(status)), Some(uid)) if status.code == 404 => Ok(Applied::Deleted {
            key: write.key.clone(),
            uid: uid.clone(),
        }),
        (Err(kube::Error::Api(status)), _) => Err(failure(write, status.code, &status.reason, status.message.clone())),
        (Err(error), _) => Err(failure(write, 0, "", error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::write::PODS;

    #[test]
    fn requests_carry_method_path_and_content_type() {
        let key = Key::new("default", "web");
        let verb = |verb| Write::new(PODS, key.clone(), verb);
        let table = [
            (
                verb(Verb::Create(json!({}))),
                "POST",
                "/api/v1/namespaces/default/pods",
                "application/json",
            ),
            (
                verb(Verb::ReplaceSub("status", json!({}))),
                "PUT",
                "/api/v1/namespaces/default/pods/web/status",
                "application/json",
            ),
            (
                verb(Verb::Patch(PatchKind::Strategic, "", json!({}))),
                "PATCH",
                "/api/v1/namespaces/default/pods/web",
                "application/strategic-merge-patch+json",
            ),
        ];
        for (write, method, path, content) in table {
            let request = request(&write).unwrap();
            assert_eq!((request.method().as_str(), request.uri().path()), (method, path));
            assert_eq!(request.headers()["content-type"], content);
        }
        let delete = Verb::Delete {
            uid: "u".into(),
            grace: Some(0),
            propagation: Some("Background"),
        };
        let body: Value = serde_json::from_slice(request(&verb(delete)).unwrap().body()).unwrap();
        assert_eq!(body["preconditions"]["uid"], "u");
        assert_eq!(
            (&body["gracePeriodSeconds"], &body["propagationPolicy"]),
            (&json!(0), &json!("Background"))
        );
    }
}
