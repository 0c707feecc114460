//! The firewall's rules by the iptables programs, where a configuration names that backend: one save and at most one
//! restore per family.

use super::rule::{FORWARD, Family, FilterRule};
use crate::plugin::iptables::{self, Error, Saved};

const TABLE: &str = "filter";

/// Makes the rules that are missing, all of a family or none.
pub fn add(families: &[Family]) -> Result<(), Error> {
    let _turn = iptables::Turn::take();
    for family in families {
        let text = addition(&Saved::read(family.v4, TABLE)?, family);
        if !text.is_empty() {
            iptables::restore(family.v4, &text)?;
        }
    }
    Ok(())
}

/// Removes a container's rules; none is fine.
pub fn remove(families: &[Family]) -> Result<(), Error> {
    let _turn = iptables::Turn::take();
    for family in families {
        let text = removal(&Saved::read(family.v4, TABLE)?, family);
        if !text.is_empty() {
            iptables::restore(family.v4, &text)?;
        }
    }
    Ok(())
}

/// The first rule that is not there.
pub fn missing(families: &[Family]) -> Result<Option<FilterRule>, Error> {
    for family in families {
        let saved = Saved::read(family.v4, TABLE)?;
        let mut wanted = family.shared.iter().chain(&family.own);
        if let Some(rule) = wanted.find(|rule| !has(&saved, rule)) {
            return Ok(Some(rule.clone()));
        }
    }
    Ok(None)
}

fn has(saved: &Saved, rule: &FilterRule) -> bool {
    saved.has_rule(&rule.chain, &rule.arguments())
}

/// The restore that makes what a saved table lacks; empty if it lacks nothing. A chain that exists must not be declared,
/// as that would empty it. Pure.
fn addition(saved: &Saved, family: &Family) -> String {
    let rules = || family.shared.iter().chain(&family.own);
    let mut text = String::new();
    for rule in rules() {
        for name in rule.chains().filter(|name| *name != FORWARD && !saved.has_chain(name)) {
            let declaration = format!(":{name} - [0:0]\n");
            if !text.contains(&declaration) {
                text.push_str(&declaration);
            }
        }
    }
    for rule in rules().filter(|rule| !has(saved, rule)) {
        let how = match rule.place {
            netlink::nft::Place::First => "-I",
            netlink::nft::Place::Last => "-A",
        };
        text.push_str(&format!("{how} {} {}\n", rule.chain, rule.arguments()));
    }
    wrap(&text)
}

/// The restore that removes a container's rules from a saved table; empty if there are none. Pure.
fn removal(saved: &Saved, family: &Family) -> String {
    let present = family.own.iter().filter(|rule| has(saved, rule));
    let text: String = present
        .map(|rule| format!("-D {} {}\n", rule.chain, rule.arguments()))
        .collect();
    wrap(&text)
}

fn wrap(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("*{TABLE}\n{text}COMMIT\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::firewall::rule;
    use netlink::cidr::Cidr;

    fn family() -> Family {
        Family {
            v4: true,
            shared: rule::forwarding("CNI-ADMIN"),
            own: rule::of_address(Cidr::parse("10.0.0.2/32").unwrap()).into(),
        }
    }

    #[test]
    fn only_what_is_missing_is_made() {
        let empty = Saved("*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n".into());
        let made = addition(&empty, &family());
        assert_eq!(
            made,
            "*filter\n:CNI-FORWARD - [0:0]\n:CNI-ADMIN - [0:0]\n\
             -I FORWARD -m comment --comment \"CNI firewall plugin rules\" -j CNI-FORWARD\n\
             -I CNI-FORWARD -m comment --comment \"CNI firewall plugin admin overrides\" -j CNI-ADMIN\n\
             -A CNI-FORWARD -d 10.0.0.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
             -A CNI-FORWARD -s 10.0.0.2/32 -j ACCEPT\nCOMMIT\n"
        );
        let full = Saved(made.replace("-I ", "-A "));
        assert_eq!(addition(&full, &family()), "");
        assert_eq!(removal(&empty, &family()), "");
        assert_eq!(
            removal(&full, &family())
                .lines()
                .filter(|line| line.starts_with("-D CNI-FORWARD"))
                .count(),
            2
        );
    }
}
