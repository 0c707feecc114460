use super::*;

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

async fn five(server: &ApiServer) {
    for name in ["a", "b", "c", "d", "e"] {
        let mut object = config_map(name, json!({}));
        object["metadata"]["labels"] = json!({"half": if name < "c" { "first" } else { "second" }});
        assert_eq!(post(server, MAPS, &object).await.code, 201);
    }
}

#[tokio::test(start_paused = true)]
async fn pages_pin_one_revision() {
    let server = server().await;
    five(&server).await;
    let first = get(&server, &format!("{MAPS}?limit=2")).await.body;
    assert_eq!(
        (names(&first), &first["metadata"]["remainingItemCount"]),
        (vec!["a", "b"], &json!(3))
    );
    assert_eq!(
        (&first["kind"], &first["items"][0]["kind"]),
        (&json!("ConfigMapList"), &Value::Null)
    );
    assert_eq!(delete(&server, &format!("{MAPS}/c")).await.code, 200);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = get(&server, &format!("{MAPS}?limit=2&continue={token}")).await.body;
    assert_eq!(names(&second), ["c", "d"], "as of the first page");
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    let token = second["metadata"]["continue"].as_str().unwrap();
    let last = get(&server, &format!("{MAPS}?limit=2&continue={token}")).await.body;
    assert_eq!((names(&last), &last["metadata"]["continue"]), (vec!["e"], &Value::Null));
    assert_eq!(names(&get(&server, MAPS).await.body), ["a", "b", "d", "e"]);
    let both = get(&server, &format!("{MAPS}?continue={token}&resourceVersion=3")).await;
    assert_eq!(both.code, 400);
    assert_eq!(get(&server, &format!("{MAPS}?continue=zzz")).await.code, 400);
}

#[tokio::test(start_paused = true)]
async fn an_expired_page_offers_an_inconsistent_continuation() {
    let server = server().await;
    five(&server).await;
    let first = get(&server, &format!("{MAPS}?limit=2")).await.body;
    tokio::time::sleep(std::time::Duration::from_secs(400)).await;
    post(&server, MAPS, &config_map("f", json!({}))).await;
    tokio::time::sleep(std::time::Duration::from_secs(400)).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let expired = get(&server, &format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!((expired.code, &expired.body["reason"]), (410, &json!("Expired")));
    let fresh = expired.body["metadata"]["continue"].as_str().unwrap();
    let rest = get(&server, &format!("{MAPS}?continue={fresh}")).await.body;
    assert_eq!(names(&rest), ["c", "d", "e", "f"]);
    let revision = first["metadata"]["resourceVersion"].as_str().unwrap();
    let exact = get(
        &server,
        &format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact"),
    )
    .await;
    assert_eq!(
        exact.body["message"],
        "The resourceVersion for the provided list is too old."
    );
}

#[tokio::test(start_paused = true)]
async fn resource_versions_mean_what_the_table_says() {
    let server = server().await;
    five(&server).await;
    let all = get(&server, MAPS).await.body;
    let newest: u64 = all["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let list = |query: String| {
        let server = server.clone();
        async move { get(&server, &format!("{MAPS}?{query}")).await }
    };
    assert_eq!(
        names(&list("resourceVersion=0&limit=1".into()).await.body).len(),
        5,
        "0 ignores the limit"
    );
    let exact = list(format!("resourceVersion={}&resourceVersionMatch=Exact", newest - 2))
        .await
        .body;
    assert_eq!(names(&exact), ["a", "b", "c"]);
    let at_least = list(format!("resourceVersion={}", newest - 2)).await.body;
    assert_eq!(names(&at_least).len(), 5);
    let paged = list(format!("resourceVersion={}&limit=10", newest - 2)).await.body;
    assert_eq!(names(&paged).len(), 3, "with a limit: exactly");
    let future = list(format!("resourceVersion={}", newest + 100)).await;
    assert_eq!((future.code, &future.body["reason"]), (504, &json!("Timeout")));
    assert_eq!(future.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(future.headers["retry-after"], "1");
    assert_eq!(list("resourceVersionMatch=Exact".into()).await.code, 422);
    assert_eq!(
        list("resourceVersion=0&resourceVersionMatch=Exact".into()).await.code,
        422
    );
    assert_eq!(list("resourceVersion=x".into()).await.code, 400);
}

#[tokio::test(start_paused = true)]
async fn selectors_choose_and_unknown_fields_are_refused() {
    let server = server().await;
    five(&server).await;
    let list = |query: &str| {
        let path = format!("{MAPS}?{query}");
        let server = server.clone();
        async move { get(&server, &path).await }
    };
    assert_eq!(names(&list("labelSelector=half%3Dfirst").await.body), ["a", "b"]);
    assert_eq!(
        names(&list("labelSelector=half+notin+(first)").await.body),
        ["c", "d", "e"]
    );
    assert_eq!(names(&list("fieldSelector=metadata.name%3Dd").await.body), ["d"]);
    assert_eq!(
        names(&list("fieldSelector=metadata.name!%3Dd&limit=3").await.body),
        ["a", "b", "c"]
    );
    let page = list("labelSelector=half%3Dsecond&limit=1").await.body;
    assert!(page["metadata"]["continue"].is_string() && page["metadata"]["remainingItemCount"].is_null());
    let unknown = list("fieldSelector=data.k%3Dd").await;
    assert_eq!(unknown.code, 400);
    let text = "\"data.k\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    assert_eq!(unknown.body["message"], text);
    let unknown = get(&server, &format!("{PODS}?fieldSelector=spec.x%3Dd")).await;
    assert_eq!(unknown.body["message"], "field label not supported: spec.x");
    assert_eq!(list("labelSelector=%3D%3D").await.code, 400);
    post(&server, PODS, &pod("p")).await;
    let unbound = get(&server, "/api/v1/pods?fieldSelector=spec.nodeName%3D").await.body;
    assert_eq!(names(&unbound), ["p"]);
    let bound = get(&server, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn").await.body;
    assert!(names(&bound).is_empty() && bound["items"].is_array());
}

#[tokio::test(start_paused = true)]
async fn replies_take_the_shape_asked_for() {
    let server = server().await;
    five(&server).await;
    let accept = |text: &'static str| [("accept", text)];
    let table = accept("application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
    let rows = send(&server, "GET", MAPS, &table, None).await.body;
    assert_eq!(
        (&rows["kind"], &rows["apiVersion"]),
        (&json!("Table"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(rows["rows"].as_array().unwrap().len(), 5);
    assert_eq!(rows["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let partial = accept("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io");
    let metadata = send(&server, "GET", MAPS, &partial, None).await.body;
    assert_eq!(metadata["items"][0]["metadata"]["name"], "a");
    assert!(metadata["items"][0].get("data").is_none());
    assert_eq!(
        send(&server, "GET", &format!("{MAPS}/a"), &partial, None).await.code,
        406
    );
    let yaml = send(&server, "GET", &format!("{MAPS}/a"), &accept("application/yaml"), None).await;
    assert_eq!(yaml.headers["content-type"], "application/yaml");
    assert!(yaml.body.as_str().unwrap().contains("kind: ConfigMap"), "{}", yaml.body);
    let big = config_map("big", json!({"k": "x".repeat(200_000)}));
    post(&server, MAPS, &big).await;
    let request = Request::get(format!("{MAPS}/big"))
        .header("accept-encoding", "gzip")
        .body(body::empty())
        .unwrap();
    let response = raw(&server, request).await;
    assert_eq!(response.headers()["content-encoding"], "gzip");
    assert!(response.into_body().collect().await.unwrap().to_bytes().len() < 20_000);
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_by_selector() {
    let server = server().await;
    five(&server).await;
    let deleted = delete(&server, &format!("{MAPS}?labelSelector=half%3Dfirst")).await;
    assert_eq!((deleted.code, names(&deleted.body)), (200, vec!["a", "b"]));
    assert_eq!(names(&get(&server, MAPS).await.body), ["c", "d", "e"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_whose_answer_cannot_be_written() {
    let server = server().await;
    five(&server).await;
    let single = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    for (path, accept, code) in [
        (MAPS.to_owned(), single, 406),
        (format!("{MAPS}?includeObject=All"), table, 400),
    ] {
        let reply = send(&server, "DELETE", &path, &[("accept", accept)], None).await;
        assert_eq!(reply.code, code, "{}", reply.body);
        assert_eq!(names(&get(&server, MAPS).await.body).len(), 5);
    }
    let reply = send(&server, "DELETE", MAPS, &[("accept", table)], None).await;
    assert_eq!(
        (reply.code, reply.body["rows"].as_array().map(Vec::len)),
        (200, Some(5))
    );
    assert_eq!(names(&get(&server, MAPS).await.body).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn of_a_collection_no_more_is_deleted_than_its_limit() {
    let server = server().await;
    five(&server).await;
    let first = delete(&server, &format!("{MAPS}?limit=2")).await;
    assert_eq!((first.code, names(&first.body)), (200, vec!["a", "b"]));
    let token = first.body["metadata"]["continue"].as_str().unwrap();
    assert_eq!(names(&get(&server, MAPS).await.body), ["c", "d", "e"]);
    let rest = delete(&server, &format!("{MAPS}?continue={token}")).await;
    assert_eq!((rest.code, names(&rest.body)), (200, vec!["c", "d", "e"]));
    assert!(names(&get(&server, MAPS).await.body).is_empty());
}

/// Whatever its length, shape and layout, a list has the bytes of its tree written at once.
#[tokio::test(start_paused = true)]
async fn a_list_for_people_is_written_object_by_object_as_if_at_once() {
    let server = server().await;
    let tables = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    for count in [0, 3, 40] {
        for number in 0..count {
            // Together more than a piece, so that most of it is streamed; one is larger than a piece alone.
            let data =
                json!({"k": "a line\n".repeat(number * 100), "l": "x".repeat(if number == 17 { 100_000 } else { 9 })});
            post(&server, MAPS, &config_map(&format!("m{number:02}"), data)).await;
        }
        for accept in ["application/json", tables, partial] {
            for query in ["", "includeObject=Object"] {
                let path = format!("{MAPS}?{query}");
                let plain = send(&server, "GET", &path, &[("accept", accept)], None).await.body;
                let pretty = text(&server, &format!("{path}&pretty=1"), accept).await;
                assert_eq!(pretty, format!("{plain:#}\n"), "{count} {accept} {query}");
                let yaml = accept.replace("json", "yaml");
                let yaml = text(&server, &path, &yaml).await;
                assert_eq!(
                    yaml,
                    serde_saphyr::to_string(&plain).unwrap(),
                    "{count} {accept} {query}"
                );
            }
        }
    }
}

async fn text(server: &ApiServer, path: &str, accept: &str) -> String {
    let request = Request::get(path).header("accept", accept).body(body::empty()).unwrap();
    let response = raw(server, request).await;
    assert_eq!(response.status(), 200);
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}
