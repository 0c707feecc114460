//! The firewall's rules over netlink, in the chains iptables shows. No child process.

use super::rule::{FORWARD, FORWARDING, Family, FilterRule, Form};
use crate::plugin::masquerade::Attachment;
use crate::plugin::rule_note::hash;
use netlink::nft::{self, BaseChain, Batch, Chain, Connection, Error, Rule, Words};

const TABLE: &str = "filter";
const FORWARD_BASE: BaseChain<'static> = BaseChain {
    kind: "filter",
    hook: 2,
    priority: 0,
};
/// How often ADD starts again because somebody removed the chains it had just made.
const MAX_ATTEMPTS: usize = 3;

fn chain(v4: bool, name: &str) -> Chain<'_> {
    let family = if v4 { nft::Family::Ipv4 } else { nft::Family::Ipv6 };
    Chain {
        family,
        table: TABLE,
        name,
    }
}

fn is_listed(rule: &FilterRule, listed: &[Rule]) -> bool {
    listed.iter().any(|found| rule.is(&found.compared, &found.targets))
}

/// Makes the rules of a container, all or none. Shared rules that are missing are made first.
pub fn add(families: &[Family], key: &str) -> Result<(), Error> {
    let mut connection = Connection::open()?;
    let outcome = match add_as(&mut connection, families, key, Form::Iptables) {
        // The kernel has none of iptables' matches.
        Err(Error::Commit(error)) if error.is_missing() => add_as(&mut connection, families, key, Form::Plain),
        outcome => outcome,
    };
    connection.close_later();
    outcome
}

fn add_as(connection: &mut Connection, families: &[Family], key: &str, form: Form) -> Result<(), Error> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        for family in families {
            ensure_shared(connection, family, form)?;
        }
        let mut batch = Batch::new();
        for family in families {
            let listed = connection.rules(chain(family.v4, FORWARDING))?;
            let ours: Vec<Rule> = listed.into_iter().filter(|rule| rule.label == key).collect();
            for rule in family.own.iter().filter(|rule| !is_listed(rule, &ours)) {
                push(&mut batch, family.v4, rule, key, form);
            }
        }
        match connection.commit(&batch) {
            Err(Error::Commit(error)) if error.is_missing() && attempt < MAX_ATTEMPTS => {}
            outcome => return outcome.map(drop),
        }
    }
}

fn push(batch: &mut Batch, v4: bool, rule: &FilterRule, label: &str, form: Form) {
    let words = Words { comment: "", label };
    batch.add_labelled_rule(chain(v4, &rule.chain), rule.place, &rule.expressions(form), words);
}

/// Makes the chains and the rules all containers share, as far as they are missing.
fn ensure_shared(connection: &mut Connection, family: &Family, form: Form) -> Result<(), Error> {
    let v4 = family.v4;
    let chains: Vec<Chain<'_>> = family.shared.iter().map(|rule| chain(v4, &rule.chain)).collect();
    connection.revise_all(&chains, |lists| {
        let missing: Vec<&FilterRule> = family
            .shared
            .iter()
            .zip(lists)
            .filter(|(rule, listed)| !is_listed(rule, listed))
            .map(|(rule, _)| rule)
            .collect();
        let mut batch = Batch::new();
        if missing.is_empty() {
            return batch;
        }
        batch.add_table(chain(v4, FORWARD).family, TABLE, None);
        batch.add_chain(chain(v4, FORWARD), Some(FORWARD_BASE), None);
        for rule in &family.shared {
            for name in rule.chains().filter(|name| *name != FORWARD) {
                batch.add_chain(chain(v4, name), None, None);
            }
        }
        for rule in missing {
            push(&mut batch, v4, rule, "", form);
        }
        batch
    })
}

/// Removes a container's rules: those with its label, and those without any that are about its addresses, which iptables
/// made. None is fine.
pub fn remove(families: &[Family], key: &str) -> Result<(), Error> {
    let mut connection = Connection::open()?;
    let mut outcome = Ok(());
    for v4 in [true, false] {
        let own = families.iter().filter(|family| family.v4 == v4);
        let own: Vec<&FilterRule> = own.flat_map(|family| &family.own).collect();
        let is_ours = |listed: &Rule| {
            let unclaimed = listed.label.is_empty();
            listed.label == key || (unclaimed && own.iter().any(|rule| rule.is(&listed.compared, &listed.targets)))
        };
        outcome = outcome.and(connection.delete_rules(chain(v4, FORWARDING), is_ours));
    }
    connection.close_later();
    outcome
}

/// The first rule that is not there.
pub fn missing(families: &[Family]) -> Result<Option<FilterRule>, Error> {
    let mut connection = Connection::open()?;
    for family in families {
        for rule in family.shared.iter().chain(&family.own) {
            let listed = connection.rules(chain(family.v4, &rule.chain))?;
            if !is_listed(rule, &listed) {
                return Ok(Some(rule.clone()));
            }
        }
    }
    Ok(None)
}

/// Removes the rules of all attachments of `network` but the valid ones (container ID, interface name).
pub fn collect(network: &str, valid: &[(String, String)]) -> Result<(), Error> {
    let keep: Vec<String> = valid
        .iter()
        .map(|(container_id, ifname)| {
            let attachment = Attachment {
                network,
                container_id,
                ifname,
            };
            attachment.key()
        })
        .collect();
    let ours = format!("{}-", hash(network));
    let mut connection = Connection::open()?;
    for v4 in [true, false] {
        connection.delete_rules(chain(v4, FORWARDING), |rule| {
            rule.label.starts_with(&ours) && !keep.contains(&rule.label)
        })?;
    }
    connection.close_later();
    Ok(())
}
