//! iptables, which upstream's plugins use by default: removing what they left, and masquerading where a configuration names
//! this backend or none.
//!
//! What iptables-nft made is removed over netlink, without a child process, as its chains are nf_tables chains. The older
//! kernel interface (iptables-legacy) is touched by the iptables programs, unless a configuration names nftables.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest, Sha512};

use netlink::cidr::Cidr;
use netlink::nft::{self, Batch, Chain, Connection, Family};

/// The longest chain name iptables accepts.
const MAX_CHAIN_BYTES: usize = 28;
const TABLE: &str = "nat";
/// All of a text or nothing, beside what is there, after at most 30 s of waiting for others.
const RESTORE_ARGUMENTS: &[&str] = &["--noflush", "--wait", "30"];
const TURN_FOLDER: &str = "/run/cni";

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An iptables program is not on the search path.
    #[error("{program} failed: no such file or directory")]
    Absent {
        /// Which.
        program: &'static str,
    },
    /// An iptables program cannot be run or failed.
    #[error("{program} failed: {reason}")]
    Program {
        /// Which.
        program: &'static str,
        /// What it said.
        reason: String,
    },
    /// The nf_tables side failed.
    #[error("could not remove iptables chain {chain}")]
    Remove {
        /// The chain.
        chain: String,
        /// Why.
        #[source]
        source: nft::Error,
    },
}

/// The name upstream gives the chain of an attachment: `CNI-`, a prefix, and as much of a hash as fits.
pub fn chain_name(prefix: &str, network: &str, container_id: &str) -> String {
    let digest = Sha512::digest(format!("{network}{container_id}").as_bytes());
    let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut name = format!("CNI-{prefix}{hash}");
    name.truncate(MAX_CHAIN_BYTES);
    name
}

/// Removes a chain that iptables-nft made, and the rules of `parent` that jump to it, in both families. None is fine.
pub fn remove_chain(connection: &mut Connection, parent: &str, chain: &str) -> Result<(), Error> {
    let failed = |source| Error::Remove {
        chain: chain.to_owned(),
        source,
    };
    for family in [Family::Ipv4, Family::Ipv6] {
        let own = Chain {
            family,
            table: TABLE,
            name: chain,
        };
        let parent = Chain {
            family,
            table: TABLE,
            name: parent,
        };
        if !connection.has_chain(own).map_err(failed)? {
            continue;
        }
        let plan = |rules: &[nft::Rule]| {
            let mut batch = Batch::new();
            let jumps = rules
                .iter()
                .filter(|rule| rule.targets.iter().any(|target| target == chain));
            jumps.for_each(|rule| batch.delete_rule(parent, rule.handle));
            batch.flush_chain(own);
            batch.delete_chain(own);
            batch
        };
        connection.revise(parent, plan).map_err(failed)?;
    }
    Ok(())
}

/// Whether iptables can masquerade addresses like these: its programs may be there and the kernel not take what they do, so
/// they are asked with a change that changes nothing.
pub fn works(addresses: &[Cidr]) -> bool {
    works_with(addresses, run)
}

fn works_with(addresses: &[Cidr], run: impl Fn(&'static str, &[&str], &str) -> Result<String, Error>) -> bool {
    let needed = |v4: bool| addresses.iter().any(|cidr| cidr.is_v4() == v4);
    [true, false]
        .into_iter()
        .all(|v4| !needed(v4) || family_works(v4, &run))
}

fn family_works(v4: bool, run: impl Fn(&'static str, &[&str], &str) -> Result<String, Error>) -> bool {
    let nothing = format!("*{TABLE}\nCOMMIT\n");
    run(restore_program(v4), &["--noflush", "--test", "--wait", "30"], &nothing).is_ok()
}

fn save_program(v4: bool) -> &'static str {
    if v4 { "iptables-save" } else { "ip6tables-save" }
}

fn restore_program(v4: bool) -> &'static str {
    if v4 { "iptables-restore" } else { "ip6tables-restore" }
}

/// Masquerades what `addresses` send beyond their networks (contract §2.3), as one restore per family.
pub fn masquerade(network: &str, container_id: &str, addresses: &[Cidr]) -> Result<(), Error> {
    let chain = chain_name("", network, container_id);
    for v4 in [true, false] {
        let of_family: Vec<&Cidr> = addresses.iter().filter(|cidr| cidr.is_v4() == v4).collect();
        if !of_family.is_empty() {
            restore(v4, &masquerade_rules(&chain, network, container_id, &of_family))?;
        }
    }
    Ok(())
}

fn masquerade_rules(chain: &str, network: &str, container_id: &str, addresses: &[&Cidr]) -> String {
    let comment = format!(r#"-m comment --comment "name: \"{network}\" id: \"{container_id}\"""#);
    let mut text = format!("*{TABLE}\n:{chain} - [0:0]\n");
    for address in addresses {
        let multicast = if address.is_v4() { "224.0.0.0/4" } else { "ff00::/8" };
        text.push_str(&format!("-A {chain} -d {} {comment} -j ACCEPT\n", address.network()));
        text.push_str(&format!("-A {chain} ! -d {multicast} {comment} -j MASQUERADE\n"));
        text.push_str(&format!(
            "-A POSTROUTING -s {} {comment} -j {chain}\n",
            Cidr::host(address.addr)
        ));
    }
    text.push_str("COMMIT\n");
    text
}

/// Removes the masquerading rules of the network's containers that have no valid attachment (container ID, interface name), which
/// upstream's plugins leave.
pub fn collect_masquerade(network: &str, valid: &[(String, String)]) -> Result<(), Error> {
    collect(|saved| masquerade_collection(saved, network, valid))
}

/// Applies what `removal` says of either family's table; an empty text is nothing. Goes on past the errors of one family and
/// returns the first. Where there is no program, or the kernel does not take the family's rules (IPv6 may be switched off), there
/// is nothing to remove.
pub fn collect(removal: impl Fn(&Saved) -> String) -> Result<(), Error> {
    let _turn = Turn::take();
    collect_with(removal, run)
}

fn collect_with(
    removal: impl Fn(&Saved) -> String,
    run: impl Fn(&'static str, &[&str], &str) -> Result<String, Error>,
) -> Result<(), Error> {
    let collect = |v4: bool| {
        let saved = match run(save_program(v4), &["-t", TABLE], "") {
            Err(Error::Absent { .. }) => return Ok(()),
            Err(_) if !family_works(v4, &run) => return Ok(()),
            saved => Saved(saved?),
        };
        match removal(&saved) {
            text if text.is_empty() => Ok(()),
            text => run(restore_program(v4), RESTORE_ARGUMENTS, &text).map(drop),
        }
    };
    let [v4, v6] = [true, false].map(collect);
    v4.and(v6)
}

/// The restore that removes from a saved table what belongs to no valid attachment; empty if there is nothing. A rule is of this
/// network if its comment says so and its chain has the name that follows from the comment. Pure.
fn masquerade_collection(saved: &Saved, network: &str, valid: &[(String, String)]) -> String {
    let of_network = format!(r#"--comment "name: \"{network}\" id: \""#);
    let (mut jumps, mut chains) = (String::new(), BTreeSet::new());
    for entry in saved.rules("POSTROUTING") {
        let id = entry
            .split_once(&of_network)
            .and_then(|(_, rest)| rest.split_once('\\'));
        let (Some((id, _)), Some((_, chain))) = (id, entry.rsplit_once(" -j ")) else {
            continue;
        };
        let is_valid = valid.iter().any(|(container_id, _)| container_id == id);
        if !is_valid && chain == chain_name("", network, id) {
            jumps.push_str(&format!("-D {entry}\n"));
            chains.insert(chain);
        }
    }
    if chains.is_empty() {
        return String::new();
    }
    let ends: String = chains.iter().map(|chain| format!("-F {chain}\n-X {chain}\n")).collect();
    format!("*{TABLE}\n{jumps}{ends}COMMIT\n")
}

/// Removes a chain and the jumps to it from the older kernel interface, if that is in use.
pub fn remove_legacy_chain(chain: &str) -> Result<(), Error> {
    for (v4, names) in [
        (true, "/proc/net/ip_tables_names"),
        (false, "/proc/net/ip6_tables_names"),
    ] {
        if fs::read_to_string(names).is_ok_and(|names| names.lines().any(|name| name == TABLE)) {
            remove_legacy_with(v4, chain, run)?;
        }
    }
    Ok(())
}

/// Where iptables was built for that interface alone, its programs have no `legacy` in their names. Where neither are there,
/// nothing of ours is: without them it could not have been made, and whoever else uses that table is no concern of this.
fn remove_legacy_with(
    v4: bool,
    chain: &str,
    run: impl Fn(&'static str, &[&str], &str) -> Result<String, Error>,
) -> Result<(), Error> {
    let programs = if v4 {
        [
            ("iptables-legacy-save", "iptables-legacy-restore"),
            ("iptables-save", "iptables-restore"),
        ]
    } else {
        [
            ("ip6tables-legacy-save", "ip6tables-legacy-restore"),
            ("ip6tables-save", "ip6tables-restore"),
        ]
    };
    for (save, restore) in programs {
        let saved = match run(save, &["-t", TABLE], "") {
            Err(Error::Absent { .. }) => continue,
            saved => saved?,
        };
        let removal = legacy_removal(&saved, chain);
        if !removal.is_empty() {
            run(restore, &["--noflush"], &removal)?;
        }
        return Ok(());
    }
    Ok(())
}

/// The restore that undoes what a saved table says about a chain; empty if it says nothing. Pure.
fn legacy_removal(saved: &str, chain: &str) -> String {
    if !saved.lines().any(|line| {
        line.strip_prefix(':')
            .is_some_and(|rest| rest.split(' ').next() == Some(chain))
    }) {
        return String::new();
    }
    let mut text = format!("*{TABLE}\n");
    let jump = format!("-j {chain}");
    for rule in saved
        .lines()
        .filter_map(|line| line.strip_prefix("-A "))
        .filter(|rule| rule.ends_with(&jump))
    {
        text.push_str(&format!("-D {rule}\n"));
    }
    text.push_str(&format!("-F {chain}\n-X {chain}\nCOMMIT\n"));
    text
}

/// The turn of one call among those that read a table and then change it: two at once would make a rule twice. Held until
/// it is dropped. Without a place for the lock, there are no turns.
#[derive(Debug)]
pub struct Turn {
    _lock: Option<Flock<fs::File>>,
}

impl Turn {
    /// Waits for the turn. Whoever has it runs two short programs, which have deadlines of their own.
    pub fn take() -> Self {
        let open = || {
            fs::create_dir_all(TURN_FOLDER)?;
            fs::File::create(format!("{TURN_FOLDER}/iptables.lock"))
        };
        let lock = open()
            .ok()
            .and_then(|file| Flock::lock(file, FlockArg::LockExclusive).ok());
        Self { _lock: lock }
    }
}

/// What a table of one family holds, as the save program prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved(pub String);

impl Saved {
    /// Asks the save program.
    pub fn read(v4: bool, table: &str) -> Result<Self, Error> {
        run(save_program(v4), &["-t", table], "").map(Self)
    }

    /// Whether there is a chain of that name.
    pub fn has_chain(&self, name: &str) -> bool {
        let mut names = self.0.lines().filter_map(|line| line.strip_prefix(':'));
        names.any(|line| line.split(' ').next() == Some(name))
    }

    /// Whether a chain has a rule with exactly these arguments.
    pub fn has_rule(&self, chain: &str, arguments: &str) -> bool {
        let line = format!("-A {chain} {arguments}");
        self.0.lines().any(|saved| saved == line)
    }

    /// The rules of a chain, as `CHAIN ARGUMENTS`.
    pub fn rules<'a>(&'a self, chain: &'a str) -> impl Iterator<Item = &'a str> {
        let rules = self.0.lines().filter_map(|line| line.strip_prefix("-A "));
        rules.filter(move |rule| rule.split(' ').next() == Some(chain))
    }

    /// The rules of `parent` that jump to `chain`.
    pub fn jumps<'a>(&'a self, parent: &'a str, chain: &str) -> impl Iterator<Item = &'a str> {
        let jump = format!(" -j {chain}");
        self.rules(parent).filter(move |rule| rule.ends_with(&jump))
    }
}

/// Applies a text of the save program's form, all of it or nothing; what it does not name stays.
pub fn restore(v4: bool, rules: &str) -> Result<(), Error> {
    run(restore_program(v4), RESTORE_ARGUMENTS, rules).map(drop)
}

fn run(program: &'static str, arguments: &[&str], input: &str) -> Result<String, Error> {
    let failed = |reason: String| Error::Program { program, reason };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::Absent { program },
            _ => failed(netlink::errno::text(&error)),
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that fails early does not read; its own error is the one to report.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child
        .wait_with_output()
        .map_err(|error| failed(netlink::errno::text(&error)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

#[cfg(test)]
mod tests;
