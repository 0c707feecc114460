//! What must be true of the source itself: which part may import which, how long a file may be, which words stand where.
//!
//! Each rule is a pure function over one file ([`rules`]) and is shown to fire on a planted sample. What was there before a rule
//! is listed in [`ratchet`], whose lists may only become shorter: an entry that is no longer needed fails the test too.

mod ratchet;
mod rules;

use rules::{RULES, Source};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the workspace").to_owned()
}

/// Our Rust files, by their path in the repository.
fn sources(root: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory").flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let is_ours = !name.starts_with('.') && !name.starts_with("target");
            if path.is_dir() && is_ours {
                left.push(path);
            } else if name.ends_with(".rs") {
                let text = std::fs::read_to_string(&path).expect("a file");
                let path = path.strip_prefix(root).expect("inside").display().to_string();
                found.push(Source { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

#[test]
fn the_source_keeps_its_rules() {
    let sources = sources(&root());
    assert!(sources.len() > 500, "only {} files were found", sources.len());
    let mut told = Vec::new();
    for rule in RULES {
        let allowed: BTreeSet<&str> = ratchet::allowed(rule.name).iter().copied().collect();
        let mut needed = BTreeSet::new();
        for source in &sources {
            let found = (rule.check)(source);
            if found.is_empty() {
                continue;
            }
            if let Some(entry) = allowed.get(source.path.as_str()) {
                needed.insert(*entry);
            } else {
                told.extend(
                    found
                        .iter()
                        .map(|what| format!("{}: {}: {what}", rule.name, source.path)),
                );
            }
        }
        let stale = allowed.difference(&needed);
        told.extend(stale.map(|path| format!("{}: {path} keeps it by now: take it off the ratchet", rule.name)));
    }
    assert!(told.is_empty(), "{} findings:\n{}", told.len(), told.join("\n"));
}

#[test]
fn every_rule_fires_on_its_sample() {
    for rule in RULES {
        for (path, text) in rule.fires_on {
            let source = Source::new(path, text);
            assert!(
                !(rule.check)(&source).is_empty(),
                "{} does not fire on {path}: {text}",
                rule.name
            );
        }
        for (path, text) in rule.passes {
            let source = Source::new(path, text);
            let found = (rule.check)(&source);
            assert!(found.is_empty(), "{} fires on {path}: {text}: {found:?}", rule.name);
        }
        assert!(
            !rule.fires_on.is_empty() && !rule.passes.is_empty(),
            "{} has no samples",
            rule.name
        );
    }
}

#[test]
fn the_pages_state_no_number_that_grows_stale() {
    for page in ["README.md", "ARCHITECTURE.md"] {
        let text = std::fs::read_to_string(root().join(page)).expect("the page");
        assert_eq!(rules::counts_stated(&text), Vec::<String>::new(), "{page}");
    }
    assert_eq!(rules::counts_stated("The suite has 1,234 tests."), ["1,234 tests"]);
    assert_eq!(
        rules::counts_stated("There are 12 known gaps and 3 pods."),
        ["12 known gaps"]
    );
}

/// The README has one place for what is missing, and every entry of it says something.
#[test]
fn the_readme_lists_its_gaps_in_one_place() {
    let text = std::fs::read_to_string(root().join("README.md")).expect("the page");
    let gaps = rules::gaps(&text).expect("a heading `Known gaps`, once");
    assert!(gaps > 0, "the list of gaps is empty");
    assert_eq!(
        rules::gaps("## Known gaps\n\n- one\n- two\n\n## Next\n- other\n"),
        Some(2)
    );
    assert_eq!(rules::gaps("## Known gaps\n- one\n## Known gaps\n- two\n"), None);
    assert_eq!(rules::gaps("nothing\n"), None);
}
