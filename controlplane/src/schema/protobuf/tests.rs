//! Messages written by hand, and bytes that are none.

use super::special::go_duration;
use super::table::{Form, messages};
use super::*;
use proptest::prelude::*;
use serde_json::json;

fn put(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn bytes(number: usize, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, number << 3 | 2);
    put(&mut out, content.len());
    out.extend_from_slice(content);
    out
}

fn int(number: usize, value: usize) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, number << 3);
    put(&mut out, value);
    out
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), bytes(1, &meta), bytes(2, raw)].concat()
}

#[test]
fn a_config_map_and_a_secret() {
    let entry = [bytes(1, b"key"), bytes(2, b"value")].concat();
    let metadata = [bytes(1, b"c"), bytes(3, b"ns"), bytes(8, &[])].concat();
    let raw = [bytes(1, &metadata), bytes(2, &entry)].concat();
    assert_eq!(
        read(&envelope("v1", "ConfigMap", &raw)).unwrap(),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns"}, "data": {"key": "value"}})
    );
    let secret = read(&envelope("v1", "Secret", &bytes(2, &entry))).unwrap();
    assert_eq!(secret["data"]["key"], "dmFsdWU=");
}

#[test]
fn inlined_members_special_forms_and_zeros() {
    // Probe{handler{tcpSocket{port "web"}}, initialDelaySeconds 0}; resources limits cpu.
    let port = [int(1, 1), bytes(3, b"web")].concat();
    let handler = bytes(3, &bytes(1, &port));
    let probe = [bytes(1, &handler), int(2, 0)].concat();
    let limits = [bytes(1, b"cpu"), bytes(2, &bytes(1, b"500m"))].concat();
    let container = [
        bytes(1, b"c"),
        bytes(8, &bytes(1, &limits)),
        bytes(10, &probe),
        int(16, 0),
    ]
    .concat();
    let empty_dir = bytes(2, &bytes(2, &[]));
    let volume = [bytes(1, b"v"), empty_dir].concat();
    let spec = [bytes(1, &volume), bytes(2, &container), int(4, 0), int(11, 0)].concat();
    let pod = read(&envelope("v1", "Pod", &bytes(2, &spec))).unwrap();
    assert_eq!(
        pod["spec"],
        json!({"volumes": [{"name": "v", "emptyDir": {}}], "terminationGracePeriodSeconds": 0, "containers": [{"name": "c",
            "resources": {"limits": {"cpu": "500m"}}, "livenessProbe": {"tcpSocket": {"port": "web"}}}]})
    );
}

#[test]
fn reviews_leases_and_options() {
    let extra = [bytes(1, b"k"), bytes(2, &bytes(1, b"v"))].concat();
    let review = bytes(2, &bytes(5, &extra));
    let review = read(&envelope("authorization.k8s.io/v1", "SubjectAccessReview", &review)).unwrap();
    assert_eq!(review["spec"]["extra"]["k"], json!(["v"]));
    let renewed = [int(1, 5), int(2, 9)].concat();
    let lease = read(&envelope(
        "coordination.k8s.io/v1",
        "Lease",
        &bytes(2, &bytes(4, &renewed)),
    ))
    .unwrap();
    assert_eq!(lease["spec"]["renewTime"], "1970-01-01T00:00:05.000000Z");
    let options = read(&envelope("apps/v1", "DeleteOptions", &int(1, 0))).unwrap();
    assert_eq!(
        options,
        json!({"apiVersion": "apps/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
    );
}

#[test]
fn durations_read_as_go_prints_them() {
    for (nanos, text) in [
        (0, "0s"),
        (90_000_000_000, "1m30s"),
        (1_500_000_000, "1.5s"),
        (-3_600_000_000_000, "-1h0m0s"),
    ] {
        assert_eq!(go_duration(nanos), text);
    }
}

#[test]
fn every_type_in_the_table_is_known() {
    for (name, fields) in messages() {
        for field in fields.values() {
            if let Form::Message(inner) = field.form {
                assert!(messages().contains_key(inner), "{name}: {inner}");
            }
        }
    }
    assert!(read(b"{}").is_err());
    assert!(read(&envelope("v1", "Nothing", &[])).is_err());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(raw in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&envelope("v1", "Pod", &raw));
        let _ = read(&raw);
    }
}
