//! Whether the members' data come to the same at one revision (pure).
//!
//! Members of the same revision may have other data all the same: damaged files, a snapshot whose later writes failed and succeeded as many
//! times as the others'. etcd adds up all keys up to a revision (`HashKV`). Owns the comparison of what its members say of that: only of
//! one revision, and of one compaction, what they say is comparable. What becomes of a member that is found out is [`crate::rpc`]'s.

use crate::agreement::Finding;
use proto::etcd::HashKvResponse;

/// What a member's data come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hash {
    pub(crate) member: u64,
    cluster: u64,
    hash: u32,
    /// What is older is forgotten there.
    compacted: i64,
}

impl From<HashKvResponse> for Hash {
    fn from(said: HashKvResponse) -> Self {
        let header = said.header.unwrap_or_default();
        Self {
            member: header.member_id,
            cluster: header.cluster_id,
            hash: said.hash,
            compacted: said.compact_revision,
        }
    }
}

/// What each address said, if it did.
pub(crate) type Said = [Option<Hash>];

/// What comes of what was said of one revision; others are by their numbers among those who were asked.
pub(crate) fn judge(said: &Said) -> Finding {
    let heard: Vec<(usize, Hash)> = said
        .iter()
        .enumerate()
        .filter_map(|(at, hash)| Some((at, (*hash)?)))
        .collect();
    let is_comparable =
        |(_, hash): &(usize, Hash)| (hash.cluster, hash.compacted) == (heard[0].1.cluster, heard[0].1.compacted);
    if !heard.iter().all(is_comparable) {
        return Finding::Unsettled;
    }
    // Of a member with several addresses the first counts.
    let is_first = |at: &usize| {
        heard[..*at]
            .iter()
            .all(|(_, before)| before.member != heard[*at].1.member)
    };
    let voices: Vec<u32> = (0..heard.len()).filter(is_first).map(|at| heard[at].1.hash).collect();
    let is_most = |hash: u32| voices.iter().filter(|voice| **voice == hash).count() * 2 > voices.len();
    let (most, others): (Vec<_>, Vec<_>) = heard.iter().partition(|(_, hash)| is_most(hash.hash));
    match (most.is_empty(), others.is_empty()) {
        (_, true) => Finding::Same,
        (true, false) => Finding::Unclear,
        (false, false) => Finding::Others(others.into_iter().map(|(at, _)| at).collect()),
    }
}

/// What is said of a member whose data come to something else than most others', to people.
pub(crate) fn text(url: &str, at: usize, revision: i64, said: &Said) -> String {
    let own = said[at].unwrap_or_default();
    let theirs = said.iter().flatten().find(|other| other.hash != own.hash);
    format!(
        "{url} (member {:x}) has other data than the other members of etcd at the same revision (`etcdctl endpoint hashkv --rev {revision}`: {} \
         where they have {}): its files are damaged, or it was restored from a snapshot alone; what is read from it is wrong. `etcdctl member \
         remove {0:x}` at one of the others, remove its data directory, and `etcdctl member add` it anew",
        own.member,
        own.hash,
        theirs.copied().unwrap_or_default().hash,
    )
}

/// What is said where nobody knows who is right.
pub(crate) fn unclear(urls: &[&str], revision: i64, said: &Said) -> String {
    let all = urls.iter().zip(said).filter_map(|(url, said)| Some((url, (*said)?)));
    let all: Vec<String> = all
        .map(|(url, said)| format!("{url} (member {:x}) {}", said.member, said.hash))
        .collect();
    format!(
        "the members of etcd have different data at revision {revision}, and those that answer are too few to say which is right: {} \
         (`etcdctl endpoint hashkv --rev {revision}`); remove the one that is damaged, or was restored from a snapshot alone, with `etcdctl \
         member remove`, and its data directory",
        all.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(member: u64, hash: u32) -> Option<Hash> {
        Some(Hash {
            member,
            cluster: 7,
            hash,
            compacted: 5,
        })
    }

    #[test]
    fn whose_data_come_to_something_else_is_found_and_nobody_else() {
        let elsewhere = said(3, 9).map(|said| Hash { cluster: 8, ..said });
        let compacted = said(3, 9).map(|said| Hash { compacted: 6, ..said });
        for (said, expected) in [
            (vec![said(1, 4), said(2, 4), said(3, 4)], Finding::Same),
            (vec![said(1, 4), said(2, 9), said(3, 4)], Finding::Others(vec![1])),
            (vec![said(1, 9), said(2, 4), said(3, 4)], Finding::Others(vec![0])),
            (vec![said(1, 4), None, said(3, 9)], Finding::Unclear),
            (vec![said(1, 4), said(2, 5), said(3, 9)], Finding::Unclear),
            (vec![said(1, 4), None, None], Finding::Same),
            (vec![None; 3], Finding::Same),
            // Two addresses are one voice.
            (vec![said(1, 4), said(1, 4), said(3, 9)], Finding::Unclear),
            (
                vec![said(1, 4), said(2, 4), said(3, 9), said(3, 9)],
                Finding::Others(vec![2, 3]),
            ),
            // What was forgotten is not in it.
            (vec![said(1, 4), said(2, 4), compacted], Finding::Unsettled),
            (vec![said(1, 4), said(2, 4), elsewhere], Finding::Unsettled),
        ] {
            assert_eq!(judge(&said), expected, "{said:?}");
        }
    }

    #[test]
    fn it_is_named_with_what_helps() {
        let said = [said(0x1f, 4), said(2, 4), said(0xabc, 9)];
        let text = text("https://c:2379", 2, 66, &said);
        for part in [
            "https://c:2379 (member abc)",
            "`etcdctl endpoint hashkv --rev 66`: 9 where they have 4",
            "`etcdctl member remove abc`",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let unclear = unclear(&["https://a:2379", "https://b:2379", "https://c:2379"], 66, &said);
        assert!(
            unclear.contains("at revision 66")
                && unclear.contains("https://a:2379 (member 1f) 4, https://b:2379 (member 2) 4"),
            "{unclear}"
        );
    }
}
