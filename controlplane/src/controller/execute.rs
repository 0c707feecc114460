//! Carries writes to the API server and tells what came of them. Decides nothing.

use super::write::{Adopter, Failure, PatchKind, Verb, Write};
use client::Key;
use http::{Method, Request};
use kube::api::ListParams;
use proto::api::names;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Deadline of one write.
const DEADLINE: Duration = Duration::from_secs(30);
/// Names tried for one object.
const NAMES_TRIED: usize = 8;
/// First and longest wait before a creation is repeated whose outcome is not known.
const REPEAT_FIRST: Duration = Duration::from_millis(100);
const REPEAT_CAP: Duration = Duration::from_secs(5);
/// How long it is repeated. The server is done with a request by then, and what stands in the way may stay.
const REPEATED: Duration = Duration::from_secs(120);

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
        /// Whether the server had something of that name; if not, it may not have heard of the resource either.
        was_there: bool,
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
                PatchKind::Apply(_) => "application/apply-patch+yaml",
            };
            let mut path = if sub.is_empty() { path } else { format!("{path}/{sub}") };
            if let PatchKind::Apply(manager) = kind {
                path = format!("{path}?fieldManager={manager}&force=true");
            }
            (Method::PATCH, path, content, body.clone())
        }
        Verb::Delete {
            uid,
            revision,
            grace,
            propagation,
        } => {
            let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
            if let Some(revision) = revision {
                options["preconditions"]["resourceVersion"] = json!(revision);
            }
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
        deleting: matches!(write.verb, Verb::Delete { .. }),
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
            was_there: true,
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
            was_there: false,
        }),
        (Err(kube::Error::Api(status)), _) => Err(failure(write, status.code, &status.reason, status.message.clone())),
        (Err(error), _) => Err(failure(write, 0, "", error.to_string())),
    }
}

/// Asks the server, and no copy of what it had, whether an owner may be given something.
///
/// # Errors
/// It is not there, is another by now, or is being deleted, in upstream's words; or the server could not be asked.
pub async fn recheck(client: &kube::Client, owner: &Adopter) -> Result<(), Failure> {
    let failed = |code, reason: &str, message| Failure {
        resource: owner.resource.plural.to_string(),
        creating: false,
        deleting: false,
        code,
        reason: reason.to_owned(),
        message,
    };
    let unasked = |error: &dyn std::fmt::Display| format!("can't recheck DeletionTimestamp: {error}");
    let request = Request::get(owner.resource.path(&owner.key)).body(Vec::new());
    let request = request.map_err(|error| failed(0, "", unasked(&error)))?;
    let found = match timeout(DEADLINE, client.request::<Value>(request)).await {
        Ok(Ok(found)) => found,
        Ok(Err(kube::Error::Api(status))) => {
            return Err(failed(status.code, &status.reason, unasked(&status.message)));
        }
        Ok(Err(error)) => return Err(failed(0, "", unasked(&error))),
        Err(_) => return Err(failed(0, "Timeout", unasked(&"deadline exceeded"))),
    };
    let meta = &found["metadata"];
    let (kind, key) = (&owner.resource.kind, &owner.key);
    let uid = meta["uid"].as_str().unwrap_or_default();
    if uid != owner.uid {
        let why = format!("original {kind} {key} is gone: got uid {uid}, wanted {}", owner.uid);
        return Err(failed(0, "", unasked(&why)));
    }
    match meta["deletionTimestamp"].as_str() {
        Some(at) => Err(failed(0, "", format!("{key} has just been deleted at {at}"))),
        None => Ok(()),
    }
}

/// Does the write. What is created without a name is given one here, from random bits, and is created under it again until the server
/// has said what came of it, or for [`REPEATED`]: an answer that got lost, or a server that goes on with a request nobody waits for, makes no second object.
///
/// # Errors
/// As [`execute`].
pub async fn execute_once(
    client: &kube::Client,
    write: &Write,
    mut random: impl FnMut() -> u64,
) -> Result<Applied, Failure> {
    let (Verb::Create(body), true) = (&write.verb, write.key.name.is_empty()) else {
        return execute(client, write).await;
    };
    let Some(stem) = body["metadata"]["generateName"]
        .as_str()
        .filter(|stem| !stem.is_empty())
    else {
        return execute(client, write).await;
    };
    let mut tried = 1;
    loop {
        let name = names::generate_name(stem, random());
        let mut body = body.clone();
        body["metadata"]["name"] = json!(name);
        let key = Key::new(write.key.namespace.clone(), name);
        let named = Write::new(write.resource.clone(), key, Verb::Create(body));
        match repeated(client, &named).await {
            Err(failure) if failure.reason == "AlreadyExists" && tried < NAMES_TRIED => tried += 1,
            done => return done,
        }
    }
}

/// Whether the write may have been done all the same: there was no answer, or one that some server or proxy gave half-way.
fn is_open(failure: &Failure) -> bool {
    matches!(failure.code, 0 | 500 | 502 | 503 | 504)
}

/// Creates an object of a name that nobody else would choose, until there is an answer, or for [`REPEATED`].
async fn repeated(client: &kube::Client, write: &Write) -> Result<Applied, Failure> {
    let began = Instant::now();
    let mut delay = REPEAT_FIRST;
    let mut is_repeated = false;
    loop {
        match execute(client, write).await {
            Err(failure) if is_open(&failure) && began.elapsed() < REPEATED => {
                sleep(delay).await;
                delay = (delay * 2).min(REPEAT_CAP);
                is_repeated = true;
            }
            // It was made when nobody heard.
            Err(failure) if is_repeated && failure.reason == "AlreadyExists" => return found(client, write).await,
            done => return done,
        }
    }
}

/// The object that is there now; one that went meanwhile needs no waiting for. Roles that allow to create pods allow to list them, but
/// not to get one.
async fn found(client: &kube::Client, write: &Write) -> Result<Applied, Failure> {
    let collection = kube::core::Request::new(write.resource.collection_path(&write.key.namespace));
    let only = ListParams::default()
        .fields(&format!("metadata.name={}", write.key.name))
        .limit(1);
    let request = collection.list(&only);
    let request = request.map_err(|e| failure(write, 0, "", e.to_string()))?;
    let revision = match timeout(DEADLINE, client.request::<Value>(request)).await {
        Ok(Ok(list)) => list["items"][0]["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|r| r.parse().ok()),
        Ok(Err(error)) => return Err(failure(write, 0, "", error.to_string())),
        Err(_) => return Err(failure(write, 0, "Timeout", "deadline exceeded".into())),
    };
    let (key, revision) = (write.key.clone(), revision.unwrap_or(0));
    Ok(Applied::At { key, revision })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::write::{PODS, REPLICA_SETS};
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    fn refusal(code: u16, reason: &str) -> (u16, Value) {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
            "message": "no", "metadata": {}});
        (code, status)
    }

    /// A server that keeps names, and the answers to whose first creations get lost; or a proxy answers with this code.
    fn server(pods: Arc<Mutex<BTreeSet<String>>>, mut losses: usize, proxy: Option<u16>) -> kube::Client {
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let mut lost = false;
            if request.method() == Method::POST && losses > 0 {
                losses -= 1;
                lost = true;
            }
            let pods = pods.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let (mut code, mut reply) = if parts.method == Method::POST {
                    let body: Value = serde_json::from_slice(&body).unwrap();
                    let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                    match pods.lock().unwrap().insert(name.clone()) {
                        true => (201, json!({"metadata": {"name": name, "resourceVersion": "7"}})),
                        false => refusal(409, "AlreadyExists"),
                    }
                } else if parts.uri.path().ends_with("/pods") {
                    let names = pods.lock().unwrap();
                    let name = names
                        .iter()
                        .find(|name| parts.uri.query().unwrap().contains(name.as_str()));
                    let items: Vec<Value> = name
                        .map(|name| json!({"metadata": {"name": name, "resourceVersion": "9"}}))
                        .into_iter()
                        .collect();
                    (200, json!({"metadata": {"resourceVersion": "11"}, "items": items}))
                } else {
                    // As the roles of controllers have it.
                    refusal(403, "Forbidden")
                };
                if let Some(proxy) = proxy.filter(|_| lost) {
                    (code, reply) = refusal(proxy, "");
                }
                let reply = http::Response::builder()
                    .status(code)
                    .body(kube::client::Body::from(reply.to_string().into_bytes()));
                match lost && proxy.is_none() {
                    true => Err(std::io::Error::other("the connection broke")),
                    false => Ok(reply.unwrap()),
                }
            }
        });
        kube::Client::new(service, "default")
    }

    fn nameless() -> Write {
        let body = json!({"metadata": {"generateName": "web-"}});
        Write::new(PODS, Key::new("default", ""), Verb::Create(body))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_makes_no_second_object() {
        for proxy in [None, Some(500), Some(502), Some(503), Some(504)] {
            let pods = Arc::new(Mutex::new(BTreeSet::new()));
            let client = server(pods.clone(), 2, proxy);
            let mut seed = 0;
            let random = || {
                seed += 1;
                seed
            };
            let applied = execute_once(&client, &nameless(), random).await.unwrap();
            let Applied::At { key, revision } = applied else {
                panic!()
            };
            assert_eq!(revision, 9, "as it is now");
            assert_eq!(*pods.lock().unwrap(), BTreeSet::from([key.name]), "{proxy:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_failing_is_told_at_last() {
        for (proxy, code) in [(None, 0), (Some(500), 500), (Some(429), 429)] {
            let client = server(Arc::default(), usize::MAX, proxy);
            let failed = execute_once(&client, &nameless(), || 1).await.unwrap_err();
            assert_eq!(failed.code, code);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_taken_name_is_not_the_only_one() {
        let taken = names::generate_name("web-", 1);
        let pods = Arc::new(Mutex::new(BTreeSet::from([taken.clone()])));
        let client = server(pods.clone(), 0, None);
        let mut seed = 0;
        let random = || {
            seed += 1;
            seed
        };
        let applied = execute_once(&client, &nameless(), random).await.unwrap();
        assert_ne!(applied.key().name, taken);
        let full = execute_once(&client, &nameless(), || 1).await.unwrap_err();
        assert_eq!(
            full.reason, "AlreadyExists",
            "whose bits are no bits does not go on for ever"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_is_asked_for_before_it_adopts() {
        let asked = |code: u16, owner: Value| async move {
            let service = tower::service_fn(move |request: Request<kube::client::Body>| {
                let asked = (request.method().clone(), request.uri().to_string());
                assert_eq!(
                    asked,
                    (
                        Method::GET,
                        "/apis/apps/v1/namespaces/default/replicasets/web".to_owned()
                    )
                );
                let body = kube::client::Body::from(owner.to_string().into_bytes());
                std::future::ready(http::Response::builder().status(code).body(body))
            });
            let owner = Adopter {
                resource: REPLICA_SETS,
                key: Key::new("default", "web"),
                uid: "u".to_owned(),
            };
            let done = recheck(&kube::Client::new(service, "default"), &owner).await;
            done.map_err(|failure| (failure.code, failure.message))
        };
        let refused = |code, message: &str| Err((code, message.to_owned()));
        assert_eq!(asked(200, json!({"metadata": {"uid": "u"}})).await, Ok(()));
        let deleted = json!({"metadata": {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(
            asked(200, deleted).await,
            refused(0, "default/web has just been deleted at 2026-01-01T00:00:00Z")
        );
        let another = "original ReplicaSet default/web is gone: got uid v, wanted u";
        assert_eq!(
            asked(200, json!({"metadata": {"uid": "v"}})).await,
            refused(0, &format!("can't recheck DeletionTimestamp: {another}"))
        );
        let (code, reply) = refusal(404, "NotFound");
        assert_eq!(
            asked(code, reply).await,
            refused(404, "can't recheck DeletionTimestamp: no")
        );
    }

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
            revision: Some("7".into()),
            grace: Some(0),
            propagation: Some("Background"),
        };
        let body: Value = serde_json::from_slice(request(&verb(delete)).unwrap().body()).unwrap();
        assert_eq!(body["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));
        assert_eq!(
            (&body["gracePeriodSeconds"], &body["propagationPolicy"]),
            (&json!(0), &json!("Background"))
        );
    }
}
