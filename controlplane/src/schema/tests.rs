use serde_json::json;

use super::*;
use crate::resource::Registry;

fn pod(body: &str) -> Result<Decoded, DecodeError> {
    let kind = Registry::built_in().by_gvk("", "v1", "Pod").expect("pods are built in");
    decode(kind, body.as_bytes(), Media::Json)
}

#[test]
fn every_kind_has_a_type_and_its_facts() {
    for kind in Registry::built_in().kinds() {
        assert!(kind.schema().1.is_some(), "{kind:?}");
    }
    let pods = Registry::built_in().by_gvk("", "v1", "Pod").expect("pods are built in");
    let schema = pods.types.get();
    let spec = schema.type_of("io.k8s.api.core.v1.PodSpec").expect("a pod has a spec");
    let containers = schema.get(spec).field("containers").expect("and containers");
    assert!(containers.required && matches!(containers.shape, Shape::List(_)));
    let merge = containers.merge.as_ref().expect("which merge");
    assert_eq!((merge.patch_merge, merge.patch_merge_key.as_str()), (true, "name"));
    let volumes = schema.get(spec).field("volumes").and_then(|field| field.merge.as_ref());
    assert!(volumes.is_some_and(|merge| merge.retain_keys && merge.list_type == Some(ListType::Map)));
}

#[test]
fn unknown_and_duplicate_fields_are_reported_with_their_path() {
    let decoded = pod(
        r#"{"kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","imagee":"x",
        "image":"a","image":"b"}],"foo":{"bar":1}}}"#,
    )
    .expect("readable");
    assert_eq!(
        decoded.strict_error().as_deref(),
        Some(
            "strict decoding error: unknown field \"spec.containers[0].imagee\", unknown field \"spec.foo\", duplicate \
             field \"spec.containers[0].image\""
        )
    );
    assert_eq!(
        decoded.value,
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "c", "image": "b"}]}})
    );
}

#[test]
fn wrong_types_name_field_and_types() {
    for (body, reason) in [
        (
            r#"{"spec":{"containers":[{"name":1}]}}"#,
            "json: cannot unmarshal number into Go struct field Container.spec.containers.name of type string",
        ),
        (
            r#"{"spec":{"containers":{}}}"#,
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            r#"{"spec":{"priority":99999999999}}"#,
            "json: cannot unmarshal number 99999999999 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            r#"{"metadata":{"labels":{"a":1}}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
    ] {
        let error = pod(body).expect_err(body).to_string();
        assert_eq!(
            error,
            format!("Pod in version \"v1\" cannot be handled as a Pod: {reason}")
        );
    }
}

#[test]
fn a_body_of_another_kind_or_version_is_refused() {
    assert!(matches!(
        pod(r#"{"kind":"Service"}"#),
        Err(DecodeError::WrongKind { .. })
    ));
    assert_eq!(
        pod(r#"{"apiVersion":"v2"}"#).expect_err("v2").to_string(),
        "the API version in the data (v2) does not match the expected API version (v1)"
    );
    assert!(matches!(pod("[1]"), Err(DecodeError::Unreadable { .. })));
    assert!(matches!(pod("{"), Err(DecodeError::Unreadable { .. })));
    for (body, summary) in [
        ("", "(<empty>)"),
        ("{", "({)"),
        ("[1]", "(5b315d)"),
        (
            r#"{"a": "123456789012345678901234567890"#,
            r#"({"a": "12345678901234567890123 ...)"#,
        ),
    ] {
        let text = pod(body).expect_err(body).to_string();
        assert!(text.ends_with(summary), "{text}");
    }
    let text = pod(r#"{"apiVersion":"apps/v9","kind":"Service"}"#)
        .expect_err("a service")
        .to_string();
    assert!(text.starts_with("Service in version \"v9\" cannot"), "{text}");
}

#[test]
fn empties_go_unless_they_mean_something() {
    let decoded = pod(
        r#"{"metadata":{"name":"a","namespace":"","labels":{},"creationTimestamp":null},
        "spec":{"nodeName":"","nodeSelector":{},"tolerations":[],"containers":[],
        "volumes":[{"name":"v","emptyDir":{}},{"name":"h","hostPath":{"path":"/x","type":""}}]},"status":{}}"#,
    )
    .expect("readable");
    assert_eq!(
        decoded.value,
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/x", "type": ""}}]},
            "status": {}})
    );
}

#[test]
fn an_empty_list_of_owners_means_something_in_the_objects_own_metadata_alone() {
    let body = br#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","managedFields":[]},
        "spec":{"selector":{},"template":{"metadata":{"name":"t","managedFields":[]},"spec":{"containers":[]}}}}"#;
    let kind = Registry::built_in().by_gvk("apps", "v1", "Deployment");
    let decoded = decode(kind.expect("built in"), body, Media::Json)
        .expect("readable")
        .value;
    assert_eq!(decoded["metadata"], json!({"name": "d", "managedFields": []}));
    assert_eq!(decoded["spec"]["template"]["metadata"], json!({"name": "t"}));
}

#[test]
fn scalars_are_canonical() {
    let decoded = pod(r#"{"metadata":{"creationTimestamp":"2026-01-02T03:04:05.678+01:00"},
        "spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":2,"memory":"1Gi"}}}]}}"#)
    .expect("readable");
    assert_eq!(decoded.value["metadata"]["creationTimestamp"], "2026-01-02T02:04:05Z");
    assert_eq!(
        decoded.value["spec"]["containers"][0]["resources"]["limits"]["cpu"],
        "2"
    );
    let bad = pod(r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"lots"}}}]}}"#);
    let text = bad.expect_err("not a quantity").to_string();
    assert!(text.contains("quantities must match"), "{text}");
}

#[test]
fn yaml_has_scalar_keys_duplicates_and_no_bombs() {
    let kind = Registry::built_in().by_gvk("", "v1", "ConfigMap").expect("built in");
    let read = |text: &str| decode(kind, text.as_bytes(), Media::Yaml);
    let decoded =
        read("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  a: x\n  a: z\n").expect("readable");
    assert_eq!(decoded.value["data"], json!({"a": "z"}));
    assert_eq!(decoded.problems, [Problem::Duplicate("data.a".to_owned())]);
    let decoded = read("data:\n  1: one\n  true: yes it is\n  t: \"1\"\n").expect("readable");
    assert_eq!(
        decoded.value["data"],
        json!({"1": "one", "true": "yes it is", "t": "1"})
    );
    assert!(matches!(read("a: [b"), Err(DecodeError::Unreadable { .. })));
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for i in 1..9 {
        let inner = vec![format!("*a{}", i - 1); 10].join(",");
        bomb.push_str(&format!("a{i}: &a{i} [{inner}]\n"));
    }
    assert!(matches!(read(&bomb), Err(DecodeError::Unreadable { .. })));
}

#[test]
fn bodies_of_subresources_decode_too() {
    let eviction = br#"{"metadata":{"name":"p"},"deleteOptions":{"gracePeriodSeconds":3}}"#;
    let body = |group: &str, kind: &str| Registry::built_in().body(group, "v1", kind).expect("a body");
    let decoded = decode_body(&body("policy", "Eviction"), eviction, Media::Json).expect("readable");
    assert_eq!(decoded.value["apiVersion"], "policy/v1");
    assert!(decode_body(&body("", "DeleteOptions"), br#"{"orphanDependents":1}"#, Media::Json).is_err());
}

#[test]
fn normalizing_is_idempotent() {
    let kind = Registry::built_in().by_gvk("", "v1", "Pod").expect("built in");
    let mut once = json!({"metadata": {"labels": {}, "x": 1}, "spec": {"containers": [{"name": "a", "args": []}]}});
    assert_eq!(prune(kind, &mut once), ["metadata.x"]);
    let mut twice = once.clone();
    assert_eq!(normalize(kind, &mut twice), Ok(vec![]));
    assert_eq!(once, twice);
}

/// A definition that is read, sent back as it was and read again is the same to the byte, whatever wrote it.
#[test]
fn floats_are_as_go_writes_them_from_json_and_from_protobuf() {
    let definitions = Registry::built_in().by_gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions = definitions.expect("definitions are built in");
    let of = |limits: &str| {
        format!(
            r#"{{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{{"name":"a"}},"spec":{{"group":"g",
            "names":{{"plural":"a","kind":"A"}},"scope":"Cluster","versions":[{{"name":"v1","served":true,"storage":true,
            "schema":{{"openAPIV3Schema":{limits}}}}}]}}}}"#
        )
    };
    let read = |limits: &str| {
        let decoded = decode(definitions, of(limits).as_bytes(), Media::Json).expect("readable");
        let message = protobuf::of_object(&decoded.value).expect("it has a message");
        let again = decode(definitions, &message, Media::Protobuf).expect("readable");
        let path = "/spec/versions/0/schema/openAPIV3Schema";
        let texts = [decoded, again].map(|decoded| decoded.value.pointer(path).expect("a schema").to_string());
        assert_eq!(texts[0], texts[1]);
        texts[0].clone()
    };
    for (sent, stored) in [
        (r#"{"maximum":1e1,"minimum":0.0}"#, r#"{"maximum":10,"minimum":0}"#),
        (r#"{"maximum":2.50,"minimum":-3.0}"#, r#"{"maximum":2.5,"minimum":-3}"#),
        (
            r#"{"maximum":7,"minimum":-1e300}"#,
            r#"{"maximum":7,"minimum":-1e+300}"#,
        ),
    ] {
        assert_eq!(read(sent), stored);
    }
}
