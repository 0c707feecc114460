//! The flags of the audit log. Pure.

use super::Reader;
use std::path::PathBuf;

/// Size at which the log is turned over unless a flag says otherwise, in MB.
const MAX_SIZE_MB: u64 = 100;

/// What is audited and where to (`--audit-*`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// The policy's file.
    pub policy_file: PathBuf,
    /// The log; `None` is standard output.
    pub log_path: Option<PathBuf>,
    /// Size at which it is turned over, in MB.
    pub max_size_mb: u64,
    /// Old files kept; 0 keeps all.
    pub max_backups: usize,
    /// Days old files are kept; 0 keeps them for ever.
    pub max_age_days: u64,
}

impl Reader<'_> {
    /// The audit log, when both policy and path are given.
    pub(super) fn audit(&mut self) -> Option<AuditConfig> {
        if let Some(other) = self.flags.last("audit-log-format").filter(|format| *format != "json") {
            self.wrong("audit-log-format", other, "must be json");
        }
        let max_size_mb = match self.parse("audit-log-maxsize", MAX_SIZE_MB) {
            0 => MAX_SIZE_MB,
            size => size,
        };
        let (max_backups, max_age_days) = (self.parse("audit-log-maxbackup", 0), self.parse("audit-log-maxage", 0));
        match (self.path("audit-policy-file"), self.path("audit-log-path")) {
            (Some(policy_file), Some(path)) => Some(AuditConfig {
                policy_file,
                log_path: (path.as_os_str() != "-").then_some(path),
                max_size_mb,
                max_backups,
                max_age_days,
            }),
            (None, None) => None,
            (Some(_), None) => self.half("--audit-policy-file", "--audit-log-path"),
            (None, Some(_)) => self.half("--audit-log-path", "--audit-policy-file"),
        }
    }

    fn half(&mut self, given: &str, missing: &str) -> Option<AuditConfig> {
        self.mistakes
            .push(format!("{given} has no effect without {missing}: give both or neither"));
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, flags};

    fn resolve(words: &[&str]) -> Result<Config, Vec<String>> {
        Config::resolve(&flags::parse(words.iter().map(|word| (*word).to_owned())))
    }

    #[test]
    fn both_files_make_an_audit_log() {
        let config = resolve(&["--audit-policy-file=p", "--audit-log-path=-", "--audit-log-maxbackup=3"]).unwrap();
        let audit = config.audit.unwrap();
        assert_eq!((audit.log_path, audit.max_backups, audit.max_size_mb), (None, 3, 100));
        assert_eq!(resolve(&[]).unwrap().audit, None);
    }

    #[test]
    fn mistakes_are_named() {
        for (word, part) in [
            ("--audit-log-path=x", "no effect without --audit-policy-file"),
            ("--audit-policy-file=x", "no effect without --audit-log-path"),
            ("--audit-log-maxage=-1", "--audit-log-maxage"),
            ("--audit-log-format=legacy", "must be json"),
        ] {
            let mistakes = resolve(&[word]).unwrap_err().join("\n");
            assert!(mistakes.contains(part), "{word}: {mistakes}");
        }
    }
}
