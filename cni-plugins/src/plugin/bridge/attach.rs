//! ADD: the steps in order, and how a failed one is taken back, so that the host, the container and the disk are as before.

use super::config::Config;
use super::{host, plan, spoof};
use crate::ipam::delegate;
use crate::plugin::container_end::{self, Duplicates};
use crate::plugin::masquerade::{self, Attachment};
use crate::plugin::pair::{describe, open_netns, open_socket, open_socket_in, refuse_existing};
use crate::protocol::dispatch::Request;
use crate::protocol::error::{Error, chain};
use crate::protocol::result::CniResult;
use netlink::Socket;
use netlink::link::{Link, Target, delete};
use netlink::netns::Netns;

/// An ADD under way.
struct Work<'a> {
    request: &'a Request,
    config: &'a Config,
    netns: Netns,
    outside: Socket,
    inside: Socket,
    /// The bridge, and whether this call made it.
    bridge: (Link, bool),
    /// The host's end, once it is made.
    port: Option<Link>,
}

/// ADD.
pub fn add(request: &Request) -> Result<CniResult, Error> {
    let config = Config::read(request)?;
    config.refuse_contradictions()?;
    let netns = open_netns(request)?;
    let mut outside = open_socket()?;
    let mut inside = open_socket_in(&netns)?;
    refuse_existing(&mut inside, &request.env.ifname)?;
    let bridge = host::ensure_bridge(&mut outside, &config)?;
    let mut work = Work {
        request,
        config: &config,
        netns,
        outside,
        inside,
        bridge,
        port: None,
    };
    let ipam = match config.ipam.as_str() {
        "" => Ok(CniResult::default()),
        kind => delegate::add(request, kind),
    };
    let result = match ipam {
        Ok(ipam) => work.attach(ipam).inspect_err(|_| work.release()),
        Err(error) => Err(error),
    };
    result.inspect_err(|_| work.undo_links())
}

impl Work<'_> {
    /// Everything after the address is known.
    fn attach(&mut self, mut result: CniResult) -> Result<CniResult, Error> {
        let config = self.config;
        if !config.ipam.is_empty() && result.ips.is_empty() {
            return Err(Error::internal("IPAM plugin returned missing IP config"));
        }
        let gateways = plan::complete(&mut result, config);
        let ifname = &self.request.env.ifname;
        let port = self.port.insert(host::make_port(
            &mut self.outside,
            &self.netns,
            config,
            &mut self.bridge,
            ifname,
        )?);
        host::settle_port(&mut self.outside, port, config, config.hairpin)?;
        let bridge = host::reread(&mut self.outside, &self.bridge.0)?;
        let container = container_end::find(&mut self.inside, ifname)?;
        if config.mac_spoof_check {
            spoof::add(&Attachment::of(self.request), &port.name, container.mac)
                .map_err(|error| Error::internal(format!("failed to set up spoof check: {}", chain(&error))))?;
        }
        if !config.ipam.is_empty() {
            let duplicates = if config.enable_dad {
                Duplicates::Detect
            } else {
                Duplicates::Trust
            };
            container_end::configure(&self.netns, &mut self.inside, &container, duplicates, &result)?;
        } else if !config.disable_container_interface {
            container_end::bring_up(&mut self.inside, container.index, ifname)?;
        }
        let mut extra = None;
        if config.is_gateway && !gateways.is_empty() {
            extra = host::ensure_gateways(&mut self.outside, config, &bridge, &gateways)?;
        }
        if config.masquerades() {
            let addresses: Vec<_> = result.ips.iter().map(|ip| ip.address).collect();
            masquerade::set_up(&Attachment::of(self.request), config.ip_masq_backend, &addresses)?;
        }
        if !config.disable_container_interface {
            host::wait_until_up(&mut self.outside, &bridge, port)?;
            // The container's end follows as late; whoever looks at it next should find it up.
            let _ = self.inside.carrier(ifname);
        }
        result.interfaces = vec![
            describe(&bridge, ""),
            describe(port, ""),
            describe(&container, self.netns.path()),
        ];
        result.interfaces.extend(extra);
        if let Some(dns) = &config.dns {
            result.dns = dns.clone();
        }
        Ok(result)
    }

    /// Takes back the address and the rules. Failures are not reported: the first error is what the user needs, and DEL,
    /// which follows a failed ADD, tries again.
    fn release(&mut self) {
        self.undo_pair();
        let _ = super::release_address(self.request, self.config);
        let _ = super::remove_rules(self.request, self.config);
    }

    /// Deletes the pair if this call made it.
    fn undo_pair(&mut self) {
        if let Some(port) = self.port.take() {
            let _ = self.outside.request(delete(Target::Index(port.index)));
        }
    }

    /// Deletes the bridge if this call made it and nobody uses it yet. A parallel ADD that found it makes it again.
    fn undo_links(&mut self) {
        self.undo_pair();
        let (bridge, is_new) = &self.bridge;
        let unused = |links: Vec<Link>| links.iter().all(|link| link.master != Some(bridge.index));
        if *is_new && self.outside.links().is_ok_and(unused) {
            let _ = self.outside.request(delete(Target::Index(bridge.index)));
        }
    }
}
