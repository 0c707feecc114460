//! Flow control.

use super::*;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

#[test]
fn flow_schemas() {
    let rule = json!({"subjects": [{"kind": "Group", "group": {"name": "g"}}],
        "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/a/*"]}]});
    let schema = Good::new(
        GROUP,
        "flowschemas",
        "a",
        json!({"spec": {"priorityLevelConfiguration": {"name": "p"}, "rules": [rule]}}),
    );
    schema.refuses(vec![
        (
            "/spec/matchingPrecedence",
            json!(-1),
            "spec.matchingPrecedence: Invalid value: -1: must be a positive value",
        ),
        (
            "/spec/matchingPrecedence",
            json!(10001),
            "spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000",
        ),
        (
            "/spec/matchingPrecedence",
            json!(1),
            "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
        ),
        (
            "/spec/priorityLevelConfiguration/name",
            json!(""),
            "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
        ),
        (
            "/spec/distinguisherMethod",
            json!({"type": "X"}),
            "spec.distinguisherMethod.type: Unsupported value: {\"type\":\"X\"}: supported values: \"ByNamespace\", \"ByUser\"",
        ),
        (
            "/spec/rules/0/subjects",
            json!([]),
            "spec.rules[0].subjects: Required value: subjects must contain at least one value",
        ),
        (
            "/spec/rules/0/subjects/0/kind",
            json!("X"),
            "spec.rules[0].subjects[0].kind: Unsupported value: \"X\": supported values: \"Group\", \"ServiceAccount\", \"User\"",
        ),
        (
            "/spec/rules/0/subjects/0/user",
            json!({"name": "u"}),
            "spec.rules[0].subjects[0].user: Forbidden: user is forbidden when subject kind is not 'User'",
        ),
        (
            "/spec/rules/0/subjects/0",
            json!({"kind": "User"}),
            "spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'",
        ),
        (
            "/spec/rules/0/subjects/0",
            json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*"}}),
            "spec.rules[0].subjects[0].serviceAccount.namespace: Required value: must specify namespace for service account",
        ),
        (
            "/spec/rules/0/resourceRules/0/verbs",
            json!(["get", "*"]),
            "spec.rules[0].resourceRules[0].verbs: Invalid value: [\"get\",\"*\"]: if '*' is present, must not specify other verbs",
        ),
        (
            "/spec/rules/0/resourceRules/0/apiGroups",
            json!([]),
            "spec.rules[0].resourceRules[0].apiGroups: Required value: resource rules must supply at least one api group",
        ),
        (
            "/spec/rules/0/resourceRules/0/namespaces",
            json!([]),
            "spec.rules[0].resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply \
             at least one namespace",
        ),
        (
            "/spec/rules/0/nonResourceRules/0/nonResourceURLs",
            json!(["a"]),
            "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"a\": must start with slash",
        ),
        (
            "/spec/rules/0/nonResourceRules/0/nonResourceURLs",
            json!(["/a*"]),
            "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"/a*\": wildcard can only do suffix matching",
        ),
    ]);
    let empty = [
        ("/spec/rules/0/resourceRules", json!([])),
        ("/spec/rules/0/nonResourceRules", json!([])),
    ];
    let why = "spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty";
    assert_eq!(schema.told(&empty), [why]);
    let verbs = schema.told(&[("/spec/rules/0/resourceRules/0/verbs", json!(["x"]))]);
    assert!(verbs[0].contains("verbs: Unsupported value: [\"x\"]"), "{verbs:?}");
    let status = json!({"conditions": [{"type": "a"}, {"type": "a"}]});
    let told = schema.told_of_update(&[("/status", status)], "status");
    assert_eq!(told, ["status.conditions[1].type: Duplicate value: \"a\""]);
    schema.leaves_alone(("/spec/matchingPrecedence", json!(10001)));
}

#[test]
fn priority_levels() {
    let response = json!({"type": "Queue", "queuing": {}});
    let level = Good::new(
        GROUP,
        "prioritylevelconfigurations",
        "a",
        json!({"spec": {"type": "Limited", "limited": {"limitResponse": response}}}),
    );
    let queuing = "spec.limited.limitResponse.queuing";
    level.refuses(vec![
        (
            "/spec/type",
            json!("X"),
            "spec.type: Unsupported value: \"X\": supported values: \"Exempt\", \"Limited\"",
        ),
        (
            "/spec/limited",
            Value::Null,
            "spec.limited: Required value: must not be empty when type is Limited",
        ),
        (
            "/spec/exempt",
            json!({}),
            "spec.exempt: Forbidden: must be nil if the type is not Exempt",
        ),
        (
            "/spec/limited/nominalConcurrencyShares",
            json!(-1),
            "spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
        ),
        (
            "/spec/limited/lendablePercent",
            json!(101),
            "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
        ),
        (
            "/spec/limited/borrowingLimitPercent",
            json!(-1),
            "spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer",
        ),
        (
            "/spec/limited/limitResponse/type",
            json!("X"),
            "spec.limited.limitResponse.type: Unsupported value: \"X\": supported values: \"Queue\", \"Reject\"",
        ),
        (
            "/spec/limited/limitResponse/type",
            json!("Reject"),
            &format!("{queuing}: Forbidden: must be nil if limited.limitResponse.type is not Limited"),
        ),
        (
            "/spec/limited/limitResponse",
            json!({"type": "Queue"}),
            &format!("{queuing}: Required value: must not be empty if limited.limitResponse.type is Limited"),
        ),
        (
            "/spec/limited/limitResponse/queuing/handSize",
            json!(65),
            &format!("{queuing}.handSize: Invalid value: 65: should not be greater than queues (64)"),
        ),
        (
            "/spec/limited/limitResponse/queuing/handSize",
            json!(11),
            &format!(
                "{queuing}.handSize: Invalid value: 11: required entropy bits of deckSize 64 and handSize 11 should not be \
                 greater than 60"
            ),
        ),
        (
            "/spec/limited/limitResponse/queuing/queueLengthLimit",
            json!(-1),
            &format!("{queuing}.queueLengthLimit: Invalid value: -1: must be positive"),
        ),
    ]);
    Good::new(
        GROUP,
        "prioritylevelconfigurations",
        "exempt",
        json!({"spec": {"type": "Exempt"}}),
    );
}

#[test]
fn mandatory_objects_are_as_they_are_built_in() {
    let of = |all: Vec<Value>, name: &str| {
        let found = all.into_iter().find(|one| one["metadata"]["name"] == name);
        json!({"spec": found.unwrap()["spec"].clone()})
    };
    for name in ["exempt", "catch-all"] {
        let mut object = of(crate::resource::flow_defaults::flow_schemas(), name);
        // What says nothing makes no difference.
        object["spec"]["rules"][0]["nonResourceRules"][0]["extra"] = json!([]);
        let schema = Good::new(GROUP, "flowschemas", name, object);
        for change in [
            ("/spec/priorityLevelConfiguration/name", json!("own")),
            ("/spec/distinguisherMethod", json!({"type": "ByNamespace"})),
            ("/spec/rules/0/subjects/0/group/name", json!("x")),
            ("/spec/rules/0/resourceRules/0/clusterScope", Value::Null),
            ("/spec/matchingPrecedence", json!(77)),
        ] {
            let told = schema.told(std::slice::from_ref(&change));
            let is_told = told.len() == 1
                && told[0].starts_with("spec: Invalid value: {")
                && told[0].ends_with(&format!(": spec of '{name}' must equal the fixed value"));
            assert!(is_told, "{name} {change:?} {told:?}");
            assert_eq!(schema.told_of_update(&[change], "").len(), 1);
        }
    }
    let plural = "prioritylevelconfigurations";
    let levels = || crate::resource::flow_defaults::priority_levels();
    let catch_all = Good::new(GROUP, plural, "catch-all", of(levels(), "catch-all"));
    for (key, value) in [
        ("nominalConcurrencyShares", 0),
        ("lendablePercent", 1),
        ("borrowingLimitPercent", 0),
    ] {
        let told = catch_all.told(&[(&*format!("/spec/limited/{key}").leak(), json!(value))]);
        assert!(
            told[0].ends_with("spec of 'catch-all' must equal the fixed value"),
            "{told:?}"
        );
    }
    let exempt = Good::new(GROUP, plural, "exempt", of(levels(), "exempt"));
    assert_eq!(
        exempt.told(&[("/spec/exempt/nominalConcurrencyShares", json!(7))]),
        [""; 0]
    );
    let told = exempt.told(&[("/spec/limited", json!({}))]);
    let why = "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value";
    assert!(told.len() == 2 && told[1].ends_with(why), "{told:?}");
    let told = exempt.told(&[("/spec/type", json!("Limited"))]);
    let kind = "spec.type: Invalid value: \"Limited\": type must be 'Exempt' if and only if name is 'exempt'";
    assert!(told[0] == kind && told.last().unwrap().ends_with(why), "{told:?}");
}
