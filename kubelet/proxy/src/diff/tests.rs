use super::*;
use crate::desired::Route;

mod fronts;

fn element(key: u8, rank: u8, data: &[u8]) -> Element {
    Element {
        set: Set::Rejected,
        key: Bytes::from(&[key][..]),
        rank,
        data: data.into(),
        class: None,
    }
}

fn turn(owner: Owner, before: Vec<Element>, after: Vec<Element>) -> impl Iterator<Item = Turn> {
    std::iter::once(Turn { owner, before, after })
}

fn pairs(map: &BTreeMap<Set, Pairs>) -> Vec<(u8, Vec<u8>)> {
    map.values()
        .flat_map(Pairs::iter)
        .map(|(key, data)| (key[0], data.to_vec()))
        .collect()
}

#[test]
fn a_key_two_ask_for_has_one_winner() {
    let mut book = Book::default();
    let first = book.enter(turn(2, Vec::new(), vec![element(1, 1, b"two")]));
    assert_eq!(pairs(&first.come), [(1, b"two".to_vec())]);
    // One who goes first takes it over, and gives it back.
    let taken = book.enter(turn(1, Vec::new(), vec![element(1, 1, b"one")]));
    assert_eq!(
        (pairs(&taken.gone), pairs(&taken.come)),
        (vec![(1, b"two".to_vec())], vec![(1, b"one".to_vec())])
    );
    // A ClusterIP goes before every other address.
    let cluster = book.enter(turn(9, Vec::new(), vec![element(1, 0, b"nine")]));
    assert_eq!(pairs(&cluster.come), [(1, b"nine".to_vec())]);
    // The one in the middle leaves unseen.
    assert!(book.enter(turn(1, vec![element(1, 1, b"one")], Vec::new())).is_empty());
    let back = book.enter(turn(9, vec![element(1, 0, b"nine")], Vec::new()));
    assert_eq!(pairs(&back.come), [(1, b"two".to_vec())]);
    let last = book.enter(turn(2, vec![element(1, 1, b"two")], Vec::new()));
    assert_eq!(
        (pairs(&last.gone), pairs(&last.come)),
        (vec![(1, b"two".to_vec())], Vec::new())
    );
}

#[test]
fn what_stays_is_not_touched() {
    let mut book = Book::default();
    book.enter(turn(1, Vec::new(), vec![element(1, 0, b"a"), element(2, 0, b"b")]));
    let before = vec![element(1, 0, b"a"), element(2, 0, b"b")];
    let delta = book.enter(turn(1, before, vec![element(1, 0, b"a"), element(3, 0, b"c")]));
    assert_eq!(
        (pairs(&delta.gone), pairs(&delta.come)),
        (vec![(2, b"b".to_vec())], vec![(3, b"c".to_vec())])
    );
}

fn served(key: u8, count: u32) -> Element {
    let class = Class {
        route: Route::Short,
        count,
        affinity: 0,
    };
    Element {
        set: Set::Services(false),
        class: Some(class),
        ..element(key, 1, &count.to_be_bytes())
    }
}

#[test]
fn chains_come_with_need_and_go_when_many_are_unused() {
    let mut book = Book::default();
    let come = book.enter(turn(1, Vec::new(), vec![served(1, 1)])).classes_come;
    let routes: Vec<Route> = come.iter().map(|class| class.route).collect();
    assert_eq!(routes, [Route::Pick, Route::Mark, Route::Short]);
    assert!(
        book.enter(turn(2, Vec::new(), vec![served(2, 1)]))
            .classes_come
            .is_empty()
    );
    let mut gone = BTreeSet::new();
    for count in 1..100 {
        let delta = book.enter(turn(1, vec![served(1, count)], vec![served(1, count + 1)]));
        gone.extend(delta.classes_gone);
        assert!(book.chains.len() <= UNUSED_CHAINS_MAX + 6);
    }
    assert!(
        !gone.is_empty() && gone.iter().all(|class| class.count > 1),
        "the other Service still has one endpoint"
    );
}
