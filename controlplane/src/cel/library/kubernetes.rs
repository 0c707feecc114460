//! Quantities, versions and named formats.

use std::rc::Rc;

use proto::api::quantity::{Format, Quantity};

use super::super::budget::{Budget, Failure, Outcome};
use super::super::value::{Val, error, text};
use super::{net, time};
use crate::resource::name;

fn amount(args: &[Val<'_>], at: usize) -> Result<Quantity, Failure> {
    match args.get(at) {
        Some(Val::Quantity(quantity)) => Ok(*quantity),
        Some(Val::Int(number)) => Ok(Quantity::from_units(*number, Format::DecimalSi)),
        _ => error("no such overload"),
    }
}

pub(in super::super) fn quantity<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    match Quantity::parse(text(args, 0)?) {
        Ok(quantity) => Ok(Val::Quantity(quantity)),
        Err(why) => error(why.to_string()),
    }
}

pub(in super::super) fn is_quantity<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::Bool(Quantity::parse(text(args, 0)?).is_ok()))
}

/// The amount if it is whole and has room.
fn whole(quantity: Quantity) -> Option<i64> {
    let value = quantity.value();
    let is_whole = Quantity::from_units(value, Format::DecimalSi).cmp(&quantity).is_eq();
    Some(value).filter(|_| is_whole)
}

pub(in super::super) fn is_integer<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::Bool(whole(amount(args, 0)?).is_some()))
}

pub(in super::super) fn as_integer<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    match whole(amount(args, 0)?) {
        Some(value) => Ok(Val::Int(value)),
        None => error("cannot convert value to integer"),
    }
}

pub(in super::super) fn as_float<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    let written = amount(args, 0)?.to_api().0;
    let end = written.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(written.len());
    let (number, suffix) = written.split_at(end);
    let power = |power: i32| format!("{number}e{power}").parse::<f64>();
    let number = match suffix {
        "n" => power(-9),
        "u" => power(-6),
        "m" => power(-3),
        "" => power(0),
        "k" => power(3),
        "M" => power(6),
        "G" => power(9),
        "T" => power(12),
        "P" => power(15),
        "E" => power(18),
        binary if binary.ends_with('i') => {
            let steps = "KMGTPE".find(binary.trim_end_matches('i')).unwrap_or_default() + 1;
            number
                .parse::<f64>()
                .map(|number| number * 1024f64.powi(i32::try_from(steps).unwrap_or_default()))
        }
        exponent => format!("{number}{exponent}").parse(),
    };
    Ok(Val::Double(number.unwrap_or_default()))
}

pub(in super::super) fn sign<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    let quantity = amount(args, 0)?;
    Ok(Val::Int(match (quantity.is_zero(), quantity.is_negative()) {
        (true, _) => 0,
        (_, true) => -1,
        _ => 1,
    }))
}

pub(in super::super) fn add<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::Quantity(amount(args, 0)?.plus(amount(args, 1)?)))
}

pub(in super::super) fn sub<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::Quantity(amount(args, 0)?.minus(amount(args, 1)?)))
}

fn compared(args: &[Val<'_>]) -> Result<std::cmp::Ordering, Failure> {
    args[0].compare(&args[1]).map_or_else(|| error("no such overload"), Ok)
}

pub(in super::super) fn is_less<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::Bool(compared(args)?.is_lt()))
}

pub(in super::super) fn is_greater<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::Bool(compared(args)?.is_gt()))
}

pub(in super::super) fn compare_to<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::Int(compared(args)? as i64))
}

/// A version; one that is normalized may have a `v` before it, leading zeros and fewer numbers.
fn version(args: &[Val<'_>]) -> Result<Result<semver::Version, String>, Failure> {
    let own = text(args, 0)?;
    let is_normalized = matches!(args.get(1), Some(Val::Bool(true)));
    let parsed = match is_normalized {
        true => semver::Version::parse(&normalized(own)),
        false => semver::Version::parse(own),
    };
    Ok(parsed.map_err(|why| why.to_string()))
}

fn normalized(text: &str) -> String {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (numbers, rest) = text.split_at(text.find(['-', '+']).unwrap_or(text.len()));
    let mut parts: Vec<&str> = Vec::new();
    for part in numbers.split('.') {
        let short = part.trim_start_matches('0');
        parts.push(if short.is_empty() && !part.is_empty() {
            "0"
        } else {
            short
        });
    }
    while parts.len() < 3 {
        parts.push("0");
    }
    format!("{}{rest}", parts.join("."))
}

pub(in super::super) fn semver<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    match version(args)? {
        Ok(version) => Ok(Val::Semver(Rc::new(version))),
        Err(why) => error(format!("semver parse error: {why}")),
    }
}

pub(in super::super) fn is_semver<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::Bool(version(args)?.is_ok()))
}

fn number<'a>(args: &[Val<'a>], of: fn(&semver::Version) -> u64) -> Outcome<'a> {
    match &args[0] {
        Val::Semver(version) => Ok(Val::Int(i64::try_from(of(version)).unwrap_or(i64::MAX))),
        _ => error("no such overload"),
    }
}

pub(in super::super) fn major<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    number(args, |version| version.major)
}

pub(in super::super) fn minor<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    number(args, |version| version.minor)
}

pub(in super::super) fn patch<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    number(args, |version| version.patch)
}

const FORMATS: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

pub(in super::super) fn format_named<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    let own = text(args, 0)?;
    let found = FORMATS.iter().find(|format| **format == own);
    Ok(found.map_or(Val::Optional(None), |format| Val::some(Val::Format(format))))
}

macro_rules! formats {
    ($($function:ident: $name:literal;)*) => {
        $(pub(in super::super) fn $function<'a>(_: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
            Ok(Val::Format($name))
        })*
    };
}

formats! {
    format_dns1123_label: "dns1123Label";
    format_dns1123_subdomain: "dns1123Subdomain";
    format_dns1035_label: "dns1035Label";
    format_qualified_name: "qualifiedName";
    format_dns1123_label_prefix: "dns1123LabelPrefix";
    format_dns1123_subdomain_prefix: "dns1123SubdomainPrefix";
    format_dns1035_label_prefix: "dns1035LabelPrefix";
    format_label_value: "labelValue";
    format_uri: "uri";
    format_uuid: "uuid";
    format_byte: "byte";
    format_date: "date";
    format_datetime: "datetime";
}

/// What is wrong with a text of the format.
fn problems(format: &str, text: &str) -> Vec<String> {
    // A prefix may end where a name may not.
    let prefix = || match text.strip_suffix('-') {
        Some(short) => format!("{short}a"),
        None => text.to_owned(),
    };
    let unless = |is: bool, why: &str| if is { Vec::new() } else { vec![why.to_owned()] };
    match format {
        "dns1123Label" => name::dns1123_label(text),
        "dns1123Subdomain" => name::dns1123_subdomain(text),
        "dns1035Label" => name::dns1035_label(text),
        "qualifiedName" => name::qualified_name(text),
        "dns1123LabelPrefix" => name::dns1123_label(&prefix()),
        "dns1123SubdomainPrefix" => name::dns1123_subdomain(&prefix()),
        "dns1035LabelPrefix" => name::dns1035_label(&prefix()),
        "labelValue" => name::label_value(text),
        "uri" => unless(net::is_uri(text), "invalid URI for request"),
        "uuid" => unless(uuid::Uuid::try_parse(text).is_ok(), "does not match the UUID format"),
        "byte" => {
            use base64::Engine;
            unless(
                base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
                "invalid base64",
            )
        }
        "date" => unless(time::is_date(text), "invalid date"),
        _ => unless(time::is_date_time(text), "invalid datetime"),
    }
}

pub(in super::super) fn validate<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let Val::Format(format) = args[0] else {
        return error("no such overload");
    };
    let own = text(args, 1)?;
    budget.work(own.len() as u64)?;
    let problems = problems(format, own);
    Ok(match problems.is_empty() {
        true => Val::Optional(None),
        false => Val::some(Val::list(problems.into_iter().map(Val::text).collect())),
    })
}
