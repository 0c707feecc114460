use super::*;
use crate::history::{Answer, Ask, Contents, Event, Operation, Seen, operations};

fn seen(revision: Revision, created: Revision, value: &str) -> Seen {
    let value = value.to_owned();
    Seen {
        revision,
        created,
        value,
    }
}

fn create(value: &str) -> Ask {
    Ask::Create {
        key: "k".to_owned(),
        value: value.to_owned(),
    }
}

fn update(value: &str, at: Revision) -> Ask {
    Ask::Update {
        key: "k".to_owned(),
        value: value.to_owned(),
        at,
    }
}

fn delete(at: Revision) -> Ask {
    Ask::Delete {
        key: "k".to_owned(),
        at,
    }
}

fn get() -> Ask {
    Ask::Get { key: "k".to_owned() }
}

fn found(found: Option<Seen>) -> Answer {
    Answer::Found(found)
}

/// Operations, each between two moments; an unknown one may be done for ever.
fn history(of: &[(Moment, Moment, Ask, Answer)]) -> Vec<Operation> {
    let operation = |(began, ended, ask, answer): &(Moment, Moment, Ask, Answer)| Operation {
        began: *began,
        ended: *ended,
        ask: ask.clone(),
        answer: answer.clone(),
    };
    of.iter().map(operation).collect()
}

fn wrong(of: &[(Moment, Moment, Ask, Answer)]) -> Vec<String> {
    let operations = history(of);
    let mut wrong = check(&operations, &HashMap::new());
    wrong.extend(check_time(&operations));
    wrong
}

const NEVER: Moment = crate::history::NEVER;

#[test]
fn what_a_register_does_has_an_order() {
    for good in [
        vec![
            (0, 1, create("a"), Answer::Done(2)),
            (2, 3, update("b", 2), Answer::Done(3)),
            (4, 5, get(), found(Some(seen(3, 2, "b")))),
            (6, 7, delete(3), Answer::Done(4)),
            (8, 9, get(), found(None)),
            (10, 11, create("c"), Answer::Done(5)),
        ],
        // A read beside a write sees either.
        vec![
            (0, 9, create("a"), Answer::Done(2)),
            (1, 2, get(), found(None)),
            (3, 4, get(), found(Some(seen(2, 2, "a")))),
        ],
        // Of two writes one wins, and the other is told of it.
        vec![
            (0, 1, create("a"), Answer::Done(2)),
            (2, 7, update("b", 2), Answer::Conflict(Some(seen(3, 2, "c")))),
            (3, 6, update("c", 2), Answer::Done(3)),
        ],
        // What is unknown was done, late, or never.
        vec![
            (0, NEVER, create("a"), Answer::Unknown),
            (1, 2, get(), found(None)),
            (3, 4, get(), found(Some(seen(2, 2, "a")))),
            (5, NEVER, update("b", 2), Answer::Unknown),
            (6, 7, get(), found(Some(seen(2, 2, "a")))),
        ],
        // Deletions leave nothing of theirs.
        vec![
            (0, 1, create("a"), Answer::Done(2)),
            (2, NEVER, delete(2), Answer::Unknown),
            (3, 4, create("b"), Answer::Done(4)),
        ],
    ] {
        assert_eq!(wrong(&good), Vec::<String>::new(), "{good:?}");
    }
}

#[test]
fn what_no_register_does_has_none() {
    let contents = |value: Option<Seen>| {
        value
            .into_iter()
            .map(|seen| ("k".to_owned(), seen))
            .collect::<Contents>()
    };
    for (what, bad) in [
        (
            "a stale read",
            vec![
                (0, 1, create("a"), Answer::Done(2)),
                (2, 3, update("b", 2), Answer::Done(3)),
                (4, 5, get(), found(Some(seen(2, 2, "a")))),
            ],
        ),
        (
            "a lost write",
            vec![(0, 1, create("a"), Answer::Done(2)), (2, 3, get(), found(None))],
        ),
        (
            "a lost write under a later one",
            vec![
                (0, 1, create("a"), Answer::Done(2)),
                (2, 3, update("b", 2), Answer::Done(3)),
                (4, 5, update("c", 2), Answer::Done(4)),
            ],
        ),
        (
            "two creations",
            vec![
                (0, 1, create("a"), Answer::Done(2)),
                (2, 3, create("b"), Answer::Done(3)),
            ],
        ),
        (
            "reads that go back",
            vec![
                (0, NEVER, create("a"), Answer::Unknown),
                (1, 2, get(), found(Some(seen(2, 2, "a")))),
                (3, 4, get(), found(None)),
            ],
        ),
        (
            "done after the death of who served",
            vec![
                (0, 1, create("a"), Answer::Unknown),
                (2, 3, get(), found(None)),
                (4, 5, get(), found(Some(seen(2, 2, "a")))),
            ],
        ),
        (
            "what was not done, seen",
            vec![
                (0, 1, create("a"), Answer::NotDone),
                (2, 3, get(), found(Some(seen(2, 2, "a")))),
            ],
        ),
        (
            "a conflict with nothing",
            vec![
                (0, 1, create("a"), Answer::Done(2)),
                (2, 3, update("b", 2), Answer::Conflict(Some(seen(2, 2, "a")))),
            ],
        ),
        (
            "a revision twice",
            vec![
                (0, 9, create("a"), Answer::Done(2)),
                (
                    1,
                    9,
                    Ask::Create {
                        key: "l".to_owned(),
                        value: "b".to_owned(),
                    },
                    Answer::Done(2),
                ),
            ],
        ),
        (
            "revisions against the time",
            vec![
                (0, 1, create("a"), Answer::Done(3)),
                (
                    2,
                    3,
                    Ask::Create {
                        key: "l".to_owned(),
                        value: "b".to_owned(),
                    },
                    Answer::Done(2),
                ),
            ],
        ),
        (
            "a list older than what was acknowledged",
            vec![
                (
                    0,
                    1,
                    Ask::Create {
                        key: "l".to_owned(),
                        value: "b".to_owned(),
                    },
                    Answer::Done(3),
                ),
                (2, 3, Ask::List, Answer::Listed(2, contents(None))),
            ],
        ),
        (
            "a list of the future",
            vec![
                (0, 1, Ask::List, Answer::Listed(3, contents(None))),
                (2, 3, create("a"), Answer::Done(2)),
            ],
        ),
        (
            "a list without what is there",
            vec![
                (0, 1, create("a"), Answer::Done(2)),
                (2, 3, Ask::List, Answer::Listed(2, contents(None))),
            ],
        ),
        (
            "another creation's revision",
            vec![
                (0, 1, create("a"), Answer::Done(2)),
                (2, 3, update("b", 2), Answer::Done(3)),
                (4, 5, get(), found(Some(seen(3, 3, "b")))),
            ],
        ),
    ] {
        assert_ne!(wrong(&bad), Vec::<String>::new(), "{what}");
    }
}

#[test]
fn events_become_operations() {
    let events = [
        Event::Began(0, create("a")),
        Event::Began(1, get()),
        Event::Ended(1, found(None)),
        Event::Began(2, create("b")),
        Event::Ended(0, Answer::Unknown),
        Event::Died,
        Event::Began(2, create("c")),
    ];
    let operations = operations(&events);
    let spans: Vec<(Moment, Moment)> = operations
        .iter()
        .map(|operation| (operation.began, operation.ended))
        .collect();
    assert_eq!(spans, [(0, 5), (1, 2), (3, 5), (6, NEVER)]);
}

/// What is unknown is open for ever: a hundred such do not make the search long.
#[test]
fn many_unknown_writes_are_decided() {
    let mut of = vec![(0, 1, create("a"), Answer::Done(2))];
    for number in 1..100 {
        let unknown = update(&format!("u{number}"), 2);
        of.push((number * 4, NEVER, unknown, Answer::Unknown));
        of.push((number * 4 + 1, number * 4 + 2, get(), found(Some(seen(2, 2, "a")))));
    }
    assert!(wrong(&of).is_empty());
    of.push((1000, 1001, get(), found(Some(seen(9, 2, "nobody's")))));
    assert!(!wrong(&of).is_empty());
}
