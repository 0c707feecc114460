//! Where our keys are in etcd: `/registry/...` under whatever `--etcd-prefix` says; and what etcd's revisions are called here. Pure.

use std::sync::Arc;
use store::Revision;

/// How all of our keys begin (control-plane contract §10).
const OURS: &str = "/registry";
/// How those begin that only we know; in etcd they are under the prefix, too.
const PRIVATE: &str = "/skiff/";

/// A prefix in etcd, in the place of `/registry`, what is added to etcd's revisions, and whose they are.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
    shift: Revision,
    /// The move that brought what is there; 0 if it began here.
    origin: u64,
}

impl Keys {
    /// Under a prefix, with or without its slashes; an empty one is the root.
    pub(crate) fn under(prefix: &str) -> Self {
        let inner = prefix.trim_matches('/');
        let prefix = if inner.is_empty() {
            String::new()
        } else {
            format!("/{inner}")
        };
        Self {
            prefix,
            shift: 0,
            origin: 0,
        }
    }

    /// The same keys as a move has brought them, all revisions of etcd's being so many higher.
    pub(crate) fn noted(self, shift: Revision, origin: u64) -> Self {
        Self { shift, origin, ..self }
    }

    /// Whether what is noted so is what these keys are of.
    pub(crate) fn are_of(&self, shift: Revision, origin: u64) -> bool {
        (self.shift, self.origin) == (shift, origin)
    }

    /// A revision of etcd's as we tell it.
    pub(crate) fn ours_at(&self, theirs: i64) -> Revision {
        (theirs as Revision).saturating_add(self.shift)
    }

    /// A revision of ours as etcd has it; one of before etcd's first is one that nothing was written at.
    pub(crate) fn theirs_at(&self, ours: Revision) -> i64 {
        match ours.checked_sub(self.shift) {
            Some(0) | None if self.shift > 0 => -1,
            Some(theirs) => theirs as i64,
            None => -1,
        }
    }

    /// The oldest revision that etcd knows of, as we tell it, if older ones have been told of.
    pub(crate) fn oldest(&self) -> Option<Revision> {
        (self.shift > 0).then_some(self.shift + 1)
    }

    /// A key of ours as etcd has it.
    pub(crate) fn theirs(&self, key: &str) -> Vec<u8> {
        self.place(key).into_bytes()
    }

    /// The same as text.
    pub(crate) fn place(&self, key: &str) -> String {
        let rest = key.strip_prefix(OURS).unwrap_or(key);
        format!("{}{rest}", self.prefix)
    }

    /// Where a move of the keys says that it is under way, or done.
    pub(crate) fn mark(&self) -> Vec<u8> {
        self.theirs("/skiff/move")
    }

    /// Where is said which form the values have, and what is added to etcd's revisions.
    pub(crate) fn form(&self) -> Vec<u8> {
        self.theirs("/skiff/form")
    }

    /// A key of etcd's as we have it; `None` if it is none of ours.
    pub(crate) fn ours(&self, key: &[u8]) -> Option<Arc<str>> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        if rest.starts_with(PRIVATE) {
            return Some(Arc::from(rest));
        }
        rest.starts_with('/').then(|| Arc::from(format!("{OURS}{rest}")))
    }

    /// All that is ours but the two notes of the whole, as ranges.
    pub(crate) fn objects(&self) -> [(Vec<u8>, Vec<u8>); 3] {
        let (from, end) = self.range_of("");
        let behind = |note: &[u8]| [note, b"\0"].concat();
        let (form, mark) = (self.form(), self.mark());
        // The notes stand in the middle, the form before the mark.
        let (after_form, after_mark) = (behind(&form), behind(&mark));
        [(from, form), (after_form, mark), (after_mark, end)]
    }

    /// The first key and the end of what begins with a prefix of ours; of all that is ours if it is not even `/registry/`.
    pub(crate) fn range_of(&self, prefix: &str) -> (Vec<u8>, Vec<u8>) {
        let rest = match prefix.starts_with(PRIVATE) {
            true => Some(prefix),
            false => prefix.strip_prefix(OURS).filter(|rest| rest.starts_with('/')),
        };
        let from = format!("{}{}", self.prefix, rest.unwrap_or("/")).into_bytes();
        let mut end = from.clone();
        if let Some(last) = end.last_mut() {
            // UTF-8 has no byte 255.
            *last += 1;
        }
        (from, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_move_under_the_prefix_and_back() {
        for (prefix, theirs) in [
            ("/registry", "/registry/pods/a/b"),
            ("registry/", "/registry/pods/a/b"),
            ("/one/two", "/one/two/pods/a/b"),
            ("/", "/pods/a/b"),
        ] {
            let keys = Keys::under(prefix);
            assert_eq!(keys.theirs("/registry/pods/a/b"), theirs.as_bytes(), "{prefix}");
            assert_eq!(
                keys.ours(theirs.as_bytes()).as_deref(),
                Some("/registry/pods/a/b"),
                "{prefix}"
            );
        }
        let keys = Keys::under("/registry");
        let private = keys.theirs("/skiff/a");
        assert_eq!(private, b"/registry/skiff/a");
        assert_eq!(keys.ours(&private).as_deref(), Some("/skiff/a"));
        assert_eq!(keys.range_of("/skiff/a").0, private);
        assert_eq!(keys.ours(b"/registry-of-others/a"), None);
        assert_eq!(keys.ours(b"compact_rev_key"), None);
        assert_eq!(keys.ours(b"/registry/\xff"), None);
    }

    #[test]
    fn revisions_go_on_from_those_of_another_store() {
        let keys = Keys::under("/registry");
        assert_eq!((keys.ours_at(7), keys.theirs_at(7), keys.oldest()), (7, 7, None));
        assert_eq!(keys.theirs_at(0), 0, "of nothing");
        let keys = keys.noted(1000, 7);
        assert!(keys.are_of(1000, 7) && !keys.are_of(1000, 8) && !keys.are_of(0, 7));
        assert_eq!(
            (keys.ours_at(7), keys.theirs_at(1007), keys.oldest()),
            (1007, 7, Some(1001))
        );
        for older in [0, 1, 999, 1000] {
            assert_eq!(keys.theirs_at(older), -1, "{older}: of the store before");
        }
    }

    #[test]
    fn the_notes_are_no_objects() {
        let keys = Keys::under("/two");
        let holds = |key: &[u8]| {
            keys.objects()
                .iter()
                .filter(|(from, end)| &from[..] <= key && key < &end[..])
                .count()
        };
        assert_eq!((holds(&keys.form()), holds(&keys.mark())), (0, 0));
        for ours in [
            "/registry/",
            "/registry/pods/a",
            "/skiff/a",
            "/skiff/forma",
            "/skiff/moved",
            "/registry/z",
        ] {
            assert_eq!(holds(&keys.theirs(ours)), 1, "{ours}");
        }
        assert_eq!((holds(b"/twn"), holds(b"/two0")), (0, 0));
    }

    #[test]
    fn a_range_ends_behind_its_prefix() {
        let keys = Keys::under("/two");
        let range = |prefix| {
            let (from, end) = keys.range_of(prefix);
            (String::from_utf8(from).unwrap(), String::from_utf8(end).unwrap())
        };
        assert_eq!(range("/registry/pods/"), ("/two/pods/".into(), "/two/pods0".into()));
        for all in ["", "/", "/reg", "/registry", "/registry/"] {
            assert_eq!(range(all), ("/two/".into(), "/two0".into()), "{all}");
        }
    }
}
