//! Reading `resolv.conf` for the `resolvConf` key (contract §3.3). Pure.

use crate::protocol::result::Dns;

/// Reads `nameserver`, `domain`, `search` and `options`; everything else and comments are skipped.
pub fn parse(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        let mut words = line.split_whitespace().map(str::to_owned);
        match words.next().as_deref() {
            Some("nameserver") => dns.nameservers.extend(words.next()),
            Some("domain") => dns.domain = words.next().unwrap_or_default(),
            Some("search") => dns.search.extend(words),
            Some("options") => dns.options.extend(words),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fields_and_comments() {
        let dns = parse(
            "# x\nnameserver 192.0.2.0\n ;y\nnameserver 192.0.2.1\ndomain example.net\nsearch a b\noptions ndots:2 rotate\n",
        );
        assert_eq!(dns.nameservers, ["192.0.2.0", "192.0.2.1"]);
        assert_eq!(dns.domain, "example.net");
        assert_eq!(dns.search, ["a", "b"]);
        assert_eq!(dns.options, ["ndots:2", "rotate"]);
        assert!(parse("\nnameserver\nunknown x\n").is_empty());
    }
}
