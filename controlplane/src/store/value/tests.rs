use super::*;
use proptest::prelude::*;
use serde_json::json;

/// Any JSON of some depth.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key(), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,6}",
        prop::sample::select(vec![
            "kind",
            "apiVersion",
            "metadata",
            "resourceVersion",
            "selfLink",
            OWNERS
        ])
        .prop_map(str::to_owned),
    ]
}

fn object() -> impl Strategy<Value = Value> {
    let map = || prop::collection::btree_map(key(), json(), 0..5);
    (map(), map()).prop_map(|(metadata, mut members)| {
        members.insert("metadata".to_owned(), Value::Object(metadata.into_iter().collect()));
        Value::Object(members.into_iter().collect())
    })
}

proptest! {
    /// Whatever an object holds, its bytes say the kind they were written for, hold all else that is stored, and are a fixed point.
    #[test]
    fn bytes_read_back_as_what_was_written(
        object in object(),
        version in "([a-z]{1,5}\\.[a-z]{1,5}/)?v[1-9]",
        kind in "[A-Z][A-Za-z]{0,8}",
    ) {
        let of = TypeMeta::new(&version, &kind);
        let raw = canonical(&of, &object);
        prop_assert_eq!(TypeMeta::of(&raw), Some(of.clone()));
        let read: Value = serde_json::from_slice(&raw).unwrap();
        let mut expected = object.clone();
        expected["kind"] = json!(kind);
        expected["apiVersion"] = json!(version);
        let metadata = expected["metadata"].as_object_mut().unwrap();
        metadata.remove("resourceVersion");
        metadata.remove("selfLink");
        prop_assert_eq!(&read, &expected);
        prop_assert_eq!(canonical(&of, &read), raw.clone());
        let layout = Layout::of(&raw).unwrap();
        let owners = layout.split_owners().map(|(_, list)| serde_json::from_slice::<Value>(list).unwrap());
        prop_assert_eq!(owners.as_ref(), expected["metadata"].get(OWNERS));
    }

    /// Bytes of format 1 are those of today without their first two members.
    #[test]
    fn bytes_of_before_become_those_of_today(object in object()) {
        let of = TypeMeta::new("apps/v1", "Deployment");
        let today = canonical(&of, &object);
        let before = [b"{\"metadata\":{", Layout::of(&today).unwrap().members].concat();
        prop_assert_eq!(described(&of, &before), Some(today));
    }

    #[test]
    fn bytes_of_anybody_are_read_without_panic(raw in prop::collection::vec(any::<u8>(), 0..80)) {
        let all = [KIND, &raw].concat();
        let _ = (TypeMeta::of(&raw), Layout::of(&all), described(&TypeMeta::new("v1", "Pod"), &raw));
    }
}

#[test]
fn what_bytes_say_is_found_wherever_it_stands() {
    for (raw, expected) in [
        (
            r#"{"apiVersion":"zoo.example/v1","kind":"Lion","metadata":{"name":"a"}}"#,
            Some(("zoo.example/v1", "Lion")),
        ),
        (
            r#"{"metadata":{},"kind":"P\u006fd","apiVersion":"v1"}"#,
            Some(("v1", "Pod")),
        ),
        (r#"{"kind":"Pod","apiVersion":"v1"}"#, Some(("v1", "Pod"))),
        (r#"{"metadata":{}}"#, Some(("", ""))),
        (r#"{"kind":1}"#, None),
        ("minutes", None),
    ] {
        let found = TypeMeta::of(raw.as_bytes());
        assert_eq!(
            found,
            expected.map(|(version, kind)| TypeMeta::new(version, kind)),
            "{raw}"
        );
    }
    assert_eq!(TypeMeta::new("zoo.example/v1", "Lion").group(), "zoo.example");
    assert_eq!(TypeMeta::new("v1", "Pod").group(), "");
}

#[test]
fn an_object_of_before_may_be_bare() {
    let of = TypeMeta::new("v1", "Pod");
    assert_eq!(described(&of, b"{}").unwrap(), br#"{"kind":"Pod","apiVersion":"v1"}"#);
    assert_eq!(described(&of, b"60 17"), None);
}
