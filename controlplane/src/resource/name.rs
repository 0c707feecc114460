//! Rules for names, label keys and values, with upstream's messages. Pure.
//!
//! Every check returns the list of things wrong with its argument, empty for none, as upstream's validators do. The rules
//! that others need too are `proto::api::names`'.

use proto::api::names;

use super::check::canonical_address;

/// Longest DNS subdomain.
const SUBDOMAIN_MAX: usize = 253;

/// Which rule a kind's names obey (control-plane contract §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// DNS-1123 subdomain, at most 253 characters.
    Subdomain,
    /// DNS-1123 label, at most 63 characters.
    Label,
    /// DNS-1035 label (starts with a letter), or with relaxed Service names a DNS-1123 label.
    ServiceLabel,
    /// Anything that can stand in a path.
    PathSegment,
    /// DNS-1123 subdomain of at most 52 characters, so that a Job name made from it fits.
    CronJob,
    /// An IP address in its one spelling.
    Address,
}

impl NameRule {
    /// What is wrong with `name`; with `prefix`, as a `generateName` whose last character will be followed by more.
    pub fn check(self, name: &str, prefix: bool) -> Vec<String> {
        let masked = if prefix {
            mask_trailing_dash(name)
        } else {
            name.to_owned()
        };
        match self {
            Self::Subdomain => dns1123_subdomain(&masked),
            Self::Label | Self::ServiceLabel => dns1123_label(&masked),
            Self::PathSegment => path_segment(name, prefix),
            Self::Address => canonical_address(name),
            Self::CronJob => {
                let mut problems = dns1123_subdomain(&masked);
                if name.len() > 52 {
                    problems.push("must be no more than 52 characters".to_owned());
                }
                problems
            }
        }
    }
}

fn mask_trailing_dash(name: &str) -> String {
    match name.strip_suffix('-') {
        Some(head) if name.len() > 1 => format!("{head}a"),
        _ => name.to_owned(),
    }
}

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn regex_error(message: &str, regex: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}'")).collect();
    // Upstream puts a comma after each example, and " or " between them.
    format!(
        "{message} (e.g. {}, regex used for validation is '{regex}')",
        examples.join(",  or ")
    )
}

fn listed(problem: Option<String>) -> Vec<String> {
    problem.into_iter().collect()
}

/// DNS-1123 label.
pub fn dns1123_label(text: &str) -> Vec<String> {
    listed(names::dns1123_label_error(text))
}

/// DNS-1035 label.
pub fn dns1035_label(text: &str) -> Vec<String> {
    listed(names::dns1035_label_error(text))
}

/// DNS-1123 subdomain.
pub fn dns1123_subdomain(text: &str) -> Vec<String> {
    listed(names::dns1123_subdomain_error(text))
}

/// A segment of a URL path.
pub fn path_segment(text: &str, prefix: bool) -> Vec<String> {
    if !prefix {
        for illegal in [".", ".."] {
            if text == illegal {
                return vec![format!("may not be '{illegal}'")];
            }
        }
    }
    ["/", "%"]
        .iter()
        .filter(|illegal| text.contains(**illegal))
        .map(|illegal| format!("may not contain '{illegal}'"))
        .collect()
}

/// A qualified name: `[prefix/]name`, as in label keys.
pub fn qualified_name(text: &str) -> Vec<String> {
    listed(names::qualified_name_error(text))
}

/// A label value: empty, or a name part of at most 63 characters.
pub fn label_value(text: &str) -> Vec<String> {
    listed(names::label_value_error(text))
}

/// A named port: letters, digits and dashes, at least one letter, at most 15 characters.
pub fn port_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 15 {
        problems.push(too_long(15));
    }
    if text.is_empty() || !text.bytes().all(|byte| is_alphanumeric(byte) || byte == b'-') {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        problems.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        problems.push("must not begin or end with a hyphen".to_owned());
    }
    problems
}

/// A port number.
pub fn port_number(port: i64) -> Vec<String> {
    if (1..=65535).contains(&port) {
        Vec::new()
    } else {
        vec!["must be between 1 and 65535, inclusive".to_owned()]
    }
}

/// The name of an environment variable: any printable ASCII character but `=` (relaxed rule of v1.34 and later).
pub fn env_var_name(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["environment variable name must not be empty".to_owned()];
    }
    if text.bytes().all(|byte| (0x20..=0x7e).contains(&byte) && byte != b'=') {
        Vec::new()
    } else {
        vec![regex_error(
            "a valid environment variable name must consist only of printable ASCII characters other than '='",
            "[ -<>-~]+",
            &["my.env-name", "MY_ENV.NAME"],
        )]
    }
}

/// A key of a ConfigMap or Secret.
pub fn config_key(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        problems.push(too_long(SUBDOMAIN_MAX));
    }
    if text.is_empty()
        || !text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    {
        problems.push(regex_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    if text == "." {
        problems.push("must not be '.'".to_owned());
    } else if text == ".." {
        problems.push("must not be '..'".to_owned());
    } else if text.starts_with("..") {
        problems.push("must not start with '..'".to_owned());
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_rule() {
        let long = "a".repeat(254);
        for (rule, name, prefix, good) in [
            (NameRule::Subdomain, "web-1.example", false, true),
            (NameRule::Subdomain, "Web", false, false),
            (NameRule::Subdomain, "web-", false, false),
            (NameRule::Subdomain, "web-", true, true),
            (NameRule::Subdomain, "-", true, false),
            (NameRule::Subdomain, "a..b", false, false),
            (NameRule::Subdomain, "", false, false),
            (NameRule::Subdomain, long.as_str(), false, false),
            (NameRule::Label, "a.b", false, false),
            (NameRule::Label, "0a", false, true),
            (NameRule::ServiceLabel, "0a", false, true),
            (NameRule::PathSegment, "system:node", false, true),
            (NameRule::PathSegment, "..", false, false),
            (NameRule::PathSegment, "a/b", false, false),
            (
                NameRule::CronJob,
                "a-name-of-more-than-fifty-two-characters-which-is-too-l",
                false,
                false,
            ),
        ] {
            assert_eq!(rule.check(name, prefix).is_empty(), good, "{rule:?} {name} {prefix}");
        }
    }

    #[test]
    fn messages_are_upstreams() {
        assert_eq!(
            config_key("a b"),
            vec![
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
            ]
        );
    }

    #[test]
    fn qualified_names() {
        for (text, good) in [
            ("app", true),
            ("example.com/app", true),
            ("/app", false),
            ("a/b/c", false),
            ("Example.com/app", false),
            ("app_", false),
            ("", false),
        ] {
            assert_eq!(qualified_name(text).is_empty(), good, "{text}");
        }
    }

    #[test]
    fn port_names() {
        for (text, good) in [
            ("http", true),
            ("80", false),
            ("a--b", false),
            ("-a", false),
            ("much-too-long-name", false),
            ("Http", false),
        ] {
            assert_eq!(port_name(text).is_empty(), good, "{text}");
        }
    }
}
