//! Where a member of etcd is reached (pure): `http://`, `https://` and `unix://` URLs, as `--etcd-servers` takes them.

use std::path::PathBuf;

/// A member's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// Over TCP, with TLS or without.
    Tcp { host: String, port: u16, is_tls: bool },
    /// A socket of this machine.
    Unix(PathBuf),
}

impl Address {
    /// Reads a URL; what has no scheme is taken for `http`, as upstream's client does.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        if let Some(path) = url.strip_prefix("unix://") {
            return match path.starts_with('/') {
                true => Ok(Self::Unix(PathBuf::from(path))),
                false => Err("a socket's path must be absolute (unix:///run/etcd.sock)".to_owned()),
            };
        }
        let full = if url.contains("://") {
            url.to_owned()
        } else {
            format!("http://{url}")
        };
        let uri: http::Uri = full.parse().map_err(|error| format!("not a URL ({error})"))?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("the scheme must be http, https or unix".to_owned()),
        };
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err("there must be nothing behind the port".to_owned());
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or("it names no host")?;
        let port = uri.port_u16().ok_or("it names no port (etcd's is 2379)")?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self::Tcp { host, port, is_tls })
    }

    /// Whether TLS is spoken there.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Tcp { is_tls: true, .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_scheme_host_and_port() {
        let tcp = |host: &str, port, is_tls| {
            let host = host.to_owned();
            Ok(Address::Tcp { host, port, is_tls })
        };
        for (url, expected) in [
            ("http://127.0.0.1:2379", tcp("127.0.0.1", 2379, false)),
            ("https://etcd-0.example:2379/", tcp("etcd-0.example", 2379, true)),
            ("10.0.0.1:2379", tcp("10.0.0.1", 2379, false)),
            ("https://[fd00::1]:2379", tcp("fd00::1", 2379, true)),
            ("unix:///run/etcd.sock", Ok(Address::Unix("/run/etcd.sock".into()))),
        ] {
            assert_eq!(Address::parse(url), expected, "{url}");
        }
        for (url, why) in [
            ("http://127.0.0.1", "port"),
            ("ftp://a:1", "scheme"),
            ("http://a:1/v3", "behind the port"),
            ("unix://etcd.sock", "absolute"),
            ("http://", "URL"),
        ] {
            let error = Address::parse(url).unwrap_err();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
