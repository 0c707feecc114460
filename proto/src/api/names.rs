//! Name rules: DNS labels and subdomains, qualified names, label values, generated suffixes.

/// Characters of generated suffixes and template hashes: no vowels, nothing that reads like another character.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Longest name that `generateName` yields.
const MAX_GENERATED: usize = 63;
const SUFFIX: usize = 5;

/// Longest DNS label.
pub const LABEL_MAX: usize = 63;
/// Longest DNS subdomain.
pub const SUBDOMAIN_MAX: usize = 253;

/// Five characters from random bits.
pub fn random_suffix(mut random: u64) -> String {
    let letter = |_| {
        let index = usize::try_from(random % 27).expect("a remainder below 27");
        random /= 27;
        char::from(ALPHABET[index])
    };
    (0..SUFFIX).map(letter).collect()
}

/// The name `generateName: base` yields for the given random bits; a long base is cut so the result fits a DNS label.
pub fn generate_name(base: &str, random: u64) -> String {
    let mut end = base.len().min(MAX_GENERATED - SUFFIX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{}", &base[..end], random_suffix(random))
}

/// Maps each byte of `text` into the suffix alphabet (upstream's `SafeEncodeString`).
pub fn safe_encode(text: &str) -> String {
    text.bytes()
        .map(|b| char::from(ALPHABET[usize::from(b) % 27]))
        .collect()
}

fn inner(text: &str, first: fn(u8) -> bool, middle: fn(u8) -> bool, last: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let (Some(&head), Some(&tail)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    first(head) && last(tail) && bytes.iter().all(|&b| middle(b))
}

fn lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// Why `text` is no RFC 1123 label, in upstream's words; `None` when it is one.
pub fn dns1123_label_error(text: &str) -> Option<String> {
    if text.len() > LABEL_MAX {
        return Some(format!("must be no more than {LABEL_MAX} characters"));
    }
    let valid = inner(text, lower_alnum, |b| lower_alnum(b) || b == b'-', lower_alnum);
    (!valid).then(|| {
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
         alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            .to_owned()
    })
}

/// Why `text` is no RFC 1035 label, in upstream's words; `None` when it is one.
pub fn dns1035_label_error(text: &str) -> Option<String> {
    if text.len() > LABEL_MAX {
        return Some(format!("must be no more than {LABEL_MAX} characters"));
    }
    let valid = inner(
        text,
        |b| b.is_ascii_lowercase(),
        |b| lower_alnum(b) || b == b'-',
        lower_alnum,
    );
    (!valid).then(|| {
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end \
         with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
            .to_owned()
    })
}

/// Why `text` is no RFC 1123 subdomain, in upstream's words; `None` when it is one.
pub fn dns1123_subdomain_error(text: &str) -> Option<String> {
    if text.len() > SUBDOMAIN_MAX {
        return Some(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    let part = |part: &str| inner(part, lower_alnum, |b| lower_alnum(b) || b == b'-', lower_alnum);
    (!text.split('.').all(part)).then(|| {
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end \
         with an alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            .to_owned()
    })
}

fn name_part(text: &str) -> bool {
    let middle = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    inner(
        text,
        |b| b.is_ascii_alphanumeric(),
        middle,
        |b| b.is_ascii_alphanumeric(),
    )
}

/// Why `text` is no qualified name (`prefix/name` or `name`: label, annotation and finalizer keys); `None` when it is one.
pub fn qualified_name_error(text: &str) -> Option<String> {
    const RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                        character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                        '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let name = match text.split_once('/') {
        None => text,
        Some((_, rest)) if rest.contains('/') => {
            return Some(format!(
                "a qualified name {RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
        }
        Some(("", _)) => return Some("prefix part must be non-empty".to_owned()),
        Some((prefix, rest)) => {
            if let Some(error) = dns1123_subdomain_error(prefix) {
                return Some(format!("prefix part {error}"));
            }
            rest
        }
    };
    if name.is_empty() {
        return Some("name part must be non-empty".to_owned());
    }
    if name.len() > LABEL_MAX {
        return Some(format!("name part must be no more than {LABEL_MAX} characters"));
    }
    (!name_part(name)).then(|| format!("name part {RULE}"))
}

/// Why `text` is no label value, in upstream's words; `None` when it is one (the empty text is).
pub fn label_value_error(text: &str) -> Option<String> {
    if text.len() > LABEL_MAX {
        return Some(format!("must be no more than {LABEL_MAX} characters"));
    }
    (!text.is_empty() && !name_part(text)).then(|| {
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end \
         with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
         '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            .to_owned()
    })
}

/// How quotas name what is requested of a resource.
const REQUESTS: &str = "requests.";

/// Whether a resource is the project's own: without a prefix, or with one of Kubernetes.
pub fn is_native_resource(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a resource is another's, such as `example.com/gpu`: an extended one, which quotas can name, too (upstream's
/// `IsExtendedResourceName`).
pub fn is_extended_resource(name: &str) -> bool {
    let quota = || format!("{REQUESTS}{name}");
    !is_native_resource(name) && !name.starts_with(REQUESTS) && qualified_name_error(&quota()).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn labels() {
        for ok in ["a", "a-b", "1", "a1", &"x".repeat(63)] {
            assert_eq!(dns1123_label_error(ok), None, "{ok}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", &"x".repeat(64)] {
            assert!(dns1123_label_error(bad).is_some(), "{bad}");
        }
        assert!(dns1035_label_error("1a").is_some());
        assert_eq!(dns1035_label_error("a1"), None);
    }

    #[test]
    fn subdomains() {
        for ok in ["a", "a.b", "example.com", "1.2"] {
            assert_eq!(dns1123_subdomain_error(ok), None, "{ok}");
        }
        for bad in ["", ".", "a..b", "a.", "-a.b", "A.b", &"x".repeat(254)] {
            assert!(dns1123_subdomain_error(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn qualified_names_and_values() {
        for ok in ["a", "A_b.c-d", "example.com/Name"] {
            assert_eq!(qualified_name_error(ok), None, "{ok}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "_a", "EXAMPLE.com/a", &"x".repeat(64)] {
            assert!(qualified_name_error(bad).is_some(), "{bad}");
        }
        assert_eq!(label_value_error(""), None);
        assert_eq!(label_value_error("a.B_c-1"), None);
        assert!(label_value_error("a b").is_some());
        assert!(label_value_error("-a").is_some());
    }

    proptest! {
        #[test]
        fn generated_names_fit_a_label(base in "[a-z]([a-z0-9-]{0,80})", random: u64) {
            let name = generate_name(&base, random);
            prop_assert!(name.len() <= 63);
            prop_assert_eq!(dns1123_label_error(&name), None);
        }
    }

    #[test]
    fn extended_resources_are_others() {
        for (name, native, extended) in [
            ("cpu", true, false),
            ("hugepages-2Mi", true, false),
            ("kubernetes.io/batch", true, false),
            ("node.kubernetes.io/batch", true, false),
            ("example.com/gpu", false, true),
            ("requests.example.com/gpu", false, false),
            ("example.com/", false, false),
            ("exa mple.com/gpu", false, false),
        ] {
            assert_eq!(
                (is_native_resource(name), is_extended_resource(name)),
                (native, extended),
                "{name}"
            );
        }
        // The name quotas have for it would be too long.
        let long = "a".repeat(245);
        assert!(!is_extended_resource(&format!("{long}.com/gpu")));
    }
}
