//! Numbers of objects, through the API and the store.

use super::*;

fn measures() -> Value {
    let mut definition = definition();
    let version = &mut definition["spec"]["versions"][0];
    version["schema"]["openAPIV3Schema"]["properties"] = json!({"spec": {"type": "object", "properties": {
        "count": {"type": "integer"}, "all": {"type": "array", "items": {"type": "number"}}}}});
    version["additionalPrinterColumns"] = json!([]);
    definition
}

/// Numbers with all the digits that they may have, of many sizes.
fn numbers() -> Vec<f64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut all = vec![0.945_388_984_797_581_3, 3.402_823_466_385_288_6e38, 5e-324, f64::MAX];
    for scale in [1.0, 360.0, 1e-20, 1e300] {
        all.extend((0..200).map(|_| (next() - 0.5) * scale));
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_number_stays_what_it_was_whatever_else_is_written() {
    let server = server().await;
    define(&server, &measures()).await;
    let sent = numbers();
    let stored = |reply: &Reply| -> Vec<f64> {
        let all = reply.body["spec"]["all"].as_array().cloned().unwrap_or_default();
        all.iter().filter_map(Value::as_f64).collect()
    };
    let made = post(&server, LIONS, &lion("leo", &json!({"all": sent}))).await;
    assert_eq!((made.code, stored(&made)), (201, sent.clone()));
    let leo = format!("{LIONS}/leo");
    for (count, media) in ["merge", "merge", "json"].into_iter().enumerate() {
        let change = match media {
            "json" => json!([{"op": "add", "path": "/spec/count", "value": 9}]),
            _ => json!({"spec": {"count": count}}),
        };
        assert_eq!(stored(&patch(&server, &leo, media, &change).await), sent, "{media}");
    }
    let applied =
        json!({"kind": "Lion", "apiVersion": "zoo.example/v1", "metadata": {"name": "leo", "labels": {"a": "b"}}});
    let media = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{leo}?fieldManager=m");
    assert_eq!(
        stored(&send(&server, "PATCH", &path, &media, Some(&applied)).await),
        sent
    );
    assert_eq!(stored(&get(&server, &leo).await), sent);
}
