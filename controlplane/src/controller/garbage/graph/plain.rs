//! Objects that own nothing to themselves and ask for nothing: without owners, without finalizers, not being deleted. Most objects are
//! like that, and there may be very many of them. Pure.
//!
//! Owns what tells whether a reference names one of them rightly, and no more: [`Plain`] has no name, but what a name comes to.

use super::{Node, ObjectId, group_of};
use crate::controller::write::Resource;
use client::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// A UID as servers write them, in as many bytes as it says something with.
pub(super) type Uuid = [u8; 16];

/// The lengths of a UUID's groups.
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

/// The UID in bytes, if no other one would be the same in bytes.
pub(super) fn compact(uid: &str) -> Option<Uuid> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let (mut bytes, mut count) = ([0_u8; 16], 0);
    let mut groups = uid.split('-');
    for length in GROUPS {
        let group = groups.next().filter(|group| group.len() == length)?;
        for pair in group.as_bytes().chunks_exact(2) {
            bytes[count] = digit(pair[0])? << 4 | digit(pair[1])?;
            count += 1;
        }
    }
    groups.next().is_none().then_some(bytes)
}

/// The UID as a server writes it.
fn text(uid: &Uuid) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in uid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(u32::from(digit), 16));
        }
    }
    text
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plain {
    resource: u32,
    /// 0 for none.
    namespace: u64,
    name: u64,
}

/// Resources by numbers, which are used again.
#[derive(Debug, Default)]
struct Resources {
    numbers: BTreeMap<Arc<Resource>, u32>,
    known: Vec<Option<Arc<Resource>>>,
}

impl Resources {
    fn number(&mut self, resource: &Arc<Resource>) -> u32 {
        if let Some(number) = self.numbers.get(resource) {
            return *number;
        }
        let free = self.known.iter().position(Option::is_none);
        let at = free.unwrap_or(self.known.len());
        let number = u32::try_from(at).expect("nobody serves so many resources");
        self.known.resize(self.known.len().max(at + 1), None);
        self.known[at] = Some(resource.clone());
        self.numbers.insert(resource.clone(), number);
        number
    }

    fn get(&self, number: u32) -> Option<&Arc<Resource>> {
        self.known.get(number as usize)?.as_ref()
    }

    fn remove(&mut self, resource: &Resource) {
        if let Some(number) = self.numbers.remove(resource) {
            self.known[number as usize] = None;
        }
    }
}

/// All of them. See the module.
#[derive(Debug, Default)]
pub(super) struct Plains {
    all: BTreeMap<Uuid, Plain>,
    resources: Resources,
    /// Of a seed that nobody knows: two names that come to the same number are not to be found.
    hasher: RandomState,
}

/// One that is looked at.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    plain: &'a Plain,
    all: &'a Plains,
}

impl Plains {
    fn number(&self, text: &str) -> u64 {
        self.hasher.hash_one(text)
    }

    /// 0 is no namespace, and a namespace is never that.
    fn namespace(&self, namespace: &str) -> u64 {
        match namespace {
            "" => 0,
            namespace => self.number(namespace).max(1),
        }
    }

    /// Takes the object in, if it is one of them; whether it is.
    pub(super) fn insert(&mut self, node: &Node) -> bool {
        let Some(uid) = compact(&node.id.uid).filter(|_| node.is_plain()) else {
            return false;
        };
        let ObjectId { resource, key, .. } = &node.id;
        let plain = Plain {
            resource: self.resources.number(resource),
            namespace: self.namespace(&key.namespace),
            name: self.number(&key.name),
        };
        self.all.insert(uid, plain);
        true
    }

    /// Removes one; its resource, if it was there.
    pub(super) fn remove(&mut self, uid: &str) -> Option<Arc<Resource>> {
        let plain = self.all.remove(&compact(uid)?)?;
        self.resources.get(plain.resource).cloned()
    }

    pub(super) fn get(&self, uid: &str) -> Option<Known<'_>> {
        let plain = self.all.get(&compact(uid)?)?;
        Some(Known { plain, all: self })
    }

    /// The UIDs of a resource's, but for these.
    pub(super) fn of(&self, resource: &Resource, but: &BTreeSet<Uuid>) -> Vec<String> {
        let Some(number) = self.resources.numbers.get(resource) else {
            return Vec::new();
        };
        let of_resource = self.all.iter().filter(|(_, plain)| plain.resource == *number);
        let others = of_resource.map(|(uid, _)| uid).filter(|uid| !but.contains(*uid));
        others.map(text).collect()
    }

    /// There are none of the resource any more: its number is another's next.
    pub(super) fn forget(&mut self, resource: &Resource) {
        self.resources.remove(resource);
    }
}

impl Known<'_> {
    /// Whether it is where it can own what is in that place.
    pub(super) fn can_own(self, object: &Key) -> bool {
        let namespace = self.plain.namespace;
        namespace == 0 || namespace == self.all.namespace(&object.namespace)
    }

    /// Whether the reference calls it by its kind and name.
    pub(super) fn is_named_by(self, owner: &OwnerReference) -> bool {
        let resource = self.all.resources.get(self.plain.resource);
        let is_of_kind = |r: &Arc<Resource>| r.kind == owner.kind && r.group == group_of(&owner.api_version);
        resource.is_some_and(is_of_kind) && self.plain.name == self.all.number(&owner.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::write::{CONFIG_MAPS, SECRETS};
    use proptest::prelude::*;

    #[test]
    fn what_is_no_uuid_as_servers_write_them_is_not_made_one() {
        let uid = "0123abcd-0000-4fff-8000-00000000000e";
        let bytes = compact(uid).expect("it is one");
        assert_eq!(text(&bytes), uid);
        for other in [
            "",
            "u1",
            "0123ABCD-0000-4fff-8000-00000000000e",
            "0123abcd-0000-4fff-8000-00000000000",
            "0123abcd-0000-4fff-8000-00000000000e-",
            "0123abcd-0000-4fff-8000-00000000000ee",
            "0123abcd0000-4fff-8000-00000000000e",
            "0123abcd-0000-4fff-800-000000000000e",
            "0123abcg-0000-4fff-8000-00000000000e",
            "ä123abc-0000-4fff-8000-00000000000e",
            "{123abcd-0000-4fff-8000-00000000000e",
        ] {
            assert_eq!(compact(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn a_uuid_is_the_same_in_bytes_and_in_text(bytes: Uuid) {
            prop_assert_eq!(compact(&text(&bytes)), Some(bytes));
        }
    }

    #[test]
    fn resources_that_come_and_go_take_no_numbers_for_ever() {
        let mut resources = Resources::default();
        let (maps, secrets) = (Arc::new(CONFIG_MAPS), Arc::new(SECRETS));
        for _ in 0..3 {
            assert_eq!((resources.number(&maps), resources.number(&secrets)), (0, 1));
            resources.remove(&CONFIG_MAPS);
            assert_eq!((resources.get(0), resources.get(1)), (None, Some(&secrets)));
            assert_eq!(resources.number(&secrets), 1);
        }
        assert_eq!(resources.known.len(), 2);
    }

    /// What a cluster has most of takes less than a twentieth of the least an object is.
    #[test]
    fn one_takes_forty_bytes() {
        assert_eq!(size_of::<(Uuid, Plain)>(), 40);
    }
}
