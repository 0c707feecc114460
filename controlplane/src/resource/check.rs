//! What the rules of several kinds share: how a wrong value, a list that is too long or an item that stands twice is told, and
//! formats of single values that are no names. Pure.
//!
//! Owns no rule of a kind. A list is gone through once, whatever is in it: who sends it decides how long it is.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::field::invalid_each;
use super::name::{dns1123_label, dns1123_subdomain, path_segment};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};

const NO_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NO_RANGE: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
/// Longest name of a CSI or device driver, in bytes.
const DRIVER_BYTES: usize = 63;

/// `Invalid value` for each of the problems of a text.
pub(super) fn invalid(errors: &mut FieldErrors, path: &str, text: &str, problems: Vec<String>) {
    invalid_each(errors, path, &Value::from(text), problems);
}

/// `Required value` of an empty text, otherwise what `check` says about it.
pub(super) fn required(errors: &mut FieldErrors, path: &str, text: &str, check: fn(&str) -> Vec<String>) {
    if text.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        invalid(errors, path, text, check(text));
    }
}

/// `Unsupported value` unless it is one of `supported`; an empty one is none.
pub(super) fn supported(errors: &mut FieldErrors, path: &str, value: &str, supported: &[&str]) {
    if !supported.contains(&value) {
        errors.push(FieldError::not_supported(path, value, supported));
    }
}

/// Whether there are more than `most`, which is told.
pub(super) fn too_many(errors: &mut FieldErrors, path: &str, count: usize, most: usize) -> bool {
    if count > most {
        errors.push(FieldError::new(
            path,
            FieldErrorKind::TooMany,
            Value::from(count),
            format!("must have at most {most} items"),
        ));
    }
    count > most
}

/// Whether there are more than `most` bytes, which is told.
pub(super) fn too_long(errors: &mut FieldErrors, path: &str, bytes: usize, most: usize) -> bool {
    if bytes > most {
        errors.push(FieldError::new(
            path,
            FieldErrorKind::TooLong,
            Value::Null,
            format!("may not be more than {most} bytes"),
        ));
    }
    bytes > most
}

/// `Duplicate value` of an item.
pub(super) fn duplicate(errors: &mut FieldErrors, path: impl Into<String>, value: impl Into<Value>) {
    errors.push(FieldError::new(path, FieldErrorKind::Duplicate, value.into(), ""));
}

/// Tells each item of a list that stood before; `key` is what must differ, `child` how its path ends.
pub(super) fn unique<'v>(
    errors: &mut FieldErrors,
    items: &'v [Value],
    path: &str,
    child: &str,
    key: impl Fn(&'v Value) -> &'v str,
) {
    let mut seen = BTreeSet::new();
    for (i, item) in items.iter().enumerate() {
        if !seen.insert(key(item)) {
            duplicate(errors, format!("{path}[{i}]{child}"), key(item));
        }
    }
}

/// A text of an item that is nothing but a text.
pub(super) fn itself(item: &Value) -> &str {
    item.as_str().unwrap_or("")
}

/// Whether the list has the text.
pub(super) fn has(items: &[Value], text: &str) -> bool {
    items.iter().any(|item| item == text)
}

/// The address, if it is one.
pub(super) fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| NO_ADDRESS.to_owned())
}

/// An address as a name: in its one spelling.
pub(super) fn canonical_address(text: &str) -> Vec<String> {
    let problem = match address(text) {
        Err(problem) => problem,
        Ok(IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_some() => "must not be an IPv4-mapped IPv6 address".to_owned(),
        Ok(ip) if ip.to_string() != text => format!("must be in canonical form (\"{ip}\")"),
        Ok(_) => return Vec::new(),
    };
    vec![problem]
}

/// An address that others can reach: not this host's own, not a link's, not none.
pub(super) fn endpoint_address(errors: &mut FieldErrors, path: &str, ip: IpAddr, text: &str) {
    // What is wrong with an IPv4 address is wrong with it inside an IPv6 one.
    let ip = ip.to_canonical();
    let (unicast, multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets().starts_with(&[224, 0, 0])),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] & 0xff0f == 0xff02),
    };
    let problem = if ip.is_unspecified() {
        format!("may not be unspecified ({text})")
    } else if ip.is_loopback() {
        "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()
    } else if unicast {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()
    } else if multicast {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()
    } else {
        return;
    };
    errors.push(FieldError::invalid(path, text, problem));
}

/// A range of addresses: its first address, whose bits beyond the prefix are zero, and the length of the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    first: IpAddr,
    given: IpAddr,
    length: u8,
}

impl Range {
    /// The range, if it is one; bits beyond the prefix are let pass.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (ip, length) = text.split_once('/').ok_or(NO_RANGE)?;
        let given: IpAddr = ip.parse().map_err(|_| NO_RANGE)?;
        let length: u8 = length.parse().map_err(|_| NO_RANGE)?;
        let first = masked(given, length).ok_or(NO_RANGE)?;
        Ok(Self { first, given, length })
    }

    /// Whether `part` lies in this range and is smaller.
    pub(super) fn strictly_contains(&self, part: &Self) -> bool {
        self.length < part.length
            && self.first.is_ipv4() == part.first.is_ipv4()
            && masked(part.first, self.length) == Some(self.first)
    }

    /// Whether it is one of IPv4.
    pub(super) fn is_ipv4(&self) -> bool {
        self.first.is_ipv4()
    }
}

fn masked(ip: IpAddr, length: u8) -> Option<IpAddr> {
    let length = u32::from(length);
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32_u32.checked_sub(length)?).unwrap_or(0);
            Some(IpAddr::V4((u32::from(ip) & mask).into()))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128_u32.checked_sub(length)?).unwrap_or(0);
            Some(IpAddr::V6((u128::from(ip) & mask).into()))
        }
    }
}

/// A range in its one spelling.
pub(super) fn canonical_range(text: &str) -> Vec<String> {
    let problem = match Range::parse(text) {
        Err(problem) => problem,
        Ok(range) if matches!(range.given, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some()) => {
            "must not have an IPv4-mapped IPv6 address".to_owned()
        }
        Ok(range) if range.given != range.first => "must not have bits set beyond the prefix length".to_owned(),
        Ok(Range { first, length, .. }) if format!("{first}/{length}") != text => {
            format!("must be in canonical form (\"{first}/{length}\")")
        }
        Ok(_) => return Vec::new(),
    };
    vec![problem]
}

/// A name of at least `least` parts, each a DNS label, as what it names is called by others.
pub(super) fn qualified(errors: &mut FieldErrors, path: &str, name: &str, least: usize) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let problems = dns1123_subdomain(name);
    if !problems.is_empty() {
        errors.push(FieldError::invalid(path, name, problems.join(",")));
    } else if name.split('.').count() < least {
        let number = if least == 2 { "two" } else { "three" };
        let why = format!("should be a domain with at least {number} segments separated by dots");
        errors.push(FieldError::invalid(path, name, why));
    }
}

/// A host's name as a client asks for it; a dot may end it.
pub(super) fn fully_qualified_domain(errors: &mut FieldErrors, path: &str, name: &str) {
    let before = errors.len();
    let name = name.strip_suffix('.').unwrap_or(name);
    qualified(errors, path, name, 2);
    if errors.len() > before {
        return;
    }
    if let Some((label, problems)) = name
        .split('.')
        .map(|label| (label, dns1123_label(label)))
        .find(|(_, problems)| !problems.is_empty())
    {
        errors.push(FieldError::invalid(path, label, problems.join(",")));
    }
}

/// A domain all of whose hosts are meant: `*.` and a DNS subdomain.
pub(super) fn wildcard_domain(text: &str) -> Vec<String> {
    const WHY: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
                       consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. \
                       '*.example.com', regex used for validation is \
                       '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    match text.strip_prefix("*.") {
        Some(rest) if text.len() <= 253 && dns1123_subdomain(rest).is_empty() => Vec::new(),
        _ if text.len() > 253 => vec!["must be no more than 253 characters".to_owned(), WHY.to_owned()],
        _ => vec![WHY.to_owned()],
    }
}

/// A domain, or all hosts of one.
pub(super) fn host(text: &str) -> Vec<String> {
    if text.contains('*') {
        wildcard_domain(text)
    } else {
        dns1123_subdomain(text)
    }
}

/// A name that can stand in a URL's path.
pub(super) fn segment(text: &str) -> Vec<String> {
    path_segment(text, false)
}

/// The name of a CSI or device driver.
pub(super) fn driver_name(errors: &mut FieldErrors, path: &str, name: &str) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    too_long(errors, path, name.len(), DRIVER_BYTES);
    invalid(errors, path, name, dns1123_subdomain(&name.to_lowercase()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_addresses_have_one_spelling() {
        for (text, problem) in [
            ("10.0.0.0/16", ""),
            ("2001:db8::/64", ""),
            ("0.0.0.0/0", ""),
            ("10.0.0.0/33", NO_RANGE),
            ("10.0.0.0", NO_RANGE),
            ("10.0.0.1/16", "must not have bits set beyond the prefix length"),
            ("::ffff:10.0.0.0/112", "must not have an IPv4-mapped IPv6 address"),
            ("2001:DB8::/64", "must be in canonical form (\"2001:db8::/64\")"),
        ] {
            assert_eq!(canonical_range(text).concat(), problem, "{text}");
        }
        for (text, problem) in [
            ("10.0.0.1", ""),
            ("x", NO_ADDRESS),
            ("::ffff:10.0.0.1", "must not be an IPv4-mapped IPv6 address"),
            ("2001:db8:0::1", "must be in canonical form (\"2001:db8::1\")"),
        ] {
            assert_eq!(canonical_address(text).concat(), problem, "{text}");
        }
    }

    #[test]
    fn a_part_of_a_range_is_smaller_and_within() {
        for (whole, part, within) in [
            ("10.0.0.0/8", "10.1.0.0/16", true),
            ("10.0.0.0/8", "10.0.0.0/8", false),
            ("10.0.0.0/8", "11.0.0.0/16", false),
            ("0.0.0.0/0", "11.0.0.0/16", true),
            ("0.0.0.0/0", "2001:db8::/64", false),
        ] {
            let range = |text| Range::parse(text).expect("a range");
            assert_eq!(range(whole).strictly_contains(&range(part)), within, "{whole} {part}");
        }
    }

    #[test]
    fn addresses_that_only_mean_something_here_are_no_endpoints() {
        for (text, problem) in [
            ("10.0.0.1", ""),
            ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
            ("::1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
            (
                "fe80::1",
                "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
            ),
            (
                "224.0.0.9",
                "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
            ),
        ] {
            let mut errors = FieldErrors::default();
            endpoint_address(&mut errors, "a", address(text).expect("an address"), text);
            let told: String = errors.iter().map(|error| error.detail.as_str()).collect();
            assert_eq!(told, problem);
        }
    }

    #[test]
    fn domains() {
        assert_eq!(host("*.a.b"), [""; 0]);
        for bad in ["*", "a.*", "*.A", "A"] {
            assert_eq!(host(bad).len(), 1, "{bad}");
        }
        let told = |name: &str| {
            let mut errors = FieldErrors::default();
            fully_qualified_domain(&mut errors, "a", name);
            errors.iter().map(|error| error.body()).collect::<String>()
        };
        assert_eq!(told("a.b."), "");
        assert_eq!(
            told("a"),
            "Invalid value: \"a\": should be a domain with at least two segments separated by dots"
        );
        assert!(told(&format!("{}.b", "a".repeat(64))).contains("must be no more than 63"));
    }
}
