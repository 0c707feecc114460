use super::*;
use crate::resource::Registry;

fn definition() -> Value {
    let mut definition = json!({"metadata": {"name": "lions.zoo.example"}, "spec": {"group": "zoo.example",
        "scope": "Cluster", "names": {"plural": "lions", "kind": "Lion"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    Definition.default(&mut definition);
    definition
}

fn told(errors: &FieldErrors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn defaults_follow_from_the_kind() {
    let definition = definition();
    assert_eq!(definition["spec"]["names"]["singular"], "lion");
    assert_eq!(definition["spec"]["names"]["listKind"], "LionList");
    assert_eq!(definition["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(told(&Definition.validate(&definition)), [""; 0]);
}

#[test]
fn a_version_that_was_stored_stays() {
    let mut old = definition();
    let ctx = PrepareContext {
        uid: "u",
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
    };
    Definition.prepare_create(&mut old, &ctx);
    assert_eq!(old["status"]["storedVersions"], json!(["v1"]));
    let mut new = old.clone();
    new["spec"]["versions"][0]["name"] = json!("v2");
    Definition.prepare_update(&mut new, &old, "");
    assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
    let errors = told(&Definition.validate_update(&new, &old, ""));
    assert!(
        errors[0].starts_with("status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was"),
        "{errors:?}"
    );
    new["spec"]["group"] = json!("other.example");
    let errors = told(&Definition.validate_update(&new, &old, ""));
    assert!(
        errors.contains(&"spec.group: Invalid value: \"other.example\": field is immutable".to_owned()),
        "{errors:?}"
    );
}

#[test]
fn upstreams_own_groups_need_a_word() {
    let mut definition = definition();
    definition["spec"]["group"] = json!("zoo.k8s.io");
    definition["metadata"]["name"] = json!("lions.zoo.k8s.io");
    let errors = told(&Definition.validate(&definition));
    assert!(
        errors[0].starts_with("metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups"),
        "{errors:?}"
    );
    definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "https://example.com"});
    assert_eq!(told(&Definition.validate(&definition)), [""; 0]);
}

#[test]
fn names_are_judged_against_the_group_and_times_move_with_conditions() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let later = "2026-01-02T00:00:00Z".parse().unwrap();
    let mut definition = definition();
    definition["status"] = status::decide(&definition, None, now);
    assert!(status::is_true(&definition, "Established") && status::is_true(&definition, "NamesAccepted"));
    assert_eq!(
        status::decide(&definition, None, later),
        definition["status"],
        "nothing changes"
    );
    let mut built_in = definition.clone();
    built_in["spec"]["names"]["plural"] = json!("deployments");
    let apps = Registry::built_in().group("apps").unwrap();
    let taken = status::decide(&built_in, Some(apps), later);
    assert_eq!(
        taken["conditions"][0]["reason"], "PluralConflict",
        "what is built in stays"
    );
    definition["spec"]["names"]["kind"] = json!("Deployment");
    let apps = Registry::built_in().group("apps").unwrap();
    let taken = status::decide(&definition, Some(apps), later);
    let conditions = taken["conditions"].as_array().unwrap();
    assert_eq!(
        (&conditions[0]["reason"], &conditions[0]["status"]),
        (&json!("KindConflict"), &json!("False"))
    );
    assert_eq!(conditions[0]["lastTransitionTime"], "2026-01-02T00:00:00Z");
    assert_eq!(conditions[1]["status"], "True", "once established, always");
    assert_eq!(taken["acceptedNames"]["kind"], "Lion");
}
