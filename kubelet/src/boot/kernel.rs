//! `protectKernelDefaults`: kernel flags a node is expected to have.
//!
//! Only looked at, never changed: without the setting the flags are the administrator's.

use crate::host::machine::Roots;
use std::fs;

/// Flags as paths below `/proc/sys`, and the values upstream's kubelet expects.
const EXPECTED: &[(&str, i64)] = &[
    ("vm/overcommit_memory", 1),
    ("vm/panic_on_oom", 0),
    ("kernel/panic", 10),
    ("kernel/panic_on_oops", 1),
    ("kernel/keys/root_maxkeys", 1_000_000),
    ("kernel/keys/root_maxbytes", 25_000_000),
];

/// Every flag that is not as expected, in upstream's words.
pub(super) fn mistakes(roots: &Roots) -> Vec<String> {
    let judge = |(flag, expected): &(&str, i64)| {
        let path = roots.proc.join("sys").join(flag);
        match fs::read_to_string(&path).map(|text| text.trim().parse::<i64>()) {
            Ok(Ok(actual)) if actual == *expected => None,
            Ok(Ok(actual)) => Some(format!(
                "invalid kernel flag: {flag}, expected value: {expected}, actual value: {actual}"
            )),
            Ok(Err(error)) => Some(format!("{}: {error}", path.display())),
            Err(error) => Some(format!("{}: {error}", path.display())),
        }
    };
    EXPECTED.iter().filter_map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_that_differs_is_named() {
        let directory = tempfile::tempdir().expect("temp dir");
        let roots = Roots {
            proc: directory.path().to_owned(),
            ..Roots::default()
        };
        let write = |flag: &str, value: i64| {
            let path = directory.path().join("sys").join(flag);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, format!("{value}\n")).expect("a flag");
        };
        for (flag, value) in EXPECTED {
            write(flag, *value);
        }
        assert_eq!(mistakes(&roots), Vec::<String>::new());
        write("kernel/panic", 0);
        fs::remove_file(directory.path().join("sys/vm/panic_on_oom")).expect("removed");
        let found = mistakes(&roots);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("vm/panic_on_oom"), "{found:?}");
        assert_eq!(
            found[1],
            "invalid kernel flag: kernel/panic, expected value: 10, actual value: 0"
        );
    }
}
