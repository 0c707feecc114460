use proptest::prelude::*;
use serde_json::json;

use super::*;

fn set(fields: Value) -> FieldSet {
    FieldSet::parse(&fields).expect("FieldsV1")
}

fn json(set: FieldSet) -> Value {
    set.into_value()
}

#[test]
fn operations_tell_nodes_from_what_is_below_them() {
    let both = json!({"f:a": {".": {}, "f:b": {}}});
    let (parent, child) = (json!({"f:a": {}}), json!({"f:a": {"f:b": {}}}));
    let union = set(parent.clone()).united(&set(child.clone()));
    assert_eq!(json(union), both);
    assert_eq!(json(set(child.clone()).united(&set(parent.clone()))), both);
    assert_eq!(json(set(both.clone()).without(&set(parent.clone()))), child);
    assert_eq!(json(set(both.clone()).without(&set(child.clone()))), parent);
    assert_eq!(json(set(parent.clone()).without(&set(child.clone()))), parent);
    assert!(set(both.clone()).without(&set(both.clone())).is_empty());
    let mut common = set(both.clone());
    common.intersect(&set(child.clone()));
    assert_eq!(json(common), child);
    assert!(!set(parent.clone()).meets(&set(child.clone())));
    assert!(set(both.clone()).meets(&set(child.clone())));
    assert!(set(both.clone()).covers(&set(child.clone())) && !set(child).covers(&set(both)));
}

#[test]
fn odd_forms_are_read_as_upstream_reads_them_or_refused() {
    for (sent, expected) in [
        (json!(null), Some(json!({}))),
        (json!({}), Some(json!({}))),
        (json!({".": {}}), Some(json!({}))),
        (json!({"f:a": {"z:later": {}}}), Some(json!({"f:a": {}}))),
        (json!({"f:a": {".": {}}}), Some(json!({"f:a": {}}))),
        (
            json!({"k:{\"b\":1,\"a\":2}": {"f:x": {}}, "k:{\"a\":2,\"b\":1}": {}}),
            Some(json!({"k:{\"a\":2,\"b\":1}": {".": {}, "f:x": {}}})),
        ),
        (json!({"a": {}}), None),
        (json!({"f:a": 1}), None),
        (json!([]), None),
        (json!("f:a"), None),
    ] {
        let found = FieldSet::parse(&sent).ok().map(FieldSet::into_value);
        assert_eq!(found, expected, "{sent}");
    }
    let deep = |levels: usize| (0..levels).fold(json!({}), |below, _| json!({"f:a": below}));
    assert!(FieldSet::parse(&deep(tree::DEPTH_MAX - 1)).is_ok());
    assert_eq!(FieldSet::parse(&deep(tree::DEPTH_MAX)), Err(BadFields));
    assert_eq!(FieldSet::parse(&deep(1_000)), Err(BadFields));
}

/// As many texts of one step, the first of which has most of what is below: each costs what it has itself.
#[test]
fn many_texts_of_one_step_cost_what_they_bring() {
    let blanks = |number: u32| -> String {
        (0..14)
            .map(|bit| if number >> bit & 1 == 0 { '\t' } else { ' ' })
            .collect()
    };
    let texts = (0..1 << 14).map(|number| (format!("v:{}1", blanks(number)), json!({"f:own": {}})));
    let mut sent: serde_json::Map<String, Value> = texts.collect();
    let many = (0..50_000).map(|number| (format!("f:{number}"), json!({})));
    let first = sent
        .values_mut()
        .next()
        .and_then(Value::as_object_mut)
        .expect("the first");
    first.extend(many);
    sent.insert("v:1".to_owned(), json!({}));
    let set = set(Value::Object(sent));
    assert_eq!(set.count(), 50_002);
    assert!(set.has(&["v:1"]) && set.has(&["v:1", "f:own"]) && set.has(&["v:1", "f:49999"]));
}

#[test]
fn fields_are_listed_with_parents_first() {
    let fields = set(json!({"f:z": {}, "f:a": {".": {}, "f:c": {}, "f:b": {"f:d": {}}}}));
    let texts: Vec<String> = fields
        .first_paths(usize::MAX)
        .iter()
        .map(|path| path.join("/"))
        .collect();
    assert_eq!(texts, ["f:a", "f:z", "f:a/f:c", "f:a/f:b/f:d"]);
    assert!(fields.first_paths(usize::MAX).iter().all(|path| fields.has(path)));
    assert!(!fields.has(&["f:a", "f:b"]) && !fields.has::<&str>(&[]));
}

/// Sets over few names, so that they meet often.
pub(in crate::managed_fields) fn sets() -> impl Strategy<Value = FieldSet> {
    let leaf = Just(json!({})).boxed();
    let step = prop_oneof!["f:[a-c]", "v:\"[a-b]\"", r#"k:\{"n":"[a-b]"\}"#];
    let tree = leaf.prop_recursive(3, 20, 4, move |inner| {
        let members = proptest::collection::btree_map(step.clone(), inner, 1..4);
        (members, any::<bool>()).prop_map(|(members, is_member)| {
            let mut tree: Tree = members.into_iter().collect();
            if is_member {
                tree.insert(SELF.to_owned(), json!({}));
            }
            Value::Object(tree)
        })
    });
    tree.prop_map(|tree| FieldSet::parse(&tree).expect("FieldsV1"))
}

proptest! {
    #[test]
    fn sets_obey_the_laws_of_sets(a in sets(), b in sets()) {
        let union = a.clone().united(&b);
        prop_assert_eq!(&union, &b.clone().united(&a));
        prop_assert!(union.covers(&a) && union.covers(&b));
        let mut common = a.clone();
        common.intersect(&b);
        prop_assert_eq!(common.is_empty(), !a.meets(&b));
        prop_assert_eq!(a.count_in(&b.clone().into_value().to_string()), common.count());
        prop_assert_eq!(a.count(), a.first_paths(usize::MAX).len());
        let rest = a.clone().without(&b);
        prop_assert!(!rest.meets(&b));
        prop_assert_eq!(&rest.united(&common), &a);
        prop_assert_eq!(union.first_paths(usize::MAX).len(), a.first_paths(usize::MAX).len() + b.first_paths(usize::MAX).len() - common.first_paths(usize::MAX).len());
    }

    #[test]
    fn fields_v1_round_trips(a in sets()) {
        prop_assert_eq!(FieldSet::parse(&a.clone().into_value()), Ok(a.clone()));
        prop_assert!(a.first_paths(usize::MAX).iter().all(|path| a.has(path)));
    }
}
