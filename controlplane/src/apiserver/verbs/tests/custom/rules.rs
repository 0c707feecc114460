//! Rules of expressions, through the API.

use super::*;

fn guarded() -> Value {
    let mut definition = definition();
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = json!([]);
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = json!({
        "spec": {"type": "object", "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}, "kind": {"type": "string",
            "maxLength": 10, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "kind is immutable"}]}},
            "x-kubernetes-validations": [
                {"rule": "!has(self.min) || !has(self.max) || self.min <= self.max", "fieldPath": ".min",
                    "messageExpression": "'%d is more than %d'.format([self.min, self.max])"}]},
        "status": {"type": "object", "properties": {"n": {"type": "integer",
            "x-kubernetes-validations": [{"rule": "self >= oldSelf", "reason": "FieldValueForbidden"}]}}},
    });
    definition
}

#[tokio::test(start_paused = true)]
async fn objects_obey_the_rules_of_their_definition() {
    let server = server().await;
    define(&server, &guarded()).await;
    let refused = post(&server, LIONS, &lion("leo", &json!({"min": 3, "max": 2}))).await;
    let told = "spec.min: Invalid value: 3 is more than 2";
    assert_eq!(
        (refused.code, causes(&refused)),
        (422, vec![told.to_owned()]),
        "{}",
        refused.body
    );
    let wrong = post(&server, LIONS, &lion("leo", &json!({"min": "x", "max": 2}))).await;
    let unchecked = "some validation rules were not checked because the object was invalid; correct the existing errors to complete \
                     validation";
    assert!(causes(&wrong)[1].ends_with(unchecked), "{:?}", causes(&wrong));
    let made = post(&server, LIONS, &lion("leo", &json!({"min": 1, "max": 2, "kind": "a"}))).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let leo = format!("{LIONS}/leo");
    let changed = patch(&server, &leo, "merge", &json!({"spec": {"kind": "b"}})).await;
    assert_eq!(causes(&changed), ["spec.kind: Invalid value: \"b\": kind is immutable"]);
    let status = format!("{leo}/status");
    assert_eq!(
        patch(&server, &status, "merge", &json!({"status": {"n": 2}}))
            .await
            .code,
        200
    );
    let back = patch(&server, &status, "merge", &json!({"status": {"n": 1}})).await;
    assert_eq!(causes(&back), ["status.n: Forbidden: failed rule: self >= oldSelf"]);

    // What was stored before a rule was is let be until it is touched.
    let stricter = json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations/-",
        "value": {"rule": "self.max < 2"}}]);
    let path = format!("{DEFINITIONS}/lions.zoo.example");
    assert_eq!(patch(&server, &path, "json", &stricter).await.code, 200);
    let refuses = async |object: Value| {
        for _ in 0..200 {
            let reply = post(&server, &format!("{LIONS}?dryRun=All"), &object).await;
            if reply.code == 422 {
                return causes(&reply);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the rule is not there");
    };
    let told = refuses(lion("new", &json!({"max": 5}))).await;
    assert_eq!(told, ["spec: Invalid value: failed rule: self.max < 2"]);
    let labelled = patch(&server, &leo, "merge", &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(labelled.code, 200, "{}", labelled.body);
    let touched = patch(&server, &leo, "merge", &json!({"spec": {"max": 7}})).await;
    assert_eq!(causes(&touched), ["spec: Invalid value: failed rule: self.max < 2"]);
}

#[tokio::test(start_paused = true)]
async fn rules_that_cannot_be_kept_are_refused_with_their_definition() {
    let server = server().await;
    let mut definition = guarded();
    let spec = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["x-kubernetes-validations"][0]["rule"] = json!("self.none == 1");
    let refused = post(&server, DEFINITIONS, &definition).await;
    let told = causes(&refused);
    let place =
        "spec.versions[0].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value: {";
    assert!(
        told[0].starts_with(place) && told[0].contains("undefined field 'none'"),
        "{told:?}"
    );
}
