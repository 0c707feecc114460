//! What field validation says about patches themselves.

use super::*;

/// A patch as text: trees have each member once.
async fn patch_text(server: &ApiServer, path: &str, form: &str, text: &str) -> Reply {
    let content_type = format!("application/{form}-patch+json");
    let request = Request::builder().method("PATCH").uri(path);
    let request = request.header("content-type", content_type);
    let response = raw(server, request.body(body::full(text.to_owned())).unwrap()).await;
    let (parts, content) = response.into_parts();
    let bytes = content.collect().await.unwrap().to_bytes();
    Reply {
        code: parts.status.as_u16(),
        headers: parts.headers,
        body: serde_json::from_slice(&bytes).unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn strict_validation_judges_the_patch_as_well_as_what_it_makes() {
    let server = server().await;
    post(&server, MAPS, &config_map("m", json!({"k": "0"}))).await;
    let path = format!("{MAPS}/m");
    let twice = r#"{"data":{"a":"1","a":"3"}}"#;
    for (form, text, problem) in [
        ("merge", twice, r#"duplicate field "data.a""#),
        ("strategic-merge", twice, r#"duplicate field "data.a""#),
        (
            "json",
            r#"[{"op":"add","path":"/data/q","value":"1","foo":1}]"#,
            r#"json patch unknown field "[0].foo""#,
        ),
        (
            "json",
            r#"[{"op":"add","op":"add","path":"/data/q","value":"1"}]"#,
            r#"json patch duplicate field "[0].op""#,
        ),
    ] {
        let strict = patch_text(&server, &format!("{path}?fieldValidation=Strict"), form, text).await;
        let message = strict.body["message"].as_str().unwrap();
        assert_eq!(strict.code, 422, "{form}: {message}");
        assert!(
            message.ends_with(&format!("strict decoding error: {problem}")),
            "{message}"
        );
        let ignored = patch_text(
            &server,
            &format!("{path}?fieldValidation=Ignore&dryRun=All"),
            form,
            text,
        )
        .await;
        assert_eq!((ignored.code, ignored.headers.get("warning")), (200, None));
        let warned = patch_text(&server, &path, form, text).await;
        let warning = format!("299 - \"{}\"", problem.replace('"', "\\\""));
        assert_eq!(
            (warned.code, warned.headers["warning"].to_str().unwrap()),
            (200, warning.as_str())
        );
    }
    let unknown = patch_text(&server, &format!("{path}?fieldValidation=Never"), "merge", "{}").await;
    let text = "PatchOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Never\": supported values: \
        \"\", \"Ignore\", \"Strict\", \"Warn\"";
    assert_eq!((unknown.code, &unknown.body["message"]), (422, &json!(text)));
}

#[tokio::test(start_paused = true)]
async fn patches_of_scales_are_judged_alone() {
    let server = server().await;
    let controllers = "/api/v1/namespaces/a/replicationcontrollers";
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = json!({"metadata": {"name": "r"}, "spec": {"replicas": 1, "template": template}});
    assert_eq!(post(&server, controllers, &made).await.code, 201);
    let scale = format!("{controllers}/r/scale");
    let twice = r#"{"spec":{"replicas":2,"replicas":3}}"#;
    let strict = patch_text(&server, &format!("{scale}?fieldValidation=Strict"), "merge", twice).await;
    assert_eq!(strict.code, 422, "{}", strict.body);
    let warned = patch_text(&server, &scale, "merge", twice).await;
    assert_eq!((warned.code, &warned.body["spec"]["replicas"]), (200, &json!(3)));
    assert!(warned.headers["warning"].to_str().unwrap().contains("spec.replicas"));
}
