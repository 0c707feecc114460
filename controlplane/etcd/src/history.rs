//! Whether who answers goes on with the history that was told of before: one cluster, whose revisions only grow. Pure.
//!
//! A cluster that was restored from a snapshot, or has lost its data, answers with revisions that were there already, and a server of
//! another cluster with its own. Whoever went on would serve what is there no more as if it were, and wait for changes of a future that
//! has passed. Owns the newest revision that anybody has told of.

use proto::etcd::ResponseHeader;
use std::sync::atomic::{AtomicU64, Ordering};
use store::Revision;

/// See the module.
pub(crate) struct History {
    /// Whose it is; 0 before anybody has answered.
    cluster: AtomicU64,
    newest: AtomicU64,
}

impl History {
    /// Of a cluster that nobody has asked yet.
    pub(crate) fn new() -> Self {
        Self {
            cluster: AtomicU64::new(0),
            // An empty etcd answers with it.
            newest: AtomicU64::new(1),
        }
    }

    /// The newest revision that anybody has told of.
    pub(crate) fn newest(&self) -> Revision {
        self.newest.load(Ordering::SeqCst)
    }

    /// Takes down what a linearizable answer says of itself, and gives its revision: `asked` was the newest when it was asked for, and an
    /// answer is no older than that.
    ///
    /// # Errors
    /// Why it is of another history.
    pub(crate) fn answered(&self, header: Option<&ResponseHeader>, asked: Revision) -> Result<Revision, String> {
        self.told_by(header)?;
        let revision = header.map_or(0, |header| header.revision) as Revision;
        self.newest.fetch_max(revision, Ordering::SeqCst);
        if revision < asked {
            return Err(format!(
                "etcd answers with revision {revision} after it had told of {asked}: it, or one of its members, was restored from a snapshot, or \
                 has lost data, and what was read from it is there no more; this control plane has to be started again"
            ));
        }
        Ok(revision)
    }

    /// Takes down which cluster an answer is from, whatever its revision.
    ///
    /// # Errors
    /// It is from another than those before.
    pub(crate) fn told_by(&self, header: Option<&ResponseHeader>) -> Result<(), String> {
        let now = header.map_or(0, |header| header.cluster_id);
        if now == 0 {
            // Nothing is said.
            return Ok(());
        }
        match self
            .cluster
            .compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst)
        {
            Err(before) if before != now => Err(format!(
                "the servers of --etcd-servers are of different clusters of etcd, or theirs was made anew ({before:x} before, {now:x} now)"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(cluster_id: u64, revision: i64) -> Option<ResponseHeader> {
        Some(ResponseHeader {
            cluster_id,
            revision,
            ..ResponseHeader::default()
        })
    }

    #[test]
    fn revisions_only_grow_and_are_of_one_cluster() {
        let history = History::new();
        assert_eq!(history.answered(header(7, 5).as_ref(), 1), Ok(5));
        // Asked before the last answer: it may be older than that.
        assert_eq!(history.answered(header(7, 3).as_ref(), 1), Ok(3));
        assert_eq!(history.newest(), 5);
        assert_eq!(
            history.answered(header(7, 5).as_ref(), 5),
            Ok(5),
            "nothing has happened"
        );
        let back = history.answered(header(7, 4).as_ref(), 5).unwrap_err();
        assert!(back.contains("revision 4 after it had told of 5"), "{back}");
        // A watch tells of what was long ago, by the same cluster.
        assert_eq!(history.told_by(header(7, 2).as_ref()), Ok(()));
        let other = history.answered(header(0x1f, 9).as_ref(), 5).unwrap_err();
        assert!(other.contains("(7 before, 1f now)"), "{other}");
        assert!(history.told_by(header(0x1f, 9).as_ref()).is_err());
        assert_eq!(history.newest(), 5, "what others tell is nothing to this one");
    }
}
