//! What is kept of a revision, and that replies and selectors find in it what was written.

use super::*;
use crate::store::value::{canonical, canonical_owned};
use serde_json::json;

fn stored(raw: Vec<u8>) -> Stored {
    Stored::new(Arc::from("/registry/pods/a/b"), 7, 3, Bytes::from(raw))
}

fn joined(parts: (Bytes, Bytes)) -> Value {
    serde_json::from_slice(&[parts.0, parts.1].concat()).unwrap()
}

#[test]
fn replies_splice_what_the_stored_bytes_leave_out() {
    let object = json!({"kind": "Pod", "apiVersion": "v1", "spec": {"a": "\"{"},
        "metadata": {"name": "b", "resourceVersion": "1", "labels": {"x": "y"}}});
    let raw = canonical(&TypeMeta::new("v1", "Pod"), &object);
    assert_eq!(
        String::from_utf8(raw.clone()).unwrap(),
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"labels":{"x":"y"},"name":"b"},"spec":{"a":"\"{"}}"#
    );
    let stored = stored(raw);
    let expected = json!({"kind": "Pod", "apiVersion": "v1", "spec": {"a": "\"{"},
        "metadata": {"name": "b", "resourceVersion": "9", "labels": {"x": "y"}}});
    assert_eq!(joined(stored.json(Some(("v1", "Pod")), 9)), expected);
    assert_eq!(stored.value()["metadata"]["resourceVersion"], "7");
    assert!(stored.json(None, 9).1.len() > 20, "the rest is the stored bytes' own");
    stored.written_over(None);
    assert_eq!(stored.tree(), *stored.value(), "a tree that was forgotten is made anew");
    assert!(lock(&stored.made().value).is_none(), "and not kept");
}

#[test]
fn what_is_written_over_keeps_no_forms_and_for_selectors_what_was_counted() {
    let many: std::collections::BTreeMap<String, &str> = (0..1000).map(|n| (format!("{n}"), "")).collect();
    let read = |labels: Value| move |_: &Stored| Selectable::of(&json!({"metadata": {"labels": labels}}), []);
    let (few, many) = (json!({"a": "b"}), json!(many));
    let object = || stored(canonical(&TypeMeta::new("v1", "Pod"), &json!({})));
    let kept = |stored: &Stored| stored.asked().forms.iter().flatten().count();
    let unasked = object();
    assert_eq!(unasked.written_over(None), 0);
    unasked.selectable(0, read(few.clone()));
    assert_eq!(kept(&unasked), 1);
    unasked.selectable(1, read(many.clone()));
    assert!(kept(&unasked) <= 1 && unasked.asked().bytes() <= ASKED_BYTES);
    unasked.bytes(1, |_| Some(Bytes::from_static(b"{}")));
    assert!(unasked.remade().is_none());

    let asked = object();
    asked.selectable(1, read(many.clone()));
    asked.selectable(2, read(few));
    assert_eq!(kept(&asked), 2, "two versions do not drive each other out");
    asked.bytes(1, |_| Some(Bytes::from_static(b"{}")));
    assert_eq!(asked.written_over(None), asked.asked().bytes());
    assert!(asked.remade().is_none() && kept(&asked) == 2 && asked.asked().bytes() > 4_000);
}

#[test]
fn who_writes_over_an_object_waits_for_no_reader_of_it() {
    let read = Arc::new(stored(canonical(&TypeMeta::new("v1", "Pod"), &json!({}))));
    let (begun, begins) = std::sync::mpsc::channel();
    let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
    let reader = {
        let read = Arc::clone(&read);
        std::thread::spawn(move || {
            read.bytes(1, |_| {
                begun.send(()).unwrap();
                goes_on.recv().unwrap();
                Some(Bytes::from_static(b"{}"))
            })
        })
    };
    begins.recv().unwrap();
    read.written_over(None);
    go_on.send(()).unwrap();
    assert_eq!(reader.join().unwrap().len(), 2);
    assert!(read.remade().is_none());
}

#[test]
fn owners_are_stored_first_and_left_aside() {
    let list = r#"[{"fieldsV1":{"f:a":{"k:{\"n\":\"}]\"}":{}}},"manager":"m"}]"#;
    let mut object = json!({"metadata": {"name": "b", "annotations": {"x": "y"}}, "spec": 1});
    object["metadata"]["managedFields"] = serde_json::from_str(list).unwrap();
    let raw = canonical(&TypeMeta::new("a/v1", "B"), &object);
    let expected = format!(
        r#"{{"kind":"B","apiVersion":"a/v1","metadata":{{"managedFields":{list},"annotations":{{"x":"y"}},"name":"b"}},"spec":1}}"#
    );
    assert_eq!(String::from_utf8(raw.clone()).unwrap(), expected);
    let owned = stored(raw);
    assert_eq!(owned.owners().as_deref(), Some(list));
    assert!(owned.tree()["metadata"].get("managedFields").is_none());
    object["metadata"]["resourceVersion"] = json!("7");
    assert_eq!(owned.owned_tree(), object);
    assert_eq!(joined(owned.json(None, 7)), object);
    let only = stored(canonical_owned(&TypeMeta::new("a/v1", "B"), &json!({}), Some("[]")));
    assert_eq!(
        (only.owners().as_deref(), only.tree()),
        (Some("[]"), json!({"metadata": {"resourceVersion": "7"}}))
    );
}

/// A pod as its kubelet tells of it again and again, of 4 KB.
fn told(number: usize) -> Vec<u8> {
    let fields: Map<String, Value> = (0..60).map(|n| (format!("f:field{n}"), json!({}))).collect();
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "observedGeneration": 1,
        "lastTransitionTime": format!("2026-01-01T00:00:{number:02}Z")})
    };
    let mut owners = vec![json!({"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields})];
    if number > 0 {
        owners.insert(
            0,
            json!({"manager": "kubelet", "operation": "Update", "subresource": "status",
            "time": format!("2026-01-01T00:00:{number:02}Z"), "fieldsV1": {"f:status": {"f:phase": {}}}}),
        );
    }
    let (args, conditions) = (vec!["x"; 100], ["Ready", "Initialized", "PodScheduled"].map(condition));
    let pod = json!({"metadata": {"name": "b", "namespace": "a", "managedFields": owners},
        "spec": {"containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10", "args": args}]},
        "status": {"phase": "Running", "conditions": conditions}});
    canonical(&TypeMeta::new("v1", "Pod"), &pod)
}

#[test]
fn what_was_written_over_is_kept_as_what_it_was_beside_the_new_and_reads_as_before() {
    let mut revisions: Vec<Arc<Stored>> = Vec::new();
    for number in 0..40 {
        let before = revisions.last().map(Arc::clone);
        let new = Arc::new(stored(told(number)).over(before.as_deref()));
        if let Some(before) = before {
            before.written_over(Some(&new));
        }
        revisions.push(new);
    }
    for (number, revision) in revisions.iter().enumerate() {
        assert_eq!(revision.raw(), told(number), "{number}");
        assert_eq!(revision.size(), told(number).len());
    }
    let whole = |revision: &&Arc<Stored>| revision.kept_size() == revision.size();
    // The present, and one of eight: reading any goes through no more than seven.
    assert_eq!(
        revisions.iter().filter(whole).count(),
        1 + 40 / usize::from(IN_A_ROW) - 1
    );
    let kept: usize = revisions
        .iter()
        .filter(|revision| !whole(revision))
        .map(|revision| revision.kept_size())
        .sum();
    assert!(kept < 36 * 200, "{kept} of {}", told(1).len());
    // The newest ones go as soon as nobody reads older ones, and not before.
    let first = Arc::clone(&revisions[0]);
    drop(revisions);
    assert_eq!(first.raw(), told(0));
}

#[test]
fn what_has_little_in_common_or_is_very_small_or_large_stays_as_it_is() {
    let text = |length: usize, letter: &str| format!("{{\"a\":\"{}\"}}", letter.repeat(length)).into_bytes();
    for (old, new) in [
        (text(100, "x"), text(100, "x")),
        (text(1000, "x"), text(1000, "y")),
        (text(100_000, "x"), text(100_000, "x")),
        (text(1000, "x"), text(100_000, "x")),
    ] {
        let (old, new) = (stored(old), Arc::new(stored(new)));
        let raw = old.raw();
        old.written_over(Some(&new));
        assert_eq!((old.kept_size(), old.raw()), (old.size(), raw));
    }
    let (old, new) = (stored(text(1000, "x")), Arc::new(stored(text(1000, "x"))));
    old.written_over(Some(&new));
    assert!(old.kept_size() < 20);
}

#[test]
fn bytes_of_another_layout_are_spliced_all_the_same() {
    for raw in [
        r#"{"spec":1,"metadata":{"name":"b"}}"#,
        r#"{"metadata":{}}"#,
        r#"{"x":1}"#,
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"managedFields":[],"name":"b"}}"#,
    ] {
        let stored = stored(raw.as_bytes().to_vec());
        let value = joined(stored.json(None, 9));
        assert_eq!(value["metadata"]["resourceVersion"], "9", "{raw}");
        assert!(
            value.get("kind").is_none() && stored.tree().get("kind").is_none(),
            "{raw}"
        );
    }
}

/// There are tens of thousands of them, and of most nobody asks for anything but their bytes.
#[test]
fn an_object_of_which_nothing_has_been_made_takes_little() {
    assert!(size_of::<Stored>() <= 112, "{}", size_of::<Stored>());
    let object = stored(canonical(
        &TypeMeta::new("v1", "Pod"),
        &json!({"metadata": {"name": "b"}}),
    ));
    let (bytes, _) = object.json(Some(("v1", "Pod")), 7);
    assert!(!bytes.is_empty() && object.tree().is_object() && object.type_meta().is_some());
    assert_eq!(object.written_over(None), 0);
    object.forget_encoded();
    assert!(object.made.get().is_none());
    object.selectable(0, |_| Selectable::of(&json!({}), []));
    assert_eq!(object.asked().most, ASKED_BYTES);
}
