//! Objects that are read and written by way of a JSON tree.
//!
//! Reading and writing code of the Kubernetes types is generated anew for every format it meets: bytes, trees, what a watch event
//! buffers. In a binary that has to be small each of those costs about half a megabyte. [`AsTree`] leaves one, that of the tree.
//! It owns no object's meaning, and costs some time: for processes that see the objects of one node, not of a cluster.

use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ObjectMeta, Request, Resource};
use serde::de::{DeserializeOwned, Error as _};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::ops::Deref;

/// An object on its way from or to the API server: `Api<AsTree<Pod>>` is an `Api<Pod>` of less code.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AsTree<K>(pub K);

impl<K> AsTree<K> {
    /// The object itself.
    pub fn into_object(self) -> K {
        self.0
    }
}

impl<K> Deref for AsTree<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for AsTree<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tree = Value::deserialize(deserializer)?;
        serde_json::from_value(tree).map(Self).map_err(D::Error::custom)
    }
}

impl<K: Serialize> Serialize for AsTree<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tree = serde_json::to_value(&self.0).map_err(S::Error::custom)?;
        tree.serialize(serializer)
    }
}

impl<K: Resource> Resource for AsTree<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn api_version(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::api_version(dynamic)
    }

    fn plural(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

/// Creates the object, in its own namespace if it has one. What the server answers is given as text: for who reads little of it or
/// nothing, and needs no code that reads all of it.
///
/// # Errors
/// Those of `kube::Api::create`, but for what the answer is like.
pub fn create<K>(client: &Client, object: &K) -> impl Future<Output = kube::Result<String>> + Send + use<K>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    post(client, K::url_path(&(), object.meta().namespace.as_deref()), object)
}

/// As [`create`], of what belongs to the object of that name.
///
/// # Errors
/// As those of [`create`].
pub fn create_of<K: Resource<DynamicType = ()>, T: Serialize>(
    client: &Client,
    (namespace, name): (&str, &str),
    subresource: &str,
    object: &T,
) -> impl Future<Output = kube::Result<String>> + Send + use<K, T> {
    let objects = K::url_path(&(), Some(namespace));
    post(client, format!("{objects}/{name}/{subresource}"), object)
}

fn post<T: Serialize>(
    client: &Client,
    path: String,
    object: &T,
) -> impl Future<Output = kube::Result<String>> + Send + use<T> {
    let text = serde_json::to_value(object).and_then(|tree| serde_json::to_vec(&tree));
    let request = text.map_err(kube::Error::SerdeError).and_then(|text| {
        let request = Request::new(path).create(&PostParams::default(), text);
        request.map_err(kube::Error::BuildRequest)
    });
    send(client.clone(), request)
}

/// Merges `patch` into an object, strategically. The answer is as that of [`create`].
///
/// # Errors
/// Those of `kube::Api::patch`, but for what the answer is like.
pub fn patch<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: &str,
    name: &str,
    patch: Value,
) -> impl Future<Output = kube::Result<String>> + Send + use<K> {
    let objects = Request::new(K::url_path(&(), Some(namespace)));
    let request = objects.patch(name, &PatchParams::default(), &Patch::Strategic(patch));
    send(client.clone(), request.map_err(kube::Error::BuildRequest))
}

async fn send(client: Client, request: kube::Result<http::Request<Vec<u8>>>) -> kube::Result<String> {
    client.request_text(request?).await
}

/// The status in an answer's text, if there is one.
///
/// # Errors
/// It is no such status, or the text no object.
pub fn status_of<S: DeserializeOwned>(text: &str) -> kube::Result<Option<S>> {
    let mut answer: Map<String, Value> = serde_json::from_str(text).map_err(kube::Error::SerdeError)?;
    let status = answer.remove("status").unwrap_or_default();
    serde_json::from_value(status).map_err(kube::Error::SerdeError)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Pod, PodStatus};
    use kube::core::WatchEvent;
    use serde_json::json;

    fn pod() -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"},
            "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}})
    }

    #[test]
    fn reads_and_writes_what_the_object_itself_does() {
        let itself: Pod = serde_json::from_value(pod()).unwrap();
        let text = pod().to_string();
        let read: AsTree<Pod> = serde_json::from_str(&text).unwrap();
        assert_eq!(read.0, itself);
        let written: Value = serde_json::from_slice(&serde_json::to_vec(&read).unwrap()).unwrap();
        assert_eq!(written, pod());
        assert_eq!(AsTree::<Pod>::url_path(&(), Some("b")), Pod::url_path(&(), Some("b")));
        assert_eq!(read.meta().name.as_deref(), Some("a"));
    }

    #[test]
    fn a_watch_event_may_have_its_fields_in_any_order() {
        for text in [
            format!(r#"{{"type":"MODIFIED","object":{}}}"#, pod()),
            format!(r#"{{"object":{},"type":"MODIFIED"}}"#, pod()),
        ] {
            let event: WatchEvent<AsTree<Pod>> = serde_json::from_str(&text).unwrap();
            let WatchEvent::Modified(read) = event else {
                panic!("{event:?}")
            };
            assert_eq!(read.metadata.name.as_deref(), Some("a"), "{text}");
        }
    }

    #[test]
    fn of_an_answer_the_status_alone_is_read() {
        let status = |text: &str| status_of::<PodStatus>(text).map_err(|error| error.to_string());
        let phase = |text: &str| status(text).unwrap().map(|status| status.phase.unwrap());
        let answered = r#"{"spec": {"containers": 7}, "status": {"phase": "Running"}}"#;
        assert_eq!(phase(answered).as_deref(), Some("Running"));
        assert_eq!((phase("{}"), phase(r#"{"status": null}"#)), (None, None));
        for text in ["[]", "7", "{", r#"{"status": {"phase": 7}}"#] {
            status(text).unwrap_err();
        }
    }

    #[test]
    fn a_mistake_is_told() {
        let read = serde_json::from_str::<AsTree<Pod>>(r#"{"metadata": {"name": 7}}"#);
        assert!(read.unwrap_err().to_string().contains("invalid type: integer `7`"));
    }
}
