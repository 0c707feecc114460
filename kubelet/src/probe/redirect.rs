//! What the `Location` of a redirect means (RFC 3986, section 5), read as upstream's HTTP client reads it. Pure.

use http::uri::Authority;

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) https: bool,
    /// Without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
}

/// Where a redirect leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// To a path of the same server.
    Path(String),
    /// To a path of a server that is named.
    Server(Place, String),
    /// To what has no server.
    Nowhere,
}

/// Reads a location against the path it was got from, which begins with a slash.
pub(super) fn target(https: bool, own: &str, location: &[u8]) -> Result<Target, &'static str> {
    if location.iter().any(u8::is_ascii_control) {
        return Err("invalid control character in URL");
    }
    let text = escaped(location);
    let text = text.split('#').next().unwrap_or_default();
    let (scheme, rest) = split_scheme(text)?;
    let https = scheme.map_or(https, |scheme| scheme.eq_ignore_ascii_case("https"));
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    let with_query = |path: String, query: Option<&str>| match query {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    if let Some(named) = rest.strip_prefix("//") {
        let (server, path) = named.split_at(named.find('/').unwrap_or(named.len()));
        check_escapes(path)?;
        let Some((host, port)) = read_server(server)? else {
            return Ok(Target::Nowhere);
        };
        let port = port.unwrap_or(if https { 443 } else { 80 });
        let place = Place { https, host, port };
        let known = scheme.is_none_or(|scheme| ["http", "https"].iter().any(|one| scheme.eq_ignore_ascii_case(one)));
        return match known {
            true => Ok(Target::Server(place, with_query(without_dots(path), query))),
            false => Err("unsupported protocol scheme"),
        };
    }
    if scheme.is_some() {
        return Ok(Target::Nowhere);
    }
    if rest.split('/').next().is_some_and(|first| first.contains(':')) {
        return Err("first path segment in URL cannot contain colon");
    }
    check_escapes(rest)?;
    let (own_path, own_query) = match own.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (own, None),
    };
    Ok(Target::Path(match rest.chars().next() {
        None => with_query(own_path.to_owned(), query.or(own_query)),
        Some('/') => with_query(without_dots(rest), query),
        Some(_) => {
            let directory = own_path.rsplit_once('/').map_or("", |(directory, _)| directory);
            with_query(without_dots(&format!("{directory}/{rest}")), query)
        }
    }))
}

/// With percent signs for what no URI may have.
fn escaped(location: &[u8]) -> String {
    let mut text = String::with_capacity(location.len());
    for byte in location {
        if byte.is_ascii_graphic() && !br#""<>\^`{|}"#.contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The scheme, if there is one, and what follows its colon.
fn split_scheme(text: &str) -> Result<(Option<&str>, &str), &'static str> {
    let Some((scheme, rest)) = text.split_once(':') else {
        return Ok((None, text));
    };
    let mut letters = scheme.bytes();
    match letters.next() {
        None => Err("missing protocol scheme"),
        Some(first)
            if first.is_ascii_alphabetic()
                && letters.all(|letter| letter.is_ascii_alphanumeric() || b"+-.".contains(&letter)) =>
        {
            Ok((Some(scheme), rest))
        }
        Some(_) => Ok((None, text)),
    }
}

fn check_escapes(path: &str) -> Result<(), &'static str> {
    let whole = path.split('%').skip(1).all(|after| {
        let digits = after.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    if whole { Ok(()) } else { Err("invalid URL escape") }
}

/// The host and the port of a server; nothing if there is no host.
fn read_server(server: &str) -> Result<Option<(String, Option<u16>)>, &'static str> {
    let server = server.rsplit_once('@').map_or(server, |(_, server)| server);
    let (host, port) = match server.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (server, ""),
    };
    if host.is_empty() {
        return Ok(None);
    }
    let _: Authority = host.parse().map_err(|_| "invalid character in host name")?;
    let port = match port {
        "" => None,
        port => Some(port.parse().map_err(|_| "invalid port after host")?),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok(Some((host.to_owned(), port)))
}

/// An absolute path without `.` and `..`.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut parts = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(part) = parts.next() {
        if part == ".." {
            kept.pop();
        }
        match part {
            "." | ".." if parts.peek().is_none() => kept.push(""),
            "." | ".." => {}
            part => kept.push(part),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_mean_what_the_standard_says() {
        let path = |path: &str| Ok(Target::Path(path.to_owned()));
        let server = |https, port, path: &str| {
            let host = "a.example".to_owned();
            Ok(Target::Server(Place { https, host, port }, path.to_owned()))
        };
        for (location, expected) in [
            (
                "/login?next=https://app.example/",
                path("/login?next=https://app.example/"),
            ),
            ("login?next=//x", path("/app/login?next=//x")),
            ("/login?msg=session expired", path("/login?msg=session%20expired")),
            ("/caf\u{e9}", path("/caf%C3%A9")),
            ("/a\"<b>\\{|}^`", path("/a%22%3Cb%3E%5C%7B%7C%7D%5E%60")),
            ("../x", path("/x")),
            ("../../../x/./y/..", path("/x/")),
            ("/..", path("/")),
            (".", path("/app/")),
            ("", path("/app/page?q=1")),
            ("#part", path("/app/page?q=1")),
            ("?", path("/app/page?")),
            ("?z=%zz", path("/app/page?z=%zz")),
            ("//a.example", server(false, 80, "/")),
            ("HTTPS://a.example?x", server(true, 443, "/?x")),
            ("http://u:p@a.example:81/../x y", server(false, 81, "/x%20y")),
            ("http://a.example:/", server(false, 80, "/")),
            ("mailto:me", Ok(Target::Nowhere)),
            ("http:///x", Ok(Target::Nowhere)),
            ("http:/x", Ok(Target::Nowhere)),
            ("ftp://a.example/", Err("unsupported protocol scheme")),
            (":x", Err("missing protocol scheme")),
            ("1:x", Err("first path segment in URL cannot contain colon")),
            ("/%zz", Err("invalid URL escape")),
            ("/%e", Err("invalid URL escape")),
            ("http://a.example:x/", Err("invalid port after host")),
            ("http://a b/", Err("invalid character in host name")),
            ("/a\tb", Err("invalid control character in URL")),
        ] {
            assert_eq!(
                target(false, "/app/page?q=1", location.as_bytes()),
                expected,
                "{location}"
            );
        }
        let byte = target(true, "/", b"/\xff");
        assert_eq!(byte, Ok(Target::Path("/%FF".to_owned())));
    }

    #[test]
    fn whatever_is_read_makes_a_request() {
        for byte in 0..=255_u8 {
            for around in ["/a?b", "a", "?", "//h/", "http://h/?"] {
                let location = [around.as_bytes(), &[byte], b"z"].concat();
                if let Ok(Target::Path(path) | Target::Server(_, path)) = target(false, "/x", &location) {
                    assert!(path.parse::<http::Uri>().is_ok(), "{path}");
                }
            }
        }
    }
}
