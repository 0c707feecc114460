//! URLs in their parts, as Go's `net/url` reads them.

use std::collections::BTreeMap;

/// A URL in its parts.
#[derive(Debug, PartialEq)]
pub(in super::super) struct Url {
    pub(super) scheme: Box<str>,
    pub(super) host: Box<str>,
    /// With escapes where they must be.
    pub(super) path: Box<str>,
    pub(super) query: Box<str>,
}

/// What a percent sign may stand for, and which letters stand for themselves.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    User,
    Host,
    Zone,
    Path,
    Query,
}

/// Letters that need no escape anywhere.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)
}

/// A text with its escapes undone; `None` where they are wrong or a letter may not stand there.
fn unescaped(text: &str, place: Place) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes();
    while let Some((first, after)) = bytes.split_first() {
        bytes = after;
        match first {
            b'%' => {
                let (digits, after) = bytes.split_at_checked(2)?;
                let code = digits.iter().try_fold(0u8, |code, digit| {
                    let digit = char::from(*digit).to_digit(16)?;
                    Some(code << 4 | u8::try_from(digit).ok()?)
                })?;
                // In a host only what has no letter of its own is escaped.
                if place == Place::Host && code < 0x80 && code != b'%' {
                    return None;
                }
                out.push(code);
                bytes = after;
            }
            b'+' if place == Place::Query => out.push(b' '),
            other => {
                let is_host = matches!(place, Place::Host | Place::Zone);
                if is_host && other.is_ascii() && !is_plain(*other) && !b"!$&'()*+,;=:[]<>\"".contains(other) {
                    return None;
                }
                out.push(*other);
            }
        }
    }
    Some(out)
}

/// A path as it is asked for: as it was written if all of its letters may stand there, else escaped anew.
fn escaped(path: &str) -> Option<String> {
    let plain = unescaped(path, Place::Path)?;
    let may_stand = |byte: u8| is_plain(byte) || b"$&+,/:;=@!'()*[]%".contains(&byte);
    if path.bytes().all(may_stand) {
        return Some(path.to_owned());
    }
    let mut out = String::with_capacity(path.len());
    for byte in plain {
        match is_plain(byte) || b"$&+,/:;=@".contains(&byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    Some(out)
}

fn is_port(text: &str) -> bool {
    text.is_empty()
        || text
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|digit| digit.is_ascii_digit()))
}

/// A host with its port, its escapes undone.
fn host(text: &str) -> Option<String> {
    let bytes = match text.strip_prefix('[') {
        Some(_) => {
            let (name, port) = text.split_at(text.rfind(']')?);
            if !is_port(port.get(1..)?) {
                return None;
            }
            match name.find("%25") {
                Some(zone) => {
                    let (name, zone) = name.split_at(zone);
                    let parts = [(name, Place::Host), (zone, Place::Zone), (port, Place::Host)];
                    let parts: Option<Vec<_>> = parts.map(|(part, place)| unescaped(part, place)).into_iter().collect();
                    parts?.concat()
                }
                None => unescaped(text, Place::Host)?,
            }
        }
        None => {
            if text.rfind(':').is_some_and(|colon| !is_port(&text[colon..])) {
                return None;
            }
            unescaped(text, Place::Host)?
        }
    };
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Scheme and what comes after it.
fn scheme(text: &str) -> Option<(&str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let end = text.find(|c: char| !is_part(c));
    match end.and_then(|end| text.split_at_checked(end)) {
        Some(("", after)) if after.starts_with(':') => None,
        Some((own, after)) if after.starts_with(':') && own.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            Some((own, &after[1..]))
        }
        _ => Some(("", text)),
    }
}

/// A text that may be asked for: a whole URL, or an absolute path. What a request has is no fragment, so it is read twice, as
/// upstream does.
pub(super) fn parse(text: &str) -> Option<Url> {
    read(text, true)?;
    let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
    unescaped(fragment, Place::Path)?;
    read(text, false)
}

/// Whether a text is a URL that may be asked for.
pub(super) fn is_request(text: &str) -> bool {
    read(text, true).is_some()
}

fn read(text: &str, is_request: bool) -> Option<Url> {
    if text.bytes().any(|byte| byte.is_ascii_control()) || (text.is_empty() && is_request) {
        return None;
    }
    let (scheme, rest) = scheme(text)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let url = |host: &str, path: &str| {
        Some(Url {
            scheme: scheme.to_ascii_lowercase().into(),
            host: host.into(),
            path: escaped(path)?.into(),
            query: query.into(),
        })
    };
    if !rest.starts_with('/') {
        return match scheme {
            // What is no path is only for those who know the scheme.
            scheme if !scheme.is_empty() => url("", ""),
            _ if text == "*" || !is_request => Some(Url {
                scheme: "".into(),
                host: "".into(),
                path: rest.into(),
                query: query.into(),
            }),
            _ => None,
        };
    }
    let has_authority = !scheme.is_empty() || (!is_request && !rest.starts_with("///"));
    let Some(authority) = rest.strip_prefix("//").filter(|_| has_authority) else {
        return url("", rest);
    };
    let (authority, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
    let (user, name) = authority.rsplit_once('@').unwrap_or(("", authority));
    let may_stand = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !user.bytes().all(may_stand) {
        return None;
    }
    unescaped(user, Place::User)?;
    url(&host(name)?, path)
}

impl Url {
    /// Name and port; the name of an address of version 6 without its brackets.
    pub(super) fn name_and_port(&self) -> (&str, &str) {
        let (name, port) = match self.host.rfind(':').map(|colon| self.host.split_at(colon)) {
            Some((name, port)) if is_port(port) => (name, port.get(1..).unwrap_or_default()),
            _ => (&*self.host, ""),
        };
        let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        (inner.unwrap_or(name), port)
    }

    /// Keys and values of the query, without pairs that are none.
    pub(super) fn pairs(&self) -> BTreeMap<String, Vec<String>> {
        let plain = |text: &str| {
            let bytes = unescaped(text, Place::Query)?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let mut pairs: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in self
            .query
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';'))
        {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Some(key), Some(value)) = (plain(key), plain(value)) {
                pairs.entry(key).or_default().push(value);
            }
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_takes_is_a_url() {
        for (text, host, path) in [
            ("https://u:p@a.example:80/b?c=d#f", "a.example:80", "/b"),
            ("/a b", "", "/a%20b"),
            ("/[x]", "", "/[x]"),
            ("http://a/with space/", "a", "/with%20space/"),
            ("http://a?x y=z", "a", ""),
            ("mailto:x@y", "", ""),
            ("a:b", "", ""),
            ("http:", "", ""),
            ("*", "", "*"),
            ("//a/b", "a", "/b"),
            ("http://[::1%25eth0]:80", "[::1%eth0]:80", ""),
            ("https:://k/", "", ""),
            ("http://a<b>", "a<b>", ""),
            ("http://\u{e9}/%41", "\u{e9}", "/%41"),
        ] {
            let url = parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((&*url.host, &*url.path), (host, path), "{text}");
        }
        for text in [
            "",
            "a b",
            "a/b",
            ":b",
            "http://a b/",
            "http://[::1",
            "http://a:x/",
            "/%zz",
            "http://%41/",
            "/\n",
            "/a#%z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn hosts_have_ports_and_queries_have_pairs() {
        let url = parse("https://[::1]:80/?a=1;b=2&c=%20+&%zz=1&c=3&d").unwrap();
        assert_eq!(url.name_and_port(), ("::1", "80"));
        let pairs: Vec<_> = url.pairs().into_iter().collect();
        let wanted = [
            ("c".to_owned(), vec!["  ".to_owned(), "3".to_owned()]),
            ("d".to_owned(), vec![String::new()]),
        ];
        assert_eq!(pairs, wanted);
    }
}
