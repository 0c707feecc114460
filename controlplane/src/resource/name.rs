//! Rules for names, label keys and values, with upstream's messages. Pure.
//!
//! Every check returns the list of things wrong with its argument, empty for none, as upstream's validators do.

/// Longest DNS subdomain.
const SUBDOMAIN_MAX: usize = 253;
/// Longest DNS label.
const LABEL_MAX: usize = 63;

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

fn is_dns1123_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            is_alphanumeric(first)
                && is_alphanumeric(last)
                && bytes.iter().all(|&byte| is_alphanumeric(byte) || byte == b'-')
        }
        _ => false,
    }
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn regex_error(message: &str, regex: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}'")).collect();
    if examples.is_empty() {
        return format!("{message} (regex used for validation is '{regex}')");
    }
    format!(
        "{message} (e.g. {}, regex used for validation is '{regex}')",
        examples.join(" or ")
    )
}

/// DNS-1123 label.
pub fn dns1123_label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > LABEL_MAX {
        problems.push(too_long(LABEL_MAX));
    }
    if !is_dns1123_label(text) {
        let subdomain = !text.is_empty() && text.split('.').all(is_dns1123_label);
        if subdomain {
            problems.push("must not contain dots".to_owned());
        } else {
            problems.push(regex_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character",
                "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
                &["my-name", "123-abc"],
            ));
        }
    }
    problems
}

/// DNS-1123 subdomain.
pub fn dns1123_subdomain(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        problems.push(too_long(SUBDOMAIN_MAX));
    }
    if !text.split('.').all(is_dns1123_label) {
        problems.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    problems
}

/// DNS-1035 label: as DNS-1123, but starting with a letter.
pub fn dns1035_label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > LABEL_MAX {
        problems.push(too_long(LABEL_MAX));
    }
    if !is_dns1123_label(text) || !text.as_bytes()[0].is_ascii_lowercase() {
        problems.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    problems
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

fn is_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            first.is_ascii_alphanumeric()
                && last.is_ascii_alphanumeric()
                && bytes
                    .iter()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        }
        _ => false,
    }
}

const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character";
const QUALIFIED_REGEX: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// A qualified name: `[prefix/]name`, as in label keys.
pub fn qualified_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(
                    dns1123_subdomain(prefix)
                        .into_iter()
                        .map(|problem| format!("prefix part {problem}")),
                );
            }
            name
        }
        _ => {
            let text = regex_error(
                &format!("a qualified name {QUALIFIED}"),
                QUALIFIED_REGEX,
                &["MyName", "my.name", "123-abc"],
            );
            problems.push(format!(
                "{text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return problems;
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        problems.push(format!("name part {}", too_long(LABEL_MAX)));
    }
    if !is_name_part(name) {
        problems.push(format!(
            "name part {}",
            regex_error(QUALIFIED, QUALIFIED_REGEX, &["MyName", "my.name", "123-abc"])
        ));
    }
    problems
}

/// A label value: empty, or a name part of at most 63 characters.
pub fn label_value(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > LABEL_MAX {
        problems.push(too_long(LABEL_MAX));
    }
    if !text.is_empty() && !is_name_part(text) {
        problems.push(regex_error(
            &format!(
                "a valid label must be an empty string or consist of alphanumeric characters, {}",
                &QUALIFIED["must consist of alphanumeric characters, ".len()..]
            ),
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    problems
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
            dns1123_subdomain("A_b"),
            vec![
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                 start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert_eq!(
            label_value("a b"),
            vec![
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                 start and end with an alphanumeric character (e.g. 'MyValue' or 'my_value' or '12345', regex used for \
                 validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ]
        );
        assert_eq!(dns1123_label("a.b"), vec!["must not contain dots"]);
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
