use super::*;
use crate::history::Told;

fn done(ask: Ask, revision: Revision) -> Operation {
    Operation {
        began: 0,
        ended: 1,
        ask,
        answer: Answer::Done(revision),
    }
}

fn key(name: &str) -> String {
    name.to_owned()
}

/// Two keys made, one changed and deleted.
fn operations() -> Vec<Operation> {
    vec![
        done(
            Ask::Create {
                key: key("a"),
                value: key("1"),
            },
            2,
        ),
        done(
            Ask::Create {
                key: key("b"),
                value: key("2"),
            },
            3,
        ),
        done(
            Ask::Update {
                key: key("a"),
                value: key("3"),
                at: 2,
            },
            4,
        ),
        done(Ask::Delete { key: key("a"), at: 4 }, 5),
    ]
}

fn change(revision: Revision, name: &str, value: Option<&str>, is_creation: bool) -> Change {
    Change {
        revision,
        key: key(name),
        value: value.map(key),
        is_creation,
    }
}

fn changes() -> Vec<Change> {
    vec![
        change(2, "a", Some("1"), true),
        change(3, "b", Some("2"), true),
        change(4, "a", Some("3"), false),
        change(5, "a", None, false),
    ]
}

/// Somebody who is told these changes one by one.
fn watcher(changes: Vec<Change>) -> Watcher {
    let steps = changes.into_iter().map(|change| Told {
        revision: change.revision,
        changes: vec![change],
    });
    let part = Part {
        revision: 1,
        contents: Contents::new(),
        steps: steps.collect(),
    };
    Watcher {
        name: key("w"),
        parts: vec![part],
    }
}

fn listed(revision: Revision, of: &[(&str, Revision, Revision, &str)]) -> Operation {
    let seen = |(name, revision, created, value): &(&str, Revision, Revision, &str)| {
        let seen = Seen {
            revision: *revision,
            created: *created,
            value: key(value),
        };
        (key(name), seen)
    };
    let contents = of.iter().map(seen).collect();
    Operation {
        began: 0,
        ended: 1,
        ask: Ask::List,
        answer: Answer::Listed(revision, contents),
    }
}

#[test]
fn what_was_written_and_told_is_one() {
    let mut operations = operations();
    operations.push(listed(1, &[]));
    operations.push(listed(4, &[("a", 4, 2, "3"), ("b", 3, 3, "2")]));
    operations.push(listed(5, &[("b", 3, 3, "2")]));
    // Of a write that was never answered.
    operations.push(Operation {
        began: 0,
        ended: crate::history::NEVER,
        ask: Ask::Create {
            key: key("c"),
            value: key("4"),
        },
        answer: Answer::Unknown,
    });
    let mut told = changes();
    assert_eq!(check(&operations, &[watcher(told.clone())], 5), Vec::<String>::new());
    told.push(change(6, "c", Some("4"), true));
    assert_eq!(check(&operations, &[watcher(told)], 6), Vec::<String>::new());
}

#[test]
fn what_differs_is_told() {
    let with = |edit: &dyn Fn(&mut Vec<Change>)| {
        let mut changes = changes();
        edit(&mut changes);
        check(&operations(), &[watcher(changes)], 5)
    };
    for (what, edit) in [
        (
            "lost",
            &(|changes: &mut Vec<Change>| drop(changes.remove(1))) as &dyn Fn(&mut Vec<Change>),
        ),
        ("twice", &|changes| changes.insert(1, changes[0].clone())),
        ("reordered", &|changes| changes.swap(0, 1)),
        ("another value", &|changes| changes[1].value = Some(key("x"))),
        ("another key", &|changes| changes[1].key = key("x")),
        ("a creation that is none", &|changes| changes[2].is_creation = true),
        ("a deletion of nothing", &|changes| {
            changes.push(change(6, "x", None, false))
        }),
        ("nobody's", &|changes| changes.push(change(6, "x", Some("y"), true))),
        ("not to the end", &|changes| changes.truncate(3)),
        ("a write again", &|changes| {
            changes.push(change(6, "a", Some("1"), true))
        }),
    ] {
        assert!(!with(edit).is_empty(), "{what}");
    }
    assert!(with(&|_| ()).is_empty());
}

#[test]
fn lists_are_what_was_told() {
    for (what, list) in [
        ("less", listed(4, &[("a", 4, 2, "3")])),
        ("more", listed(5, &[("a", 4, 2, "3"), ("b", 3, 3, "2")])),
        ("older", listed(4, &[("a", 2, 2, "1"), ("b", 3, 3, "2")])),
        ("at the beginning", listed(1, &[("a", 2, 2, "1")])),
    ] {
        let mut operations = operations();
        operations.push(list);
        assert!(!check(&operations, &[watcher(changes())], 5).is_empty(), "{what}");
    }
}

#[test]
fn who_reads_anew_does_not_go_back() {
    let mut watcher = watcher(changes());
    let seen = Seen {
        revision: 3,
        created: 3,
        value: key("2"),
    };
    let part = |revision| Part {
        revision,
        contents: Contents::from([(key("b"), seen.clone())]),
        steps: Vec::new(),
    };
    watcher.parts.push(part(7));
    assert!(check(&operations(), &[watcher.clone()], 7).is_empty());
    watcher.parts.push(part(6));
    assert!(!check(&operations(), &[watcher], 6).is_empty());
}
