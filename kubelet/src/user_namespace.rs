//! The ids of pods that have users of their own (`hostUsers: false`, KEP-127): which pod has which range. Pure.
//!
//! Every such pod has one range of user ids and the same of group ids, from 0 on the inside; no two pods share one, and none has an
//! id that the node's own users may have. What is handed out is in the file `userns` of the pod's directory
//! (`crate::volume`), from which the next kubelet has it back.

use crate::id::PodUid;
use client::ordered::CollectOrdered;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What ranges are multiples of, and how long they are unless configured otherwise.
pub const IDS_UNIT: u32 = 65_536;

/// The ids of the node that pods may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdPool {
    /// The first one; a multiple of `per_pod`, and not 0.
    pub first: u32,
    /// How many; a multiple of `per_pod`.
    pub count: u32,
    /// How many each pod gets (`userNamespaces.idsPerPod`).
    pub per_pod: u32,
}

impl IdPool {
    /// Everything above the node's own ids, which are below `per_pod`. The last id means "none" to the kernel, so the last range
    /// is left out.
    pub fn all(per_pod: u32) -> Self {
        let ranges = u32::MAX / per_pod;
        Self {
            first: per_pod,
            count: (ranges.saturating_sub(1)) * per_pod,
            per_pod,
        }
    }

    /// The ids that are set aside for the kubelet, as `subordinate ids` files name them.
    ///
    /// # Errors
    /// They cannot be cut into ranges, or are too few for so many pods; upstream's words.
    pub fn subordinate(first: u32, count: u32, per_pod: u32, pods_max: i64) -> Result<Self, PoolError> {
        if !first.is_multiple_of(per_pod) {
            return Err(PoolError::Offset { first, per_pod });
        }
        if first < per_pod {
            return Err(PoolError::Low { first, per_pod });
        }
        if !count.is_multiple_of(per_pod) {
            return Err(PoolError::Length { count, per_pod });
        }
        if first.checked_add(count).is_none() {
            return Err(PoolError::High { first, count });
        }
        if i64::from(count / per_pod) < pods_max {
            return Err(PoolError::Few(pods_max));
        }
        Ok(Self { first, count, per_pod })
    }
}

impl Default for IdPool {
    fn default() -> Self {
        Self::all(IDS_UNIT)
    }
}

/// Why subordinate ids are of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Ranges would not begin at multiples of their length.
    #[error("kubelet user assigned ID {first} is not a multiple of {per_pod}")]
    Offset {
        /// The first id.
        first: u32,
        /// Ids of a pod.
        per_pod: u32,
    },
    /// The node's own ids are among them.
    #[error("kubelet user assigned ID {first} must be greater or equal to {per_pod}")]
    Low {
        /// The first id.
        first: u32,
        /// Ids of a pod.
        per_pod: u32,
    },
    /// A rest would be left.
    #[error("kubelet user assigned IDs length {count} is not a multiple of {per_pod}")]
    Length {
        /// How many there are.
        count: u32,
        /// Ids of a pod.
        per_pod: u32,
    },
    /// They go beyond the last id there is.
    #[error("kubelet user assigned IDs {first} and the {count} from there on are more than there are")]
    High {
        /// The first id.
        first: u32,
        /// How many there are.
        count: u32,
    },
    /// The file that names them cannot be read.
    #[error("read {0}")]
    Read(String),
    /// Not every pod could have some.
    #[error("kubelet user assigned IDs are not enough to support {0} pods")]
    Few(i64),
    /// Users and groups differ.
    #[error("mismatched subuids and subgids for user \"kubelet\"")]
    Mismatch,
    /// There is more than one line, or what is there is none.
    #[error("error parsing line {0:?}: it must contain only one line")]
    Lines(String),
}

/// The subordinate ids of user `kubelet` as first and count, from the text of `/etc/subuid` or `/etc/subgid`; nothing if it has
/// none.
///
/// # Errors
/// It has several, or something that is no range.
pub fn parse_subordinate(text: &str) -> Result<Option<(u32, u32)>, PoolError> {
    let mut own = text.lines().filter(|line| line.starts_with("kubelet:"));
    let Some(line) = own.next() else { return Ok(None) };
    let mut numbers = line.split(':').skip(1).map(|number| number.trim().parse().ok());
    match (numbers.next().flatten(), numbers.next().flatten(), own.next()) {
        (Some(first), Some(count), None) => Ok(Some((first, count))),
        _ => Err(PoolError::Lines(line.to_owned())),
    }
}

/// One pod's ids of the node; inside the pod they begin at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The first.
    pub first: u32,
    /// How many.
    pub length: u32,
}

impl IdRange {
    fn overlaps(self, other: Self) -> bool {
        let end = |range: Self| u64::from(range.first) + u64::from(range.length);
        u64::from(self.first) < end(other) && u64::from(other.first) < end(self)
    }
}

/// Why a pod has no ids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// All are taken.
    #[error("create user namespace: could not find an empty slot to allocate a user namespace")]
    Exhausted,
    /// Its file says nothing that a kubelet wrote.
    #[error("user namespace: invalid user namespace mappings file: {0}")]
    File(String),
    /// Its file says something that is none of ours.
    #[error("user namespace: {0}")]
    Foreign(&'static str),
    /// What its file says belongs to another pod.
    #[error("user namespace: range picked for pod {0:?} already taken")]
    Taken(PodUid),
    /// A pod's file stands in the way, its own or another's.
    #[error("{}: {why}", .path.display())]
    At {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: Box<RangeError>,
    },
}

/// What a pod may have had from a kubelet of another configuration. Its containers may run: nobody else is given any of it.
#[derive(Clone, Debug)]
struct Foreign {
    /// Which ids; nothing if they could be any.
    ids: Option<Vec<IdRange>>,
    why: RangeError,
}

/// Who has which range.
#[derive(Clone, Debug)]
pub struct Ranges {
    pool: IdPool,
    by_pod: BTreeMap<PodUid, u32>,
    foreign: BTreeMap<PodUid, Foreign>,
}

impl Ranges {
    /// None handed out.
    pub fn new(pool: IdPool) -> Self {
        Self {
            pool,
            by_pod: BTreeMap::new(),
            foreign: BTreeMap::new(),
        }
    }

    /// The pod's range and whether it is new: the one it has, or the lowest that is free.
    ///
    /// # Errors
    /// All are taken; the pod's own file tells what cannot be given; or it is a new pod, and another's file does not tell which ids
    /// that one has.
    pub fn take(&mut self, pod: &PodUid) -> Result<(IdRange, bool), RangeError> {
        if let Some(first) = self.by_pod.get(pod) {
            return Ok((self.range(*first), false));
        }
        let unknown = || self.foreign.values().find(|foreign| foreign.ids.is_none());
        if let Some(foreign) = self.foreign.get(pod).or_else(unknown) {
            return Err(foreign.why.clone());
        }
        let taken: BTreeSet<u32> = self.by_pod.values().copied().collect_ordered();
        let foreign: Vec<IdRange> = self.foreign.values().filter_map(|f| f.ids.clone()).flatten().collect();
        let ranges = self.pool.count / self.pool.per_pod;
        let first = (0..ranges)
            .map(|index| self.pool.first + index * self.pool.per_pod)
            .find(|first| !taken.contains(first) && !foreign.iter().any(|ids| ids.overlaps(self.range(*first))));
        let first = first.ok_or(RangeError::Exhausted)?;
        self.by_pod.insert(pod.clone(), first);
        Ok((self.range(first), true))
    }

    /// Notes a range that a pod has had from an earlier kubelet.
    ///
    /// # Errors
    /// It is none of this pool's, or another pod has it.
    pub fn record(&mut self, pod: &PodUid, range: IdRange) -> Result<(), RangeError> {
        let IdPool { first, count, per_pod } = self.pool;
        if range.length != per_pod {
            return Err(RangeError::Foreign("wrong user namespace length"));
        }
        if !range.first.is_multiple_of(per_pod) {
            return Err(RangeError::Foreign("wrong user namespace offset specified"));
        }
        if range.first < first || range.first - first >= count {
            return Err(RangeError::Foreign("id is out of range"));
        }
        match self.by_pod.iter().find(|(_, taken)| **taken == range.first) {
            Some((other, _)) if other != pod => Err(RangeError::Taken(pod.clone())),
            _ if self.by_pod.get(pod).is_some_and(|own| *own != range.first) => Err(RangeError::Foreign(
                "different user namespace range already used by the pod",
            )),
            _ => {
                self.by_pod.insert(pod.clone(), range.first);
                Ok(())
            }
        }
    }

    /// Notes what a pod's file tells; of one that tells nothing good, what it may mean, until it is told otherwise.
    pub fn recover(&mut self, pod: &PodUid, path: &Path, text: Result<&[u8], RangeError>) {
        self.foreign.remove(pod);
        let ids = text.as_ref().ok().and_then(|text| claimed(text));
        let Err(why) = text.and_then(read).and_then(|range| self.record(pod, range)) else {
            return;
        };
        let (path, why) = (path.to_owned(), Box::new(why));
        let why = RangeError::At { path, why };
        self.foreign.insert(pod.clone(), Foreign { ids, why });
    }

    /// Notes that a pod has no file.
    pub fn recover_none(&mut self, pod: &PodUid) {
        self.foreign.remove(pod);
    }

    /// The pods whose files told nothing good.
    pub fn foreign(&self) -> Vec<PodUid> {
        self.foreign.keys().cloned().collect()
    }

    /// Takes a pod's range back.
    pub fn release(&mut self, pod: &PodUid) {
        self.by_pod.remove(pod);
        self.foreign.remove(pod);
    }

    fn range(&self, first: u32) -> IdRange {
        IdRange {
            first,
            length: self.pool.per_pod,
        }
    }
}

/// The file of a pod, as upstream's (kubelet contract §2).
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mappings {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// A pod's range as its file tells it.
pub fn write(range: IdRange) -> Vec<u8> {
    let mapping = Mapping {
        host_id: range.first,
        container_id: 0,
        length: range.length,
    };
    let mappings = Mappings {
        uid_mappings: vec![mapping.clone()],
        gid_mappings: vec![mapping],
    };
    serde_json::to_vec(&mappings).unwrap_or_default()
}

/// The range a pod's file tells.
///
/// # Errors
/// It tells none, or something kubelets do not write.
pub fn read(text: &[u8]) -> Result<IdRange, RangeError> {
    let told: Mappings = serde_json::from_slice(text).map_err(|error| RangeError::File(error.to_string()))?;
    match told.uid_mappings.as_slice() {
        [_] if told.uid_mappings != told.gid_mappings => Err(RangeError::Foreign(
            "invalid user namespace configuration: GID and UID mapping should be identical",
        )),
        [mapping] if mapping.container_id == 0 => Ok(IdRange {
            first: mapping.host_id,
            length: mapping.length,
        }),
        [_] => Err(RangeError::Foreign(
            "invalid user namespace configuration: UID 0 must be mapped",
        )),
        _ => Err(RangeError::Foreign(
            "invalid user namespace configuration: no more than one mapping allowed.",
        )),
    }
}

/// All ids that a file names, however oddly; nothing if that cannot be told.
fn claimed(text: &[u8]) -> Option<Vec<IdRange>> {
    let told: Mappings = serde_json::from_slice(text).ok()?;
    let all = told.uid_mappings.iter().chain(&told.gid_mappings);
    let ids = all.map(|mapping| IdRange {
        first: mapping.host_id,
        length: mapping.length,
    });
    Some(ids.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Ranges {
        Ranges::new(IdPool {
            first: 65_536,
            count: 3 * 65_536,
            per_pod: 65_536,
        })
    }

    #[test]
    fn each_pod_has_the_lowest_free_range_and_keeps_it() {
        let mut ranges = small();
        let mut first = |pod: &str| ranges.take(&pod.into()).map(|(range, _)| range.first / 65_536);
        assert_eq!([first("a"), first("b"), first("a")], [Ok(1), Ok(2), Ok(1)]);
        assert_eq!([first("c"), first("d")], [Ok(3), Err(RangeError::Exhausted)]);
        ranges.release(&"b".into());
        assert_eq!(
            ranges.take(&"d".into()).map(|(range, new)| (range.first, new)),
            Ok((2 * 65_536, true))
        );
    }

    #[test]
    fn what_files_tell_is_taken_back_unless_it_is_foreign() {
        let mut ranges = small();
        let range = |first, length| IdRange { first, length };
        assert_eq!(ranges.record(&"b".into(), range(2 * 65_536, 65_536)), Ok(()));
        assert_eq!(ranges.record(&"b".into(), range(2 * 65_536, 65_536)), Ok(()));
        for foreign in [
            range(2 * 65_536, 65_536),
            range(65_536, 4),
            range(7, 65_536),
            range(0, 65_536),
            range(4 * 65_536, 65_536),
        ] {
            assert!(ranges.record(&"x".into(), foreign).is_err(), "{foreign:?}");
        }
        assert!(ranges.record(&"b".into(), range(65_536, 65_536)).is_err());
        assert_eq!(ranges.take(&"a".into()).map(|(range, _)| range.first), Ok(65_536));
        assert_eq!(ranges.take(&"c".into()).map(|(range, _)| range.first), Ok(3 * 65_536));
    }

    #[test]
    fn what_a_foreign_file_tells_is_nobody_elses_and_refuses_its_own_pod_alone() {
        let mut ranges = small();
        let path = Path::new("/pods/x/userns");
        let file = |first, length| write(IdRange { first, length });
        let first = |ranges: &mut Ranges, pod: &str| {
            let taken = ranges.take(&pod.into());
            taken
                .map(|(range, _)| range.first / 65_536)
                .map_err(|error| error.to_string())
        };
        ranges.recover(&"a".into(), path, Ok(&file(65_536, 65_536)));
        ranges.recover(&"x".into(), path, Ok(&file(2 * 65_536 + 7, 4)));
        assert_eq!(
            first(&mut ranges, "x"),
            Err("/pods/x/userns: user namespace: wrong user namespace length".to_owned())
        );
        assert_eq!(first(&mut ranges, "a"), Ok(1));
        assert_eq!(first(&mut ranges, "b"), Ok(3), "the second is partly another's");
        ranges.recover(&"y".into(), path, Ok(&file(65_536, 65_536)));
        assert!(first(&mut ranges, "y").is_err_and(|why| why.contains("already taken")));
        ranges.release(&"a".into());
        ranges.release(&"x".into());
        assert_eq!(first(&mut ranges, "c"), Ok(2), "the first may be in use by y");
        ranges.recover(&"z".into(), path, Ok(b"{"));
        assert!(first(&mut ranges, "d").is_err_and(|why| why.starts_with("/pods/x/userns: ")));
        assert_eq!(first(&mut ranges, "b"), Ok(3), "who has ids keeps them");
        assert_eq!(ranges.foreign(), ["y".into(), "z".into()]);
        ranges.release(&"z".into());
        ranges.release(&"y".into());
        assert_eq!(first(&mut ranges, "d"), Ok(1));
    }

    #[test]
    fn the_file_is_upstreams() {
        let range = IdRange {
            first: 131_072,
            length: 65_536,
        };
        let text = r#"{"uidMappings":[{"hostId":131072,"containerId":0,"length":65536}],"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}"#;
        assert_eq!(write(range), text.as_bytes());
        assert_eq!(read(text.as_bytes()), Ok(range));
        for bad in [
            "{",
            r#"{"uidMappings":[],"gidMappings":[]}"#,
            &text.replace(r#""containerId":0"#, r#""containerId":1"#),
            &text.replacen("131072", "65536", 1),
        ] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn pools_leave_the_nodes_ids_and_the_kernels_none_alone() {
        let all = IdPool::default();
        assert_eq!((all.first, all.per_pod), (65_536, 65_536));
        assert!(u64::from(all.first) + u64::from(all.count) <= u64::from(u32::MAX));
        let wide = IdPool::all(4 * 65_536);
        assert!(u64::from(wide.first) + u64::from(wide.count) <= u64::from(u32::MAX));
        let lines = "root:1:2\nkubelet:65536:7208960\n";
        assert_eq!(parse_subordinate(lines), Ok(Some((65_536, 7_208_960))));
        assert_eq!(parse_subordinate("root:1:2\n"), Ok(None));
        assert!(parse_subordinate("kubelet:1:2\nkubelet:3:4\n").is_err());
        assert!(parse_subordinate("kubelet:x:2\n").is_err());
        let pool = |first, count| IdPool::subordinate(first, count, 65_536, 110).map(|pool| pool.count);
        assert_eq!(pool(65_536, 110 * 65_536), Ok(110 * 65_536));
        assert_eq!(pool(65_536, 65_536), Err(PoolError::Few(110)));
        assert!(matches!(pool(4_294_901_760, 110 * 65_536), Err(PoolError::High { .. })));
        for (first, count) in [(0, 110 * 65_536), (1, 110 * 65_536), (65_536, 7)] {
            assert!(pool(first, count).is_err(), "{first} {count}");
        }
    }
}
