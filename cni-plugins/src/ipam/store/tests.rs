//! The store against the format on disk, against what kills leave behind, and against other writers.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn store(&self) -> Store {
        self.store_of_boot("boot-1")
    }

    fn store_of_boot(&self, boot_id: &str) -> Store {
        Store::open(self.folder.path(), "net", boot_id).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("net").join(name)
    }

    fn files(&self) -> BTreeSet<String> {
        fs::read_dir(self.folder.path().join("net"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn reserve(store: &Store, id: &str, addr: &str) -> bool {
    let reservation = store.prepare(&Owner::new(id, "eth0")).unwrap();
    let mut locked = store.lock().unwrap();
    let reserved = locked.reserve(&reservation, ip(addr), 0).unwrap();
    locked.close().unwrap();
    reserved
}

fn release(store: &Store, id: &str) {
    let mut locked = store.lock().unwrap();
    locked.release(&Owner::new(id, "eth0")).unwrap();
    locked.close().unwrap();
}

/// Older versions of upstream's plugin wrote the container alone, with or without white space around it. Written over a
/// file of ours, they leave the folder itself as it was.
#[test]
fn files_that_name_the_container_alone_are_freed() {
    for content in ["c1", " c1 ", "c1\n", "\r\nc1\r\n", "\n  c1\t\n"] {
        for addr in ["10.0.0.2", "fd00::2"] {
            let fixture = Fixture::new();
            let store = fixture.store();
            assert!(reserve(&store, "c1", addr) && reserve(&store, "c2", "10.0.0.9"));
            for overwritten in [true, false] {
                if !overwritten {
                    fs::remove_file(fixture.path("10.0.0.9")).unwrap();
                }
                fs::write(fixture.path(addr), content).unwrap();
                let owner = Owner::new("c1", "eth0");
                assert_eq!(store.lock().unwrap().addresses_of(&owner), [ip(addr)], "{content:?}");
                release(&store, "c");
                assert!(
                    fixture.files().contains(addr),
                    "{content:?}: freed for another container"
                );
                release(&store, "c1");
                assert!(
                    !fixture.files().contains(addr),
                    "{content:?}, overwritten: {overwritten}"
                );
            }
        }
    }
}

/// Two interfaces of one container are two owners.
#[test]
fn an_interface_keeps_its_address_when_the_other_goes() {
    let fixture = Fixture::new();
    let store = fixture.store();
    for (ifname, addr) in [("eth0", "10.0.0.2"), ("net1", "10.0.0.3")] {
        let reservation = store.prepare(&Owner::new("c1", ifname)).unwrap();
        let mut locked = store.lock().unwrap();
        assert!(locked.reserve(&reservation, ip(addr), 0).unwrap());
        locked.close().unwrap();
    }
    release(&store, "c1");
    let locked = store.lock().unwrap();
    assert!(locked.addresses_of(&Owner::new("c1", "eth0")).is_empty());
    assert_eq!(locked.addresses_of(&Owner::new("c1", "net1")), [ip("10.0.0.3")]);
}

#[test]
fn files_are_upstreams() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new();
    assert!(reserve(&fixture.store(), "c1", "10.0.0.2"));
    assert_eq!(fs::read(fixture.path("10.0.0.2")).unwrap(), b"c1\r\neth0");
    assert_eq!(fs::read(fixture.path("last_reserved_ip.0")).unwrap(), b"10.0.0.2");
    assert_eq!(
        fs::metadata(fixture.path("10.0.0.2")).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let expected = ["10.0.0.2", "last_reserved_ip.0", "lock"].map(str::to_owned);
    assert_eq!(fixture.files(), expected.into());
    assert!(!reserve(&fixture.store(), "c2", "10.0.0.2"));
    release(&fixture.store(), "c1");
    release(&fixture.store(), "c1");
    assert!(!fixture.path("10.0.0.2").exists());
    assert_eq!(
        fs::read(fixture.path("last_reserved_ip.0")).unwrap(),
        b"10.0.0.2",
        "the pointer is not rewound"
    );
}

#[test]
fn what_other_plugins_wrote_is_found() {
    let fixture = Fixture::new();
    let store = fixture.store();
    reserve(&store, "c1", "10.0.0.2");
    fs::write(fixture.path("10.0.0.3"), "  c3\r\neth0\n").unwrap();
    fs::write(fixture.path("10.0.0.4"), "c4").unwrap();
    assert!(!reserve(&store, "x", "10.0.0.3"));
    release(&store, "c3");
    release(&store, "c4");
    assert!(!fixture.path("10.0.0.3").exists() && !fixture.path("10.0.0.4").exists());
    assert!(fixture.path("10.0.0.2").exists());
}

#[test]
fn an_empty_file_counts_as_free() {
    let fixture = Fixture::new();
    let store = fixture.store();
    fs::write(fixture.path("10.0.0.2"), "").unwrap();
    assert!(reserve(&store, "c1", "10.0.0.2"));
    assert_eq!(fs::read(fixture.path("10.0.0.2")).unwrap(), b"c1\r\neth0");
}

#[test]
fn a_kill_between_link_and_unlink_does_no_harm() {
    let fixture = Fixture::new();
    let store = fixture.store();
    reserve(&store, "c1", "10.0.0.2");
    fs::hard_link(fixture.path("10.0.0.2"), store.index.scratch()).unwrap();
    assert!(reserve(&store, "c2", "10.0.0.3"));
    assert_eq!(fs::read(fixture.path("10.0.0.2")).unwrap(), b"c1\r\neth0");
}

#[test]
fn a_wrong_index_is_built_anew() {
    let fixture = Fixture::new();
    let store = fixture.store();
    reserve(&store, "c1", "10.0.0.2");
    // Somebody else frees the address and gives it away; the index still names the old owner.
    fs::remove_file(fixture.path("10.0.0.2")).unwrap();
    fs::write(fixture.path("10.0.0.2"), "other\r\neth0").unwrap();
    assert!(store.lock().unwrap().addresses_of(&Owner::new("c1", "eth0")).is_empty());
    release(&store, "c1");
    assert!(fixture.path("10.0.0.2").exists());
    release(&store, "other");
    assert!(!fixture.path("10.0.0.2").exists());
    // The whole index is lost.
    reserve(&store, "c1", "10.0.0.9");
    fs::remove_dir_all(fixture.folder.path().join(".index")).unwrap();
    release(&fixture.store(), "c1");
    assert!(!fixture.path("10.0.0.9").exists());
}

#[test]
fn opening_does_not_disturb_one_who_builds_the_index() {
    let fixture = Fixture::new();
    assert!(reserve(&fixture.store(), "valid", "10.0.0.2"));
    let valid = [("valid".to_owned(), "eth0".to_owned())];
    thread::scope(|scope| {
        let collecting = scope.spawn(|| {
            for _ in 0..500 {
                let store = fixture.store();
                let mut locked = store.lock().unwrap();
                locked.retain(&valid).unwrap();
                locked.close().unwrap();
            }
        });
        while !collecting.is_finished() {
            fixture.store();
        }
        collecting.join().unwrap();
    });
    let store = fixture.store();
    assert_eq!(
        store.lock().unwrap().addresses_of(&Owner::new("valid", "eth0")),
        [ip("10.0.0.2")]
    );
}

#[test]
fn a_failed_collection_does_not_hide_what_is_reserved() {
    let fixture = Fixture::new();
    let store = fixture.store();
    assert!(reserve(&store, "first", "10.0.0.2"));
    // Something that cannot be removed as a file stops the collection between emptying the index and filling it.
    let obstacle = store.index.folder().join("owners/obstacle");
    fs::create_dir(&obstacle).unwrap();
    let mut locked = store.lock().unwrap();
    locked.retain(&[("first".to_owned(), "eth0".to_owned())]).unwrap_err();
    locked.close().unwrap();
    fs::remove_dir(&obstacle).unwrap();
    release(&store, "first");
    assert!(!fixture.path("10.0.0.2").exists());
}

#[test]
fn a_reboot_frees_everything_once() {
    let fixture = Fixture::new();
    reserve(&fixture.store(), "c1", "10.0.0.2");
    assert!(reserve(&fixture.store_of_boot("boot-2"), "c2", "10.0.0.2"));
    assert!(!reserve(&fixture.store_of_boot("boot-2"), "c3", "10.0.0.2"));
    assert_eq!(fs::read(fixture.path("10.0.0.2")).unwrap(), b"c2\r\neth0");
}

#[test]
fn garbage_collection_keeps_the_valid() {
    let fixture = Fixture::new();
    let store = fixture.store();
    for (id, addr) in [("a", "10.0.0.2"), ("b", "10.0.0.3"), ("c", "10.0.0.4")] {
        reserve(&store, id, addr);
    }
    fs::write(fixture.path("10.0.0.5"), "b").unwrap();
    fs::write(fixture.path("10.0.0.6"), "").unwrap();
    let mut locked = store.lock().unwrap();
    locked
        .retain(&[("b".into(), "eth0".into()), ("c".into(), "eth1".into())])
        .unwrap();
    let left: Vec<String> = locked
        .reservations()
        .unwrap()
        .into_iter()
        .map(|(_, addr)| addr.to_string())
        .collect();
    assert_eq!(left, ["10.0.0.3", "10.0.0.5"]);
}

#[test]
fn a_read_only_or_missing_place_is_named() {
    let error = Store::open(Path::new("/proc/nowhere"), "net", "b").unwrap_err();
    assert_eq!(error.to_string(), "mkdir /proc/nowhere");
    let long = Store::open(tempfile::tempdir().unwrap().path(), &"n".repeat(300), "b").unwrap_err();
    assert!(long.to_string().starts_with("mkdir /"), "{long}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Against a plain map, with the index lost or the folder changed by others at random moments.
    #[test]
    fn the_store_behaves_like_a_map(steps in proptest::collection::vec((0u8..5, 0u8..4, 2u8..7), 1..40)) {
        let fixture = Fixture::new();
        let store = fixture.store();
        let mut model: BTreeMap<IpAddr, String> = BTreeMap::new();
        for (step, owner, host) in steps {
            let (id, addr) = (format!("c{owner}"), ip(&format!("10.0.0.{host}")));
            match step {
                0 | 1 => {
                    let reserved = reserve(&store, &id, &addr.to_string());
                    prop_assert_eq!(reserved, !model.contains_key(&addr));
                    model.entry(addr).or_insert(id);
                }
                2 => {
                    release(&store, &id);
                    model.retain(|_, holder| *holder != id);
                }
                3 => {
                    fs::remove_dir_all(fixture.folder.path().join(".index")).unwrap();
                    fixture.store();
                }
                _ => {
                    if let std::collections::btree_map::Entry::Vacant(free) = model.entry(addr) {
                        fs::write(fixture.path(&addr.to_string()), format!("{id}\r\neth0")).unwrap();
                        free.insert(id);
                    }
                }
            }
            let found: BTreeMap<IpAddr, String> = store.lock().unwrap().reservations().unwrap().into_iter()
                .map(|(content, addr)| (addr, content.replace("\r\neth0", ""))).collect();
            prop_assert_eq!(&found, &model);
            for owner in 0..4 {
                let id = format!("c{owner}");
                let mut held = store.lock().unwrap().addresses_of(&Owner::new(&id, "eth0"));
                held.sort();
                let expected: Vec<IpAddr> = model.iter().filter(|(_, holder)| **holder == id).map(|(addr, _)| *addr).collect();
                prop_assert_eq!(held, expected);
            }
        }
    }
}
