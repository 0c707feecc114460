//! URLs, addresses and ranges of addresses.

use std::net::IpAddr;
use std::rc::Rc;

use super::super::budget::{Budget, Outcome};
use super::super::value::{Val, cut, error, text};
use super::url::{Url, parse};

/// Bytes of a pair of a query beside its texts: a key in a tree, a list and a value, as they grow.
const PAIR_BYTES: usize = 512;

pub(in super::super) fn url<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let own = text(args, 0)?;
    // Its parts, of which the path may get escapes of three characters.
    budget.make(own.len().saturating_mul(4))?;
    match parse(own) {
        Some(url) => Ok(Val::Url(Rc::new(url))),
        None => error(format!(
            "URL parse error during conversion from string: parse {:?}: invalid URI for request",
            cut(own)
        )),
    }
}

pub(in super::super) fn is_url<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    budget.make(text(args, 0)?.len().saturating_mul(4))?;
    Ok(Val::Bool(parse(text(args, 0)?).is_some()))
}

/// Whether a text is an absolute URL or path.
pub(in super::super) fn is_uri(text: &str) -> bool {
    super::url::is_request(text)
}

fn part<'a>(args: &[Val<'a>], budget: &mut Budget, part: fn(&Url) -> String) -> Outcome<'a> {
    match &args[0] {
        Val::Url(url) => {
            let bytes = url.scheme.len() + url.host.len() + url.path.len();
            budget.make(bytes.saturating_mul(2))?;
            Ok(Val::text(part(url)))
        }
        _ => error("no such overload"),
    }
}

pub(in super::super) fn scheme<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    part(args, budget, |url| url.scheme.to_string())
}

pub(in super::super) fn host<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    part(args, budget, |url| url.host.to_string())
}

pub(in super::super) fn hostname<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    part(args, budget, |url| url.name_and_port().0.to_owned())
}

pub(in super::super) fn port<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    part(args, budget, |url| url.name_and_port().1.to_owned())
}

pub(in super::super) fn path<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    part(args, budget, |url| url.path.to_string())
}

pub(in super::super) fn query<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let Val::Url(url) = &args[0] else {
        return error("no such overload");
    };
    let pairs = url.query.split('&').filter(|pair| !pair.is_empty()).count();
    budget.make(
        pairs
            .saturating_mul(PAIR_BYTES)
            .saturating_add(url.query.len().saturating_mul(3)),
    )?;
    let pairs = url.pairs().into_iter().map(|(key, values)| {
        let values = values.into_iter().map(Val::text).collect();
        (Val::text(key), Val::list(values))
    });
    Ok(Val::Map(Rc::new(pairs.collect())))
}

/// An address as Kubernetes takes it: no zone, and none of version 4 in the dress of version 6.
fn address(text: &str) -> Result<IpAddr, String> {
    let parsed: IpAddr = match text.parse() {
        Ok(address) => address,
        Err(_) => {
            return Err(format!(
                "IP Address {:?} parse error during conversion from string: unable to parse IP",
                cut(text)
            ));
        }
    };
    match parsed {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
        }
        parsed => Ok(parsed),
    }
}

fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(four) => (u128::from(u32::from(four)) << 96, 32),
        IpAddr::V6(six) => (u128::from(six), 128),
    }
}

fn range(text: &str) -> Result<(IpAddr, u8), String> {
    let refused = || {
        format!(
            "network address parse error during conversion from string: invalid CIDR address {:?}",
            cut(text)
        )
    };
    let (own, length) = text.split_once('/').ok_or_else(refused)?;
    let own = address(own).map_err(|_| refused())?;
    let is_plain = !length.is_empty() && length.bytes().all(|digit| digit.is_ascii_digit());
    let is_plain = is_plain && (length.len() == 1 || !length.starts_with('0'));
    let length: u8 = length.parse().ok().filter(|_| is_plain).ok_or_else(refused)?;
    match length <= bits(own).1 {
        true => Ok((own, length)),
        false => Err(refused()),
    }
}

pub(in super::super) fn ip<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    address(text(args, 0)?).map_or_else(error, |address| Ok(Val::Ip(address)))
}

pub(in super::super) fn is_ip<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::Bool(address(text(args, 0)?).is_ok()))
}

pub(in super::super) fn is_canonical<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    let own = text(args, 0)?;
    address(own).map_or_else(error, |address| Ok(Val::Bool(address.to_string() == own)))
}

fn of<'a>(args: &[Val<'a>], is: fn(IpAddr) -> bool) -> Outcome<'a> {
    match args[0] {
        Val::Ip(address) => Ok(Val::Bool(is(address))),
        _ => error("no such overload"),
    }
}

pub(in super::super) fn family<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    match args[0] {
        Val::Ip(IpAddr::V4(_)) => Ok(Val::Int(4)),
        Val::Ip(IpAddr::V6(_)) => Ok(Val::Int(6)),
        _ => error("no such overload"),
    }
}

pub(in super::super) fn is_unspecified<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    of(args, |address| address.is_unspecified())
}

pub(in super::super) fn is_loopback<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    of(args, |address| address.is_loopback())
}

fn link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four.octets()[..3] == [224, 0, 0],
        IpAddr::V6(six) => six.octets()[0] == 0xff && six.octets()[1] & 0x0f == 2,
    }
}

fn link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    }
}

pub(in super::super) fn is_link_local_multicast<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    of(args, link_local_multicast)
}

pub(in super::super) fn is_link_local_unicast<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    of(args, link_local_unicast)
}

pub(in super::super) fn is_global_unicast<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    of(args, |address| {
        let is_broadcast = matches!(address, IpAddr::V4(four) if four.is_broadcast());
        let is_other = address.is_unspecified() || address.is_loopback() || address.is_multicast();
        !is_broadcast && !is_other && !link_local_unicast(address)
    })
}

pub(in super::super) fn cidr<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    range(text(args, 0)?).map_or_else(error, |(address, length)| Ok(Val::Cidr(address, length)))
}

pub(in super::super) fn is_cidr<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::Bool(range(text(args, 0)?).is_ok()))
}

pub(in super::super) fn cidr_ip<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    match args[0] {
        Val::Cidr(address, _) => Ok(Val::Ip(address)),
        _ => error("no such overload"),
    }
}

pub(in super::super) fn prefix_length<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    match args[0] {
        Val::Cidr(_, length) => Ok(Val::Int(i64::from(length))),
        _ => error("no such overload"),
    }
}

/// The first bits of an address, the others zero.
fn first_bits(address: IpAddr, length: u8) -> u128 {
    let mask = if length == 0 {
        0
    } else {
        u128::MAX << (128 - u32::from(length))
    };
    bits(address).0 & mask
}

pub(in super::super) fn masked<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    let Val::Cidr(address, length) = args[0] else {
        return error("no such overload");
    };
    let first = first_bits(address, length);
    let address = match address {
        IpAddr::V4(_) => IpAddr::from(u32::try_from(first >> 96).unwrap_or_default().to_be_bytes()),
        IpAddr::V6(_) => IpAddr::from(first.to_be_bytes()),
    };
    Ok(Val::Cidr(address, length))
}

fn is_within(own: (IpAddr, u8), other: (IpAddr, u8)) -> bool {
    let is_one_family = bits(own.0).1 == bits(other.0).1;
    is_one_family && other.1 >= own.1 && first_bits(own.0, own.1) == first_bits(other.0, own.1)
}

pub(in super::super) fn contains_ip<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    let other = match &args[1] {
        Val::Ip(address) => *address,
        _ => address(text(args, 1)?).or_else(error)?,
    };
    match args[0] {
        Val::Cidr(own, length) => Ok(Val::Bool(is_within((own, length), (other, bits(other).1)))),
        _ => error("no such overload"),
    }
}

pub(in super::super) fn contains_cidr<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    let other = match &args[1] {
        Val::Cidr(address, length) => (*address, *length),
        _ => range(text(args, 1)?).or_else(error)?,
    };
    match args[0] {
        Val::Cidr(own, length) => Ok(Val::Bool(is_within((own, length), other))),
        _ => error("no such overload"),
    }
}
