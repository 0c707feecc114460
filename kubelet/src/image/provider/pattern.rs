//! Which images a plugin is asked about: `matchImages` (KEP-2133). Pure.

use crate::image::credentials::label_fits;

/// A host whose labels may hold `*`, perhaps with a port and the beginning of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    labels: Vec<String>,
    port: String,
    path: String,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// It is no URL without its scheme; told in Go's words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: String| Err(format!("parse {:?}: {why}", format!("https://{text}")));
        if text.chars().any(|c| c.is_ascii_control()) {
            return wrong("net/url: invalid control character in URL".to_owned());
        }
        if let Some(escape) = bad_escape(text) {
            return wrong(format!("invalid URL escape {escape:?}"));
        }
        let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
        if let Some(odd) = host.chars().find(|c| " \"<>\\^`{|}".contains(*c)) {
            return wrong(format!("invalid character {:?} in host name", odd.to_string()));
        }
        let (name, port) = host_and_port(host);
        if !port.bytes().all(|c| c.is_ascii_digit()) {
            return wrong(format!("invalid port {:?} after host", format!(":{port}")));
        }
        Ok(Self {
            labels: name.split('.').map(str::to_owned).collect(),
            port: port.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Whether an image's repository (host and path, without tag and digest) fits: the port is the same, every label of the host
    /// fits, and the path begins as the pattern's does.
    pub fn fits(&self, repository: &str) -> bool {
        let (host, path) = repository.split_at(repository.find('/').unwrap_or(repository.len()));
        let (name, port) = host_and_port(host);
        let labels: Vec<&str> = name.split('.').collect();
        port == self.port
            && labels.len() == self.labels.len()
            && path.starts_with(&self.path)
            && self
                .labels
                .iter()
                .zip(labels)
                .all(|(glob, label)| label_fits(glob, label))
    }
}

fn host_and_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, ""),
    }
}

/// The first percent sign two hexadecimal digits do not follow, with what follows instead.
fn bad_escape(text: &str) -> Option<String> {
    text.match_indices('%').find_map(|(at, _)| {
        let escape: String = text[at..].chars().take(3).collect();
        let is_sound = escape.len() == 3 && escape[1..].bytes().all(|c| c.is_ascii_hexdigit());
        (!is_sound).then_some(escape)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_by_host_port_and_path() {
        for (pattern, repository, fits) in [
            ("registry.io", "registry.io/app", true),
            ("registry.io", "registry.io:5000/app", false),
            ("registry.io:5000", "registry.io:5000/app", true),
            ("*.registry.io", "a.registry.io/app", true),
            ("*.registry.io", "registry.io/app", false),
            ("*.registry.io", "a.b.registry.io/app", false),
            ("*.*.registry.io", "a.b.registry.io/app", true),
            ("app*.k8s.io", "app-eu.k8s.io/x", true),
            ("*.dkr.ecr.*.amazonaws.com", "1.dkr.ecr.eu-1.amazonaws.com/x", true),
            ("*", "registry.io/app", false),
            ("*", "localhost/app", true),
            ("registry.io/team", "registry.io/team/app", true),
            ("registry.io/team", "registry.io/teams/app", true),
            ("registry.io/team/", "registry.io/teams/app", false),
            ("registry.io/*/app", "registry.io/team/app", false),
            ("docker.io", "docker.io/library/nginx", true),
            ("[::1]:5000", "[::1]:5000/app", true),
            ("", "registry.io/app", false),
        ] {
            let parsed = Pattern::parse(pattern).expect("sound");
            assert_eq!(parsed.fits(repository), fits, "{pattern} {repository}");
        }
    }

    #[test]
    fn what_is_no_url_is_refused_in_gos_words() {
        for (pattern, why) in [
            ("%invalid%", r#"parse "https://%invalid%": invalid URL escape "%in""#),
            ("r.io%2", r#"parse "https://r.io%2": invalid URL escape "%2""#),
            ("r.io:x", r#"parse "https://r.io:x": invalid port ":x" after host"#),
            ("r io", r#"parse "https://r io": invalid character " " in host name"#),
            (
                "r\u{7f}",
                "parse \"https://r\\u{7f}\": net/url: invalid control character in URL",
            ),
        ] {
            assert_eq!(Pattern::parse(pattern), Err(why.to_owned()));
        }
    }
}
