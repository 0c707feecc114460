use super::*;
use std::cell::Cell;

thread_local! {
    /// How many objects this thread read.
    static READ: Cell<usize> = const { Cell::new(0) };
}

fn revision(stored: &Stored) -> Option<u64> {
    READ.set(READ.get() + 1);
    (stored.revision != 13).then_some(stored.revision)
}

fn put(objects: &mut Objects, key: &str, revision: u64) {
    let key: Arc<str> = key.into();
    let stored = Stored::new(Arc::clone(&key), revision, revision, bytes::Bytes::from_static(b"{}"));
    objects.insert(key, Arc::new(stored));
}

/// All there is, and how many objects were read for it.
fn look(parsed: &mut Parsed<u64>, now: &Objects) -> (Vec<u64>, usize) {
    READ.set(0);
    let all = parsed.follow(now.clone()).iter().map(|revision| **revision).collect();
    (all, READ.get())
}

#[test]
fn an_object_is_read_once_for_each_of_its_revisions() {
    let (mut objects, mut parsed) = (Objects::new(), Parsed::new(revision));
    for number in 100..1_100 {
        put(&mut objects, &number.to_string(), number);
    }
    let (all, read) = look(&mut parsed, &objects);
    assert_eq!((all.len(), read), (1_000, 1_000));
    assert_eq!(look(&mut parsed, &objects).1, 0, "nothing changed");
    put(&mut objects, "500", 2_000);
    put(&mut objects, "new", 2_001);
    objects.remove("600");
    let (all, read) = look(&mut parsed, &objects);
    assert_eq!((all.len(), read), (1_000, 2));
    assert!(all.contains(&2_000) && all.contains(&2_001) && !all.contains(&500) && !all.contains(&600));
    put(&mut objects, "new", 13);
    assert_eq!(
        look(&mut parsed, &objects).0.len(),
        999,
        "what nothing is made of is left out"
    );
}
