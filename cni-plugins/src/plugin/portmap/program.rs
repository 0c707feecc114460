//! Port mappings by the iptables programs, with upstream's chains and rules (contract §4.2), where a configuration names
//! that backend: one save and one restore per family.

use std::collections::BTreeMap;

use super::config::{Config, Mapping, Targets};
use crate::plugin::iptables::{self, Error, Saved, Turn};
use netlink::cidr::Cidr;

const TABLE: &str = "nat";
const ENTRANCE: &str = "CNI-HOSTPORT-DNAT";
const SET_MARK: &str = "CNI-HOSTPORT-SETMARK";
const MASQUERADE: &str = "CNI-HOSTPORT-MASQ";
/// How many ports one `multiport` match takes.
const MAX_PORTS: usize = 15;
/// How long a comment may be, in bytes.
const MAX_COMMENT_BYTES: usize = 255;

/// The container whose ports are mapped.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Name of the network.
    pub network: &'a str,
    /// Container ID.
    pub container_id: &'a str,
}

impl Owner<'_> {
    fn chain(&self) -> String {
        iptables::chain_name("DN-", self.network, self.container_id)
    }

    fn comment(&self) -> String {
        let mut text = format!(r#"dnat name: "{}" id: "{}""#, self.network, self.container_id);
        text.truncate(MAX_COMMENT_BYTES); // both names are ASCII
        text
    }
}

/// Makes the rules of a container's mappings, all of a family or none. Rules it has already are replaced.
pub fn add(owner: Owner<'_>, config: &Config, targets: &Targets) -> Result<(), Error> {
    let _turn = Turn::take();
    for target in [targets.v4, targets.v6].into_iter().flatten() {
        let saved = Saved::read(target.is_v4(), TABLE)?;
        iptables::restore(target.is_v4(), &addition(&saved, owner, config, target))?;
    }
    Ok(())
}

/// The first rule that is not there.
pub fn missing(owner: Owner<'_>, config: &Config, targets: &Targets) -> Result<Option<String>, Error> {
    for target in [targets.v4, targets.v6].into_iter().flatten() {
        let saved = Saved::read(target.is_v4(), TABLE)?;
        let chain = owner.chain();
        for mapping in leading_to(config, target) {
            let rule = translation(mapping, target);
            if !saved.has_rule(&chain, &rule) {
                return Ok(Some(format!("{chain} {rule}")));
            }
        }
    }
    Ok(None)
}

/// Removes the chains of this network's containers that have no valid attachment (container ID, interface name).
pub fn collect(network: &str, valid: &[(String, String)]) -> Result<(), Error> {
    iptables::collect(|saved| collection(saved, network, valid))
}

/// The restore that removes from a saved table what belongs to no valid attachment; empty if there is nothing. Pure.
fn collection(saved: &Saved, network: &str, valid: &[(String, String)]) -> String {
    let keep: Vec<String> = valid
        .iter()
        .map(|(container_id, _)| Owner { network, container_id }.chain())
        .collect();
    let of_network = format!(r#"--comment "dnat name: \"{network}\" id:"#);
    let entries = saved.rules(ENTRANCE).filter(|entry| entry.contains(&of_network));
    let mut text = String::new();
    let mut chains = Vec::new();
    for entry in entries {
        let Some((_, chain)) = entry.rsplit_once(" -j ") else {
            continue;
        };
        if chain.starts_with("CNI-DN-") && !keep.iter().any(|kept| kept == chain) {
            text.push_str(&format!("-D {entry}\n"));
            chains.push(chain);
        }
    }
    chains.sort_unstable();
    chains.dedup();
    for chain in chains {
        text.push_str(&format!("-F {chain}\n-X {chain}\n"));
    }
    if text.is_empty() {
        text
    } else {
        format!("*{TABLE}\n{text}COMMIT\n")
    }
}

fn leading_to(config: &Config, target: Cidr) -> impl Iterator<Item = &Mapping> {
    config
        .mappings
        .iter()
        .filter(move |mapping| mapping.leads_to(&target.addr))
}

/// The restore that gives a container its rules, beside what a saved table holds. Pure.
fn addition(saved: &Saved, owner: Owner<'_>, config: &Config, target: Cidr) -> String {
    let chain = owner.chain();
    let mut text = format!("*{TABLE}\n");
    // A declared chain is emptied if it exists, which is right for the container's own alone.
    for shared in [ENTRANCE, SET_MARK, MASQUERADE] {
        if !saved.has_chain(shared) && (shared == ENTRANCE || marks(config)) {
            text.push_str(&format!(":{shared} - [0:0]\n"));
        }
    }
    text.push_str(&format!(":{chain} - [0:0]\n"));
    for (how, parent, rule) in shared_rules(config) {
        if !saved.has_rule(parent, &rule) {
            text.push_str(&format!("{how} {parent} {rule}\n"));
        }
    }
    for old in saved.jumps(ENTRANCE, &chain) {
        text.push_str(&format!("-D {old}\n"));
    }
    for rule in own_rules(config, target) {
        text.push_str(&format!("-A {chain} {rule}\n"));
    }
    // Before those of others: the newest owner of a port has it.
    for entry in entries(owner, config, target).iter().rev() {
        text.push_str(&format!("-I {ENTRANCE} {entry} -j {chain}\n"));
    }
    text.push_str("COMMIT\n");
    text
}

/// Whether our own chains set and look at the mark.
fn marks(config: &Config) -> bool {
    config.snat && config.iptables.set_mark_chain.is_empty()
}

/// Rules all containers share: how they are added, their chain, and their arguments as iptables prints them.
fn shared_rules(config: &Config) -> Vec<(&'static str, &'static str, String)> {
    let local = format!("-m addrtype --dst-type LOCAL -j {ENTRANCE}");
    let mut rules = vec![("-A", "PREROUTING", local.clone()), ("-A", "OUTPUT", local)];
    if marks(config) {
        let mark = format!("{0:#x}/{0:#x}", config.iptables.mark);
        let set = format!("-m comment --comment \"CNI portfwd masquerade mark\" -j MARK --set-xmark {mark}");
        rules.push(("-A", SET_MARK, set));
        rules.push(("-A", MASQUERADE, format!("-m mark --mark {mark} -j MASQUERADE")));
        // First, or the bridge plugin's masquerading would accept before it.
        let enter = format!("-m comment --comment \"CNI portfwd requiring masquerade\" -j {MASQUERADE}");
        rules.push(("-I", "POSTROUTING", enter));
    }
    rules
}

/// What leads to the container's chain: its ports, a group per protocol and fifteen ports.
fn entries(owner: Owner<'_>, config: &Config, target: Cidr) -> Vec<String> {
    let mut by_protocol: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for mapping in leading_to(config, target) {
        let ports = by_protocol.entry(mapping.protocol.name()).or_default();
        ports.push(mapping.host_port.to_string());
    }
    let options = &config.iptables;
    let conditions = if target.is_v4() {
        &options.conditions_v4
    } else {
        &options.conditions_v6
    };
    let conditions: String = conditions.iter().map(|word| format!(" {}", quoted(word))).collect();
    let comment = quoted(&owner.comment());
    let mut entries = Vec::new();
    for (protocol, ports) in by_protocol {
        for group in ports.chunks(MAX_PORTS) {
            let ports = group.join(",");
            entries.push(format!(
                "-p {protocol} -m comment --comment {comment} -m multiport --dports {ports}{conditions}"
            ));
        }
    }
    entries
}

/// The rules of the container's chain: the mark must come before the translation ends the walk.
fn own_rules(config: &Config, target: Cidr) -> Vec<String> {
    let set_mark = match config.iptables.set_mark_chain.as_str() {
        "" => SET_MARK,
        chain => chain,
    };
    let mut rules = Vec::new();
    for mapping in leading_to(config, target) {
        let what = matched(mapping);
        if config.snat {
            let (network, v4) = (target.network(), target.is_v4());
            match (config.masq_all, v4) {
                (true, _) => rules.push(format!("{what} -j {set_mark}")),
                (false, true) => {
                    rules.push(format!("-s {network} {what} -j {set_mark}"));
                    rules.push(format!("-s 127.0.0.1/32 {what} -j {set_mark}"));
                }
                (false, false) => rules.push(format!("-s {network} {what} -j {set_mark}")),
            }
        }
        rules.push(translation(mapping, target));
    }
    rules
}

/// The packets of a mapping, as iptables prints it.
fn matched(mapping: &Mapping) -> String {
    let protocol = mapping.protocol.name();
    let host = mapping.host_ip.filter(|addr| !addr.is_unspecified());
    let host = host.map(|addr| format!("-d {} ", Cidr::host(addr))).unwrap_or_default();
    format!("{host}-p {protocol} -m {protocol} --dport {}", mapping.host_port)
}

fn translation(mapping: &Mapping, target: Cidr) -> String {
    let to = std::net::SocketAddr::new(target.addr, mapping.container_port);
    format!("{} -j DNAT --to-destination {to}", matched(mapping))
}

/// A word for a restore text: in double quotes unless it is plain.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.,:/!+=%@".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::portmap::config::Transport;

    const OWNER: Owner<'_> = Owner {
        network: "net",
        container_id: "c1",
    };

    fn config(ports: &[u16], more: impl FnOnce(&mut Config)) -> Config {
        let mapping = |port: &u16| Mapping {
            host_port: *port,
            container_port: 80,
            protocol: Transport::Tcp,
            host_ip: None,
        };
        let mut config = Config {
            backend: crate::plugin::portmap::config::Backend::Iptables,
            iptables: crate::plugin::portmap::config::IptablesOptions {
                mark: 0x2000,
                ..Default::default()
            },
            snat: true,
            masq_all: false,
            conditions_v4: Vec::new(),
            conditions_v6: Vec::new(),
            mappings: ports.iter().map(mapping).collect(),
        };
        more(&mut config);
        config
    }

    fn target(text: &str) -> Cidr {
        Cidr::parse(text).unwrap()
    }

    #[test]
    fn a_whole_family_in_one_restore() {
        let empty = Saved("*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n".into());
        let text = addition(&empty, OWNER, &config(&[8080], |_| {}), target("10.0.0.2/24"));
        let chain = OWNER.chain();
        let expected = format!(
            "*nat\n:CNI-HOSTPORT-DNAT - [0:0]\n:CNI-HOSTPORT-SETMARK - [0:0]\n:CNI-HOSTPORT-MASQ - [0:0]\n:{chain} - [0:0]\n\
             -A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n\
             -A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n\
             -A CNI-HOSTPORT-SETMARK -m comment --comment \"CNI portfwd masquerade mark\" -j MARK --set-xmark 0x2000/0x2000\n\
             -A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE\n\
             -I POSTROUTING -m comment --comment \"CNI portfwd requiring masquerade\" -j CNI-HOSTPORT-MASQ\n\
             -A {chain} -s 10.0.0.0/24 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK\n\
             -A {chain} -s 127.0.0.1/32 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK\n\
             -A {chain} -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.2:80\n\
             -I CNI-HOSTPORT-DNAT -p tcp -m comment --comment \"dnat name: \\\"net\\\" id: \\\"c1\\\"\" \
             -m multiport --dports 8080 -j {chain}\nCOMMIT\n"
        );
        assert_eq!(text, expected);
        let again = addition(
            &Saved(text.replace("-I ", "-A ")),
            OWNER,
            &config(&[8080], |_| {}),
            target("10.0.0.2/24"),
        );
        assert!(
            !again.contains("POSTROUTING") && !again.contains(":CNI-HOSTPORT"),
            "{again}"
        );
        assert!(again.contains("-D CNI-HOSTPORT-DNAT -p tcp"), "{again}");
    }

    #[test]
    fn chains_of_vanished_containers_are_collected() {
        let empty = Saved(String::new());
        let text = addition(&empty, OWNER, &config(&[8080], |_| {}), target("10.0.0.2/24"));
        let saved = Saved(text.replace("-I ", "-A "));
        let chain = OWNER.chain();
        assert_eq!(collection(&saved, "net", &[("c1".into(), "eth0".into())]), "");
        assert_eq!(collection(&saved, "other", &[]), "");
        let made = collection(&saved, "net", &[]);
        assert!(made.starts_with("*nat\n-D CNI-HOSTPORT-DNAT -p tcp"), "{made}");
        assert!(made.ends_with(&format!("-F {chain}\n-X {chain}\nCOMMIT\n")), "{made}");
    }

    #[test]
    fn sixteen_ports_take_two_entries() {
        let ports: Vec<u16> = (1..=16).collect();
        let entries = entries(OWNER, &config(&ports, |_| {}), target("10.0.0.2/24"));
        assert_eq!(entries.len(), 2);
        assert!(entries[1].ends_with("--dports 16"));
    }

    #[test]
    fn options_change_what_they_say() {
        let v6 = target("fd00::2/64");
        let rules = own_rules(&config(&[1], |_| {}), v6);
        assert_eq!(
            rules,
            [
                "-s fd00::/64 -p tcp -m tcp --dport 1 -j CNI-HOSTPORT-SETMARK",
                "-p tcp -m tcp --dport 1 -j DNAT --to-destination [fd00::2]:80"
            ]
        );
        let plain = own_rules(&config(&[1], |config| config.snat = false), v6);
        assert_eq!(plain.len(), 1);
        let all = own_rules(&config(&[1], |config| config.masq_all = true), target("10.0.0.2/24"));
        assert_eq!(all[0], "-p tcp -m tcp --dport 1 -j CNI-HOSTPORT-SETMARK");
        let external = config(&[1], |config| config.iptables.set_mark_chain = "KUBE-MARK-MASQ".into());
        assert!(own_rules(&external, v6)[0].ends_with("-j KUBE-MARK-MASQ"));
        assert_eq!(shared_rules(&external).len(), 2);
        let named = config(&[1], |config| config.mappings[0].host_ip = "192.0.2.1".parse().ok());
        assert!(own_rules(&named, target("10.0.0.2/24"))[2].starts_with("-d 192.0.2.1/32 -p tcp"));
        assert!(own_rules(&named, v6).is_empty());
        let conditional = config(&[1], |config| {
            config.iptables.conditions_v4 = ["!", "-s", "10.0.0.0/8", "a \"b"].map(str::to_owned).into();
        });
        let entry = &entries(OWNER, &conditional, target("10.0.0.2/24"))[0];
        assert!(entry.ends_with("--dports 1 ! -s 10.0.0.0/8 \"a \\\"b\""), "{entry}");
    }

    proptest::proptest! {
        /// Whatever the words, they stay words: a restore text reads them back as they were.
        #[test]
        fn quoting_is_undone_by_reading(word in "[ -~]{0,12}") {
            let quoted = quoted(&word);
            let read = match quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
                None => quoted.clone(),
                Some(inner) => {
                    let mut read = String::new();
                    let mut letters = inner.chars();
                    while let Some(letter) = letters.next() {
                        proptest::prop_assert!(letter != '"', "{quoted}");
                        read.push(if letter == '\\' { letters.next().unwrap() } else { letter });
                    }
                    read
                }
            };
            proptest::prop_assert_eq!(read, word);
        }
    }
}
