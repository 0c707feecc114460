//! Requests and their schemas.

use super::*;
use crate::apiserver::request::Query;
use crate::resource::flow_defaults::flow_schemas;
use serde_json::json;

fn classifier(more: &[Value]) -> Classifier {
    let schemas = flow_schemas();
    let schemas = schemas
        .iter()
        .chain(more)
        .map(|object| Arc::new(FlowSchema::read(object)));
    Classifier::new(schemas.collect())
}

fn found<'a>(classifier: &'a Classifier, user: &User, method: &str, uri: &str) -> &'a FlowSchema {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let info = RequestInfo::parse(&method.parse().unwrap(), path, &Query::parse(query));
    &classifier.schemas()[classifier.classify(user, &info)]
}

#[test]
fn requests_find_upstreams_schemas_and_levels() {
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n";
    let node = User::named("system:node:n", &["system:nodes"]);
    let scheduler = User::named("system:kube-scheduler", &[]);
    let anonymous = User {
        name: "system:anonymous".to_owned(),
        groups: vec!["system:unauthenticated".to_owned()],
        ..User::default()
    };
    let classifier = classifier(&[]);
    for (user, method, path, schema, level) in [
        (
            User::named("admin", &["system:masters"]),
            "GET",
            "/api/v1/pods",
            "exempt",
            "exempt",
        ),
        (node.clone(), "PUT", lease, "system-node-high", "node-high"),
        (node.clone(), "GET", "/api/v1/nodes", "system-node-high", "node-high"),
        (
            node.clone(),
            "PATCH",
            "/api/v1/nodes/n/status",
            "system-node-high",
            "node-high",
        ),
        (node.clone(), "GET", "/api/v1/nodes/n/proxy", "system-nodes", "system"),
        (node.clone(), "GET", "/apis", "system-nodes", "system"),
        (
            node,
            "PATCH",
            "/api/v1/namespaces/a/pods/p/status",
            "system-nodes",
            "system",
        ),
        (
            scheduler.clone(),
            "PUT",
            lease,
            "system-leader-election",
            "leader-election",
        ),
        (scheduler.clone(), "DELETE", lease, "kube-scheduler", "workload-high"),
        (
            scheduler,
            "POST",
            "/api/v1/namespaces/a/pods/p/binding",
            "kube-scheduler",
            "workload-high",
        ),
        (
            User::service_account("kube-system", "dns"),
            "GET",
            "/api/v1/services",
            "kube-system-service-accounts",
            "workload-high",
        ),
        (
            User::service_account("a", "b"),
            "GET",
            "/api/v1/services",
            "service-accounts",
            "workload-low",
        ),
        (
            User::named("jane", &[]),
            "PUT",
            lease,
            "global-default",
            "global-default",
        ),
        (
            anonymous.clone(),
            "GET",
            "/api/v1/pods",
            "global-default",
            "global-default",
        ),
        (anonymous.clone(), "GET", "/livez", "probes", "exempt"),
        (
            anonymous.clone(),
            "GET",
            "/livez/ping",
            "global-default",
            "global-default",
        ),
        (anonymous, "GET", "/openapi/v2", "global-default", "global-default"),
        // Of no group at all: what none matches.
        (User::default(), "GET", "/api/v1/pods", "catch-all", "catch-all"),
    ] {
        let schema_found = found(&classifier, &user, method, path);
        let told = (&*schema_found.name, schema_found.level.as_str());
        assert_eq!(told, (schema, level), "{} {method} {path}", user.name);
    }
}

fn schema(name: &str, precedence: u32, rule: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"matchingPrecedence": precedence, "rules": [rule],
        "priorityLevelConfiguration": {"name": "l"}, "distinguisherMethod": {"type": "ByNamespace"}}})
}

#[test]
fn rules_cover_what_they_name() {
    let jane = json!([{"kind": "User", "user": {"name": "jane"}}]);
    let rules = |resources: Value| json!({"subjects": jane, "resourceRules": [resources]});
    let paths =
        |urls: Value| json!({"subjects": jane, "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": urls}]});
    let pods = |namespaces: Value, cluster: bool| {
        rules(
            json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"],
            "namespaces": namespaces, "clusterScope": cluster}),
        )
    };
    for (rule, method, uri, expected) in [
        (pods(json!(["a"]), false), "GET", "/api/v1/namespaces/a/pods/p", true),
        (pods(json!(["a"]), false), "GET", "/api/v1/namespaces/b/pods/p", false),
        (pods(json!(["a"]), false), "GET", "/api/v1/pods", false),
        (pods(json!(["a"]), true), "GET", "/api/v1/pods", true),
        (pods(json!([]), true), "GET", "/api/v1/namespaces/a/pods", false),
        (pods(json!(["*"]), false), "GET", "/api/v1/namespaces/b/pods", true),
        (
            pods(json!(["*"]), false),
            "GET",
            "/api/v1/namespaces/b/pods?watch=1",
            false,
        ),
        (
            pods(json!(["*"]), false),
            "DELETE",
            "/api/v1/namespaces/b/pods/p",
            false,
        ),
        (
            pods(json!(["*"]), false),
            "GET",
            "/api/v1/namespaces/b/pods/p/log",
            true,
        ),
        (
            pods(json!(["*"]), false),
            "GET",
            "/api/v1/namespaces/b/pods/p/status",
            false,
        ),
        (
            pods(json!(["*"]), false),
            "GET",
            "/apis/x/v1/namespaces/b/pods/p",
            false,
        ),
        (pods(json!(["*"]), false), "GET", "/healthz", false),
        (paths(json!(["/a", "/b/*"])), "GET", "/a", true),
        (paths(json!(["/a", "/b/*"])), "GET", "/a/", false),
        (paths(json!(["/a", "/b/*"])), "GET", "/b/c/d", true),
        (paths(json!(["/a", "/b/*"])), "GET", "/b", false),
        (paths(json!(["*"])), "POST", "/b", false),
        (paths(json!(["*"])), "GET", "/api/v1/namespaces/b/pods", false),
    ] {
        let classifier = classifier(&[schema("own", 3, rule.clone())]);
        let name = &found(&classifier, &User::named("jane", &[]), method, uri).name;
        assert_eq!(&**name == "own", expected, "{rule} {method} {uri}");
        let other = &found(&classifier, &User::named("joe", &[]), method, uri).name;
        assert_ne!(&**other, "own");
    }
}

#[test]
fn subjects_are_users_groups_and_accounts_and_precedence_then_the_name_decides() {
    let everything = |kind: &str, part: &str, subject: Value| json!({"subjects": [{"kind": kind, part: subject}], "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]});
    let user = |name: &str| everything("User", "user", json!({"name": name}));
    let group = |name: &str| everything("Group", "group", json!({"name": name}));
    let account = |namespace: &str, name: &str| {
        everything(
            "ServiceAccount",
            "serviceAccount",
            json!({"namespace": namespace, "name": name}),
        )
    };
    let classifier = classifier(&[
        schema("b-user", 10, user("jane")),
        schema("a-group", 10, group("friends")),
        schema("account", 11, account("a", "b")),
        schema("accounts", 12, account("a", "*")),
        schema("any-group", 9990, group("*")),
        schema("any-user", 9991, user("*")),
    ]);
    for (user, name) in [
        (User::named("jane", &[]), "b-user"),
        (User::named("jane", &["friends"]), "a-group"),
        (User::service_account("a", "b"), "account"),
        (User::service_account("a", "c"), "accounts"),
        (User::service_account("ab", "c"), "service-accounts"),
        (
            User {
                name: "x".into(),
                groups: vec!["odd".into()],
                ..User::default()
            },
            "any-group",
        ),
        (
            User {
                name: "x".into(),
                ..User::default()
            },
            "any-user",
        ),
    ] {
        let schema = found(&classifier, &user, "GET", "/x");
        assert_eq!(&*schema.name, name, "{user:?}");
    }
    let schema = found(&classifier, &User::named("jane", &[]), "GET", "/x");
    let info = RequestInfo {
        namespace: "n".into(),
        ..RequestInfo::default()
    };
    assert_eq!(schema.distinguisher.of(&User::named("jane", &[]), &info), "n");
}

/// Rules of others are not looked at: a request costs what is written of its own user and groups.
#[test]
fn rules_of_others_cost_a_request_nothing() {
    let rule = |number: usize| {
        let subject = json!({"kind": "User", "user": {"name": format!("u{number}")}});
        json!({"subjects": [subject], "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/x"]}]})
    };
    let many: Vec<Value> = (0..1_000)
        .map(|number| {
            let mut schema = schema(&format!("s{number:05}"), 3, rule(number));
            schema["spec"]["rules"] = (0..10).map(|part| rule(number * 10 + part)).collect();
            schema
        })
        .collect();
    let classifier = classifier(&many);
    let jane = User::named("jane", &[]);
    assert_eq!(&*found(&classifier, &jane, "GET", "/x").name, "global-default");
    assert_eq!(
        &*found(&classifier, &User::named("u9999", &[]), "GET", "/x").name,
        "s00999"
    );
    let looked_at = |user: &User| {
        let groups = user
            .groups
            .iter()
            .filter_map(|group| classifier.groups.get(group.as_str()));
        classifier
            .users
            .get(user.name.as_str())
            .into_iter()
            .chain(groups)
            .map(Vec::len)
            .sum::<usize>()
    };
    assert!(looked_at(&jane) < 10, "{}", looked_at(&jane));
}
