//! Image references: the default tag, the registry. Pure.

/// The reference is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid reference format")]
pub struct InvalidReference;

/// The reference with `:latest` if it has neither tag nor digest.
pub fn with_tag(image: &str) -> Result<String, InvalidReference> {
    let (name, tag, digest) = split(image);
    if !is_name(name) || tag.is_some_and(|tag| !is_tag(tag)) || digest.is_some_and(|digest| !is_digest(digest)) {
        return Err(InvalidReference);
    }
    Ok(if tag.is_none() && digest.is_none() {
        format!("{image}:latest")
    } else {
        image.to_owned()
    })
}

/// Whether the reference means the tag `latest`.
pub fn is_latest(image: &str) -> bool {
    let (_, tag, digest) = split(image);
    digest.is_none() && tag.is_none_or(|tag| tag == "latest")
}

/// The reference without tag and digest, otherwise as it is written.
pub fn name(image: &str) -> &str {
    split(image).0
}

/// The registry's host and the repository in it, with Docker's defaults.
pub fn registry_and_repository(image: &str) -> (String, String) {
    let (name, _, _) = split(image);
    match name.split_once('/') {
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => (
            if host == "docker.io" { "index.docker.io" } else { host }.to_owned(),
            rest.to_owned(),
        ),
        Some(_) => ("index.docker.io".to_owned(), name.to_owned()),
        None => ("index.docker.io".to_owned(), format!("library/{name}")),
    }
}

fn split(image: &str) -> (&str, Option<&str>, Option<&str>) {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    // A colon after the last slash begins a tag; one before it, a port.
    let slash = rest.rfind('/').map_or(0, |at| at + 1);
    match rest[slash..].find(':') {
        Some(colon) => (&rest[..slash + colon], Some(&rest[slash + colon + 1..]), digest),
        None => (rest, None, digest),
    }
}

fn is_name(name: &str) -> bool {
    let mut parts = name.split('/').peekable();
    let first = parts.peek().copied().unwrap_or_default();
    let has_host = name.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    if has_host {
        parts.next();
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
        if !first.chars().all(valid) {
            return false;
        }
    }
    let component = |part: &str| {
        let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.starts_with(edge) && part.ends_with(edge) && part.chars().all(|c| edge(c) || matches!(c, '.' | '_' | '-'))
    };
    parts.all(component)
}

fn is_tag(tag: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (1..=128).contains(&tag.len()) && tag.starts_with(word) && tag.chars().all(|c| word(c) || matches!(c, '.' | '-'))
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, hex)| {
        !algorithm.is_empty() && hex.len() >= 32 && hex.chars().all(|c| c.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_tag_goes_where_none_is() {
        let digest = format!("nginx@sha256:{}", "a".repeat(64));
        let cases = [
            ("nginx", Ok("nginx:latest".to_owned())),
            ("nginx:1.27", Ok("nginx:1.27".to_owned())),
            ("host:5000/a/b", Ok("host:5000/a/b:latest".to_owned())),
            (
                "registry.k8s.io/pause:3.10",
                Ok("registry.k8s.io/pause:3.10".to_owned()),
            ),
            (digest.as_str(), Ok(digest.clone())),
            ("", Err(InvalidReference)),
            ("Nginx", Err(InvalidReference)),
            ("nginx:", Err(InvalidReference)),
            ("nginx::1", Err(InvalidReference)),
            ("a b", Err(InvalidReference)),
            ("nginx@sha256:xyz", Err(InvalidReference)),
            ("/nginx", Err(InvalidReference)),
        ];
        for (image, expected) in cases {
            assert_eq!(with_tag(image), expected, "{image:?}");
        }
    }

    #[test]
    fn registries_have_dockers_defaults() {
        let read = |image| {
            let (host, repository) = registry_and_repository(image);
            format!("{host} {repository}")
        };
        assert_eq!(read("nginx"), "index.docker.io library/nginx");
        assert_eq!(read("docker.io/library/nginx:1"), "index.docker.io library/nginx");
        assert_eq!(read("me/app"), "index.docker.io me/app");
        assert_eq!(read("localhost:5000/app"), "localhost:5000 app");
        assert_eq!(read("ghcr.io/a/b@sha256:0"), "ghcr.io a/b");
    }
}
