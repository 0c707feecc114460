//! The `static` plugin: addresses written in the configuration, or wanted by the caller. Keeps nothing.

use crate::protocol::args;
use crate::protocol::dispatch::{Plugin, Request};
use crate::protocol::error::Error;
use crate::protocol::json::{DecodeError, Fields, parse_ip};
use crate::protocol::result::{CniResult, Dns, IpConfig, Route};
use crate::protocol::version::{ALL, Version};
use netlink::cidr::Cidr;

/// The plugin.
pub static PLUGIN: Plugin = Plugin {
    name: "static",
    versions: &ALL,
    add,
    del: |_| Ok(()),
    check,
    gc: |_| Ok(()),
    status: |_| Ok(()),
};

fn failed(error: impl std::fmt::Display) -> Error {
    Error::internal(error.to_string())
}

/// What an address without a length is refused with, by where it came from; upstream's words.
const WRITTEN: &str = "the 'address' field is expected to be in CIDR notation";
const WANTED: &str = "an entry in the 'ips' field is NOT in CIDR notation";
const FROM_ENV: &str = "the 'ip' field is expected to be in CIDR notation";

fn address(text: &str, gateway: Option<std::net::IpAddr>, refusal: &str) -> Result<IpConfig, Error> {
    let address = Cidr::parse(text.trim()).map_err(|_| failed(format!("{refusal}, got: '{text}'")))?;
    Ok(IpConfig {
        interface: None,
        address,
        gateway,
    })
}

/// What the caller wants beats what is written: `runtimeConfig.ips`, then `args.cni.ips`, then `CNI_ARGS`, then the list.
fn addresses(fields: &Fields<'_>, ipam: &Fields<'_>, cni_args: &str) -> Result<Vec<IpConfig>, Error> {
    let [from_env, gateways] = args::parse(cni_args, ["IP", "GATEWAY"]).map_err(failed)?;
    let wanted = fields
        .object("runtimeConfig", "RuntimeConfig")
        .and_then(|runtime| runtime.strings("ips"));
    let mut wanted = wanted.map_err(failed)?;
    if wanted.is_empty() {
        let in_args = fields
            .object("args", "IPAMArgs")
            .and_then(|args| args.object("cni", "IPAMArgs"));
        wanted = in_args.and_then(|args| args.strings("ips")).map_err(failed)?;
    }
    if !wanted.is_empty() {
        return wanted.iter().map(|text| address(text, None, WANTED)).collect();
    }
    let mut found = Vec::new();
    for entry in ipam.objects("addresses", "Address").map_err(failed)? {
        let gateway = entry.parsed("gateway", parse_ip).map_err(failed)?;
        found.push(address(entry.string("address").map_err(failed)?, gateway, WRITTEN)?);
    }
    if let Some(from_env) = from_env {
        found = from_env
            .split(',')
            .map(|text| address(text, None, FROM_ENV))
            .collect::<Result<_, _>>()?;
    }
    for gateway in gateways.iter().flat_map(|gateways| gateways.split(',')) {
        let gateway = parse_ip(gateway.trim()).map_err(|_| failed(format!("invalid gateway address: {gateway}")))?;
        let of_network = found.iter_mut().filter(|ip| ip.address.contains(&gateway));
        of_network.for_each(|ip| ip.gateway = Some(gateway));
    }
    Ok(found)
}

fn read(request: &Request) -> Result<CniResult, Error> {
    let fields = request.fields();
    let ipam = fields.object("ipam", "IPAMConfig").map_err(failed)?;
    if !ipam.is_present() {
        return Err(failed("IPAM config missing 'ipam' key"));
    }
    let ips = addresses(&fields, &ipam, &request.env.args)?;
    let v4 = ips.iter().filter(|ip| ip.address.is_v4()).count();
    if request.version < Version::V0_3_0 && (v4 > 1 || ips.len() - v4 > 1) {
        return Err(failed(format!(
            "CNI version {} does not support more than 1 address per family",
            request.version
        )));
    }
    let read = |fields: &Fields<'_>| -> Result<(Vec<Route>, Dns), DecodeError> {
        let routes = fields
            .objects("routes", "Route")?
            .iter()
            .map(Route::read)
            .collect::<Result<_, _>>()?;
        Ok((routes, Dns::read(&fields.object("dns", "DNS")?)?))
    };
    let (routes, dns) = read(&ipam).map_err(failed)?;
    Ok(CniResult {
        interfaces: Vec::new(),
        ips,
        routes,
        dns,
    })
}

fn add(request: &Request) -> Result<CniResult, Error> {
    read(request)
}

/// CHECK: every configured address is in the previous result.
fn check(request: &Request) -> Result<(), Error> {
    let wanted = read(request)?;
    let previous = request
        .prev_result()?
        .ok_or_else(|| Error::internal("Required prevResult missing"))?;
    for ip in &wanted.ips {
        if !previous.ips.iter().any(|found| found.address == ip.address) {
            return Err(failed(format!(
                "static: Failed to find address {} on any interface",
                ip.address
            )));
        }
    }
    Ok(())
}
