//! What discovery advertises is answered: every verb of every resource and subresource, through the real chain.

use super::*;
use crate::apiserver::body;
use crate::resource::Registry;
use crate::store::value::testing::as_stored;
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;

/// What a discovery document says of one resource.
struct Advertised {
    /// `/api/v1` or `/apis/GROUP/VERSION`.
    root: String,
    name: String,
    namespaced: bool,
    verbs: Vec<String>,
}

struct Answer {
    code: u16,
    body: Value,
}

async fn send(daemon: &Daemon, method: &str, path: &str, content: &str) -> Answer {
    let media = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", media);
    let request = request.body(body::full(content.to_owned())).unwrap();
    let root = User::named("root", &["system:masters"]);
    let response = daemon.server().handle(Some(root), request).await;
    let code = response.status().as_u16();
    // A watch goes on; what it began with is enough.
    let is_stream = path.contains("watch=1");
    let body = match is_stream {
        true => Value::Null,
        false => {
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)))
        }
    };
    Answer { code, body }
}

async fn advertised(daemon: &Daemon) -> Vec<Advertised> {
    let mut roots = vec!["/api/v1".to_owned()];
    let groups = send(daemon, "GET", "/apis", "").await.body;
    for version in groups["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["versions"].as_array().unwrap())
    {
        roots.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
    }
    let mut all = Vec::new();
    for root in roots {
        let document = send(daemon, "GET", &root, "").await.body;
        for resource in document["resources"].as_array().unwrap() {
            let verbs = resource["verbs"].as_array().unwrap().iter();
            all.push(Advertised {
                root: root.clone(),
                name: resource["name"].as_str().unwrap().to_owned(),
                namespaced: resource["namespaced"].as_bool().unwrap(),
                verbs: verbs.map(|verb| verb.as_str().unwrap().to_owned()).collect(),
            });
        }
    }
    all
}

/// An object of every kind, straight into the store: what each kind needs to be valid is not the point.
async fn seed(store: &Arc<dyn Store>) {
    for kind in Registry::built_in().kinds().filter(|kind| kind.is_stored()) {
        let (place, namespace) = match kind.namespaced {
            true => ("default/probe", json!("default")),
            false => ("probe", Value::Null),
        };
        let object =
            json!({"metadata": {"name": "probe", "namespace": namespace, "uid": "u"}, "spec": {}, "status": {}});
        let key = format!("/registry/{}/{place}", kind.storage_prefix);
        let made = store
            .put(&key, as_stored(&key, &object), crate::store::Expect::Absent)
            .await;
        assert!(matches!(made, Ok(_) | Err(StoreError::Conflict { .. })), "{made:?}");
    }
}

fn request_of(verb: &str, resource: &Advertised) -> (&'static str, String) {
    let (plural, part) = resource.name.split_once('/').unwrap_or((&resource.name, ""));
    let space = if resource.namespaced { "/namespaces/default" } else { "" };
    let collection = format!("{}{space}/{plural}", resource.root);
    let one = match (plural, part) {
        ("componentstatuses", _) => format!("{collection}/scheduler"),
        (_, "") => format!("{collection}/probe"),
        _ => format!("{collection}/probe/{part}"),
    };
    match verb {
        "create" if part.is_empty() => ("POST", collection),
        "create" => ("POST", one),
        "delete" => ("DELETE", one),
        "deletecollection" => ("DELETE", collection),
        "get" => ("GET", one),
        "list" => ("GET", collection),
        "patch" => ("PATCH", one),
        "update" => ("PUT", one),
        "watch" => ("GET", format!("{collection}?watch=1&timeoutSeconds=1")),
        other => panic!("{other} is no verb this test knows"),
    }
}

#[tokio::test(start_paused = true)]
async fn every_advertised_verb_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    // Nobody else writes: what is asked for is there, though all of it has one UID.
    let daemon = embedded_with(dir.path(), &store, &["--controllers="]).await;
    let all = advertised(&daemon).await;
    assert!(
        all.len() > Registry::built_in().kinds().count(),
        "{} resources",
        all.len()
    );
    let (mut unanswered, mut asked) = (Vec::new(), 0);
    for resource in &all {
        for verb in &resource.verbs {
            seed(&store).await;
            daemon.server().reader().refresh().await.unwrap();
            let (method, path) = request_of(verb, resource);
            let content = match verb.as_str() {
                "create" => r#"{"metadata":{"generateName":"made-"}}"#,
                "update" => r#"{"metadata":{"name":"probe","namespace":""}}"#,
                "patch" => "{}",
                _ => "",
            };
            let answer = send(&daemon, method, &path, content).await;
            asked += 1;
            let text = answer.body["message"].as_str().unwrap_or_default();
            // No kubelet says what the probe uses, and that is said of it by name.
            let said_absent =
                answer.body["details"]["group"] == "metrics.k8s.io" && answer.body["details"]["name"] == "probe";
            if verb == "get" && said_absent {
                continue;
            }
            if matches!(answer.code, 404 | 405 | 501) || text.contains("panic") {
                unanswered.push(format!(
                    "{verb} {}/{}: {} {}",
                    resource.root, resource.name, answer.code, answer.body
                ));
            }
        }
    }
    assert_eq!(unanswered, Vec::<String>::new());
    assert!(asked > 300, "{asked}");
    daemon.stop().await;
}
