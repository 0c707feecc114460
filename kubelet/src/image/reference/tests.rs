//! References by hand, and beside `oci-spec`'s parser.

use super::*;
use oci_spec::distribution::{ParseError, Reference};
use proptest::prelude::*;

#[test]
fn the_default_tag_goes_where_none_is() {
    let digest = format!("nginx@sha256:{}", "a".repeat(64));
    let identifier = "a".repeat(64);
    let long = "a/".repeat(128);
    let cases = [
        ("nginx", Ok("nginx:latest".to_owned())),
        ("nginx:1.27", Ok("nginx:1.27".to_owned())),
        ("host:5000/a/b", Ok("host:5000/a/b:latest".to_owned())),
        ("[2001:db8::1]:5000/a", Ok("[2001:db8::1]:5000/a:latest".to_owned())),
        ("Registry/a", Ok("Registry/a:latest".to_owned())),
        ("foo_bar.com/a", Ok("foo_bar.com/a:latest".to_owned())),
        (
            "registry.k8s.io/pause:3.10",
            Ok("registry.k8s.io/pause:3.10".to_owned()),
        ),
        (digest.as_str(), Ok(digest.clone())),
        ("", Err(InvalidReference::Format)),
        ("Nginx", Err(InvalidReference::Uppercase("library/Nginx".into()))),
        ("r.io/A/b:1", Err(InvalidReference::Uppercase("A/b".into()))),
        ("nginx:", Err(InvalidReference::Format)),
        ("nginx::1", Err(InvalidReference::Format)),
        ("a b", Err(InvalidReference::Format)),
        ("a..b", Err(InvalidReference::Format)),
        ("a___b", Err(InvalidReference::Format)),
        ("nginx@sha256:xyz", Err(InvalidReference::Format)),
        ("/nginx", Err(InvalidReference::Format)),
        ("-host.io/a", Err(InvalidReference::Format)),
        (
            identifier.as_str(),
            Err(InvalidReference::Identifier(identifier.clone())),
        ),
        (
            &format!("nginx@md5:{}", "a".repeat(32)),
            Err(InvalidReference::DigestAlgorithm),
        ),
        (
            &format!("nginx@sha256:{}", "a".repeat(63)),
            Err(InvalidReference::DigestLength),
        ),
        (
            &format!("nginx@sha256:{}", "A".repeat(64)),
            Err(InvalidReference::DigestFormat),
        ),
        (&format!("r.io/{long}a"), Err(InvalidReference::NameTooLong)),
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
    assert_eq!(read("docker.io/nginx"), "index.docker.io library/nginx");
    assert_eq!(read("me/app"), "index.docker.io me/app");
    assert_eq!(read("localhost:5000/app"), "localhost:5000 app");
    assert_eq!(read("ghcr.io/a/b@sha256:0"), "ghcr.io a/b");
}

/// Whether `oci-spec` is known to differ: it takes ids of images, wants no capitals in registries without a dot, gives them
/// to Docker, and lets digests have them.
fn differs(image: &str) -> bool {
    let (name, _, digest) = split(image);
    let registry = name.split('/').next().unwrap_or_default();
    image.len() == 64
        || registry.contains(|c: char| c.is_ascii_uppercase())
        || digest.is_some_and(|digest| digest.contains(|c: char| c.is_ascii_uppercase()))
}

fn compare(image: &str) -> Result<(), TestCaseError> {
    if differs(image) {
        return Ok(());
    }
    let theirs: Result<Reference, ParseError> = image.parse();
    let theirs = match theirs {
        Ok(theirs) => theirs,
        Err(_) => {
            prop_assert!(check(image).is_err(), "{image:?} is none to them");
            return Ok(());
        }
    };
    prop_assert_eq!(check(image), Ok(()), "{:?} is one to them", image);
    let (name, tag, digest) = split(image);
    let (host, repository) = normalised(name);
    prop_assert_eq!((host, repository.as_str()), (theirs.registry(), theirs.repository()));
    prop_assert_eq!(digest, theirs.digest());
    let default = digest.is_none().then_some("latest");
    prop_assert_eq!(tag.or(default), theirs.tag());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_short_text_is_judged_as_by_the_reference_parser(image in "[a-cB0/.:_@-]{0,12}") {
        compare(&image)?;
    }

    #[test]
    fn what_looks_like_a_reference_is_read_as_by_the_reference_parser(
        host in "((localhost|docker\\.io|index\\.docker\\.io|[a-z]{1,3}(\\.[a-z0-9-]{1,3}){0,2})(:[0-9]{1,5})?/)?",
        path in "[a-z0-9]{1,3}([._-]{0,3}[a-z0-9]{1,2}){0,2}(/[a-z0-9_]{1,4}){0,2}",
        tag in "(:[A-Za-z0-9_.-]{0,6})?",
        digest in "(@(sha256|sha512|md5):([0-9a-f]{64}|[0-9a-f]{30,34}))?",
    ) {
        compare(&format!("{host}{path}{tag}{digest}"))?;
    }
}
