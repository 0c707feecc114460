//! Errors about requests that are as large as requests may be: what is answered stays small.

use super::*;

const BYTES_MAX: usize = 512 << 10;

fn length(reply: &Reply) -> usize {
    reply.body.to_string().len()
}

#[tokio::test(start_paused = true)]
async fn of_very_many_bad_labels_the_first_are_named_and_the_others_counted() {
    let server = server().await;
    let mut object = config_map("m", json!({}));
    let labels = (0..250_000).map(|i| (format!("{i}-"), json!("")));
    object["metadata"]["labels"] = Value::Object(labels.collect());
    let reply = post(&server, MAPS, &object).await;
    assert_eq!((reply.code, &reply.body["reason"]), (422, &json!("Invalid")));
    assert!(length(&reply) < BYTES_MAX, "{}", length(&reply));
    let causes = reply.body["details"]["causes"].as_array().unwrap();
    assert_eq!(causes.len(), 100);
    assert_eq!(causes[0]["field"], "metadata.labels");
    let message = reply.body["message"].as_str().unwrap();
    assert!(message.ends_with(", and 249900 more errors]"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn of_long_values_names_and_documents_the_beginning_is_shown() {
    let server = server().await;
    let long = "\u{fc}".repeat(1 << 18);
    let mut object = config_map("m", json!({}));
    object["metadata"]["labels"] = json!({"a": long, long.as_str(): "b"});
    object["metadata"]["finalizers"] = json!([long]);
    let labels = post(&server, MAPS, &object).await;
    assert_eq!((labels.code, length(&labels) < BYTES_MAX), (422, true));
    let named = post(&server, MAPS, &config_map(&long, json!({}))).await;
    assert_eq!((named.code, length(&named) < BYTES_MAX), (422, true));
    assert_eq!(post(&server, MAPS, &config_map("m", json!({}))).await.code, 201);
    let document = json!({"unknown": long});
    let path = format!("{MAPS}/m?fieldValidation=Strict");
    let patched = patch(&server, &path, "merge", &document).await;
    assert_eq!((patched.code, length(&patched) < BYTES_MAX), (422, true));
    let message = patched.body["message"].as_str().unwrap();
    assert!(
        message.contains("\u{2026}: strict decoding error: unknown field \"unknown\""),
        "{message}"
    );
}

/// Each further controller is an error that shows all owners.
#[tokio::test(start_paused = true)]
async fn of_very_many_controllers_the_list_of_owners_is_not_copied_for_each() {
    let server = server().await;
    let mut object = config_map("m", json!({}));
    // Each another one: of the same, all but the first are dropped.
    let owner =
        |i: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": i.to_string(), "uid": "b", "controller": true});
    object["metadata"]["ownerReferences"] = (0..30_000).map(owner).collect();
    let reply = post(&server, MAPS, &object).await;
    assert_eq!((reply.code, length(&reply) < BYTES_MAX), (422, true));
}
