//! The `bandwidth` plugin (contract §4.3): limits what a container receives and sends. Chained after another plugin.
//!
//! What the container receives leaves the host's end of its pair: a token bucket there. What it sends arrives on that end,
//! where no bucket can be: it is redirected to a device of its own (IFB) with a bucket.

use crate::plugin::rule_note::{RuleNote, hash};
use crate::protocol::dispatch::{Plugin, Request};
use crate::protocol::error::{Error, chain, internal};
use crate::protocol::json::{DecodeError, Fields};
use crate::protocol::result::{CniResult, Interface};
use crate::protocol::version::{ALL, Version};
use netlink::link::{Link, Target, create_ifb, delete, set, set_flags};
use netlink::netns::Netns;
use netlink::traffic::{TokenBucket, add_ingress, add_token_bucket, redirect_all};
use netlink::wire::{IFF_UP, IFLA_IFALIAS};
use netlink::{Protocol, Socket};
use sha2::{Digest, Sha512};

/// The plugin.
pub static PLUGIN: Plugin = Plugin {
    name: "bandwidth",
    versions: ALL.split_at(2).1,
    add,
    del,
    check,
    gc,
    status: |_| Ok(()),
};

const _: () = assert!(matches!(ALL[2], Version::V0_3_0));

/// The longest name of an interface.
const MAX_NAME_BYTES: usize = 15;

/// The longest alias of an interface.
const MAX_ALIAS_BYTES: usize = 255;

fn cut(text: &str, bytes: usize) -> &str {
    text.get(..bytes).unwrap_or(text)
}

/// The limits of one container; absent is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Limits {
    /// What it receives.
    ingress: Option<TokenBucket>,
    /// What it sends.
    egress: Option<TokenBucket>,
}

const KEYS: [&str; 4] = ["ingressRate", "ingressBurst", "egressRate", "egressBurst"];

impl Limits {
    /// Keys of the configuration itself beat those given at run time.
    fn read(fields: &Fields<'_>) -> Result<Self, Error> {
        let unreadable =
            |error: DecodeError| Error::internal(format!("failed to parse network configuration: {error}"));
        let runtime = fields.object("runtimeConfig", "RuntimeConfig").map_err(unreadable)?;
        let at_runtime = runtime.object("bandwidth", "BandwidthEntry").map_err(unreadable)?;
        let own = KEYS.iter().any(|key| fields.value(key).is_some());
        let source = if own { fields } else { &at_runtime };
        let bucket = |rate: &'static str, burst: &'static str| {
            bucket(
                source.int(rate).map_err(unreadable)?,
                source.int(burst).map_err(unreadable)?,
            )
        };
        Ok(Self {
            ingress: bucket(KEYS[0], KEYS[1])?,
            egress: bucket(KEYS[2], KEYS[3])?,
        })
    }

    fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

/// A bucket from bits per second and bits.
fn bucket(rate: i64, burst: i64) -> Result<Option<TokenBucket>, Error> {
    match (rate, burst) {
        (0, 0) => Ok(None),
        (rate, burst) if rate < 0 || burst < 0 => Err(Error::internal("rate and burst must be a positive integer")),
        (_, 0) => Err(Error::internal("if rate is set, burst must also be set")),
        (0, _) => Err(Error::internal("if burst is set, rate must also be set")),
        (rate, burst) => match u32::try_from(burst / 8) {
            Ok(burst) if burst < u32::MAX => Ok(Some(TokenBucket {
                rate: rate as u64 / 8,
                burst,
            })),
            _ => Err(Error::internal("burst cannot be more than 4GB")),
        },
    }
}

/// The name of a container's own device.
fn ifb_name(network: &str, container_id: &str) -> String {
    let digest = Sha512::digest(format!("{network}{container_id}").as_bytes());
    let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut name = format!("bwp{hash}");
    name.truncate(MAX_NAME_BYTES);
    name
}

fn note(network: &str, container_id: &str) -> RuleNote {
    RuleNote::new("bandwidth", &format!("{}-{}", hash(network), hash(container_id)))
}

fn open() -> Result<Socket, Error> {
    Socket::open(Protocol::Route).map_err(|error| internal(&error))
}

fn previous(request: &Request) -> Result<CniResult, Error> {
    request
        .prev_result()?
        .ok_or_else(|| Error::internal("must be called as chained plugin"))
}

/// The host's end of the container's pair, which must be one of the interfaces the plugins before this one have reported:
/// what none of them made is not to be limited.
fn host_end(request: &Request, outside: &mut Socket, previous: &CniResult) -> Result<Link, Error> {
    let path = &request.env.netns;
    let netns = Netns::open(path);
    let netns = netns.map_err(|error| Error::internal(format!("failed to open netns {path:?}: {}", chain(&error))))?;
    let mut inside = netns.run(open).map_err(|error| internal(&error))??;
    let ifname = &request.env.ifname;
    let own = inside.link(Target::Name(ifname)).map_err(|error| internal(&error))?;
    let own = own.ok_or_else(|| Error::internal(format!("failed to find interface {ifname:?}: Link not found")))?;
    let peer = own.peer.filter(|_| own.kind == "veth").unwrap_or(0);
    let found = outside.link(Target::Index(peer)).map_err(|error| internal(&error))?;
    let is_reported = |link: &Link| {
        let mut on_host = previous
            .interfaces
            .iter()
            .filter(|interface| interface.sandbox.is_empty());
        on_host.any(|interface| interface.name == link.name)
    };
    let found = found.filter(|link| link.kind == "veth" && link.peer == Some(own.index));
    if found.as_ref().is_some_and(|link| !is_reported(link)) {
        return Err(Error::internal("no veth peer of container interface found in host ns"));
    }
    found.ok_or_else(|| {
        Error::internal(format!(
            "no host interface found: {ifname:?} has no peer in the host's namespace"
        ))
    })
}

fn add(request: &Request) -> Result<CniResult, Error> {
    let limits = Limits::read(&request.fields())?;
    let mut result = previous(request)?;
    if limits.is_unlimited() {
        return Ok(result);
    }
    let mut outside = open()?;
    let port = host_end(request, &mut outside, &result)?;
    if let Some(bucket) = limits.ingress {
        let limited = outside.request(add_token_bucket(port.index, bucket));
        limited.map_err(|error| Error::internal(format!("create ingress qdisc: {}", chain(&error))))?;
    }
    if let Some(bucket) = limits.egress {
        let name = ifb_name(&request.network, &request.env.container_id);
        note(&request.network, &request.env.container_id).write(&format!("{} {name}", request.env.container_id), &[]);
        let alias = format!("{} {}", request.network, request.env.container_id);
        let device = limit_sending(&mut outside, &port, [&name, &alias], bucket).inspect_err(|_| {
            // The first error is the one to report; DEL, which follows a failed ADD, deletes the device again.
            let _ = outside.request(delete(Target::Name(&name)));
        })?;
        result.interfaces.push(Interface {
            mac: device.mac_text(),
            name: device.name,
            ..Interface::default()
        });
    }
    Ok(result)
}

/// Makes the container's own device, whose alias says whose it is, and sends through it what arrives at `port`.
fn limit_sending(
    outside: &mut Socket,
    port: &Link,
    [name, alias]: [&str; 2],
    bucket: TokenBucket,
) -> Result<Link, Error> {
    let fail = |what: &'static str| move |error: netlink::Error| Error::internal(format!("{what}: {}", chain(&error)));
    outside
        .batch_all(&[
            create_ifb(name, port.mtu),
            set(Target::Name(name)).attr(IFLA_IFALIAS, cut(alias, MAX_ALIAS_BYTES).as_bytes()),
        ])
        .map_err(fail("create ifb"))?;
    let device = outside.link(Target::Name(name)).map_err(|error| internal(&error))?;
    let device = device.ok_or_else(|| Error::internal(format!("failed to find interface {name:?}: Link not found")))?;
    let steps = [
        (set_flags(Target::Index(device.index), IFF_UP, IFF_UP), "set ifb up"),
        (add_ingress(port.index), "create egress qdisc"),
        (redirect_all(port.index, device.index), "add egress filter"),
        (add_token_bucket(device.index, bucket), "create ifb qdisc"),
    ];
    for (step, what) in steps {
        outside.request(step).map_err(fail(what))?;
    }
    Ok(device)
}

/// DEL: the device goes; the rest went with the pair.
fn del(request: &Request) -> Result<(), Error> {
    let name = ifb_name(&request.network, &request.env.container_id);
    delete_device(&mut open()?, &name)?;
    note(&request.network, &request.env.container_id).forget();
    Ok(())
}

fn delete_device(outside: &mut Socket, name: &str) -> Result<(), Error> {
    match outside.request(delete(Target::Name(name))) {
        Err(error) if !error.is_missing() => {
            Err(Error::internal(format!("failed to delete {name:?}: {}", chain(&error))))
        }
        _ => Ok(()),
    }
}

fn check(request: &Request) -> Result<(), Error> {
    let limits = Limits::read(&request.fields())?;
    let previous = previous(request)?;
    if limits.is_unlimited() {
        return Ok(());
    }
    let mut outside = open()?;
    let port = host_end(request, &mut outside, &previous)?;
    let mut expected = Vec::new();
    expected.extend(limits.ingress.map(|bucket| (port, bucket)));
    if let Some(bucket) = limits.egress {
        let name = ifb_name(&request.network, &request.env.container_id);
        let device = outside.link(Target::Name(&name)).map_err(|error| internal(&error))?;
        expected.push((
            device.ok_or_else(|| Error::internal(format!("ifb device {name} not found")))?,
            bucket,
        ));
    }
    for (link, bucket) in expected {
        let rate = outside
            .token_bucket_rate(link.index)
            .map_err(|error| internal(&error))?;
        if rate != Some(bucket.rate) {
            let text = format!(
                "interface {} is not limited to {} bytes per second",
                link.name, bucket.rate
            );
            return Err(Error::internal(text));
        }
    }
    Ok(())
}

/// GC: devices of this network's containers that have no valid attachment. Their aliases say whose they are; a note does,
/// where the plugin was killed before there was an alias.
fn gc(request: &Request) -> Result<(), Error> {
    let valid = request.valid_attachments()?;
    let network = &request.network;
    let keep: Vec<String> = valid.iter().map(|(id, _)| ifb_name(network, id)).collect();
    let mut outside = open()?;
    let ours = format!("{network} ");
    let links = outside.links().map_err(|error| internal(&error))?;
    let devices = links
        .into_iter()
        .filter(|link| link.kind == "ifb" && link.alias.starts_with(&ours));
    let mut stale: Vec<String> = devices.map(|link| link.name).collect();
    let notes = RuleNote::all("bandwidth", &format!("{}-", hash(network)));
    let noted = notes.iter().filter_map(|(_, label)| label.split_once(' '));
    stale.extend(noted.map(|(_, name)| name.to_owned()));
    for name in stale.iter().filter(|name| !keep.contains(name)) {
        delete_device(&mut outside, name)?;
    }
    let is_stale = |label: &str| {
        label
            .split_once(' ')
            .is_none_or(|(_, name)| !keep.iter().any(|kept| kept == name))
    };
    notes
        .iter()
        .filter(|(_, label)| is_stale(label))
        .for_each(|(note, _)| note.forget());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(config: Value) -> Result<Limits, Error> {
        Limits::read(&Fields::new(config.as_object().unwrap(), "PluginConf"))
    }

    #[test]
    fn limits_of_the_configuration_beat_those_of_the_runtime() {
        let entry = json!({"ingressRate": 8000, "ingressBurst": 800});
        let limits = read(json!({"runtimeConfig": {"bandWidth": entry}})).unwrap();
        assert_eq!(
            limits,
            Limits {
                ingress: Some(TokenBucket { rate: 1000, burst: 100 }),
                egress: None
            }
        );
        let both = json!({"egressRate": 80, "egressBurst": 8, "runtimeConfig": {"bandwidth": entry}});
        assert_eq!(
            read(both).unwrap(),
            Limits {
                ingress: None,
                egress: Some(TokenBucket { rate: 10, burst: 1 })
            }
        );
        assert!(read(json!({})).unwrap().is_unlimited());
    }

    #[test]
    fn refusals_in_upstreams_words() {
        let text = |rate: i64, burst: i64| bucket(rate, burst).unwrap_err().msg;
        assert_eq!(text(8, 0), "if rate is set, burst must also be set");
        assert_eq!(text(0, 8), "if burst is set, rate must also be set");
        assert_eq!(text(-1, 8), "rate and burst must be a positive integer");
        assert_eq!(text(8, i64::from(u32::MAX) * 8), "burst cannot be more than 4GB");
    }

    #[test]
    fn names_fit_an_interface() {
        let name = ifb_name("net", "container");
        assert!(name.starts_with("bwp") && name.len() == MAX_NAME_BYTES);
    }
}
