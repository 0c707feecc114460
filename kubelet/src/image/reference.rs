//! Image references: the grammar of `distribution/reference`, the default tag, the registry. Pure.
//!
//! Our own, checked against `oci-spec`'s parser by tests: that one compiles a regular expression at its first use, which takes
//! a tenth of a second and leaves 12 MB in use.

#[cfg(test)]
mod tests;

/// The most characters a repository may have, registry apart.
const REPOSITORY_MAX: usize = 255;
const TAG_MAX: usize = 128;
const DOCKER: &str = "docker.io";
/// The name under which logins for Docker's registry are kept.
const DOCKER_LOGIN: &str = "index.docker.io";
/// Digests there are, and how many hexadecimal digits each has.
const DIGESTS: &[(&str, usize)] = &[("sha256", 64), ("sha384", 96), ("sha512", 128)];
const DIGEST_DIGITS_MIN: usize = 32;

/// Why something is not a reference, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReference {
    /// It does not follow the grammar.
    #[error("invalid reference format")]
    Format,
    /// It would, if it had no capitals.
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    Uppercase(String),
    /// Its repository is too long.
    #[error("repository name must not be more than 255 characters")]
    NameTooLong,
    /// It looks like the id of an image.
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Identifier(String),
    /// Its digest has too many digits, or too few.
    #[error("invalid checksum digest length")]
    DigestLength,
    /// Its digest has digits in capitals.
    #[error("invalid checksum digest format")]
    DigestFormat,
    /// Nobody knows how its digest is computed.
    #[error("unsupported digest algorithm")]
    DigestAlgorithm,
}

/// The reference with `:latest` if it has neither tag nor digest.
///
/// # Errors
/// It is none.
pub fn with_tag(image: &str) -> Result<String, InvalidReference> {
    check(image)?;
    let (_, tag, digest) = split(image);
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

/// The registry's host and the repository in it, with Docker's defaults; the host as logins are kept for it.
pub fn registry_and_repository(image: &str) -> (String, String) {
    let (host, repository) = normalised(split(image).0);
    let host = if host == DOCKER { DOCKER_LOGIN } else { host };
    (host.to_owned(), repository)
}

/// The registry and the repository in it, without tag and digest: what plugins are asked about.
pub fn repository(image: &str) -> String {
    let (host, repository) = normalised(split(image).0);
    format!("{host}/{repository}")
}

/// The whole name as runtimes list it: registry, repository, and the digest or else the tag.
pub fn full(image: &str) -> String {
    let (_, tag, digest) = split(image);
    let repository = repository(image);
    match (digest, tag) {
        (Some(digest), _) => format!("{repository}@{digest}"),
        (None, tag) => format!("{repository}:{}", tag.unwrap_or("latest")),
    }
}

/// A name's registry and repository, Docker's where none is named.
fn normalised(name: &str) -> (&str, String) {
    let (host, path) = match name.split_once('/') {
        Some((first, rest)) if is_registry(first) => (first, rest),
        _ => (DOCKER, name),
    };
    let host = if host == DOCKER_LOGIN { DOCKER } else { host };
    match host == DOCKER && !path.contains('/') {
        true => (host, format!("library/{path}")),
        false => (host, path.to_owned()),
    }
}

/// Whether the first part of a name is a registry, not a part of the repository.
fn is_registry(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.contains(|c: char| c.is_ascii_uppercase())
}

/// Name, tag and digest.
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

fn check(image: &str) -> Result<(), InvalidReference> {
    if image.len() == 64 && image.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(InvalidReference::Identifier(image.to_owned()));
    }
    let (name, tag, digest) = split(image);
    let (host, repository) = normalised(name);
    if repository.chars().any(char::is_uppercase) {
        return Err(InvalidReference::Uppercase(repository));
    }
    // A registry that could not be one may still be the first part of a repository.
    if !(is_host(host) || is_component(host)) || !repository.split('/').all(is_component) {
        return Err(InvalidReference::Format);
    }
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err(InvalidReference::Format);
    }
    if repository.len() > REPOSITORY_MAX {
        return Err(InvalidReference::NameTooLong);
    }
    digest.map_or(Ok(()), check_digest)
}

/// A host name or an address, perhaps with a port.
fn is_host(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    if port.is_some_and(|port| port.is_empty() || !port.bytes().all(|c| c.is_ascii_digit())) {
        return false;
    }
    if let Some(address) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return !address.is_empty() && address.bytes().all(|c| c.is_ascii_hexdigit() || c == b':');
    }
    let edge = |c: char| c.is_ascii_alphanumeric();
    name.split('.')
        .all(|label| label.starts_with(edge) && label.ends_with(edge) && label.chars().all(|c| edge(c) || c == '-'))
}

/// Lower-case words, between them a dot, one underscore or two, or any number of dashes.
fn is_component(part: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut separators = part.split(word).filter(|separator| !separator.is_empty());
    let sound = |separator: &str| matches!(separator, "." | "_" | "__") || separator.chars().all(|c| c == '-');
    part.starts_with(word) && part.ends_with(word) && separators.all(sound)
}

fn is_tag(tag: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= TAG_MAX && tag.starts_with(word) && tag.chars().all(|c| word(c) || matches!(c, '.' | '-'))
}

fn check_digest(digest: &str) -> Result<(), InvalidReference> {
    let (algorithm, digits) = digest.split_once(':').ok_or(InvalidReference::Format)?;
    let named = algorithm.split(['-', '_', '+', '.']).all(|part| {
        part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.chars().all(|c| c.is_ascii_alphanumeric())
    });
    if !named || digits.len() < DIGEST_DIGITS_MIN || !digits.bytes().all(|c| c.is_ascii_hexdigit()) {
        return Err(InvalidReference::Format);
    }
    match DIGESTS.iter().find(|(known, _)| *known == algorithm) {
        None => Err(InvalidReference::DigestAlgorithm),
        Some((_, length)) if digits.len() != *length => Err(InvalidReference::DigestLength),
        Some(_) if digits.bytes().any(|c| c.is_ascii_uppercase()) => Err(InvalidReference::DigestFormat),
        Some(_) => Ok(()),
    }
}
