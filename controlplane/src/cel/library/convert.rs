//! Conversions, sizes, optional values, and the parts of times.

use super::super::budget::{Budget, Outcome};
use super::super::value::{Val, cut, error};
use super::time;
use jiff::civil::DateTime;

pub(in super::super) fn size<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::Int(i64::try_from(args[0].size()).unwrap_or(i64::MAX)))
}

pub(in super::super) fn type_of<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::Type(args[0].type_name()))
}

pub(in super::super) fn int<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    let number = match &args[0] {
        Val::Int(number) => Some(*number),
        Val::Uint(number) => i64::try_from(*number).ok(),
        Val::Double(number) if *number > -9.223_372_036_854_775e18 && *number < 9.223_372_036_854_775e18 => {
            Some(*number as i64)
        }
        Val::Text(text) => match text.parse() {
            Ok(number) => Some(number),
            Err(_) => return error(format!("strconv.ParseInt: parsing {:?}: invalid syntax", cut(text))),
        },
        Val::Time(time) => Some(time.seconds()),
        Val::Duration(nanoseconds) => Some(*nanoseconds),
        _ => None,
    };
    number.map_or_else(|| error("integer overflow"), |number| Ok(Val::Int(number)))
}

pub(in super::super) fn uint<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    let number = match &args[0] {
        Val::Uint(number) => Some(*number),
        Val::Int(number) => u64::try_from(*number).ok(),
        Val::Double(number) if *number >= 0.0 && *number < 1.844_674_407_370_955e19 => Some(*number as u64),
        Val::Text(text) => match text.parse() {
            Ok(number) => Some(number),
            Err(_) => return error(format!("strconv.ParseUint: parsing {:?}: invalid syntax", cut(text))),
        },
        _ => None,
    };
    number.map_or_else(|| error("unsigned integer overflow"), |number| Ok(Val::Uint(number)))
}

pub(in super::super) fn double<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    match &args[0] {
        Val::Double(number) => Ok(Val::Double(*number)),
        Val::Int(number) => Ok(Val::Double(*number as f64)),
        Val::Uint(number) => Ok(Val::Double(*number as f64)),
        Val::Text(text) => match text.parse() {
            Ok(number) => Ok(Val::Double(number)),
            Err(_) => error(format!("strconv.ParseFloat: parsing {:?}: invalid syntax", cut(text))),
        },
        _ => error("no such overload"),
    }
}

pub(in super::super) fn boolean<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    match &args[0] {
        Val::Bool(is) => Ok(Val::Bool(*is)),
        Val::Text(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Val::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Val::Bool(false)),
            other => error(format!("strconv.ParseBool: parsing {:?}: invalid syntax", cut(other))),
        },
        _ => error("no such overload"),
    }
}

pub(in super::super) fn string<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    if let Val::Bytes(bytes) = &args[0] {
        budget.make(bytes.len().saturating_mul(2))?;
    }
    Ok(Val::text(match &args[0] {
        Val::Text(text) => return Ok(Val::Text(text.clone())),
        Val::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return error("invalid UTF-8 in bytes, cannot convert to string"),
        },
        Val::Duration(nanoseconds) => {
            let seconds = *nanoseconds as f64 / 1e9;
            format!("{seconds}s")
        }
        Val::Time(time) => time.to_string(),
        Val::Ip(address) => address.to_string(),
        Val::Cidr(address, length) => format!("{address}/{length}"),
        Val::Bool(is) => is.to_string(),
        Val::Int(number) => number.to_string(),
        Val::Uint(number) => number.to_string(),
        Val::Double(number) => super::format::shortest(*number),
        _ => return error("no such overload"),
    }))
}

pub(in super::super) fn bytes<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    match &args[0] {
        Val::Bytes(bytes) => Ok(Val::Bytes(bytes.clone())),
        Val::Text(text) => {
            budget.make(text.len())?;
            Ok(Val::Bytes(text.as_bytes().into()))
        }
        _ => error("no such overload"),
    }
}

pub(in super::super) fn duration<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    match &args[0] {
        Val::Duration(nanoseconds) => Ok(Val::Duration(*nanoseconds)),
        Val::Text(text) => match time::duration(text) {
            Some(nanoseconds) => Ok(Val::Duration(nanoseconds)),
            None => error(format!("time: invalid duration {:?}", cut(text))),
        },
        _ => error("no such overload"),
    }
}

pub(in super::super) fn timestamp<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    match &args[0] {
        Val::Time(time) => Ok(Val::Time(*time)),
        Val::Int(seconds) => match time::Moment::from_seconds(*seconds) {
            Some(time) => Ok(Val::Time(time)),
            None => error("timestamp overflow"),
        },
        Val::Text(text) => match time::moment(text) {
            Some(time) => Ok(Val::Time(time)),
            None => error(format!("parsing time {:?}", cut(text))),
        },
        _ => error("no such overload"),
    }
}

pub(in super::super) fn optional_of<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::some(args[0].clone()))
}

pub(in super::super) fn optional_none<'a>(_: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::Optional(None))
}

pub(in super::super) fn optional_of_non_zero<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    let is_zero = match &args[0] {
        Val::Null | Val::Bool(false) | Val::Int(0) | Val::Uint(0) | Val::Duration(0) | Val::Optional(None) => true,
        Val::Double(number) => *number == 0.0,
        value @ (Val::Text(_) | Val::Bytes(_) | Val::List(..) | Val::Map(_)) => value.size() == 0,
        Val::Time(time) => Some(*time) == time::moment("0001-01-01T00:00:00Z"),
        Val::Data(value, _) => {
            value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(|map| map.is_empty())
        }
        _ => false,
    };
    Ok(match is_zero {
        true => Val::Optional(None),
        false => Val::some(args[0].clone()),
    })
}

pub(in super::super) fn optional_value<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    match &args[0] {
        Val::Optional(Some(inner)) => Ok((**inner).clone()),
        _ => error("optional.none() dereference"),
    }
}

pub(in super::super) fn optional_has_value<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::Bool(matches!(&args[0], Val::Optional(Some(_)))))
}

/// A part of a moment, in UTC or at the offset that is asked for.
fn part<'a>(args: &[Val<'a>], of_time: fn(DateTime) -> i64, of_duration: fn(i64) -> i64) -> Outcome<'a> {
    let offset = match args.get(1) {
        None => 0,
        Some(Val::Text(zone)) => match &**zone {
            "" | "UTC" => 0,
            zone => match time::offset(zone) {
                Some(offset) => offset,
                None => return error(format!("unknown time zone {}", cut(zone))),
            },
        },
        Some(_) => return error("no such overload"),
    };
    match &args[0] {
        Val::Time(time) => Ok(Val::Int(of_time(time.at_offset(offset)))),
        Val::Duration(nanoseconds) => Ok(Val::Int(of_duration(*nanoseconds))),
        _ => error("no such overload"),
    }
}

macro_rules! parts {
    ($($name:ident: $time:expr, $duration:expr;)*) => {
        $(pub(in super::super) fn $name<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
            part(args, $time, $duration)
        })*
    };
}

parts! {
    year: |time| i64::from(time.year()), |_| 0;
    month: |time| i64::from(time.month()) - 1, |_| 0;
    day_of_year: |time| i64::from(time.day_of_year()) - 1, |_| 0;
    day_of_month: |time| i64::from(time.day()) - 1, |_| 0;
    date: |time| i64::from(time.day()), |_| 0;
    day_of_week: |time| i64::from(time.weekday().to_sunday_zero_offset()), |_| 0;
    hours: |time| i64::from(time.hour()), |nanoseconds| nanoseconds / 3_600_000_000_000;
    minutes: |time| i64::from(time.minute()), |nanoseconds| nanoseconds / 60_000_000_000;
    seconds: |time| i64::from(time.second()), |nanoseconds| nanoseconds / 1_000_000_000;
    milliseconds: |time| i64::from(time.millisecond()), |nanoseconds| nanoseconds / 1_000_000;
}
