use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::managed_fields::compare::compare;
use crate::managed_fields::extract::extract;

type Labels = BTreeMap<String, String>;

/// Configurations of a Pod over few names, so that they meet often; names of another form keep two of them apart.
fn pods(name: &'static str) -> impl Strategy<Value = Value> {
    let labels = proptest::collection::btree_map(name, "[x-z]", 0..3);
    let ports = proptest::collection::btree_set(80u16..83, 0..3);
    let container = (proptest::option::of("[x-z]"), labels.clone(), ports);
    let containers = proptest::collection::btree_map(name, container, 0..3);
    let finalizers = proptest::collection::btree_set(name, 0..3);
    (labels, containers, finalizers).prop_map(|(labels, containers, finalizers)| {
        let containers: Vec<Value> = containers.into_iter().map(container_of).collect();
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}});
        if !labels.is_empty() {
            pod["metadata"]["labels"] = json!(labels);
        }
        if !finalizers.is_empty() {
            pod["metadata"]["finalizers"] = json!(finalizers);
        }
        if !containers.is_empty() {
            pod["spec"]["containers"] = json!(containers);
        }
        pod
    })
}

fn container_of(
    (name, (image, env, ports)): (String, (Option<String>, Labels, std::collections::BTreeSet<u16>)),
) -> Value {
    let mut container = json!({"name": name});
    if let Some(image) = image {
        container["image"] = json!(image);
    }
    if !env.is_empty() {
        let env: Vec<Value> = env
            .into_iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
        container["env"] = json!(env);
    }
    if !ports.is_empty() {
        let ports: Vec<Value> = ports.into_iter().map(|port| json!({"containerPort": port})).collect();
        container["ports"] = json!(ports);
    }
    container
}

fn forced(live: &Value, config: &Value, manager: &str, seconds: i64) -> Value {
    apply(live, config, manager, true, seconds).expect("forced")
}

fn empty() -> Value {
    nothing("v1", "Pod")
}

fn without_order(mut pod: Value) -> Value {
    fn sort(value: &mut Value) {
        match value {
            Value::Array(list) => {
                list.iter_mut().for_each(sort);
                list.sort_by_key(ToString::to_string);
            }
            Value::Object(map) => map.values_mut().for_each(sort),
            _ => {}
        }
    }
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    sort(&mut pod);
    pod
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(first in pods("[a-c]"), second in pods("[a-c]")) {
        let live = forced(&empty(), &first, "other", 0);
        let once = forced(&live, &second, "one", 1);
        prop_assert_eq!(&forced(&once, &second, "one", 2), &once);
        prop_assert_eq!(&apply(&once, &second, "one", false, 3), &Ok(once));
    }

    #[test]
    fn managers_of_different_fields_do_not_meet(one in pods("[a-c]1"), two in pods("[a-c]2")) {
        let apply = |live: &Value, config: &Value, manager: &str| apply(live, config, manager, false, 0).expect("no conflict");
        let ab = apply(&apply(&empty(), &one, "a"), &two, "b");
        let ba = apply(&apply(&empty(), &two, "b"), &one, "a");
        prop_assert_eq!(without_order(ab.clone()), without_order(ba));
        let bare = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
        let left = apply(&ab, &bare, "b");
        let alone = apply(&empty(), &one, "a");
        let mut expected = without_order(alone);
        // A struct that somebody named once stays, though it be empty.
        if left["spec"].is_null() && expected["spec"] == json!({}) {
            expected.as_object_mut().expect("an object").remove("spec");
        }
        prop_assert_eq!(without_order(left), expected);
    }

    #[test]
    fn what_was_applied_is_there_and_owned(first in pods("[a-c]"), second in pods("[a-c]")) {
        let live = forced(&empty(), &first, "other", 0);
        let new = forced(&live, &second, "one", 1);
        let owned = extract(typing("", "Pod"), scope("", "Pod", ""), &second);
        prop_assert_eq!(fields(&new, "one"), match owned.is_empty() {
            true => Value::Null,
            false => owned.into_value(),
        });
        let mut twice = new.clone();
        super::super::merge::merge(typing("", "Pod"), &mut twice, &second);
        prop_assert_eq!(twice, new);
    }

    #[test]
    fn a_comparison_names_what_differs(before in pods("[a-c]"), after in pods("[a-c]")) {
        let (typing, scope) = (typing("", "Pod"), scope("", "Pod", ""));
        let found = compare(typing, scope, Some(&before), &after);
        prop_assert_eq!(found.is_empty(), without_order(before.clone()) == without_order(after.clone()));
        prop_assert!(!found.changed.meets(&found.removed));
        let back = compare(typing, scope, Some(&after), &before);
        prop_assert!(found.removed.covers(&back.removed) == back.removed.is_empty());
        let all = extract(typing, scope, &after);
        prop_assert!(!all.meets(&found.removed));
    }

    #[test]
    fn updates_give_each_field_one_owner_at_most(steps in proptest::collection::vec(("[ab]", pods("[a-c]")), 1..6)) {
        let mut live: Option<Value> = None;
        for (second, (manager, mut pod)) in steps.into_iter().enumerate() {
            let seconds = i64::try_from(second).expect("few");
            track(typing("", "Pod"), scope("", "Pod", ""), live.as_ref(), &mut pod, &writer(&manager, seconds));
            let sets = ["a", "b"].map(|manager| FieldSet::parse(&fields(&pod, manager)).expect("FieldsV1"));
            prop_assert!(!sets[0].meets(&sets[1]));
            let owned = sets[0].clone().united(&sets[1]);
            // An empty spec is there before anybody writes it.
            let all = extract(typing("", "Pod"), scope("", "Pod", ""), &pod).without(&FieldSet::of(&["spec"]));
            let empty: Vec<String> = owned.clone().without(&all).first_paths(usize::MAX).iter().map(|path| path.join("/")).collect();
            // Nodes are owned as such by who added them; leaves are what there is.
            prop_assert!(all.clone().without(&owned).is_empty() || live.is_some(), "{}", all.without(&owned).into_value());
            prop_assert!(empty.iter().all(|path| !path.contains("/f:value")), "{empty:?}");
            live = Some(pod);
        }
    }

    #[test]
    fn hostile_entries_are_taken_or_left(list in "[\\[\\]{}:,\"a-cfkv.0-9]{0,40}") {
        if let Ok(list) = serde_json::from_str::<Value>(&list) {
            let live = forced(&empty(), &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"hostname": "h"}}), "one", 0);
            let mut new = live.clone();
            new["metadata"]["managedFields"] = list.clone();
            new["spec"]["hostname"] = json!("i");
            track(typing("", "Pod"), scope("", "Pod", ""), Some(&live), &mut new, &writer("two", 1));
            let is_reset = list == json!([]) || list == json!([{}]);
            prop_assert_eq!(managers(&new).contains(&"two"), !is_reset);
            let _ = FieldSet::parse(&list);
        }
    }
}
