//! Who is asked what: the resolvers of the node's resolv.conf, and those of domains that have their own. Pure.

use crate::wire::Name;
use std::net::{IpAddr, SocketAddr};

/// How many resolvers are asked; glibc asks 3.
const RESOLVERS_MAX: usize = 15;
/// The port of DNS.
pub const PORT: u16 = 53;

/// A domain that others than the node's resolvers know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StubDomain {
    /// The domain.
    pub domain: String,
    /// Who knows it.
    pub resolvers: Vec<SocketAddr>,
}

/// What a setting or a file says that cannot be followed. The words name what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// It would ask ourselves.
    #[error("{place}: resolver {address} is this DNS itself: it is not asked, because questions would go round")]
    Loop {
        /// Where it stands.
        place: String,
        /// The resolver.
        address: SocketAddr,
    },
    /// It is no address.
    #[error("{place}: nameserver {text:?} is no address")]
    Address {
        /// Where it stands.
        place: String,
        /// What stands there.
        text: String,
    },
    /// There are too many.
    #[error("{place}: only the first {RESOLVERS_MAX} resolvers are asked")]
    Many {
        /// Where they stand.
        place: String,
    },
    /// It names a domain that is none.
    #[error("stubDomains: {0:?} is no domain name")]
    Domain(String),
    /// A stub domain that would hide the cluster's.
    #[error("stubDomains: {0:?} is part of the cluster's domain, or the other way round")]
    Cluster(String),
    /// A stub domain nobody knows.
    #[error("stubDomains: {0:?} has no resolvers")]
    Empty(String),
}

/// The `nameserver` lines of a resolv.conf that can be asked, and what is wrong with the others.
pub fn of_file(place: &str, text: &str, own: &[SocketAddr]) -> (Vec<SocketAddr>, Vec<Wrong>) {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some("nameserver"), Some(word)) = (words.next(), words.next()) else {
            continue;
        };
        match address(word) {
            Some(address) => found.push(address),
            None => wrong.push(Wrong::Address {
                place: place.to_owned(),
                text: word.to_owned(),
            }),
        }
    }
    let found = askable(place, found, own, &mut wrong);
    (found, wrong)
}

/// An address, with the zone a link-local one needs (`fe80::1%2`: by number).
fn address(word: &str) -> Option<SocketAddr> {
    if let Ok(address) = word.parse::<IpAddr>() {
        return Some(SocketAddr::new(address, PORT));
    }
    format!("[{word}]:{PORT}").parse().ok()
}

fn askable(place: &str, found: Vec<SocketAddr>, own: &[SocketAddr], wrong: &mut Vec<Wrong>) -> Vec<SocketAddr> {
    let mut askable: Vec<SocketAddr> = Vec::new();
    for address in found {
        if own.contains(&address) {
            wrong.push(Wrong::Loop {
                place: place.to_owned(),
                address,
            });
        } else if !askable.contains(&address) {
            askable.push(address);
        }
    }
    if askable.len() > RESOLVERS_MAX {
        askable.truncate(RESOLVERS_MAX);
        wrong.push(Wrong::Many {
            place: place.to_owned(),
        });
    }
    askable
}

/// Stub domains.
#[derive(Clone, Debug, Default)]
pub struct Stubs(Vec<(Name, Vec<SocketAddr>)>);

impl Stubs {
    /// Checks them; everything that is wrong with them is an error.
    pub fn new(domains: &[StubDomain], zone: &Name, own: &[SocketAddr]) -> Result<Self, Vec<Wrong>> {
        let (mut stubs, mut wrong) = (Vec::new(), Vec::new());
        for StubDomain { domain, resolvers } in domains {
            let Some(name) = Name::parse(domain).map(|name| name.lower()) else {
                wrong.push(Wrong::Domain(domain.clone()));
                continue;
            };
            if is_below(name.wire(), zone.wire()) || name.wire().len() > 1 && is_below(zone.wire(), name.wire()) {
                wrong.push(Wrong::Cluster(domain.clone()));
            }
            let place = format!("stubDomains[{domain}]");
            if resolvers.is_empty() {
                wrong.push(Wrong::Empty(domain.clone()));
            }
            stubs.push((name, askable(&place, resolvers.clone(), own, &mut wrong)));
        }
        if wrong.is_empty() { Ok(Self(stubs)) } else { Err(wrong) }
    }

    /// Whether any of them is known by this resolver.
    pub fn asks(&self, resolver: &SocketAddr) -> bool {
        self.0.iter().any(|(_, resolvers)| resolvers.contains(resolver))
    }

    /// Who knows this name, if others than the node's resolvers do.
    pub fn of(&self, name: &[u8]) -> Option<&[SocketAddr]> {
        let known = self.0.iter().filter(|(domain, _)| is_below(name, domain.wire()));
        let stub = known.max_by_key(|(domain, _)| domain.wire().len());
        stub.map(|(_, resolvers)| resolvers.as_slice())
    }
}

/// Whether a name is this domain or part of it; both with small letters.
fn is_below(name: &[u8], domain: &[u8]) -> bool {
    let mut rest = name;
    while rest.len() > domain.len() {
        let length = rest.first().map_or(0, |length| usize::from(*length) + 1);
        rest = rest.get(length..).unwrap_or_default();
    }
    rest == domain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn lines_of_the_file() {
        let own = [socket("10.96.0.10:53")];
        let text = "# nameserver 9.9.9.9\nsearch a b\nnameserver 1.1.1.1\n nameserver\t2001:db8::1 more\nnameserver 10.96.0.10\n\
                    nameserver 1.1.1.1\nnameserver x.y\nnameserver fe80::1%3\noptions ndots:5\nnameserver";
        let (found, wrong) = of_file("/etc/resolv.conf", text, &own);
        let expected = [
            socket("1.1.1.1:53"),
            socket("[2001:db8::1]:53"),
            socket("[fe80::1%3]:53"),
        ];
        assert_eq!(found, expected);
        let words: Vec<String> = wrong.iter().map(Wrong::to_string).collect();
        assert_eq!(words.len(), 2);
        assert_eq!(words[0], "/etc/resolv.conf: nameserver \"x.y\" is no address");
        assert!(
            words[1].contains("resolver 10.96.0.10:53 is this DNS itself"),
            "{words:?}"
        );
    }

    #[test]
    fn many_resolvers_are_cut() {
        let text: String = (1..40).map(|last| format!("nameserver 192.0.2.{last}\n")).collect();
        let (found, wrong) = of_file("f", &text, &[]);
        assert_eq!((found.len(), wrong.len()), (RESOLVERS_MAX, 1));
    }

    #[test]
    fn the_longest_stub_domain_knows() {
        let zone = Name::parse("cluster.local").unwrap();
        let stub = |domain: &str, resolver: &str| StubDomain {
            domain: domain.to_owned(),
            resolvers: vec![socket(resolver)],
        };
        let domains = [
            stub("example.com", "192.0.2.1:53"),
            stub("Corp.Example.com.", "192.0.2.2:5353"),
        ];
        let stubs = Stubs::new(&domains, &zone, &[]).unwrap();
        for (name, resolver) in [
            ("example.com", Some("192.0.2.1:53")),
            ("a.b.example.com", Some("192.0.2.1:53")),
            ("x.corp.example.com", Some("192.0.2.2:5353")),
            ("corp.example.com", Some("192.0.2.2:5353")),
            ("badexample.com", None),
            ("com", None),
        ] {
            let name = Name::parse(name).unwrap();
            assert_eq!(
                stubs.of(name.wire()),
                resolver.map(socket).as_ref().map(std::slice::from_ref),
                "{name}"
            );
        }
    }

    #[test]
    fn wrong_stub_domains_are_named() {
        let zone = Name::parse("cluster.local").unwrap();
        let own = [socket("10.96.0.10:53")];
        for (domain, resolvers, part) in [
            ("a..b", vec![socket("192.0.2.1:53")], "no domain name"),
            (
                "svc.cluster.local",
                vec![socket("192.0.2.1:53")],
                "part of the cluster's",
            ),
            ("local", vec![socket("192.0.2.1:53")], "part of the cluster's"),
            ("example.com", vec![], "has no resolvers"),
            ("example.com", own.to_vec(), "is this DNS itself"),
        ] {
            let domain = StubDomain {
                domain: domain.to_owned(),
                resolvers,
            };
            let wrong = Stubs::new(&[domain], &zone, &own).unwrap_err();
            assert!(wrong[0].to_string().contains(part), "{wrong:?}");
        }
    }
}
