use super::*;
use std::sync::LazyLock;

fn openapi() -> &'static OpenApi {
    static OPENAPI: LazyLock<OpenApi> = LazyLock::new(|| OpenApi::new(Arc::clone(Registry::built_in())));
    &OPENAPI
}

fn document(key: &str) -> Value {
    let document = openapi().of_key(key).expect("there is such a group");
    serde_json::from_slice(&document.pieces().collect::<Vec<_>>().concat()).expect("JSON")
}

fn index() -> Value {
    let bytes = openapi().index().pieces().collect::<Vec<_>>().concat();
    serde_json::from_slice(&bytes).expect("JSON")
}

/// Every `$ref` in a document.
fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value.as_str() {
                    Some(target) if key == "$ref" => found.push(target),
                    _ => references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_reference_of_every_document_resolves_and_ids_are_unique() {
    let index = index();
    for key in index["paths"].as_object().expect("paths").keys() {
        let document = document(key);
        let mut found = Vec::new();
        references(&document, &mut found);
        for target in found {
            let name = target.strip_prefix("#/components/schemas/").expect("a schema");
            let schema = &document["components"]["schemas"][name];
            assert!(schema.is_object(), "{key}: {target}");
        }
        let mut ids = Vec::new();
        for (_, item) in document["paths"].as_object().expect("paths") {
            let operations = item.as_object().expect("operations").values();
            ids.extend(operations.filter_map(|operation| operation.get("operationId")?.as_str()));
        }
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "{key}");
    }
}

/// kubectl's check before it leaves validation to the server: a PATCH of the kind has the query parameter.
#[test]
fn kubectl_finds_field_validation_and_dry_run_on_every_patch() {
    for kind in Registry::built_in().kinds().filter(|kind| kind.has_verb("patch")) {
        let document = document(&group_key(&kind.group, &kind.version));
        let wanted = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let patch = document["paths"]
            .as_object()
            .expect("paths")
            .values()
            .filter_map(|item| item.get("patch"))
            .find(|patch| patch["x-kubernetes-group-version-kind"] == wanted)
            .unwrap_or_else(|| panic!("{kind:?} has a PATCH"));
        for name in ["fieldValidation", "dryRun"] {
            let parameters = patch["parameters"].as_array().expect("parameters");
            assert!(
                parameters.iter().any(|p| p["name"] == name && p["in"] == "query"),
                "{kind:?} {name}"
            );
        }
        let strategic = &patch["requestBody"]["content"]["application/strategic-merge-patch+json"];
        assert!(strategic.is_object(), "{kind:?}");
    }
}

/// What `kubectl explain deployment.spec.template.spec.containers` follows.
#[test]
fn explain_can_walk_to_containers() {
    let document = document("apis/apps/v1");
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let mut here = schemas
        .values()
        .find(|schema| {
            schema["x-kubernetes-group-version-kind"]
                == json!([{"group": "apps", "version": "v1", "kind": "Deployment"}])
        })
        .expect("found by its kind");
    for field in ["spec", "template", "spec"] {
        let property = &here["properties"][field];
        assert!(property["description"].is_string());
        let target = property["allOf"][0]["$ref"].as_str().expect("a reference");
        here = &schemas[target.rsplit('/').next().expect("a name")];
    }
    let containers = &here["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(
        here["properties"]["volumes"]["x-kubernetes-patch-strategy"],
        "merge,retainKeys"
    );
    assert_eq!(here["required"], json!(["containers"]));
    let quantity = &schemas["io.k8s.apimachinery.pkg.api.resource.Quantity"];
    assert_eq!(quantity["oneOf"][0]["type"], "string");
    let port = &schemas["io.k8s.api.core.v1.ContainerPort"]["properties"]["protocol"];
    assert_eq!(port["default"], "TCP");
}

#[test]
fn urls_change_with_content() {
    let openapi = openapi();
    let answer = |path: &str, hash: &str| openapi.answer(path, hash);
    let Answer::Document { document, immutable } = answer("/openapi/v3", "") else {
        panic!("an index");
    };
    assert!(!immutable && document == openapi.index());
    let index = index();
    let url = index["paths"]["api/v1"]["serverRelativeURL"].as_str().expect("a URL");
    let hash = url.split_once("?hash=").expect("a hash").1;
    assert!(matches!(
        answer("/openapi/v3/api/v1", hash),
        Answer::Document { immutable: true, .. }
    ));
    assert!(matches!(
        answer("/openapi/v3/api/v1", ""),
        Answer::Document { immutable: false, .. }
    ));
    assert_eq!(answer("/openapi/v3/api/v1", "OLD"), Answer::Moved(url.to_owned()));
    assert_eq!(answer("/openapi/v3/apis/none/v1", ""), Answer::NotFound);
}

#[test]
fn the_older_document_says_the_same() {
    let document: Value = serde_json::from_slice(&v2(Registry::built_in()).bytes).expect("JSON");
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 1000);
    for target in found {
        let name = target.strip_prefix("#/definitions/").expect("a definition");
        assert!(document["definitions"][name].is_object(), "{target}");
    }
    let post = &document["paths"]["/api/v1/namespaces/{namespace}/pods"]["post"];
    let body = post["parameters"]
        .as_array()
        .expect("parameters")
        .iter()
        .find(|p| p["in"] == "body");
    assert_eq!(
        body.expect("a body")["schema"]["$ref"],
        "#/definitions/io.k8s.api.core.v1.Pod"
    );
    assert_eq!(
        post["responses"]["201"]["schema"]["$ref"],
        "#/definitions/io.k8s.api.core.v1.Pod"
    );
    let text = document.to_string();
    assert!(!text.contains("requestBody") && !text.contains("#/components/"));
    for kind in Registry::built_in().kinds() {
        let name = &*kind.definition;
        assert!(document["definitions"][name].is_object(), "{name}");
    }
}
