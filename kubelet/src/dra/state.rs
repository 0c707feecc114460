//! Which claims are prepared on this node, for which pods, and what came of it. Pure: what is written and who is called is decided by
//! whoever holds it.

use super::DraError;
use super::claim::Wanted;
use client::ordered::CollectOrdered;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A claim's namespace and name: claims are known by these, as upstream's are.
pub(super) type Name = (String, String);

/// What the devices of all claims may take together, bytes: all of it is written with every change. Each of a full node's pods has room
/// for what a real driver gives a hundred times.
pub(super) const TOGETHER_MAX: usize = 4 << 20;
/// What a device takes beside its names, and a name beside its text, bytes.
const DEVICE_BYTES: usize = 96;
const NAME_BYTES: usize = 24;

/// A device as its driver described it. The fields' names and order are the checkpoint's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Device {
    /// Its pool.
    pub pool_name: String,
    /// Its name there.
    pub device_name: String,
    /// The share of it, where several claims have it together.
    #[serde(rename = "ShareID")]
    pub share_id: Option<String>,
    /// The claim's requests it stands for; none stands for all.
    pub request_names: Option<Vec<String>>,
    /// What the runtime is to be asked for.
    #[serde(rename = "CDIDeviceIDs")]
    pub cdi_device_ids: Option<Vec<String>>,
}

impl Device {
    /// What it takes, bytes.
    pub(super) fn weight(&self) -> usize {
        let lists = self.request_names.iter().chain(&self.cdi_device_ids).flatten();
        let names = lists.chain(&self.share_id).chain([&self.pool_name, &self.device_name]);
        DEVICE_BYTES + names.map(|name| NAME_BYTES + name.len()).sum::<usize>()
    }

    /// Whether it is there for a request; an empty one is for all.
    pub(super) fn serves(&self, request: &str) -> bool {
        let names = self.request_names.as_deref().unwrap_or_default();
        request.is_empty() || names.is_empty() || names.iter().any(|name| name == request)
    }
}

/// A claim that pods here use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Its UID.
    pub uid: String,
    /// The pods, by UID.
    pub pods: BTreeSet<String>,
    /// What each of its drivers gave.
    pub drivers: BTreeMap<String, Vec<Device>>,
    /// Whether this kubelet has seen all drivers prepare it. The next one asks them again, as upstream's does.
    pub prepared: bool,
}

impl Prepared {
    /// What the runtime is to be asked for, for a request of it; an empty one is for all.
    pub(super) fn cdi_device_ids(&self, request: &str) -> impl Iterator<Item = &String> {
        let devices = self.drivers.values().flatten();
        let devices = devices.filter(move |device| device.serves(request));
        devices.filter_map(|device| device.cdi_device_ids.as_ref()).flatten()
    }

    /// Whether it is of the same drivers as the claim's allocation is, and of no device that is not allocated.
    fn is_of(&self, wanted: &Wanted) -> bool {
        self.drivers.keys().eq(wanted.drivers.keys())
            && self.drivers.iter().all(|(driver, devices)| {
                let allocated = wanted.drivers.get(driver);
                devices.iter().all(|device| {
                    let place = (device.pool_name.clone(), device.device_name.clone());
                    allocated.is_some_and(|allocated| allocated.contains(&place))
                })
            })
    }
}

/// Each of them once, in the order of their first mention.
pub(super) fn distinct<'a, T: Ord>(all: impl Iterator<Item = &'a T>) -> Vec<&'a T> {
    let mut seen = BTreeSet::new();
    all.filter(|one| seen.insert(*one)).collect()
}

/// What letting go of a claim asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// The pod had no part in it.
    Nothing,
    /// Others use it still.
    Shared,
    /// Nobody else does: its drivers are to be asked.
    Last(Prepared),
}

/// All of them. Whoever reads one takes it along, so that nobody waits for that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Claims(pub(super) BTreeMap<Name, Arc<Prepared>>);

impl Claims {
    /// Notes that a pod uses a claim; tells whether its drivers are to be asked to prepare it.
    ///
    /// # Errors
    /// An earlier claim of that name is still prepared.
    pub(super) fn refer(&mut self, pod: &str, wanted: &Wanted) -> Result<bool, DraError> {
        let name = (wanted.namespace.clone(), wanted.name.clone());
        let begun = || {
            let drivers = wanted.drivers.keys().map(|driver| (driver.clone(), Vec::new()));
            Prepared {
                uid: wanted.uid.clone(),
                drivers: drivers.collect_ordered(),
                ..Prepared::default()
            }
        };
        let held = self.0.entry(name).or_insert_with(|| Arc::new(begun()));
        if held.uid != wanted.uid {
            return Err(DraError::Claim(format!(
                "old ResourceClaim with same name {} and different UID {} still exists (previous pod force-deleted?!)",
                wanted.name, held.uid
            )));
        }
        Arc::make_mut(held).pods.insert(pod.to_owned());
        Ok(!held.prepared)
    }

    /// Takes over what a driver gave for a claim.
    ///
    /// # Errors
    /// There is no room for it beside what all claims have: nothing is taken.
    pub(super) fn give(&mut self, name: &Name, driver: &str, devices: Vec<Device>) -> Result<(), DraError> {
        let others = self.0.iter().flat_map(|(claim, held)| {
            let drivers = held.drivers.iter();
            drivers.filter(move |(other, _)| claim != name || *other != driver)
        });
        let taken: usize = others.flat_map(|(_, devices)| devices).map(Device::weight).sum();
        if taken + devices.iter().map(Device::weight).sum::<usize>() > TOGETHER_MAX {
            return Err(DraError::Answer {
                driver: driver.to_owned(),
                what: format!(
                    "there is no room for the devices of ResourceClaim {}: those of all claims take {TOGETHER_MAX} bytes at most",
                    name.1
                ),
            });
        }
        if let Some(held) = self.0.get_mut(name) {
            Arc::make_mut(held).drivers.insert(driver.to_owned(), devices);
        }
        Ok(())
    }

    /// A claim whose devices were allocated anew since a pod had it prepared: what its drivers are to let go of first. As long as nothing
    /// came of that the claim stays as it is, and is not prepared.
    ///
    /// # Errors
    /// Other pods use what it had before.
    pub(super) fn moved(&mut self, pod: &str, wanted: &Wanted) -> Result<Option<(Name, Prepared)>, DraError> {
        let name = (wanted.namespace.clone(), wanted.name.clone());
        let held = self.0.get_mut(&name).filter(|held| held.uid == wanted.uid);
        let Some(held) = held.filter(|held| !held.is_of(wanted)) else {
            return Ok(None);
        };
        if held.pods.iter().any(|other| other != pod) {
            return Err(DraError::Claim(format!(
                "ResourceClaim {} was allocated anew while other pods still use the devices it had before (previous pod force-deleted?!)",
                wanted.name
            )));
        }
        let held = Arc::make_mut(held);
        held.prepared = false;
        Ok(Some((name, held.clone())))
    }

    /// Notes that a claim is prepared by all its drivers.
    pub(super) fn done(&mut self, name: &Name) {
        if let Some(held) = self.0.get_mut(name) {
            Arc::make_mut(held).prepared = true;
        }
    }

    /// The claims a pod uses.
    pub(super) fn of_pod(&self, pod: &str) -> Vec<Name> {
        let used = self.0.iter().filter(|(_, held)| held.pods.contains(pod));
        used.map(|(name, _)| name.clone()).collect()
    }

    /// Lets a pod go of a claim. One that nobody else uses stays until its drivers have let go of it ([`Claims::remove`]).
    pub(super) fn release(&mut self, pod: &str, name: &Name) -> Release {
        let Some(held) = self.0.get_mut(name).filter(|held| held.pods.contains(pod)) else {
            return Release::Nothing;
        };
        let held = Arc::make_mut(held);
        if held.pods.len() == 1 {
            // What is under way may be half done: whoever comes next asks the drivers again.
            held.prepared = false;
            return Release::Last(held.clone());
        }
        held.pods.remove(pod);
        Release::Shared
    }

    /// Forgets a claim that its drivers have let go of.
    pub(super) fn remove(&mut self, name: &Name) {
        self.0.remove(name);
    }

    /// The pods that use any claim.
    pub(super) fn pods(&self) -> BTreeSet<String> {
        self.0
            .values()
            .flat_map(|held| held.pods.iter().cloned())
            .collect_ordered()
    }

    /// How many claims are prepared: in all, and by driver.
    pub(super) fn in_use(&self) -> (usize, BTreeMap<String, usize>) {
        let mut by_driver = BTreeMap::new();
        let mut all = 0;
        for held in self.0.values().filter(|held| held.prepared) {
            all += 1;
            for driver in held.drivers.keys() {
                *by_driver.entry(driver.clone()).or_default() += 1;
            }
        }
        (all, by_driver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::cmp::Ordering;

    fn wanted(name: &str, uid: &str) -> Wanted {
        Wanted {
            namespace: "ns".into(),
            name: name.into(),
            uid: uid.into(),
            drivers: [("d".to_owned(), BTreeSet::new())].into(),
        }
    }

    fn name(name: &str) -> Name {
        ("ns".to_owned(), name.to_owned())
    }

    #[test]
    fn a_shared_claim_goes_with_its_last_pod_and_no_sooner() {
        let mut claims = Claims::default();
        assert_eq!(claims.refer("a", &wanted("c", "1")), Ok(true));
        claims.done(&name("c"));
        assert_eq!(claims.refer("b", &wanted("c", "1")), Ok(false), "it is prepared");
        assert_eq!(claims.in_use(), (1, [("d".to_owned(), 1)].into()));
        // One that never used it takes nothing from those that do.
        assert_eq!(claims.release("x", &name("c")), Release::Nothing);
        assert_eq!(claims.release("a", &name("c")), Release::Shared);
        assert_eq!(claims.release("x", &name("c")), Release::Nothing);
        let Release::Last(last) = claims.release("b", &name("c")) else {
            panic!("the last one");
        };
        assert_eq!(last.drivers.keys().collect::<Vec<_>>(), ["d"]);
        // It stays until the driver has let go, and somebody who comes meanwhile has it prepared anew.
        assert_eq!(claims.of_pod("b"), [name("c")]);
        assert_eq!(claims.refer("c", &wanted("c", "1")), Ok(true));
        claims.remove(&name("c"));
        assert!(claims.pods().is_empty());
    }

    #[test]
    fn what_all_claims_have_is_bounded_together() {
        let mut claims = Claims::default();
        let device = |bytes: usize| Device {
            cdi_device_ids: Some(vec!["x".repeat(bytes)]),
            ..Device::default()
        };
        for claim in ["c", "d"] {
            claims.refer("a", &wanted(claim, claim)).expect("its own");
        }
        let half = TOGETHER_MAX / 2 - device(0).weight();
        assert_eq!(claims.give(&name("c"), "d", vec![device(half)]), Ok(()));
        let told = claims
            .give(&name("d"), "d", vec![device(half + 1)])
            .expect_err("no room");
        assert_eq!(
            told.to_string(),
            "there is no room for the devices of ResourceClaim d: those of all claims take 4194304 bytes at most (DRA driver d)"
        );
        assert_eq!(claims.give(&name("d"), "d", vec![device(half)]), Ok(()));
        // What a driver gives again takes the place of what it gave.
        assert_eq!(claims.give(&name("d"), "d", vec![device(half)]), Ok(()));
    }

    #[test]
    fn a_claim_whose_devices_are_others_now_is_told() {
        let with = |drivers: &[(&str, &[&str])]| Wanted {
            drivers: drivers
                .iter()
                .map(|(driver, devices)| {
                    let devices = devices.iter().map(|device| (String::new(), (*device).to_owned()));
                    ((*driver).to_owned(), devices.collect())
                })
                .collect(),
            ..wanted("c", "1")
        };
        let given = |name: &str| Device {
            device_name: name.to_owned(),
            ..Device::default()
        };
        for (now, moved) in [
            (with(&[("d", &["x"])]), false),
            (with(&[("d", &["x", "y"])]), false),
            (with(&[("d", &["y"])]), true),
            (with(&[("e", &["x"])]), true),
            (with(&[("d", &["x"]), ("e", &["x"])]), true),
            (
                Wanted {
                    uid: "2".into(),
                    ..with(&[("e", &["x"])])
                },
                false,
            ),
        ] {
            let mut claims = Claims::default();
            claims.refer("a", &with(&[("d", &["x"])])).expect("its own");
            claims.give(&name("c"), "d", vec![given("x")]).expect("room");
            claims.done(&name("c"));
            let told = claims.moved("a", &now).expect("its own alone");
            assert_eq!(told.is_some(), moved, "{now:?}");
            assert_eq!(claims.0[&name("c")].prepared, !moved, "{now:?}");
            assert_eq!(claims.moved("b", &now).is_err(), moved, "{now:?}");
        }
    }

    #[test]
    fn another_claim_of_the_same_name_waits() {
        let mut claims = Claims::default();
        assert_eq!(claims.refer("a", &wanted("c", "1")), Ok(true));
        let error = claims.refer("b", &wanted("c", "2")).expect_err("another");
        assert_eq!(
            error.to_string(),
            "old ResourceClaim with same name c and different UID 1 still exists (previous pod force-deleted?!)"
        );
        assert_eq!(claims.pods(), ["a".to_owned()].into());
    }

    /// A number that counts how often it was compared.
    struct Counted<'a>(u32, &'a Cell<usize>);

    impl Ord for Counted<'_> {
        fn cmp(&self, other: &Self) -> Ordering {
            self.1.set(self.1.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counted<'_> {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl PartialEq for Counted<'_> {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other).is_eq()
        }
    }

    impl Eq for Counted<'_> {}

    #[test]
    fn as_many_names_as_there_may_be_are_told_apart_with_few_comparisons() {
        let compared = Cell::new(0);
        // As many as all claims have room for, each twice, and not in their order.
        let many = u32::try_from(TOGETHER_MAX / (NAME_BYTES + 8)).expect("fewer");
        let numbers = (0..many).rev().chain(0..many);
        let all: Vec<Counted<'_>> = numbers.map(|number| Counted(number, &compared)).collect();
        let told = distinct(all.iter()).into_iter().map(|one| one.0);
        assert!(told.eq((0..many).rev()), "in the order of first mention");
        let each = compared.get() / all.len();
        assert!(each < 100, "{each} comparisons for each");
    }

    #[test]
    fn a_device_serves_what_it_names() {
        let of = |names: &[&str]| Device {
            request_names: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            ..Device::default()
        };
        for (names, request, serves) in [
            (&[][..], "a", true),
            (&["a"], "", true),
            (&["a"], "a", true),
            (&["a"], "b", false),
            (&["a", "b"], "b", true),
        ] {
            assert_eq!(of(names).serves(request), serves, "{names:?} {request}");
        }
    }
}
