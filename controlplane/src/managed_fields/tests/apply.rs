use super::*;

fn new_map(data: Value, manager: &str) -> Value {
    apply(&nothing("v1", "ConfigMap"), &config_map(data), manager, false, 0).expect("applies")
}

fn conflicts(found: Result<Value, ApplyError>) -> (String, Vec<(String, String)>) {
    match found {
        Err(error @ ApplyError::Conflicts(_)) => {
            let text = error.to_string();
            let ApplyError::Conflicts(all) = error else {
                unreachable!()
            };
            let causes = all.first().into_iter().map(|one| (one.manager, one.field)).collect();
            (text, causes)
        }
        other => panic!("no conflict: {other:?}"),
    }
}

#[test]
fn an_applier_owns_what_it_names_and_takes_out_what_it_no_longer_names() {
    let first = new_map(json!({"a": "1", "b": "2"}), "one");
    let expected = json!({"manager": "one", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}}});
    assert_eq!(entry(&first, "one"), expected);
    let mut live = first.clone();
    live["data"]["c"] = json!("3");
    track(
        typing("", "ConfigMap"),
        Scope::WHOLE,
        Some(&first),
        &mut live,
        &writer("ci", 1),
    );
    let second = apply(&live, &config_map(json!({"a": "1"})), "one", false, 2).expect("applies");
    assert_eq!(second["data"], json!({"a": "1", "c": "3"}), "b goes, c is another's");
    assert_eq!(second["metadata"]["name"], "m");
    assert_eq!(entry(&second, "one")["time"], "2026-01-01T00:00:02Z");
    let third = apply(&second, &config_map(json!({"a": "1"})), "one", false, 3).expect("applies");
    assert_eq!(third, second, "the same again changes nothing, not even times");
    let mut bare = config_map(json!({}));
    bare.as_object_mut().unwrap().remove("data");
    let last = apply(&third, &bare, "one", false, 4).expect("applies");
    assert_eq!(last["data"], json!({"c": "3"}));
    assert_eq!(managers(&last), ["ci"], "who owns nothing has no entry");
}

#[test]
fn owners_share_what_they_agree_on_and_conflict_about_the_rest() {
    let one = new_map(json!({"a": "1", "b": "2"}), "one");
    let both = apply(&one, &config_map(json!({"a": "1"})), "two", false, 1).expect("agree");
    assert_eq!(both["data"], one["data"]);
    assert_eq!(
        managers(&both),
        ["two", "one"],
        "nothing changed, so the new entry has no time"
    );
    assert!(entry(&both, "two").get("time").is_none());
    let (text, causes) = conflicts(apply(&both, &config_map(json!({"a": "9"})), "two", false, 2));
    assert_eq!(text, "Apply failed with 1 conflict: conflict with \"one\": .data.a");
    assert_eq!(causes, [("\"one\"".to_owned(), ".data.a".to_owned())]);
    let forced = apply(&both, &config_map(json!({"a": "9"})), "two", true, 2).expect("forced");
    assert_eq!(forced["data"], json!({"a": "9", "b": "2"}));
    assert_eq!(fields(&forced, "one"), json!({"f:data": {"f:b": {}}}));
    let given_up = apply(&both, &config_map(json!({"b": "2"})), "one", false, 3).expect("applies");
    assert_eq!(given_up["data"], json!({"a": "1", "b": "2"}), "two still wants it");
    let mut live = both.clone();
    live["data"]["b"] = json!("5");
    track(
        typing("", "ConfigMap"),
        Scope::WHOLE,
        Some(&both),
        &mut live,
        &writer("ci", 4),
    );
    let (text, _) = conflicts(apply(
        &live,
        &config_map(json!({"a": "7", "b": "8"})),
        "three",
        false,
        5,
    ));
    let expected = "Apply failed with 3 conflicts: conflicts with \"ci\" using v1:\n- .data.b\nconflicts with \"one\":\n- .data.a\n\
        conflicts with \"two\":\n- .data.a";
    assert_eq!(text, expected);
}

#[test]
fn conflicts_say_through_which_endpoint() {
    let live = new_map(json!({"a": "1"}), "one");
    let mut changed = live.clone();
    changed["data"]["a"] = json!("2");
    let through = Writer {
        subresource: "scale",
        ..writer("hpa", 1)
    };
    track(
        typing("", "ConfigMap"),
        Scope::WHOLE,
        Some(&live),
        &mut changed,
        &through,
    );
    let (text, _) = conflicts(apply(&changed, &config_map(json!({"a": "1"})), "one", false, 2));
    assert!(
        text.ends_with("conflict with \"hpa\" with subresource \"scale\" using v1: .data.a"),
        "{text}"
    );
}

#[test]
fn what_was_never_tracked_belongs_to_whoever_was_before() {
    let live = config_map(json!({"a": "1", "b": "2"}));
    let (text, _) = conflicts(apply(&live, &config_map(json!({"a": "9"})), "one", false, 1));
    assert_eq!(
        text,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a"
    );
    let new = apply(&live, &config_map(json!({"a": "1"})), "one", false, 1).expect("agrees");
    assert_eq!(
        fields(&new, "before-first-apply"),
        json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}})
    );
}

#[test]
fn kubectl_may_take_what_it_applied_on_its_own_side() {
    let mut old = config_map(json!({"a": "1", "b": "2"}));
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    old["metadata"]["annotations"] = json!({annotation: old.to_string()});
    let mut live = old.clone();
    let client = writer("kubectl-client-side-apply", 0);
    track(typing("", "ConfigMap"), Scope::WHOLE, None, &mut live, &client);
    let config = config_map(json!({"a": "9", "b": "2"}));
    assert!(matches!(
        apply(&live, &config, "mine", false, 1),
        Err(ApplyError::Conflicts(_))
    ));
    let new = apply(&live, &config, "kubectl", false, 1).expect("its own");
    assert_eq!(new["data"]["a"], "9");
    let kept: Value = serde_json::from_str(new["metadata"]["annotations"][annotation].as_str().unwrap()).unwrap();
    assert_eq!(kept, config, "the annotation says what was applied now");
    let mut edited = live.clone();
    edited["data"]["a"] = json!("edited");
    track(
        typing("", "ConfigMap"),
        Scope::WHOLE,
        Some(&live),
        &mut edited,
        &writer("ed", 1),
    );
    let (text, _) = conflicts(apply(&edited, &config, "kubectl", false, 2));
    assert_eq!(
        text,
        "Apply failed with 1 conflict: conflict with \"ed\" using v1: .data.a"
    );
}

#[test]
fn configurations_that_do_not_fit_are_refused_in_upstreams_words() {
    let deployment =
        |spec: Value| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec});
    let containers = |items: Value| deployment(json!({"template": {"spec": {"containers": items}}}));
    for (config, expected) in [
        (deployment(json!({"x": 1})), ".spec.x: field not declared in schema"),
        (
            deployment(json!({"x": 1, "y": 1})),
            "errors:\n  .spec.x: field not declared in schema\n  .spec.y: field not declared in schema",
        ),
        (
            deployment(json!({"replicas": "3"})),
            ".spec.replicas: expected numeric (int or float), got string",
        ),
        (
            deployment(json!({"paused": "no"})),
            ".spec.paused: expected boolean, got &{no}",
        ),
        (deployment(json!([])), ".spec: expected map, got &{[]}"),
        (
            deployment(json!({"template": {"metadata": {"name": 1}}})),
            ".spec.template.metadata.name: expected string, got &value.valueUnstructured{Value:1}",
        ),
        (
            containers(json!({"a": "b"})),
            ".spec.template.spec.containers: expected list, got &{map[a:b]}",
        ),
        (
            containers(json!([{"image": "x"}])),
            ".spec.template.spec.containers: element 0: associative list with keys has an element that omits all key fields \
             [\"name\"] (and doesn't have default values for any key fields)",
        ),
        (
            containers(
                json!([{"name": "c", "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]}]),
            ),
            ".spec.template.spec.containers[name=\"c\"].ports: duplicate entries for key [containerPort=80,protocol=\"TCP\"]",
        ),
        (
            containers(json!([{"name": "c", "args": [1]}])),
            ".spec.template.spec.containers[name=\"c\"].args[0]: expected string, got &value.valueUnstructured{Value:1}",
        ),
    ] {
        let live = nothing("apps/v1", "Deployment");
        let found = apply(&live, &config, "one", false, 0);
        assert_eq!(found, Err(ApplyError::Untyped(expected.to_owned())), "{config}");
    }
}

#[test]
fn parts_are_pruned_with_what_holds_them_unless_others_are_in_it() {
    let deployment = |containers: Value| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": {"a": "b"}},
            "spec": {"replicas": 2, "strategy": {"type": "Recreate"}, "template": {"spec": {"containers": containers}}}})
    };
    let live = nothing("apps/v1", "Deployment");
    let two = deployment(
        json!([{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"}]),
    );
    let first = apply(&live, &two, "one", false, 0).expect("applies");
    let mut set = first.clone();
    set["spec"]["template"]["spec"]["containers"][1]["tty"] = json!(true);
    track(
        typing("apps", "Deployment"),
        Scope::WHOLE,
        Some(&first),
        &mut set,
        &writer("other", 1),
    );
    let less = deployment(json!([{"name": "a", "image": "1"}]));
    let new = apply(&set, &less, "one", false, 2).expect("applies");
    let containers = &new["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers, &json!([{"name": "a", "image": "1"}]), "{new}");
    let bare = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}});
    let gone = apply(&first, &bare, "one", false, 3).expect("applies");
    assert!(
        gone.get("spec").is_none() && gone["metadata"].get("labels").is_none(),
        "{gone}"
    );
    assert_eq!(gone["metadata"]["name"], "d");
}

#[test]
fn of_many_conflicts_the_first_are_named_and_the_others_counted() {
    let data = |value: &str| -> Value {
        (0..5000)
            .map(|number| (format!("k{number:04}"), json!(value)))
            .collect()
    };
    let live = new_map(data("1"), "one");
    let (text, causes) = conflicts(apply(&live, &config_map(data("2")), "two", false, 1));
    assert_eq!(causes.len(), 100);
    assert_eq!(causes[99], ("\"one\"".to_owned(), ".data.k0099".to_owned()));
    assert!(
        text.starts_with("Apply failed with 5000 conflicts: conflicts with \"one\":\n- .data.k0000\n"),
        "{text}"
    );
    assert!(text.ends_with("- .data.k0099\nand 4900 more conflicts"), "{text}");
}

#[test]
fn long_paths_are_cut_in_conflicts_and_problems() {
    let long = "n".repeat(1 << 16);
    let live = new_map(json!({(long.as_str()): "1"}), "one");
    let (text, _) = conflicts(apply(
        &live,
        &config_map(json!({(long.as_str()): "2"})),
        "two",
        false,
        1,
    ));
    assert!(text.len() < 2048, "{}", text.len());
    let unknown: serde_json::Map<String, Value> = (0..50).map(|number| (format!("x{number}"), json!(0))).collect();
    let mut container = Value::Object(unknown);
    container["name"] = json!(long);
    let pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}});
    let refused = apply(&nothing("v1", "Pod"), &pod, "one", false, 0);
    let Err(ApplyError::Untyped(text)) = refused else {
        panic!("{refused:?}")
    };
    assert!(text.len() < 50 * 2048, "{}", text.len());
    let twice = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "finalizers": [long, long]}});
    let Err(ApplyError::Untyped(text)) = apply(&nothing("v1", "Pod"), &twice, "one", false, 0) else {
        panic!("a duplicate")
    };
    assert!(text.len() < 8192, "{}", text.len());
}

#[test]
fn managers_that_no_client_may_have_are_not_read() {
    let live = new_map(json!({"a": "1"}), "one");
    for (key, length) in [("manager", 129), ("subresource", 257), ("apiVersion", 257)] {
        let mut other = live.clone();
        other["metadata"]["managedFields"][0][key] = json!("m".repeat(length));
        let (text, _) = conflicts(apply(&other, &config_map(json!({"a": "2"})), "two", false, 1));
        assert_eq!(
            text,
            "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a"
        );
    }
}
