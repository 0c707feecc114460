//! Proxies that the environment names for connections out of this machine: client-go's clients go through them, these do not.
//!
//! Never opens a connection; only tells where one goes another way than the environment says.

use std::net::IpAddr;

/// Warns where client-go's client would go through a proxy to this server.
pub(crate) fn tell_of_proxy(server: &http::Uri) {
    let var = |names: [&str; 2]| {
        let mut values = names.into_iter().filter_map(|name| std::env::var(name).ok());
        values.find(|value| !value.is_empty()).unwrap_or_default()
    };
    let is_secure = server.scheme() == Some(&http::uri::Scheme::HTTPS);
    let proxy = match is_secure {
        true => var(["HTTPS_PROXY", "https_proxy"]),
        false => var(["HTTP_PROXY", "http_proxy"]),
    };
    let host = server.host().unwrap_or_default();
    if !proxy.is_empty() && !is_direct(host, &var(["NO_PROXY", "no_proxy"])) {
        tracing::warn!(%server, "the environment names a proxy for this server, which is not used: connections go to the server itself");
    }
}

/// Whether Go's clients go to a host itself: one of this machine, or that `NO_PROXY` names by an address, a range or a domain.
fn is_direct(host: &str, exceptions: &str) -> bool {
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let mut exceptions = exceptions.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    exceptions.any(|entry| {
        let entry = entry.to_ascii_lowercase();
        if entry == "*" {
            return true;
        }
        match address {
            Some(address) => is_of(address, &entry),
            None => {
                let domain = entry.trim_start_matches('*').trim_start_matches('.');
                let is_domains = host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
                is_domains || entry == host
            }
        }
    })
}

/// Whether an address is this one, or of this range.
fn is_of(address: IpAddr, range: &str) -> bool {
    let (base, length) = match range.split_once('/') {
        Some((base, length)) => (base, length.parse().ok()),
        None => (range.trim_matches(['[', ']']), Some(u32::MAX)),
    };
    let bits = |address: IpAddr| match address {
        // Left-aligned, so that a length means the same in both.
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let (Ok(base), Some(length)) = (base.parse::<IpAddr>(), length) else {
        return false;
    };
    let ((own, all), (base_bits, _)) = (bits(address), bits(base));
    let differing = (own ^ base_bits).leading_zeros();
    address.is_ipv4() == base.is_ipv4() && differing >= length.min(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_reached_without_a_proxy() {
        let table = [
            ("localhost", "", true),
            ("127.0.0.9", "", true),
            ("[::1]", "", true),
            ("10.0.0.1", "", false),
            ("10.0.0.1", "*", true),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.11", "10.0.0.1", false),
            ("10.9.0.1", "example.com, 10.0.0.0/8", true),
            ("11.0.0.1", "10.0.0.0/8", false),
            ("10.0.0.1", "0.0.0.0/0", true),
            ("10.0.0.1", "10.0.0.0/x", false),
            ("[fd00::1]", "fd00::/8", true),
            ("[fd00::1]", "0.0.0.0/0", false),
            ("api.example.com", "", false),
            ("API.example.com", "example.com", true),
            ("api.example.com", ".example.com", true),
            ("api.example.com", "*.example.com", true),
            ("example.com", "example.com", true),
            ("badexample.com", "example.com", false),
            ("api.example.org", "example.com,10.0.0.0/8", false),
        ];
        for (host, exceptions, is) in table {
            assert_eq!(is_direct(host, exceptions), is, "{host} {exceptions}");
        }
    }
}
