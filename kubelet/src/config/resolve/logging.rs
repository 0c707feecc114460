//! `logging`: format and verbosity.

use super::Reader;
use crate::config::file::LoggingConfiguration;
use crate::log::{Format, Logging, Pattern, Verbosity};

/// What this kubelet says without being told how much.
const VERBOSITY: i64 = 2;

/// What is logged. `by_flag`: it was `-v` that said how much.
pub(super) fn read(reader: &mut Reader, written: &LoggingConfiguration, by_flag: bool) -> Logging {
    let format = match written.format.as_deref() {
        None | Some("" | "text") => Format::Text,
        Some("json") => Format::Json,
        Some(other) => {
            reader.wrong("logging.format", format!("{other:?} is not one of text, json"));
            Format::Text
        }
    };
    let max = i64::from(i32::MAX);
    // A zero in a file is what tools write who mean nothing by it; on the command line somebody means it.
    let given = written.verbosity.filter(|verbosity| by_flag || *verbosity != 0);
    let default = reader.range("logging.verbosity", given, VERBOSITY, 0, max);
    let mut files = Vec::new();
    for item in written.vmodule.iter().flatten() {
        let pattern = item.file_pattern.clone().unwrap_or_default();
        if pattern.is_empty() || pattern.contains([',', '=', '/']) {
            reader.wrong("logging.vmodule", format!("{pattern:?} is not a pattern of file names"));
        }
        let verbosity = reader.range("logging.vmodule", item.verbosity, 0, 0, max);
        files.push(Pattern {
            files: pattern,
            verbosity,
        });
    }
    Logging {
        format,
        verbosity: Verbosity { default, files },
    }
}
