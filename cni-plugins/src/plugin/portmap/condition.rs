//! `conditionsV4` and `conditionsV6`: what a packet must fulfil to be mapped. Upstream hands the words to nft or iptables;
//! here the common ones of both are understood, and any other is refused by name. Pure.

use netlink::cidr::Cidr;
use netlink::nft::Expression;
use netlink::nft::expression::{Comparison, MetaKey, Side, address_in};

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// An address of the packet is, or is not, in a network.
    Address(Side, Comparison, Cidr),
    /// The packet came, or did not come, by an interface.
    Input(Comparison, String),
}

/// A condition nobody understands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unsupported port mapping condition at {0:?}")]
pub struct Unsupported(String);

/// Whether the words are iptables arguments rather than nft's.
pub fn is_iptables_syntax(words: &[String]) -> bool {
    words.first().is_some_and(|word| word.starts_with(['-', '!']))
}

/// Reads the words of one family.
pub fn parse(words: &[String], v4: bool) -> Result<Vec<Condition>, Unsupported> {
    let iptables = is_iptables_syntax(words);
    let mut words = words.iter().flat_map(|word| word.split_whitespace()).peekable();
    let mut conditions = Vec::new();
    while let Some(word) = words.next() {
        let unsupported = || Unsupported(word.to_owned());
        let negated = iptables && word == "!";
        let key = match (negated, word) {
            (true, _) => words.next().ok_or_else(unsupported)?,
            (false, "ip") if v4 && !iptables => words.next().ok_or_else(unsupported)?,
            (false, "ip6") if !v4 && !iptables => words.next().ok_or_else(unsupported)?,
            (false, word) => word,
        };
        let negated = negated || (!iptables && words.next_if(|next| *next == "!=").is_some());
        if !iptables {
            words.next_if(|next| *next == "==");
        }
        let comparison = if negated {
            Comparison::NotEqual
        } else {
            Comparison::Equal
        };
        let value = words.next().ok_or_else(unsupported)?;
        let side = match (iptables, key) {
            (true, "-s" | "--source" | "--src") | (false, "saddr") => Side::Source,
            (true, "-d" | "--destination" | "--dst") | (false, "daddr") => Side::Destination,
            (true, "-i" | "--in-interface") | (false, "iifname") => {
                conditions.push(Condition::Input(
                    comparison,
                    interface_name(value).ok_or_else(unsupported)?,
                ));
                continue;
            }
            _ => return Err(unsupported()),
        };
        let network = network(value)
            .filter(|network| network.is_v4() == v4)
            .ok_or_else(unsupported)?;
        conditions.push(Condition::Address(side, comparison, network));
    }
    Ok(conditions)
}

fn network(text: &str) -> Option<Cidr> {
    Cidr::parse(text).ok().or_else(|| text.parse().ok().map(Cidr::host))
}

/// A whole name; the patterns of nft (`*`) and iptables (`+`) are not understood.
fn interface_name(text: &str) -> Option<String> {
    let name = text.trim_matches('"');
    let whole = !name.is_empty() && name.len() < libc::IFNAMSIZ && !name.ends_with(['*', '+']);
    whole.then(|| name.to_owned())
}

impl Condition {
    /// The expressions that end a rule unless the condition holds.
    pub fn expressions(&self) -> Vec<Expression> {
        match self {
            Self::Address(side, comparison, network) => address_in(*side, *comparison, *network),
            Self::Input(comparison, name) => {
                let mut padded = name.as_bytes().to_vec();
                padded.resize(libc::IFNAMSIZ, 0);
                vec![
                    Expression::Meta(MetaKey::InputName),
                    Expression::Compare(*comparison, padded),
                ]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str], v4: bool) -> Result<Vec<Condition>, Unsupported> {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), v4)
    }

    #[test]
    fn both_syntaxes_mean_the_same() {
        let cidr = |text: &str| Cidr::parse(text).unwrap();
        let expected = vec![
            Condition::Address(Side::Source, Comparison::Equal, cidr("10.0.0.0/8")),
            Condition::Address(Side::Destination, Comparison::NotEqual, cidr("192.0.2.1/32")),
            Condition::Input(Comparison::NotEqual, "lo".into()),
        ];
        assert_eq!(
            read(&["-s", "10.0.0.0/8", "!", "-d", "192.0.2.1", "!", "-i", "lo"], true).unwrap(),
            expected
        );
        assert_eq!(
            read(
                &["ip saddr 10.0.0.0/8", "ip daddr != 192.0.2.1", "iifname != \"lo\""],
                true
            )
            .unwrap(),
            expected
        );
        assert_eq!(read(&["ip", "saddr", "==", "10.0.0.0/8"], true).unwrap(), expected[..1]);
        assert_eq!(read(&[], true).unwrap(), []);
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        for words in [
            &["-m", "comment"][..],
            &["ip saddr"],
            &["!"],
            &["ip6 saddr fd00::1"],
            &["ip saddr fd00::1"],
            &["tcp dport 80"],
            &["iifname eth*"],
        ] {
            assert!(read(words, true).is_err(), "{words:?}");
        }
        assert!(read(&["ip6 saddr fd00::/8"], false).is_ok());
    }

    proptest::proptest! {
        #[test]
        fn any_words_are_read_or_refused(words in proptest::collection::vec("[-!a-z0-9./:\" ]{0,8}", 0..6), v4: bool) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let _ = read(&words, v4);
        }
    }
}
