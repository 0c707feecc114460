use super::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn pod(namespace: &str, app: &str, spec: Value) -> PodInfo {
    let value =
        json!({"metadata": {"name": app, "namespace": namespace, "uid": app, "labels": {"app": app}}, "spec": spec});
    PodInfo::new(Arc::new(serde_json::from_value(value).unwrap()))
}

fn anti(term: Value) -> Value {
    let mut term = term;
    term["topologyKey"] = json!("kubernetes.io/hostname");
    json!({"containers": [], "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

#[test]
fn equal_terms_have_one_identity_and_others_another() {
    let selectors = [
        json!(null),
        json!({}),
        json!({"matchLabels": {"a": "b"}}),
        json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}),
    ];
    let mut terms = Vec::new();
    for selector in &selectors {
        terms.push(json!({"labelSelector": selector}));
        terms.push(json!({"labelSelector": selector, "namespaceSelector": {}}));
        terms.push(json!({"labelSelector": selector, "namespaces": ["x"]}));
    }
    let identities = || -> BTreeSet<Arc<str>> {
        let of = |term: &Value| pod("n", "p", anti(term.clone())).terms.repel[0].identity.clone();
        terms.iter().map(of).collect()
    };
    assert_eq!(identities().len(), terms.len());
    assert_eq!(identities(), identities());
}

#[test]
fn a_term_is_about_pods_by_their_namespace_and_labels() {
    let plain = json!({"containers": []});
    let web = json!({"labelSelector": {"matchLabels": {"app": "web"}}});
    let mut elsewhere = web.clone();
    elsewhere["namespaces"] = json!(["b"]);
    let mut selected = web.clone();
    selected["namespaceSelector"] = json!({"matchLabels": {"team": "x"}});
    let mut both = selected.clone();
    both["namespaces"] = json!(["b"]);
    let mut anywhere = web.clone();
    anywhere["namespaceSelector"] = json!({});
    for (term, namespace, app, is_about) in [
        (&web, "a", "web", true),
        (&web, "a", "db", false),
        (&web, "b", "web", false),
        (&elsewhere, "b", "web", true),
        (&elsewhere, "a", "web", false),
        // Namespace x is of team x.
        (&selected, "x", "web", true),
        (&selected, "x", "db", false),
        (&selected, "a", "web", false),
        (&both, "b", "web", true),
        (&both, "x", "web", true),
        (&both, "a", "web", false),
        (&anywhere, "c", "web", true),
        (&json!({}), "a", "web", false),
        (&json!({"labelSelector": {}}), "a", "db", true),
    ] {
        let existing = pod("a", "first", anti(term.clone()));
        let labels = BTreeMap::from([("team".to_owned(), namespace.to_owned())]);
        let found = existing.terms.repel[0].is_about(&pod(namespace, app, plain.clone()), &labels);
        assert_eq!(found, is_about, "{term} {namespace}/{app}");
    }
}

/// The API server makes requirements of `matchLabelKeys` and `mismatchLabelKeys` when it makes the pod, as upstream's does, so
/// that the terms as stored say all there is.
#[test]
fn label_keys_of_a_term_count_for_pods_as_they_are_stored() {
    let term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["hash"], "mismatchLabelKeys": ["tenant"]});
    let mut stored = json!({"metadata": {"name": "first", "namespace": "a", "uid": "u",
        "labels": {"app": "web", "hash": "1", "tenant": "t"}}, "spec": anti(term)});
    let kind = crate::resource::Registry::built_in()
        .by_resource("", "v1", "pods")
        .unwrap();
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let context = crate::resource::PrepareContext { uid: "u", now };
    kind.strategy.prepare_create(&mut stored, &context);
    let existing = PodInfo::new(Arc::new(serde_json::from_value(stored).unwrap()));
    for (hash, tenant, is_about) in [("1", "other", true), ("1", "t", false), ("2", "other", false)] {
        let value = json!({"metadata": {"name": "p", "namespace": "a", "uid": "p",
            "labels": {"app": "web", "hash": hash, "tenant": tenant}}, "spec": {"containers": []}});
        let other = PodInfo::new(Arc::new(serde_json::from_value(value).unwrap()));
        let found = existing.terms.repel[0].is_about(&other, &BTreeMap::new());
        assert_eq!(found, is_about, "{hash} {tenant}");
    }
}
