//! What is refused, what is kept, what is filled in.

use super::*;
use rcgen::{CertificateParams, KeyPair};

fn request() -> Value {
    let key = KeyPair::generate().unwrap();
    let pem = CertificateParams::new(vec![]).unwrap().serialize_request(&key).unwrap();
    let pem = base64::engine::general_purpose::STANDARD.encode(pem.pem().unwrap());
    json!({"metadata": {"name": "csr"}, "spec": {
        "request": pem, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}})
}

fn errors(change: impl FnOnce(&mut Value)) -> Vec<String> {
    let mut object = request();
    change(&mut object["spec"]);
    SigningRequest
        .validate(&object)
        .iter()
        .map(ToString::to_string)
        .collect()
}

type Change = fn(&mut Value);

#[test]
fn a_request_is_checked_when_it_is_made() {
    assert_eq!(errors(|_| ()), Vec::<String>::new());
    let table: [(Change, &str); 7] = [
        (|spec| spec["request"] = json!("eA=="), "spec.request"),
        (|spec| spec["usages"] = json!([]), "spec.usages: Required value"),
        (
            |spec| spec["usages"] = json!(["flying"]),
            "spec.usages[0]: Unsupported value",
        ),
        (
            |spec| spec["usages"] = json!(["client auth", "client auth"]),
            "spec.usages[1]: Duplicate value",
        ),
        (
            |spec| spec["signerName"] = json!("kubernetes.io/legacy-unknown"),
            "the legacy signerName is not allowed via this API version",
        ),
        (|spec| spec["signerName"] = json!("nodomain/x"), "at least two segments"),
        (|spec| spec["expirationSeconds"] = json!(599), "spec.expirationSeconds"),
    ];
    for (change, part) in table {
        let found = errors(change).join("\n");
        assert!(found.contains(part), "{part} is not in {found}");
    }
}

#[test]
fn each_endpoint_changes_its_part_only() {
    let old = request();
    let mut new = old.clone();
    new["spec"]["username"] = json!("somebody else");
    new["status"] = json!({"certificate": "eA==", "conditions": [{"type": "Approved", "status": "True"}]});
    let through = |part: &str| {
        let mut new = new.clone();
        SigningRequest.prepare_update(&mut new, &old, part);
        assert_eq!(new["spec"], old["spec"], "{part}");
        new
    };
    assert_eq!(through("")["status"], Value::Null);
    let approved = through("approval");
    assert_eq!(
        approved["status"],
        json!({"conditions": [{"type": "Approved", "status": "True"}]})
    );
    assert!(SigningRequest.validate_update(&approved, &old, "approval").is_empty());
    let texts = |new: &Value, old: &Value, part: &str| {
        let errors = SigningRequest.validate_update(new, old, part);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let status = texts(&through("status"), &old, "status");
    assert!(
        status.contains("may not add a condition of type \"Approved\""),
        "{status}"
    );
    assert!(status.contains("status.certificate"), "{status}");
    assert!(texts(&old, &approved, "approval").contains("may not remove"));
    let mut both = approved.clone();
    both["status"]["conditions"] =
        json!([{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "False"}]);
    let both = texts(&both, &approved, "approval");
    assert!(
        both.contains("mutually exclusive") && both.contains("conditions[1].status"),
        "{both}"
    );
}

#[test]
fn times_are_filled_in_where_they_are_missing() {
    let old = json!({"status": {"conditions": [
        {"type": "Approved", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    let mut new = json!({"status": {"conditions": [{"type": "Approved", "status": "True"}, {"type": "Failed", "status": "True"}]}});
    SigningRequest.stamp(&mut new, &old, "2027-01-01T00:00:00Z".parse().unwrap());
    let conditions = &new["status"]["conditions"];
    assert_eq!(conditions[0]["lastTransitionTime"], "2020-01-01T00:00:00Z");
    assert_eq!(conditions[0]["lastUpdateTime"], "2027-01-01T00:00:00Z");
    assert_eq!(conditions[1]["lastTransitionTime"], "2027-01-01T00:00:00Z");
}
