//! The storage group.

use super::*;

const GROUP: &str = "storage.k8s.io";

#[test]
fn drivers() {
    let driver = Good::new(
        GROUP,
        "csidrivers",
        "a",
        json!({"spec": {"tokenRequests": [{"audience": "a"}]}}),
    );
    driver.refuses(vec![
        (
            "/spec/volumeLifecycleModes",
            json!(["X"]),
            "spec.volumeLifecycleModes: Unsupported value: \"X\": supported values: \"Persistent\", \"Ephemeral\"",
        ),
        (
            "/spec/fsGroupPolicy",
            json!("X"),
            "spec.fsGroupPolicy: Unsupported value: \"X\": supported values: \"File\", \"None\", \"ReadWriteOnceWithFSType\"",
        ),
        (
            "/spec/tokenRequests",
            json!([{"audience": "a"}, {"audience": "a"}]),
            "spec.tokenRequests[1].audience: Duplicate value: \"a\"",
        ),
        (
            "/spec/tokenRequests/0/expirationSeconds",
            json!(599),
            "spec.tokenRequests[0].expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
        ),
        (
            "/spec/nodeAllocatableUpdatePeriodSeconds",
            json!(9),
            "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds",
        ),
    ]);
    driver.keeps(vec![
        (
            "/spec/attachRequired",
            json!(false),
            "spec.attachedRequired: Invalid value: false: field is immutable",
        ),
        (
            "/spec/volumeLifecycleModes",
            json!(["Ephemeral"]),
            "spec.volumeLifecycleModes: Invalid value: [\"Ephemeral\"]: field is immutable",
        ),
        ("/spec/podInfoOnMount", json!(true), ""),
    ]);
}

#[test]
fn nodes_of_drivers() {
    let driver = |name: &str| json!({"name": name, "nodeID": "x", "allocatable": {"count": 1}});
    let node = Good::new(
        GROUP,
        "csinodes",
        "a",
        json!({"spec": {"drivers": [driver("a"), driver("b")]}}),
    );
    node.refuses(vec![
        (
            "/spec/drivers/1/name",
            json!("a"),
            "spec.drivers[1].name: Duplicate value: \"a\"",
        ),
        (
            "/spec/drivers/0/nodeID",
            json!(""),
            "spec.drivers[0].nodeID: Required value",
        ),
        (
            "/spec/drivers/0/allocatable/count",
            json!(-1),
            "spec.drivers[0].allocatable.count: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "/spec/drivers/0/topologyKeys",
            json!(["a", "a"]),
            "spec.drivers[0]: Duplicate value: \"a\"",
        ),
    ]);
    assert!(node.told(&[("/spec/drivers/0/name", json!(""))])[0].ends_with("name: Required value"));
    let long = json!("n".repeat(257));
    assert!(node.told(&[("/spec/drivers/0/nodeID", long)])[0].ends_with("must be 256 characters or less"));
    node.keeps(vec![
        (
            "/spec/drivers/0/nodeID",
            json!("y"),
            "spec.drivers: Invalid value: {\"name\":\"a\",\"nodeID\":\"y\"}: field is immutable",
        ),
        ("/spec/drivers/0/allocatable/count", json!(2), ""),
    ]);
}

#[test]
fn capacities() {
    let capacity = Good::new(
        GROUP,
        "csistoragecapacities",
        "a",
        json!({"storageClassName": "a", "capacity": "1"}),
    );
    capacity.refuses(vec![(
        "/capacity",
        json!("-1"),
        "capacity: Invalid value: \"-1\": must be greater than or equal to 0",
    )]);
    for (pointer, value) in [
        ("/storageClassName", json!("")),
        ("/nodeTopology", json!({"matchLabels": {"a b": "c"}})),
    ] {
        assert_eq!(capacity.told(&[(pointer, value)]).len(), 1, "{pointer}");
    }
    capacity.keeps(vec![(
        "/storageClassName",
        json!("b"),
        "storageClassName: Invalid value: \"b\": field is immutable",
    )]);
}

#[test]
fn classes() {
    let class = Good::new(
        GROUP,
        "storageclasses",
        "a",
        json!({"provisioner": "a.B/c", "parameters": {"a": "b"}}),
    );
    let rule = |values: Value| json!({"matchLabelExpressions": [{"key": "a", "values": values}]});
    class.refuses(vec![
        ("/provisioner", json!(""), "provisioner: Required value"),
        (
            "/parameters",
            json!({"": "x"}),
            "parameters: Invalid value: \"\": field can not be empty.",
        ),
        (
            "/parameters",
            json!({"a": "b".repeat(256 << 10)}),
            "parameters: Too long: may not be more than 262144 bytes",
        ),
        (
            "/allowedTopologies",
            json!([rule(json!([]))]),
            "allowedTopologies[0].matchLabelExpressions[0].values: Required value",
        ),
        (
            "/allowedTopologies",
            json!([rule(json!(["b", "b"]))]),
            "allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: \"b\"",
        ),
        (
            "/allowedTopologies",
            json!([rule(json!(["b", "c"])), rule(json!(["c", "b"]))]),
            "allowedTopologies[1].matchLabelExpressions: Duplicate value: \"\"",
        ),
    ]);
    assert_eq!(class.told(&[("/provisioner", json!("a b"))]).len(), 1);
    class.keeps(vec![
        (
            "/reclaimPolicy",
            json!("Retain"),
            "reclaimPolicy: Forbidden: updates to reclaimPolicy are forbidden.",
        ),
        (
            "/parameters",
            json!({}),
            "parameters: Forbidden: updates to parameters are forbidden.",
        ),
    ]);
}

#[test]
fn classes_of_attributes() {
    let class = Good::new(
        GROUP,
        "volumeattributesclasses",
        "a",
        json!({"driverName": "a", "parameters": {"a": "b"}}),
    );
    class.refuses(vec![
        ("/driverName", json!(""), "driverName: Required value"),
        (
            "/parameters",
            json!({}),
            "parameters: Required value: must contain at least one key/value pair",
        ),
    ]);
    class.keeps(vec![(
        "/driverName",
        json!("b"),
        "driverName: Forbidden: updates to driverName are forbidden.",
    )]);
}

#[test]
fn attachments() {
    let attachment = Good::new(
        GROUP,
        "volumeattachments",
        "a",
        json!({"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "p"}}}),
    );
    let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    attachment.refuses(vec![
        (
            "/spec/source",
            json!({}),
            &format!("spec.source: Required value: {one}"),
        ),
        (
            "/spec/source/inlineVolumeSpec",
            json!({}),
            &format!("spec.source: Forbidden: {one}"),
        ),
        (
            "/spec/source/persistentVolumeName",
            json!(""),
            "spec.source.persistentVolumeName: Required value: must specify non empty persistentVolumeName",
        ),
    ]);
    for (pointer, value) in [
        ("/spec/nodeName", json!("")),
        ("/spec/source/persistentVolumeName", json!("A_")),
        ("/spec/attacher", json!("a".repeat(64))),
    ] {
        let told = attachment.told(&[(pointer, value)]);
        assert!(!told.is_empty(), "{pointer}");
    }
    assert!(attachment.told(&[("/spec/attacher", json!(""))])[0].ends_with("attacher: Required value"));
    let told = attachment.told_of_update(&[("/spec/nodeName", json!("m"))], "");
    assert!(told[0].ends_with("field is immutable"), "{told:?}");
    let status = json!({"attachError": {"message": "a".repeat(1025), "errorCode": -1}});
    assert_eq!(
        attachment.told_of_update(&[("/status", status)], "status"),
        [
            "status.attachError.message: Too long: may not be more than 262144 bytes",
            "status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive"
        ]
    );
}
