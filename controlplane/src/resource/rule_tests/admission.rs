//! The admissionregistration group.

use super::*;

const GROUP: &str = "admissionregistration.k8s.io";

fn rule() -> Value {
    json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]})
}

#[test]
fn webhooks() {
    let hook = json!({"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [rule()],
        "clientConfig": {"url": "https://a/b"}});
    let good = Good::new(GROUP, "mutatingwebhookconfigurations", "a", json!({"webhooks": [hook]}));
    let form = "desired format: https://host[/path]";
    good.refuses(vec![
        (
            "/webhooks/0/name",
            json!("bad"),
            "webhooks[0].name: Invalid value: \"bad\": should be a domain with at least three segments separated by dots",
        ),
        (
            "/webhooks",
            json!([hook, hook]),
            "webhooks[1].name: Duplicate value: \"a.b.c\"",
        ),
        (
            "/webhooks/0/sideEffects",
            json!("Some"),
            "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
        ),
        (
            "/webhooks/0/sideEffects",
            Value::Null,
            "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
        ),
        (
            "/webhooks/0/clientConfig",
            json!({}),
            "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
        ),
        (
            "/webhooks/0/clientConfig/url",
            json!("http://x"),
            &format!("webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; {form}"),
        ),
        (
            "/webhooks/0/clientConfig/url",
            json!("https://u@x"),
            "webhooks[0].clientConfig.url: Invalid value: \"u\": user information is not permitted in the URL",
        ),
        (
            "/webhooks/0/clientConfig/url",
            json!("https:///x"),
            &format!("webhooks[0].clientConfig.url: Invalid value: \"\": host must be specified; {form}"),
        ),
        (
            "/webhooks/0/clientConfig",
            json!({"service": {"name": "s", "namespace": "", "path": "/a//b"}}),
            "webhooks[0].clientConfig.service.namespace: Required value; webhooks[0].clientConfig.service.path: Invalid \
             value: \"/a//b\": segment[1] may not be empty",
        ),
        (
            "/webhooks/0/timeoutSeconds",
            json!(31),
            "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ),
        (
            "/webhooks/0/admissionReviewVersions",
            json!(["v9"]),
            "webhooks[0].admissionReviewVersions: Invalid value: [\"v9\"]: must include at least one of v1, v1beta1",
        ),
        (
            "/webhooks/0/admissionReviewVersions",
            json!(["v1", "v1"]),
            "webhooks[0].admissionReviewVersions[1]: Invalid value: \"v1\": duplicate version",
        ),
        (
            "/webhooks/0/reinvocationPolicy",
            json!("X"),
            "webhooks[0].reinvocationPolicy: Unsupported value: \"X\": supported values: \"IfNeeded\", \"Never\"",
        ),
        (
            "/webhooks/0/rules/0/operations",
            json!([]),
            "webhooks[0].rules[0].operations: Required value",
        ),
        (
            "/webhooks/0/rules/0/operations",
            json!(["*", "CREATE"]),
            "webhooks[0].rules[0].operations: Invalid value: [\"*\",\"CREATE\"]: if '*' is present, must not specify other \
             operations",
        ),
        (
            "/webhooks/0/rules/0/resources",
            json!(["pods/*", "pods/log"]),
            "webhooks[0].rules[0].resources[1]: Invalid value: \"pods/log\": if 'pods/*' is present, must not specify pods/log",
        ),
        (
            "/webhooks/0/rules/0/resources",
            json!(["*", "pods"]),
            "webhooks[0].rules[0].resources: Invalid value: [\"*\",\"pods\"]: if '*' is present, must not specify other \
             resources without subresources",
        ),
        (
            "/webhooks/0/matchConditions",
            json!([{"name": "a", "expression": " "}]),
            "webhooks[0].matchConditions[0].expression: Required value",
        ),
    ]);
    good.leaves_alone(("/webhooks/0/sideEffects", json!("Some")));
}

fn policy(plural: &'static str, part: &str, value: Value) -> Good {
    let mut spec = json!({"matchConstraints": {"resourceRules": [rule()]}, "reinvocationPolicy": "Never"});
    spec[part] = value;
    Good::new(GROUP, plural, "a", json!({"spec": spec}))
}

#[test]
fn validating_policies() {
    let good = policy(
        "validatingadmissionpolicies",
        "validations",
        json!([{"expression": "true"}]),
    );
    let least = "validations or auditAnnotations must contain at least one item";
    good.refuses(vec![
        (
            "/spec/failurePolicy",
            json!("X"),
            "spec.failurePolicy: Unsupported value: \"X\": supported values: \"Fail\", \"Ignore\"",
        ),
        (
            "/spec/matchConstraints",
            Value::Null,
            "spec.matchConstraints: Required value",
        ),
        (
            "/spec/matchConstraints/resourceRules",
            json!([]),
            "spec.matchConstraints.resourceRules: Required value",
        ),
        (
            "/spec/validations",
            json!([]),
            &format!("spec.validations: Required value: {least}; spec.auditAnnotations: Required value: {least}"),
        ),
        (
            "/spec/validations/0/expression",
            json!(" "),
            "spec.validations[0].expression: Required value: expression is not specified",
        ),
        (
            "/spec/validations/0/message",
            json!("a\nb"),
            "spec.validations[0].message: Invalid value: \"a\\nb\": message must not contain line breaks",
        ),
        (
            "/spec/validations/0/reason",
            json!("X"),
            "spec.validations[0].reason: Unsupported value: \"X\": supported values: \"Forbidden\", \"Invalid\", \
             \"RequestEntityTooLarge\"",
        ),
        (
            "/spec/variables",
            json!([{"name": "if", "expression": "a"}]),
            "spec.variables[0].name: Invalid value: \"if\": name is not a valid CEL identifier",
        ),
        (
            "/spec/paramKind",
            json!({"apiVersion": "a/b/c", "kind": "K"}),
            "spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
        ),
        (
            "/spec/auditAnnotations",
            json!([{"key": "k", "valueExpression": "a"}, {"key": "k", "valueExpression": "a"}]),
            "spec.auditAnnotations[1].key: Duplicate value: \"k\"",
        ),
    ]);
    good.leaves_alone(("/spec/validations", json!([])));
}

#[test]
fn mutating_policies() {
    let patch = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}});
    let good = policy("mutatingadmissionpolicies", "mutations", json!([patch]));
    good.refuses(vec![
        (
            "/spec/mutations",
            json!([]),
            "spec.mutations: Required value: mutations must contain at least one item",
        ),
        (
            "/spec/mutations/0/patchType",
            json!("X"),
            "spec.mutations[0].patchType: Unsupported value: \"X\": supported values: \"ApplyConfiguration\", \"JSONPatch\"",
        ),
        (
            "/spec/mutations/0/jsonPatch",
            Value::Null,
            "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
        ),
        (
            "/spec/reinvocationPolicy",
            json!("X"),
            "spec.reinvocationPolicy: Unsupported value: \"X\": supported values: \"IfNeeded\", \"Never\"",
        ),
    ]);
}

#[test]
fn bindings_of_policies() {
    let param = json!({"name": "n", "parameterNotFoundAction": "Deny"});
    let good = Good::new(
        GROUP,
        "validatingadmissionpolicybindings",
        "a",
        json!({"spec": {"policyName": "p", "validationActions": ["Deny"], "paramRef": param}}),
    );
    good.refuses(vec![
        ("/spec/policyName", json!(""), "spec.policyName: Required value"),
        (
            "/spec/validationActions",
            json!([]),
            "spec.validationActions: Required value: at least one validation action is required",
        ),
        (
            "/spec/validationActions",
            json!(["Deny", "Deny"]),
            "spec.validationActions[1]: Duplicate value: \"Deny\"",
        ),
        (
            "/spec/validationActions",
            json!(["X"]),
            "spec.validationActions[0]: Unsupported value: \"X\": supported values: \"Audit\", \"Deny\", \"Warn\"",
        ),
        (
            "/spec/validationActions",
            json!(["Deny", "Warn"]),
            "spec.validationActions: Invalid value: [\"Deny\",\"Warn\"]: must not contain both Deny and Warn (repeating the \
             same validation failure information in the API response and headers serves no purpose)",
        ),
        (
            "/spec/paramRef/name",
            json!(""),
            "spec.paramRef: Required value: one of name or selector must be specified",
        ),
        (
            "/spec/paramRef/parameterNotFoundAction",
            Value::Null,
            "spec.paramRef.parameterNotFoundAction: Required value",
        ),
        (
            "/spec/matchResources",
            json!({"matchPolicy": "X"}),
            "spec.matchResouces.matchPolicy: Unsupported value: \"X\": supported values: \"Equivalent\", \"Exact\"",
        ),
    ]);
    let binding = json!({"spec": {"policyName": "p"}});
    Good::new(GROUP, "mutatingadmissionpolicybindings", "a", binding);
}
