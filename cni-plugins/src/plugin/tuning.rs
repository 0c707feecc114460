//! The `tuning` plugin (contract §4.5): kernel switches and link attributes of a container's interface. Chained.
//!
//! [`config`] reads and checks, [`backup`] remembers what the attributes were; this file applies, takes back on failure and
//! restores on DEL.

use std::io::Write;

use crate::protocol::dispatch::{Plugin, Request};
use crate::protocol::error::{Error, chain, internal};
use crate::protocol::result::CniResult;
use crate::protocol::version::ALL;
use netlink::codec::Message;
use netlink::link::{Link, Mac, Target, set, set_flags};
use netlink::netns::Netns;
use netlink::sysctl;
use netlink::wire::{IFF_ALLMULTI, IFF_PROMISC, IFLA_ADDRESS, IFLA_MTU, IFLA_TXQLEN};
use netlink::{Protocol, Socket};

pub mod backup;
pub mod config;

use backup::Backup;
use config::{Attributes, Config};

/// The plugin.
pub static PLUGIN: Plugin = Plugin {
    name: "tuning",
    versions: &ALL,
    add,
    del,
    check,
    gc,
    status: |_| Ok(()),
};

fn previous(request: &Request) -> Result<CniResult, Error> {
    request
        .prev_result()?
        .ok_or_else(|| Error::internal("Required prevResult missing"))
}

fn backup_of(request: &Request, config: &Config) -> Backup {
    Backup::new(&config.data_dir, &request.env.container_id, &request.env.ifname)
}

fn add(request: &Request) -> Result<CniResult, Error> {
    let config = Config::read(request)?;
    config.refuse_forbidden_switches()?;
    let mut result = previous(request)?;
    let ifname = &request.env.ifname;
    let netns = Netns::open(&request.env.netns).map_err(|error| internal(&error))?;
    let backup = backup_of(request, &config);
    let work = || {
        let before = write_switches(&config, ifname)?;
        apply(request, &config, &backup).inspect_err(|_| restore_switches(&before))
    };
    netns.run(work).map_err(|error| internal(&error))??;
    if let Some(mac) = &config.wanted.mac {
        let own = result
            .interfaces
            .iter_mut()
            .filter(|interface| interface.name == *ifname);
        own.for_each(|interface| interface.mac.clone_from(mac));
    }
    Ok(result)
}

/// Sets the switches; returns what they were, to be put back if a later step fails. Runs inside the namespace.
fn write_switches(config: &Config, ifname: &str) -> Result<Vec<(String, String)>, Error> {
    let mut before = Vec::new();
    for (key, value) in &config.switches {
        let outcome = config::switch_path(key, ifname).and_then(|name| {
            let old = sysctl::get(&name);
            write_switch(&name, value).map(|()| old.map(|old| (name, old)))
        });
        match outcome {
            Ok(old) => before.extend(old),
            Err(error) => {
                restore_switches(&before);
                return Err(error);
            }
        }
    }
    Ok(before)
}

/// Sets one switch; the error says what was tried, as upstream's plugin does.
fn write_switch(name: &str, value: &str) -> Result<(), Error> {
    let path = format!("/proc/sys/net/{name}");
    let failed = |action: &'static str| {
        let path = path.clone();
        move |error: std::io::Error| Error::internal(format!("{action} {path}: {}", netlink::errno::text(&error)))
    };
    let mut file = std::fs::File::create(&path).map_err(failed("open"))?;
    file.write_all(value.as_bytes()).map_err(failed("write"))
}

/// Puts switches back, the last first. The error that led here is the one to report.
fn restore_switches(before: &[(String, String)]) {
    for (name, value) in before.iter().rev() {
        let _ = sysctl::set(name, value);
    }
}

fn find(socket: &mut Socket, ifname: &str) -> Result<Link, Error> {
    let found = socket.link(Target::Name(ifname)).map_err(|error| internal(&error))?;
    found.ok_or_else(|| Error::internal(format!("failed to get {ifname:?}: Link not found")))
}

/// Sets the link's attributes, remembering what they were. Runs inside the namespace.
fn apply(request: &Request, config: &Config, backup: &Backup) -> Result<(), Error> {
    if config.wanted.is_empty() {
        return Ok(());
    }
    let mut socket = Socket::open(Protocol::Route).map_err(|error| internal(&error))?;
    let link = find(&mut socket, &request.env.ifname)?;
    let before = attributes_of(&link, &config.wanted);
    backup
        .write(&request.network, &before)
        .map_err(|error| internal(&error))?;
    set_attributes(&mut socket, link.index, &config.wanted).inspect_err(|_| {
        // The error that led here is the one to report; DEL, which follows a failed ADD, tries again.
        if set_attributes(&mut socket, link.index, &before).is_ok() {
            backup.forget();
        }
    })
}

/// What the wanted attributes are now.
fn attributes_of(link: &Link, wanted: &Attributes) -> Attributes {
    Attributes {
        mac: wanted.mac.as_ref().map(|_| link.mac_text()),
        promisc: wanted.promisc.map(|_| link.promiscuity > 0),
        mtu: wanted.mtu.map(|_| link.mtu),
        allmulti: wanted.allmulti.map(|_| link.flags & IFF_ALLMULTI != 0),
        tx_queue: wanted.tx_queue.map(|_| link.tx_queue),
    }
}

fn set_attributes(socket: &mut Socket, index: u32, wanted: &Attributes) -> Result<(), Error> {
    let target = Target::Index(index);
    let flag = |flag, on: bool| set_flags(target, if on { flag } else { 0 }, flag);
    let mut requests: Vec<Message> = Vec::new();
    if let Some(text) = &wanted.mac {
        let invalid = || {
            Error::internal(format!(
                "invalid args {text} for MAC addr: address {text}: invalid MAC address"
            ))
        };
        let mac = Mac::parse(text).ok_or_else(invalid)?;
        requests.push(set(target).attr(IFLA_ADDRESS, &mac.0));
    }
    requests.extend(wanted.promisc.map(|on| flag(IFF_PROMISC, on)));
    requests.extend(wanted.mtu.map(|mtu| set(target).attr_u32(IFLA_MTU, mtu)));
    requests.extend(wanted.allmulti.map(|on| flag(IFF_ALLMULTI, on)));
    requests.extend(wanted.tx_queue.map(|length| set(target).attr_u32(IFLA_TXQLEN, length)));
    for request in requests {
        socket.request(request).map_err(|error| internal(&error))?;
    }
    Ok(())
}

/// DEL gives the interface its attributes back. What cannot be restored is no failure: the interface goes, or has gone.
fn del(request: &Request) -> Result<(), Error> {
    let config = Config::read(request)?;
    let backup = backup_of(request, &config);
    if let Some(before) = backup.read()
        && let Ok(netns) = Netns::open(&request.env.netns)
    {
        let _ = netns.run(|| restore(&request.env.ifname, &before));
    }
    backup.forget();
    Ok(())
}

/// Each attribute by itself: one that is refused must not keep the others. Runs inside the namespace.
fn restore(ifname: &str, before: &Attributes) -> Result<(), Error> {
    let mut socket = Socket::open(Protocol::Route).map_err(|error| internal(&error))?;
    let link = find(&mut socket, ifname)?;
    before
        .each()
        .into_iter()
        .map(|attribute| set_attributes(&mut socket, link.index, &attribute))
        .fold(Ok(()), Result::and)
}

fn check(request: &Request) -> Result<(), Error> {
    let config = Config::read(request)?;
    previous(request)?;
    let netns = Netns::open(&request.env.netns).map_err(|error| internal(&error))?;
    let ifname = &request.env.ifname;
    let work = || {
        check_switches(&config, ifname)?;
        let mut socket = Socket::open(Protocol::Route).map_err(|error| internal(&error))?;
        let link = socket.link(Target::Name(ifname)).map_err(|error| internal(&error))?;
        let link = link.ok_or_else(|| Error::internal(format!("Cannot find container link {ifname}")))?;
        check_attributes(&link, &config.wanted)
    };
    netns.run(work).map_err(|error| internal(&error))?
}

fn check_switches(config: &Config, ifname: &str) -> Result<(), Error> {
    for (key, wanted) in &config.switches {
        let name = config::switch_path(key, ifname)?;
        let path = format!("/proc/sys/net/{name}");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Error::internal(format!("open {path}: {}", netlink::errno::text(&error))))?;
        let found = text.strip_suffix('\n').unwrap_or(&text);
        if found != wanted {
            return Err(Error::internal(format!(
                "Error: Tuning configured value of {path} is {wanted}, current value is {found}"
            )));
        }
    }
    Ok(())
}

fn check_attributes(link: &Link, wanted: &Attributes) -> Result<(), Error> {
    let name = &link.name;
    let differs = |what: String| Err(Error::internal(format!("Error: Tuning {what}")));
    if let Some(mac) = &wanted.mac
        && Mac::parse(mac).map(|mac| mac.0) != link.mac
    {
        let found = link.mac_text();
        return differs(format!(
            "configured Ethernet of {name} is {mac}, current value is {found}"
        ));
    }
    let promisc = wanted.promisc.unwrap_or(false);
    if promisc != (link.promiscuity > 0) {
        let found = link.promiscuity;
        return differs(format!(
            "link {name} configured promisc is {promisc}, current value is {found}"
        ));
    }
    if let Some(mtu) = wanted.mtu.filter(|mtu| *mtu != link.mtu) {
        return differs(format!(
            "configured MTU of {name} is {mtu}, current value is {}",
            link.mtu
        ));
    }
    let allmulti = link.flags & IFF_ALLMULTI != 0;
    if let Some(on) = wanted.allmulti.filter(|on| *on != allmulti) {
        return differs(format!(
            "configured all-multicast mode of {name} is {on}, current value is {allmulti}"
        ));
    }
    match wanted.tx_queue.filter(|length| *length != link.tx_queue) {
        None => Ok(()),
        Some(length) => differs(format!(
            "configured Transmit Queue Length of {name} is {length}, current value is {}",
            link.tx_queue
        )),
    }
}

/// GC: what was remembered for attachments of this network that are not valid.
fn gc(request: &Request) -> Result<(), Error> {
    let data_dir = Config::read(request)?.data_dir;
    let valid = request.valid_attachments()?;
    backup::collect(&data_dir, &request.network, &valid)
        .map_err(|error| Error::internal(format!("failed to collect in {data_dir}: {}", chain(&error))))
}
