//! The format of files that variables are taken from: the assignments of single-quoted texts of a POSIX shell (KEP-3721). Pure.

use std::collections::{BTreeMap, BTreeSet};

/// Why a file is none of these; `Display` is what users read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvFileError {
    /// A line is no assignment.
    #[error("invalid environment variable format at line {line}: {what}")]
    Line {
        /// Which, from 1 on.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A quote is not closed.
    #[error("invalid environment variable format starting at line {0}: unclosed single quote")]
    Unclosed(usize),
}

/// What a file tells of the variables that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvFileValues {
    /// Their values; nothing for one that is longer than values may be.
    pub values: BTreeMap<String, Option<String>>,
    /// What is wrong with the file after what was found.
    pub broken: Option<EnvFileError>,
}

/// Looks variables up in one pass: the first assignment of each counts, and nothing after the last of them is judged, as upstream
/// does. Values have `value_bytes_max` bytes at most.
pub(super) fn lookup(text: &str, wanted: &BTreeSet<String>, value_bytes_max: usize) -> EnvFileValues {
    let mut found = EnvFileValues::default();
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    while found.values.len() < wanted.len() {
        match assignment(&mut lines) {
            Ok(Some((name, value))) => {
                if wanted.contains(name) && !found.values.contains_key(name) {
                    let value = (value.len() <= value_bytes_max).then_some(value);
                    found.values.insert(name.to_owned(), value);
                }
            }
            Ok(None) => break,
            Err(error) => {
                found.broken = Some(error);
                break;
            }
        }
    }
    found
}

/// The next assignment; nothing at the end.
fn assignment<'t>(
    lines: &mut impl Iterator<Item = (usize, &'t str)>,
) -> Result<Option<(&'t str, String)>, EnvFileError> {
    for (line, content) in lines.by_ref() {
        let content = content.trim_start_matches([' ', '\t']);
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let wrong = |what| EnvFileError::Line { line, what };
        let (name, value) = content.split_once('=').ok_or(wrong("missing '='"))?;
        if name.trim_end_matches([' ', '\t']).is_empty() {
            return Err(wrong("empty variable name"));
        }
        if name.ends_with([' ', '\t']) {
            return Err(wrong("whitespace before '=' is not allowed"));
        }
        if value.starts_with([' ', '\t']) {
            // To a shell this assigns nothing.
            return Ok(Some((name, String::new())));
        }
        let rest = value
            .strip_prefix('\'')
            .ok_or(wrong("value must be enclosed in single quotes"))?;
        return Ok(Some((name, quoted(rest, line, lines)?)));
    }
    Ok(None)
}

/// What is left of a text up to its closing quote, which may be some lines below.
fn quoted<'t>(
    first: &'t str,
    began: usize,
    lines: &mut impl Iterator<Item = (usize, &'t str)>,
) -> Result<String, EnvFileError> {
    let mut value = String::new();
    let (mut line, mut rest) = (began, first);
    loop {
        if let Some((inside, after)) = rest.split_once('\'') {
            value.push_str(inside);
            let after = after.trim_start_matches([' ', '\t']);
            if !after.is_empty() && !after.starts_with('#') {
                let what = "unexpected content after closing quote";
                return Err(EnvFileError::Line { line, what });
            }
            return Ok(value);
        }
        value.push_str(rest);
        value.push('\n');
        (line, rest) = lines.next().ok_or(EnvFileError::Unclosed(began))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One variable of a file.
    fn one(text: &str, key: &str) -> Result<Option<String>, EnvFileError> {
        let mut found = lookup(text, &BTreeSet::from([key.to_owned()]), 64);
        match (found.values.remove(key).flatten(), found.broken) {
            (None, Some(error)) => Err(error),
            (value, _) => Ok(value),
        }
    }

    #[test]
    fn values_are_what_a_shell_would_assign() {
        let text =
            "# comment\n\n  A='one two' # more\nB='#not a comment'\nC='first\nsecond'\nD= 'x'\nE=''\nA='again'\n";
        let value = |key: &str| one(text, key).expect("right").unwrap_or("-".into());
        assert_eq!(
            ["A", "B", "C", "D", "E", "F"].map(value),
            ["one two", "#not a comment", "first\nsecond", "", "", "-"]
        );
    }

    #[test]
    fn what_a_shell_would_read_otherwise_is_refused() {
        let wrong = |text: &str| one(text, "Z").map_err(|error| error.to_string());
        let at = |line: usize, what: &str| {
            Err::<Option<String>, _>(format!("invalid environment variable format at line {line}: {what}"))
        };
        assert_eq!(wrong("\nA"), at(2, "missing '='"));
        assert_eq!(wrong("='x'"), at(1, "empty variable name"));
        assert_eq!(wrong("A ='x'"), at(1, "whitespace before '=' is not allowed"));
        assert_eq!(wrong("A=x"), at(1, "value must be enclosed in single quotes"));
        assert_eq!(wrong("A='x'y"), at(1, "unexpected content after closing quote"));
        assert_eq!(wrong("A='x\n'y"), at(2, "unexpected content after closing quote"));
        let unclosed = "invalid environment variable format starting at line 2: unclosed single quote";
        assert_eq!(wrong("#\nA='x\ny"), Err(unclosed.to_owned()));
        assert_eq!(
            one("Z='1'\nnonsense", "Z"),
            Ok(Some("1".into())),
            "what follows is not read"
        );
    }

    #[test]
    fn many_variables_are_found_in_one_pass() {
        let wanted = ["A", "B", "C", "D"].map(str::to_owned).into();
        let found = lookup("B='1'\nA='12345'\nB='2'\nD= 'x'\nwrong\nC='3'", &wanted, 4);
        let values: Vec<_> = found
            .values
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_deref()))
            .collect();
        assert_eq!(values, [("A", None), ("B", Some("1")), ("D", Some(""))]);
        assert!(found.broken.is_some(), "before C");
    }
}
