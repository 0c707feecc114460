//! Where our keys are in etcd: `/registry/...` under whatever `--etcd-prefix` says. Pure.

use std::sync::Arc;

/// How all of our keys begin (control-plane contract §10).
const OURS: &str = "/registry";
/// How those begin that only we know; in etcd they are under the prefix, too.
const PRIVATE: &str = "/skiff/";

/// A prefix in etcd, in the place of `/registry`.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
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
        Self { prefix }
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

    /// A key of etcd's as we have it; `None` if it is none of ours.
    pub(crate) fn ours(&self, key: &[u8]) -> Option<Arc<str>> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        if rest.starts_with(PRIVATE) {
            return Some(Arc::from(rest));
        }
        rest.starts_with('/').then(|| Arc::from(format!("{OURS}{rest}")))
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
