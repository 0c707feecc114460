use super::*;
use crate::schema::{self, Media};
use proptest::prelude::*;

const LAYOUTS: [Layout; 2] = [Layout::Pretty, Layout::Yaml];

fn output(layout: Layout) -> Output {
    match layout {
        Layout::Pretty => Output {
            pretty: true,
            ..Output::JSON
        },
        Layout::Yaml => Output {
            encoding: Encoding::Yaml,
            ..Output::JSON
        },
    }
}

/// As it was written before lists were streamed: the whole tree at once.
fn whole(layout: Layout, value: &Value) -> Vec<u8> {
    match layout {
        Layout::Yaml => serde_saphyr::to_string(value).unwrap().into_bytes(),
        Layout::Pretty => [serde_json::to_vec_pretty(value).unwrap(), b"\n".to_vec()].concat(),
    }
}

fn streamed(layout: Layout, members: &Map<String, Value>, key: &str, items: &[Value]) -> Vec<u8> {
    let mut text = layout.opened(members, key, items.is_empty());
    for (number, item) in items.iter().enumerate() {
        text.extend_from_slice(&layout.item(item, number == 0));
    }
    text.extend_from_slice(&layout.closed(members, key, items.is_empty()));
    text
}

fn agree(members: &Value, key: &str, items: &[Value]) {
    let members = members.as_object().unwrap();
    let mut tree = members.clone();
    tree.insert(key.to_owned(), json!(items));
    let tree = Value::Object(tree);
    for layout in LAYOUTS {
        let expected = String::from_utf8(whole(layout, &tree)).unwrap();
        let found = String::from_utf8(streamed(layout, members, key, items)).unwrap();
        assert_eq!(found, expected, "{layout:?}");
        assert_eq!(
            String::from_utf8(layout.document(&tree, usize::MAX)).unwrap(),
            expected,
            "{layout:?}"
        );
    }
}

fn members() -> Value {
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7", "continue": "abc"}})
}

#[test]
fn what_was_negotiated() {
    for layout in LAYOUTS {
        assert_eq!(Layout::of(output(layout)), Some(layout));
    }
    assert_eq!(Layout::of(Output::JSON), None);
}

#[test]
fn objects_one_by_one_give_the_bytes_of_the_whole() {
    let texts = json!({
        "lines": "a\nb\n\n  c\n", "no end": "a\nb", "blanks": " a ", "like": ["- a", "# b", "yes", "null", "1", "1e3", "", "~", "a: b"],
        "long": "word ".repeat(100), "tab": "a\tb", "return": "a\r\nb", "quote": "\"'", "more": "\u{1F600}\u{7}\u{feff}", "-": {}, "": [],
        "deep": [[[], [{}], [{"a": [1.5, -2, 1e100, u64::MAX]}]], {"b": null, "c": true}],
    });
    for items in [
        vec![],
        vec![json!({})],
        vec![texts.clone()],
        vec![json!({"metadata": {"name": "a"}}), texts.clone(), json!({"b": []})],
        vec![json!([]), json!("text\nof lines\n"), json!(7), Value::Null, texts],
    ] {
        agree(&members(), "items", &items);
        let columns = json!([{"name": "Name", "type": "string", "priority": 0}]);
        let table =
            json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": columns, "metadata": {}});
        agree(&table, "rows", &items);
    }
}

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC*".prop_map(Value::from),
        "[ab :#\\-\n\t]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[a-z.:# ]{0,8}", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_objects_one_by_one_give_the_bytes_of_the_whole(items in prop::collection::vec(tree(), 0..4), extra in tree()) {
        let mut members = members();
        members["metadata"]["extra"] = extra;
        agree(&members, "items", &items);
    }
}

/// Many numbers below a hundred lists would be a hundred times as long with blanks.
#[test]
fn blanks_do_not_multiply_what_is_nested_deeply() {
    let mut value = Value::from(vec![1; 100_000]);
    for _ in 0..95 {
        value = json!([value]);
    }
    let length = serde_json::to_vec(&value).unwrap().len();
    for layout in LAYOUTS {
        let text = layout.document(&value, usize::MAX);
        assert!(text.len() <= Layout::most_bytes(length), "{layout:?}: {}", text.len());
        let media = match layout {
            Layout::Pretty => Media::Json,
            Layout::Yaml => Media::Yaml,
        };
        let list = streamed(
            layout,
            members().as_object().unwrap(),
            "items",
            &[json!({}), value.clone(), json!({"a": 1})],
        );
        assert!(
            list.len() <= Layout::most_bytes(length) + 1_000,
            "{layout:?}: {}",
            list.len()
        );
        let read = match media {
            Media::Json => serde_json::from_slice::<Value>(&list).unwrap(),
            _ => schema::parse(&list, media).unwrap(),
        };
        assert_eq!(read["items"], json!([{}, value, {"a": 1}]), "{layout:?}");
    }
}
