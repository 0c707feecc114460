//! The resource group.

use super::*;

const GROUP: &str = "resource.k8s.io";
const NO_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

#[test]
fn device_classes() {
    let class = Good::new(
        GROUP,
        "deviceclasses",
        "a",
        json!({"spec": {"selectors": [{"cel": {"expression": "true"}}]}}),
    );
    class.refuses(vec![
        (
            "/spec/selectors/0",
            json!({}),
            "spec.selectors[0].cel: Required value",
        ),
        (
            "/spec/selectors/0/cel/expression",
            json!("a".repeat(10_241)),
            "spec.selectors[0].cel.expression: Too long: may not be more than 10240 bytes",
        ),
        ("/spec/config", json!([{}]), "spec.config[0].opaque: Required value"),
        (
            "/spec/config",
            json!([{"opaque": {"driver": "a", "parameters": 1}}]),
            "spec.config[0].opaque.parameters: Invalid value: \"<value omitted>\": parameters must be a valid JSON object",
        ),
        (
            "/spec/selectors",
            json!(vec![json!({"cel": {"expression": "true"}}); 33]),
            "spec.selectors: Too many: 33: must have at most 32 items",
        ),
    ]);
}

fn claim() -> Good {
    let request = json!({"name": "r", "exactly": {"deviceClassName": "c"}});
    Good::new(
        GROUP,
        "resourceclaims",
        "a",
        json!({"spec": {"devices": {"requests": [request]}}}),
    )
}

#[test]
fn resource_claims() {
    let claim = claim();
    let exactly = "spec.devices.requests[0].exactly";
    claim.refuses(vec![
        (
            "/spec/devices/requests/0/exactly",
            Value::Null,
            "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
        ),
        (
            "/spec/devices/requests/0/firstAvailable",
            json!([{"name": "s", "deviceClassName": "c"}]),
            "spec.devices.requests[0]: Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, but \
             multiple fields are set",
        ),
        (
            "/spec/devices/requests/0/exactly/deviceClassName",
            json!(""),
            &format!("{exactly}.deviceClassName: Required value"),
        ),
        (
            "/spec/devices/requests/0/exactly/allocationMode",
            json!("All"),
            &format!("{exactly}.count: Invalid value: 1: must not be specified when allocationMode is 'All'"),
        ),
        (
            "/spec/devices/requests/0/exactly/allocationMode",
            json!("X"),
            &format!("{exactly}.allocationMode: Unsupported value: \"X\": supported values: \"All\", \"ExactCount\""),
        ),
        (
            "/spec/devices/requests/0/exactly/count",
            json!(-1),
            &format!("{exactly}.count: Invalid value: -1: must be greater than zero"),
        ),
        (
            "/spec/devices/requests/0/exactly/tolerations",
            json!([{"operator": "Exists", "value": "a"}]),
            &format!("{exactly}.tolerations[0].value: Invalid value: \"a\": must be empty for operator `Exists`"),
        ),
        (
            "/spec/devices/constraints",
            json!([{"requests": ["nope"], "matchAttribute": "a/b"}]),
            &format!("spec.devices.constraints[0].requests[0]: Invalid value: \"nope\": {NO_REQUEST}"),
        ),
        (
            "/spec/devices/constraints",
            json!([{"matchAttribute": "b"}]),
            "spec.devices.constraints[0].matchAttribute: Invalid value: \"b\": must include a domain",
        ),
        (
            "/spec/devices/config",
            json!([{"requests": ["r", "r"], "opaque": {"driver": "a", "parameters": {}}}]),
            "spec.devices.config[0].requests[1]: Duplicate value: \"r\"",
        ),
    ]);
    assert_eq!(claim.told(&[("/spec/devices/requests/0/name", json!("B_"))]).len(), 1);
    let told = claim.told_of_update(&[("/spec/devices/requests", json!([]))], "");
    assert!(told[0].ends_with("field is immutable"), "{told:?}");
    let request = json!({"name": "r", "exactly": {"deviceClassName": ""}});
    let template = json!({"spec": {"spec": {"devices": {"requests": []}}}});
    let template = Good::new(GROUP, "resourceclaimtemplates", "a", template);
    template.refuses(vec![(
        "/spec/spec/devices/requests",
        json!([request]),
        "spec.spec.devices.requests[0].exactly.deviceClassName: Required value",
    )]);
}

#[test]
fn what_a_claim_has() {
    let claim = claim();
    let status = |status: Value| claim.told_of_update(&[("/status", status)], "status");
    let user = json!({"resource": "pods", "name": "p", "uid": "u"});
    let result = json!({"request": "r", "driver": "d", "pool": "p", "device": "x"});
    let allocation = json!({"devices": {"results": [result]}});
    assert_eq!(
        status(json!({"reservedFor": [user], "allocation": allocation})),
        [""; 0]
    );
    assert_eq!(
        status(json!({"reservedFor": [user]})),
        ["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"]
    );
    assert_eq!(
        status(json!({"reservedFor": [user, user], "allocation": allocation})),
        ["status.reservedFor[1].uid: Duplicate value: \"u\""]
    );
    let mut other = allocation.clone();
    other["devices"]["results"][0]["request"] = json!("q");
    assert_eq!(
        status(json!({"allocation": other})),
        [format!(
            "status.allocation.devices.results[0].request: Invalid value: \"q\": {NO_REQUEST}"
        )]
    );
    let said = json!({"driver": "d", "pool": "p", "device": "y"});
    assert_eq!(
        status(json!({"allocation": allocation, "devices": [said]})),
        ["status.devices[0]: Invalid value: \"d/p/y\": must be an allocated device in the claim"]
    );
}

#[test]
fn resource_slices() {
    let slice = Good::new(
        GROUP,
        "resourceslices",
        "a",
        json!({"spec": {"driver": "d", "nodeName": "n", "pool": {"name": "p", "resourceSliceCount": 1},
            "devices": [{"name": "x", "attributes": {"v": {"version": "1.2.3-a.1+b"}}}, {"name": "y"}]}}),
    );
    let one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    slice.refuses(vec![
        (
            "/spec/pool/resourceSliceCount",
            json!(0),
            "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
        ),
        (
            "/spec/allNodes",
            json!(true),
            &format!("spec: Invalid value: \"{{`nodeName`, `allNodes`}}\": {one}, but multiple fields are set"),
        ),
        ("/spec/nodeName", Value::Null, &format!("spec: Required value: {one}")),
        ("/spec/devices/1/name", json!("x"), "spec.devices[1].name: Duplicate value: \"x\""),
        (
            "/spec/devices/0/attributes/v",
            json!({}),
            "spec.devices[0].attributes[v]: Invalid value: \"\": exactly one value must be specified",
        ),
        (
            "/spec/devices/0/attributes/v",
            json!({"version": "1.02.3"}),
            "spec.devices[0].attributes[v].version: Invalid value: \"1.02.3\": must be a string compatible with semver.org \
             spec 2.0.0",
        ),
        (
            "/spec/devices/0/attributes/v",
            json!({"string": "a".repeat(65)}),
            "spec.devices[0].attributes[v].string: Too long: may not be more than 64 bytes",
        ),
        (
            "/spec/devices/0/taints",
            json!([{"key": "a", "effect": "X"}]),
            "spec.devices[0].taints[0].effect: Unsupported value: \"X\": supported values: \"NoExecute\", \"NoSchedule\", \
             \"None\"",
        ),
        (
            "/spec/devices/0/nodeName",
            json!("n"),
            "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if \
             `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
        ),
        (
            "/spec/sharedCounters",
            json!([{"name": "s", "counters": {"c": {"value": "1"}}}]),
            "spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed",
        ),
    ]);
    for (count, tainted, good) in [
        (128, false, true),
        (129, false, false),
        (64, true, true),
        (65, true, false),
    ] {
        let device = |i: usize| json!({"name": format!("d{i}")});
        let mut devices: Vec<Value> = (0..count).map(device).collect();
        if tainted {
            devices[0]["taints"] = json!([{"key": "a", "effect": "NoSchedule"}]);
        }
        let told = slice.told(&[("/spec/devices", json!(devices))]);
        assert_eq!(told.is_empty(), good, "{count} {told:?}");
    }
    assert_eq!(slice.told(&[("/spec/driver", json!("B_"))]).len(), 1);
    slice.keeps(vec![(
        "/spec/pool/name",
        json!("q"),
        "spec.pool.name: Invalid value: \"q\": field is immutable",
    )]);
}
