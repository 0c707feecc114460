//! Objects as upstream's API server leaves them in etcd: read, changed, and written back in a form upstream reads.
//!
//! The bytes are put together by hand from the field numbers of the contract's tables, not by what reads or writes protobuf here.

mod kinds;

use super::*;
use crate::store::readable::Readable;
use crate::store::{Expect, Revision};
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;

/// Field `number` with these bytes (wire type 2).
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 128 * 128 && number < 32);
    let mut out = match number {
        0..16 => vec![number << 3 | 2],
        _ => vec![(number << 3 & 127) | 2 | 128, number >> 4],
    };
    match content.len() {
        short @ 0..128 => out.push(short as u8),
        long => out.extend([(long & 127) as u8 | 128, (long >> 7) as u8]),
    }
    out.extend_from_slice(content);
    out
}

fn text(number: u8, content: &str) -> Vec<u8> {
    field(number, content.as_bytes())
}

/// Field `number` with a number below 2^14 (wire type 0).
fn number(field: u8, value: u16) -> Vec<u8> {
    let mut out = vec![field << 3];
    match value {
        0..128 => out.push(value as u8),
        _ => out.extend([(value & 127) as u8 | 128, (value >> 7) as u8]),
    }
    out
}

/// The magic, then Unknown{1 typeMeta{1 apiVersion, 2 kind}, 2 raw}.
fn stored(api_version: &str, kind: &str, object: &[u8]) -> Bytes {
    let meta = [text(1, api_version), text(2, kind)].concat();
    let unknown = [field(1, &meta), field(2, object), text(3, ""), text(4, "")].concat();
    Bytes::from([&b"k8s\0"[..], &unknown].concat())
}

/// ObjectMeta{1 name, 3 namespace, 5 uid, 8 creationTimestamp{1 seconds}, 11 labels{1, 2}}; generateName, selfLink and
/// resourceVersion are written empty.
fn metadata(name: &str, uid: &str) -> Vec<u8> {
    // 2025-06-15T00:00:00Z is 1,749,945,600.
    let seconds = [0x08, 0x80, 0x9a, 0xb8, 0xc2, 0x06];
    let label = [text(1, "app"), text(2, name)].concat();
    [
        text(1, name),
        text(2, ""),
        text(3, "default"),
        text(4, ""),
        text(5, uid),
        text(6, ""),
        number(7, 0),
        field(8, &seconds),
        field(11, &label),
    ]
    .concat()
}

/// ConfigMap{1 metadata, 2 data{1 key, 2 value}, 3 binaryData}.
pub(super) fn config_map() -> Bytes {
    let data = [text(1, "colour"), text(2, "blue")].concat();
    let binary = [text(1, "raw"), field(2, &[0, 255])].concat();
    let uid = "11111111-1111-1111-1111-111111111111";
    stored(
        "v1",
        "ConfigMap",
        &[field(1, &metadata("cm", uid)), field(2, &data), field(3, &binary)].concat(),
    )
}

/// Service{1 metadata, 2 spec{1 ports{1 name, 2 protocol, 3 port, 4 targetPort{1 type, 2 intVal, 3 strVal}}, 2 selector,
/// 3 clusterIP, 4 type, 7 sessionAffinity}, 3 status{1 loadBalancer}}.
fn service() -> Bytes {
    let target = [number(1, 0), number(2, 8080), text(3, "")].concat();
    let port = [
        text(1, "http"),
        text(2, "TCP"),
        number(3, 80),
        field(4, &target),
        number(5, 0),
    ]
    .concat();
    let selector = [text(1, "app"), text(2, "web")].concat();
    let spec = [
        field(1, &port),
        field(2, &selector),
        text(3, "None"),
        text(4, "ClusterIP"),
        text(7, "None"),
    ]
    .concat();
    let uid = "22222222-2222-2222-2222-222222222222";
    let object = [
        field(1, &metadata("svc", uid)),
        field(2, &spec),
        field(3, &field(1, b"")),
    ]
    .concat();
    stored("v1", "Service", &object)
}

/// Pod{1 metadata, 2 spec{2 containers{1 name, 2 image, 8 resources{2 requests{1, 2 Quantity{1}}}, 14 imagePullPolicy},
/// 3 restartPolicy, 4 terminationGracePeriodSeconds, 6 dnsPolicy, 10 nodeName}, 3 status{1 phase}}.
fn pod() -> Bytes {
    let request = [text(1, "cpu"), field(2, &text(1, "250m"))].concat();
    let container = [
        text(1, "web"),
        text(2, "example.test/web:1"),
        field(8, &field(2, &request)),
        text(14, "IfNotPresent"),
    ]
    .concat();
    let spec = [
        field(2, &container),
        text(3, "Always"),
        number(4, 30),
        text(6, "ClusterFirst"),
        text(10, "n1"),
    ]
    .concat();
    let uid = "33333333-3333-3333-3333-333333333333";
    let object = [
        field(1, &metadata("web", uid)),
        field(2, &spec),
        field(3, &text(1, "Running")),
    ]
    .concat();
    stored("v1", "Pod", &object)
}

async fn send(daemon: &Daemon, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let content = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content);
    let request = request.body(crate::apiserver::body::full(body)).unwrap();
    let root = User::named("root", &["system:masters"]);
    let response = daemon.server().handle(Some(root), request).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn put(store: &Memory, key: &str, value: Bytes) -> Revision {
    store.put(key, value, Expect::Absent).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_upstream_wrote_is_read_and_can_be_changed() {
    let memory = Arc::new(Memory::new());
    let namespace = field(1, &text(1, "default"));
    put(
        &memory,
        "/registry/namespaces/default",
        stored("v1", "Namespace", &namespace),
    )
    .await;
    put(&memory, "/registry/configmaps/default/cm", config_map()).await;
    put(&memory, "/registry/services/specs/default/svc", service()).await;
    put(&memory, "/registry/pods/default/web", pod()).await;

    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Readable::over(Arc::clone(&memory), read_protobuf));
    let daemon = embedded_with(dir.path(), &store, &["--components=apiserver"]).await;
    let core = "/api/v1/namespaces/default";

    let (code, map) = send(&daemon, "GET", &format!("{core}/configmaps/cm"), &Value::Null).await;
    assert_eq!(code, 200, "{map}");
    assert_eq!(
        (&map["data"], &map["binaryData"]),
        (&json!({"colour": "blue"}), &json!({"raw": "AP8="}))
    );
    assert_eq!(map["metadata"]["uid"], "11111111-1111-1111-1111-111111111111");
    assert_eq!(map["metadata"]["creationTimestamp"], "2025-06-15T00:00:00Z");
    assert_eq!(map["metadata"]["labels"], json!({"app": "cm"}));

    let (_, service) = send(&daemon, "GET", &format!("{core}/services/svc"), &Value::Null).await;
    let port = &service["spec"]["ports"][0];
    assert_eq!(
        (&port["port"], &port["targetPort"]),
        (&json!(80), &json!(8080)),
        "{service}"
    );
    assert_eq!(service["spec"]["selector"], json!({"app": "web"}));

    let selected =
        format!("{core}/pods?labelSelector=app%3Dweb&fieldSelector=spec.nodeName%3Dn1,status.phase%3DRunning");
    let (_, pods) = send(&daemon, "GET", &selected, &Value::Null).await;
    let pod = &pods["items"][0];
    assert_eq!(pod["metadata"]["name"], "web", "{pods}");
    assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"], "250m");
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 30);

    // A merge, over the revision that etcd has.
    let change =
        json!({"data": {"colour": "red"}, "metadata": {"resourceVersion": map["metadata"]["resourceVersion"]}});
    let (code, changed) = send(&daemon, "PATCH", &format!("{core}/configmaps/cm"), &change).await;
    assert_eq!((code, &changed["data"]["colour"]), (200, &json!("red")), "{changed}");
    assert_eq!(changed["metadata"]["uid"], map["metadata"]["uid"]);
    let (_, records) = memory.range("/registry/configmaps/default/cm").await.unwrap();
    let written: Value =
        serde_json::from_slice(&records[0].value).expect("JSON says itself what it is, and upstream reads it");
    assert_eq!(
        (&written["kind"], &written["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
    assert_eq!(written["binaryData"], json!({"raw": "AP8="}));

    // Written while we are watching, as by an API server of upstream's beside this one.
    let label = format!("{core}/configmaps?labelSelector=app%3Dlate");
    put(&memory, "/registry/configmaps/default/late", {
        let data = [text(1, "a"), text(2, "b")].concat();
        let uid = "44444444-4444-4444-4444-444444444444";
        stored(
            "v1",
            "ConfigMap",
            &[field(1, &metadata("late", uid)), field(2, &data)].concat(),
        )
    })
    .await;
    let (_, late) = send(&daemon, "GET", &label, &Value::Null).await;
    assert_eq!(late["items"][0]["data"], json!({"a": "b"}), "{late}");

    let (code, _) = send(&daemon, "DELETE", &format!("{core}/configmaps/late"), &Value::Null).await;
    assert_eq!(code, 200);
    let damaged = Bytes::from_static(b"k8s\0\x0a\xff");
    put(&memory, "/registry/configmaps/default/torn", damaged).await;
    let (code, torn) = send(&daemon, "GET", &format!("{core}/configmaps/torn"), &Value::Null).await;
    assert!(
        code == 500
            && torn["message"]
                .as_str()
                .unwrap()
                .contains("/registry/configmaps/default/torn"),
        "{torn}"
    );
    daemon.stop().await;
}
