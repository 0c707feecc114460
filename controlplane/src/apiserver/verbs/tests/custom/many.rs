//! Many definitions and objects, and definitions that cannot be used.

use super::*;

fn named(plural: &str, kind: &str) -> Value {
    let mut definition = definition();
    definition["metadata"]["name"] = json!(format!("{plural}.zoo.example"));
    definition["spec"]["names"] = json!({"plural": plural, "kind": kind});
    definition
}

#[tokio::test(start_paused = true)]
async fn names_that_are_given_up_are_somebody_elses() {
    let server = server().await;
    define(&server, &definition()).await;
    let mut cats = named("cats", "Cat");
    cats["spec"]["names"]["shortNames"] = json!(["li"]);
    post(&server, DEFINITIONS, &cats).await;
    let path = format!("{DEFINITIONS}/cats.zoo.example");
    until(&server, &path, |reply| has(reply, "NamesAccepted", "False")).await;
    let others = json!({"spec": {"names": {"shortNames": ["lo"]}}});
    let lions = format!("{DEFINITIONS}/lions.zoo.example");
    assert_eq!(patch(&server, &lions, "merge", &others).await.code, 200);
    until(&server, &path, |reply| has(reply, "Established", "True")).await;
    let bears = named("bears", "Cat");
    post(&server, DEFINITIONS, &bears).await;
    let bears = format!("{DEFINITIONS}/bears.zoo.example");
    until(&server, &bears, |reply| has(reply, "NamesAccepted", "False")).await;
    delete(&server, &path).await;
    until(&server, &bears, |reply| has(reply, "Established", "True")).await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_ends_after_all_of_many_objects() {
    let server = server().await;
    define(&server, &definition()).await;
    for i in 0..300 {
        let made = post(&server, LIONS, &lion(&format!("l{i}"), &json!({"name": "leo"}))).await;
        assert_eq!(made.code, 201);
    }
    let path = format!("{DEFINITIONS}/lions.zoo.example");
    delete(&server, &path).await;
    until(&server, &path, |reply| reply.code == 404).await;
    let (_, left) = server.store().range("/registry/zoo.example/").await.unwrap();
    assert!(left.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stored_definition_that_cannot_be_used_says_so() {
    let server = server().await;
    define(&server, &definition()).await;
    let path = format!("{DEFINITIONS}/lions.zoo.example");
    // As one that was stored before there was a rule it breaks.
    let key = "/registry/apiextensions.k8s.io/customresourcedefinitions/lions.zoo.example";
    let (_, stored) = server.store().range(key).await.unwrap();
    let mut object: Value = serde_json::from_slice(&stored[0].value).unwrap();
    let schema = &mut object["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"]["name"]["pattern"] = json!("(");
    let raw = crate::store::value::testing::as_stored(key, &object);
    let expect = crate::store::Expect::At(stored[0].modified);
    server.store().put(&stored[0].key, raw, expect).await.unwrap();
    let told = until(&server, &path, |reply| has(reply, "NonStructuralSchema", "True")).await;
    let conditions = told.body["status"]["conditions"].as_array().unwrap();
    let condition = conditions
        .iter()
        .find(|one| one["type"] == "NonStructuralSchema")
        .unwrap();
    assert_eq!(condition["reason"], "Violations");
    assert!(
        condition["message"]
            .as_str()
            .unwrap()
            .contains("must be a valid regular expression"),
        "{condition}"
    );
    let refused = post(&server, LIONS, &lion("leo", &json!({"name": "leo"}))).await;
    assert!(causes(&refused)[0].contains("the schema of its definition cannot be used"));
    let mended = json!([{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/name/pattern"}]);
    assert_eq!(patch(&server, &path, "json", &mended).await.code, 200);
    until(&server, &path, |reply| !has(reply, "NonStructuralSchema", "True")).await;
    assert_eq!(
        post(&server, LIONS, &lion("leo", &json!({"name": "leo"}))).await.code,
        201
    );
}
