//! Which lines `-v` and `--vmodule` ask for. Pure.

use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};

/// The verbosity from which on lines about what goes well, `debug` and `trace` lines are wanted.
const INFO: i64 = 1;
const DEBUG: i64 = 3;
const TRACE: i64 = 6;

/// A file's name, perhaps with `*` and `?`, and the verbosity it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Compared with the file's name without directory and `.rs`.
    pub files: String,
    /// Its verbosity.
    pub verbosity: i64,
}

/// How much is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verbosity {
    /// `-v`; at 0 only warnings and errors are said.
    pub default: i64,
    /// `--vmodule`; the first that matches counts.
    pub files: Vec<Pattern>,
}

impl Verbosity {
    /// The most that any file may say.
    pub(super) fn most(&self) -> LevelFilter {
        let most = self.files.iter().map(|pattern| pattern.verbosity).max();
        level(most.unwrap_or(self.default).max(self.default))
    }

    /// Whether a line of this kind is wanted. Libraries say one step less than this kubelet's own parts.
    pub(super) fn wants(&self, metadata: &Metadata<'_>) -> bool {
        let own = ["kubelet", "client", "proxy", "dns", "overlay", "policy"]
            .iter()
            .any(|part| is_of(metadata.target(), part));
        let verbosity = self.of(metadata.file().unwrap_or_default());
        let most = if own {
            level(verbosity)
        } else {
            level((verbosity - DEBUG).max(verbosity.min(INFO)))
        };
        *metadata.level() <= most
    }

    fn of(&self, file: &str) -> i64 {
        let name = file.rsplit('/').next().unwrap_or(file);
        let name = name.strip_suffix(".rs").unwrap_or(name);
        let found = self.files.iter().find(|pattern| matches(&pattern.files, name));
        found.map_or(self.default, |pattern| pattern.verbosity)
    }
}

fn is_of(target: &str, part: &str) -> bool {
    target
        .strip_prefix(part)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// What is shipped has nothing to say beyond `DEBUG`: of `TRACE` are only libraries' messages, which a release build leaves out.
fn level(verbosity: i64) -> LevelFilter {
    match verbosity {
        ..INFO => LevelFilter::from_level(Level::WARN),
        INFO..DEBUG => LevelFilter::from_level(Level::INFO),
        DEBUG..TRACE => LevelFilter::from_level(Level::DEBUG),
        TRACE.. => LevelFilter::from_level(Level::TRACE),
    }
}

/// Whether the name matches a pattern of `*` (anything) and `?` (any one character).
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.chars().next() {
        None => name.is_empty(),
        Some('*') => (0..=name.len())
            .filter(|at| name.is_char_boundary(*at))
            .any(|at| matches(&pattern[1..], &name[at..])),
        Some(first) => {
            let mut rest = name.chars();
            let same = rest.next().is_some_and(|c| first == '?' || first == c);
            same && matches(&pattern[first.len_utf8()..], rest.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("worker", "worker", true),
            ("work*", "workers", true),
            ("*", "anything", true),
            ("w?rker", "worker", true),
            ("worker", "workers", false),
            ("*er", "worker", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn files_have_their_own_verbosity() {
        let verbosity = Verbosity {
            default: 2,
            files: vec![
                Pattern {
                    files: "pleg".into(),
                    verbosity: 6,
                },
                Pattern {
                    files: "p*".into(),
                    verbosity: 4,
                },
            ],
        };
        assert_eq!(verbosity.of("kubelet/src/runtime/pleg.rs"), 6);
        assert_eq!(verbosity.of("kubelet/src/pod/plan.rs"), 4);
        assert_eq!(verbosity.of("kubelet/src/boot.rs"), 2);
        assert_eq!(verbosity.most(), LevelFilter::TRACE);
        let most = |default| {
            let verbosity = Verbosity {
                default,
                files: Vec::new(),
            };
            verbosity.most()
        };
        assert_eq!(
            [most(0), most(1), most(2), most(3)],
            [
                LevelFilter::WARN,
                LevelFilter::INFO,
                LevelFilter::INFO,
                LevelFilter::DEBUG
            ]
        );
    }
}
