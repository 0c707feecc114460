//! host-local: configuration, allocator and store put together. Called by the plugin of that name, and in process by
//! plugins whose `ipam.type` names it.

use std::net::IpAddr;
use std::path::Path;

use super::allocator::{Candidate, Candidates};
use super::config::Config;
use super::range::RangeSet;
use super::resolv_conf;
use super::store::{self, Locked, Owner, Reservation, Store};
use crate::protocol::dispatch::Request;
use crate::protocol::error::{self, Error};
use crate::protocol::result::{CniResult, Dns, IpConfig};

fn store_error(error: store::Error) -> Error {
    let code = if matches!(error, store::Error::Busy(_)) {
        error::TRY_AGAIN
    } else {
        error::INTERNAL
    };
    Error::new(code, error::chain(&error))
}

fn open(data_dir: &str, network: &str) -> Result<Store, Error> {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Store::open(Path::new(data_dir), network, &boot_id).map_err(store_error)
}

fn read(request: &Request) -> Result<Config, Error> {
    Config::read(&request.fields(), request.version, &request.env.args)
        .map_err(|error| Error::internal(error.to_string()))
}

fn owner(request: &Request) -> Owner {
    Owner::new(&request.env.container_id, &request.env.ifname)
}

/// ADD: one address from each range set; all or none.
pub fn add(request: &Request) -> Result<CniResult, Error> {
    let config = read(request)?;
    let dns = read_dns(&config.resolv_conf)?;
    let store = open(&config.data_dir, &request.network)?;
    let owner = owner(request);
    let prepared = config
        .sets
        .iter()
        .map(|_| store.prepare(&owner))
        .collect::<Result<Vec<_>, _>>();
    let prepared = prepared.map_err(store_error)?;
    let mut locked = store.lock().map_err(store_error)?;
    let mut given = Vec::new();
    let outcome = allocate_all(&mut locked, &config, &owner, &prepared, &mut given);
    if outcome.is_err() {
        for candidate in &given {
            // The first error is the one to report; what stays behind here, DEL and GC find.
            let _ = locked.release_address(&owner, &candidate.address.addr);
        }
    }
    locked.close().map_err(store_error)?;
    outcome?;
    let ip = |candidate: &Candidate| IpConfig {
        interface: None,
        address: candidate.address,
        gateway: Some(candidate.gateway),
    };
    Ok(CniResult {
        interfaces: Vec::new(),
        ips: given.iter().map(ip).collect(),
        routes: config.routes,
        dns,
    })
}

fn allocate_all(
    locked: &mut Locked<'_>,
    config: &Config,
    owner: &Owner,
    prepared: &[Reservation],
    given: &mut Vec<Candidate>,
) -> Result<(), Error> {
    let mut wanted = config.wanted.clone();
    for ((index, set), reservation) in config.sets.iter().enumerate().zip(prepared) {
        let position = wanted.iter().position(|addr| set.range_of(addr).is_some());
        let candidate = match position.map(|position| wanted.remove(position)) {
            Some(addr) => take_wanted(locked, set, index, reservation, addr),
            None => take_next(locked, set, index, owner, reservation),
        };
        given.push(candidate.map_err(|error| error.context(format_args!("failed to allocate for range {index}")))?);
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let left: String = wanted.iter().map(|addr| format!(" {addr}")).collect();
    Err(Error::internal(format!("failed to allocate all requested IPs:{left}")))
}

fn take_wanted(
    locked: &mut Locked<'_>,
    set: &RangeSet,
    index: usize,
    reservation: &Reservation,
    addr: IpAddr,
) -> Result<Candidate, Error> {
    let taken = || {
        Error::internal(format!(
            "requested IP address {addr} is not available in range set {set}"
        ))
    };
    let range = set.range_of(&addr).ok_or_else(taken)?;
    if range.gateway == addr {
        return Err(Error::internal(format!("requested ip {addr} is subnet's gateway")));
    }
    if !locked.reserve(reservation, addr, index).map_err(store_error)? {
        return Err(taken());
    }
    let address = netlink::cidr::Cidr {
        addr,
        prefix: range.subnet.prefix,
    };
    Ok(Candidate {
        address,
        gateway: range.gateway,
    })
}

fn take_next(
    locked: &mut Locked<'_>,
    set: &RangeSet,
    index: usize,
    owner: &Owner,
    reservation: &Reservation,
) -> Result<Candidate, Error> {
    if let Some(addr) = locked
        .addresses_of(owner)
        .into_iter()
        .find(|addr| set.range_of(addr).is_some())
    {
        let text = format!(
            "{addr} has been allocated to {}, duplicate allocation is not allowed",
            owner.id()
        );
        return Err(Error::internal(text));
    }
    for candidate in Candidates::new(set, locked.last_reserved(index)) {
        if locked
            .reserve(reservation, candidate.address.addr, index)
            .map_err(store_error)?
        {
            return Ok(candidate);
        }
    }
    Err(Error::internal(format!(
        "no IP addresses available in range set: {set}"
    )))
}

fn read_dns(path: &str) -> Result<Dns, Error> {
    if path.is_empty() {
        return Ok(Dns::default());
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::internal(format!("open {path}: {}", netlink::errno::text(&error))))?;
    Ok(resolv_conf::parse(&text))
}

/// DEL: frees what the attachment holds; holding nothing is success.
pub fn del(request: &Request) -> Result<(), Error> {
    let config = read(request)?;
    let store = open(&config.data_dir, &request.network)?;
    let mut locked = store.lock().map_err(store_error)?;
    let released = locked.release(&owner(request)).map_err(store_error);
    locked.close().map_err(store_error)?;
    released
}

/// CHECK: the attachment holds an address.
pub fn check(request: &Request) -> Result<(), Error> {
    let config = read(request)?;
    let store = open(&config.data_dir, &request.network)?;
    let locked = store.lock().map_err(store_error)?;
    let held = !locked.addresses_of(&owner(request)).is_empty();
    locked.close().map_err(store_error)?;
    if held {
        return Ok(());
    }
    let text = format!(
        "host-local: Failed to find address added by container {}",
        request.env.container_id
    );
    Err(Error::internal(text))
}

/// GC: frees what belongs to no valid attachment of this network.
pub fn gc(request: &Request) -> Result<(), Error> {
    let data_dir = Config::read_data_dir(&request.fields()).map_err(|error| Error::internal(error.to_string()))?;
    let valid = request.valid_attachments()?;
    if !Path::new(&data_dir).join(&request.network).exists() {
        return Ok(()); // nobody has an address, and nothing should be made for nobody
    }
    let store = open(&data_dir, &request.network)?;
    let mut locked = store.lock().map_err(store_error)?;
    let collected = locked.retain(&valid).map_err(store_error);
    locked.close().map_err(store_error)?;
    collected
}

/// STATUS: the configuration is usable, the data folder writable, and each range set has a free address.
pub fn status(request: &Request) -> Result<(), Error> {
    let unavailable = |error: Error| Error {
        code: error::UNAVAILABLE,
        ..error
    };
    let config = read(request).map_err(unavailable)?;
    let store = open(&config.data_dir, &request.network).map_err(unavailable)?;
    let locked = store.lock().map_err(|error| unavailable(store_error(error)))?;
    for (index, set) in config.sets.iter().enumerate() {
        let mut free = false;
        for candidate in Candidates::new(set, locked.last_reserved(index)) {
            if !locked
                .is_taken(&candidate.address.addr)
                .map_err(|error| unavailable(store_error(error)))?
            {
                free = true;
                break;
            }
        }
        if !free {
            return Err(Error::new(
                error::UNAVAILABLE,
                format!("no IP addresses available in range set: {set}"),
            ));
        }
    }
    locked.close().map_err(|error| unavailable(store_error(error)))
}
