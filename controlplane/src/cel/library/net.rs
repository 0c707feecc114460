//! URLs, addresses and ranges of addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use super::super::budget::{Budget, Outcome};
use super::super::value::{Val, cut, error, text};

/// A URL in its parts.
#[derive(Debug, PartialEq)]
pub(in super::super) struct Url {
    scheme: Box<str>,
    host: Box<str>,
    path: Box<str>,
    query: Box<str>,
}

/// Bytes of a pair of a query beside its texts: a key in a tree, a list and a value, as they grow.
const PAIR_BYTES: usize = 512;

/// A whole URL, or an absolute path.
fn parse(text: &str) -> Option<Url> {
    if text.is_empty() || text.chars().any(|c| c.is_control() || c == ' ' || c == '\\') {
        return None;
    }
    let (before, query) = text.split_once('?').unwrap_or((text, ""));
    if before.starts_with('/') && !before.starts_with("//") {
        return Some(Url {
            scheme: "".into(),
            host: "".into(),
            path: escaped(before)?.into(),
            query: query.into(),
        });
    }
    let (scheme, rest) = before.split_once("://")?;
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.chars().all(is_scheme) {
        return None;
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (name, port) = split_host(host)?;
    let is_host =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~' | ':' | '%') || !c.is_ascii();
    if !name.chars().all(is_host) || !port.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    Some(Url {
        scheme: scheme.to_ascii_lowercase().into(),
        host: host.into(),
        path: escaped(path)?.into(),
        query: query.into(),
    })
}

/// Name and port; the name of an address of version 6 without its brackets.
fn split_host(host: &str) -> Option<(&str, &str)> {
    if let Some(inner) = host.strip_prefix('[') {
        let (name, rest) = inner.split_once(']')?;
        name.parse::<std::net::Ipv6Addr>().ok()?;
        return match rest {
            "" => Some((name, "")),
            rest => Some((name, rest.strip_prefix(':')?)),
        };
    }
    match host.matches(':').count() {
        0 => Some((host, "")),
        1 => host.split_once(':'),
        _ => None,
    }
}

/// A path with what must be escaped as such.
fn escaped(path: &str) -> Option<String> {
    let mut out = String::with_capacity(path.len());
    let bytes = path.as_bytes();
    for (i, byte) in bytes.iter().enumerate() {
        match byte {
            b'%' => {
                let digits = bytes.get(i + 1..i + 3)?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                out.push('%');
            }
            byte if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*".contains(byte) => out.push(char::from(*byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    Some(out)
}

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
    parse(text).is_some()
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
    part(args, budget, |url| {
        split_host(&url.host).map_or("", |(name, _)| name).to_owned()
    })
}

pub(in super::super) fn port<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    part(args, budget, |url| {
        split_host(&url.host).map_or("", |(_, port)| port).to_owned()
    })
}

pub(in super::super) fn path<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    part(args, budget, |url| url.path.to_string())
}

/// Text with its escapes undone.
fn plain(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let code = bytes.as_slice_two().filter(|_| byte == b'%');
        match (byte, code) {
            (_, Some(code)) => {
                out.push(code);
                bytes.nth(1);
            }
            (b'+', None) => out.push(b' '),
            (other, None) => out.push(other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The byte that two hexadecimal digits ahead stand for.
trait Ahead {
    fn as_slice_two(&self) -> Option<u8>;
}

impl Ahead for std::str::Bytes<'_> {
    fn as_slice_two(&self) -> Option<u8> {
        let mut ahead = self.clone();
        let digits = [ahead.next()?, ahead.next()?];
        u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()
    }
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
    let mut pairs: BTreeMap<String, Vec<Val<'a>>> = BTreeMap::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        pairs.entry(plain(key)).or_default().push(Val::text(plain(value)));
    }
    let pairs = pairs
        .into_iter()
        .map(|(key, values)| (Val::text(key), Val::list(values)));
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
