//! Failures that can be read: whatever a random tree has that a failure does not need is taken out of it. Pure.

use serde_json::Value;

/// How often a property is asked about smaller trees.
const ATTEMPTS_MAX: usize = 20_000;

/// Asks `property` about the trees. Where it does not hold, the test fails with the smallest trees of which it does not either.
/// It has to hold for trees that are not what it is about.
pub(super) fn holds<const N: usize>(
    about: &str,
    trees: [Value; N],
    property: impl Fn(&[Value; N]) -> Result<(), String>,
) {
    if property(&trees).is_ok() {
        return;
    }
    let trees = smallest(trees, |trees| property(trees).is_err());
    let why = property(&trees).expect_err("still");
    let shown: Vec<String> = trees.iter().map(|tree| format!("  {tree}")).collect();
    panic!("{about}:\n{}\n{why}", shown.join("\n"));
}

/// The trees without all that they need not have to fail: member by member, the largest parts first.
fn smallest<const N: usize>(mut trees: [Value; N], fails: impl Fn(&[Value; N]) -> bool) -> [Value; N] {
    let mut attempts = 0;
    loop {
        let before = attempts;
        let mut is_smaller = false;
        for which in 0..N {
            let mut nth = 0;
            while attempts < ATTEMPTS_MAX {
                let mut candidate = trees.clone();
                if !without(&mut candidate[which], &mut nth.clone()) {
                    break;
                }
                attempts += 1;
                match fails(&candidate) {
                    // What was next is now where this was.
                    true => (trees, is_smaller) = (candidate, true),
                    false => nth += 1,
                }
            }
        }
        if !is_smaller || before == attempts || attempts >= ATTEMPTS_MAX {
            return trees;
        }
    }
}

/// Takes the `nth` member of anything in the tree out of it, counted from the root; whether there is one.
fn without(tree: &mut Value, nth: &mut usize) -> bool {
    let mut taken = false;
    match tree {
        Value::Object(map) => {
            let keys: Vec<String> = map.keys().cloned().collect();
            for key in keys {
                if *nth == 0 {
                    map.remove(&key);
                    return true;
                }
                *nth -= 1;
                taken = map.get_mut(&key).is_some_and(|value| without(value, nth));
                if taken {
                    break;
                }
            }
        }
        Value::Array(list) => {
            for at in 0..list.len() {
                if *nth == 0 {
                    list.remove(at);
                    return true;
                }
                *nth -= 1;
                taken = without(&mut list[at], nth);
                if taken {
                    break;
                }
            }
        }
        _ => {}
    }
    taken
}

#[test]
fn what_a_failure_does_not_need_is_left_out() {
    let tree = serde_json::json!({"a": [1, {"b": [2, 3], "c": 4}], "d": {"e": 5}});
    let fails = |trees: &[Value; 1]| trees[0].to_string().contains('3');
    assert_eq!(smallest([tree], fails), [serde_json::json!({"a": [{"b": [3]}]})]);
}
