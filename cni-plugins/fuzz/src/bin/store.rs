//! Any sequence of calls, foreign writes and damage to the index: the address store behaves like a map (contract §3.3).

#![no_main]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use arbitrary::Arbitrary;
use cni_plugins::ipam::store::{Owner, Store};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
enum Step {
    /// ADD.
    Reserve { owner: u8, host: u8 },
    /// DEL.
    Release { owner: u8 },
    /// GC that keeps the owners whose bit is set.
    Retain { owners: u8 },
    /// Another program reserves an address.
    Foreign { owner: u8, host: u8 },
    /// Upstream's plugin, killed between making and filling a file.
    Empty { host: u8 },
    /// A file of the index is lost or overwritten.
    Damage { file: u8, content: Option<Vec<u8>> },
    /// The index is lost as a whole.
    Lose,
}

const OWNERS: u8 = 4;
const HOSTS: u8 = 8;
const NETWORK: &str = "net";

fn owner(number: u8) -> Owner {
    Owner::new(&id(number), "eth0")
}

fn id(number: u8) -> String {
    format!("c{}", number % OWNERS)
}

fn addr(host: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 2 + host % HOSTS).into()
}

fuzz_target!(|steps: Vec<Step>| {
    let folder = tempfile::tempdir().expect("a folder");
    let mut model: BTreeMap<IpAddr, String> = BTreeMap::new();
    for step in steps {
        apply(folder.path(), &mut model, step);
        let store = open(folder.path());
        let locked = store.lock().expect("the lock");
        let found: BTreeMap<IpAddr, String> = locked
            .reservations()
            .expect("the reservations")
            .into_iter()
            .filter(|(content, _)| !content.is_empty())
            .map(|(content, addr)| (addr, content.replace("\r\neth0", "")))
            .collect();
        assert_eq!(found, model);
        locked.close().expect("closing");
    }
});

fn open(folder: &Path) -> Store {
    Store::open(folder, NETWORK, "boot").expect("the store")
}

fn apply(folder: &Path, model: &mut BTreeMap<IpAddr, String>, step: Step) {
    match step {
        Step::Reserve { owner: number, host } => {
            let store = open(folder);
            let reservation = store.prepare(&owner(number)).expect("a draft");
            let mut locked = store.lock().expect("the lock");
            let reserved = locked.reserve(&reservation, addr(host), 0).expect("reserving");
            locked.close().expect("closing");
            assert_eq!(reserved, !model.contains_key(&addr(host)));
            model.entry(addr(host)).or_insert(id(number));
        }
        Step::Release { owner: number } => {
            let store = open(folder);
            let mut locked = store.lock().expect("the lock");
            locked.release(&owner(number)).expect("releasing");
            locked.close().expect("closing");
            model.retain(|_, holder| *holder != id(number));
        }
        Step::Retain { owners } => {
            let kept: Vec<String> = (0..OWNERS).filter(|bit| owners & (1 << bit) != 0).map(id).collect();
            let valid: Vec<_> = kept.iter().map(|id| (id.clone(), "eth0".to_owned())).collect();
            let store = open(folder);
            let mut locked = store.lock().expect("the lock");
            locked.retain(&valid).expect("collecting");
            locked.close().expect("closing");
            model.retain(|_, holder| kept.contains(holder));
        }
        Step::Foreign { owner: number, host } => {
            open(folder);
            let path = folder.join(NETWORK).join(addr(host).to_string());
            // An address of an empty file counts as free.
            if let Entry::Vacant(free) = model.entry(addr(host)) {
                // Another program makes a file; it does not write into one that is there.
                let _ = fs::remove_file(&path);
                fs::write(path, format!("{}\r\neth0", id(number))).expect("writing");
                free.insert(id(number));
            }
        }
        Step::Empty { host } => {
            open(folder);
            if !model.contains_key(&addr(host)) {
                fs::write(folder.join(NETWORK).join(addr(host).to_string()), "").expect("writing");
            }
        }
        Step::Damage { file, content } => {
            let index = folder.join(".index").join(NETWORK);
            let mut files: Vec<_> = [index.clone(), index.join("owners")]
                .iter()
                .flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten())
                .map(|entry| entry.path())
                // The boot decides whether reservations are dropped; another one in it is a reboot.
                .filter(|path| path.is_file() && !path.ends_with("boot"))
                .collect();
            files.sort();
            let Some(path) = files.get(usize::from(file) % files.len().max(1)) else {
                return;
            };
            match content {
                None => fs::remove_file(path).expect("removing"),
                Some(content) => fs::write(path, content).expect("writing"),
            }
            // Whoever damages an entry is not noticed by the folder's stamp, so the damage includes the stamp.
            let _ = fs::remove_file(index.join("stamp"));
        }
        Step::Lose => {
            let _ = fs::remove_dir_all(folder.join(".index"));
        }
    }
}
