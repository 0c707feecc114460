//! Operators.

use std::cmp::Ordering;

use super::super::budget::{Budget, Outcome};
use super::super::value::{Val, error};
use super::time::Moment;

fn ordered<'a>(args: &[Val<'a>], is: fn(Ordering) -> bool, unordered: bool) -> Outcome<'a> {
    match args {
        [one @ Val::Double(_), other] | [other, one @ Val::Double(_)] if one.compare(other).is_none() => {
            Ok(Val::Bool(unordered))
        }
        [one, other] => match one.compare(other) {
            Some(order) => Ok(Val::Bool(is(order))),
            None => error("no such overload"),
        },
        _ => error("no such overload"),
    }
}

pub(in super::super) fn less<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    ordered(args, Ordering::is_lt, false)
}

pub(in super::super) fn less_equal<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    ordered(args, Ordering::is_le, false)
}

pub(in super::super) fn greater<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    ordered(args, Ordering::is_gt, false)
}

pub(in super::super) fn greater_equal<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    ordered(args, Ordering::is_ge, false)
}

pub(in super::super) fn equal<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    args[0].equals(&args[1], budget).map(Val::Bool)
}

pub(in super::super) fn not_equal<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    args[0].equals(&args[1], budget).map(|is| Val::Bool(!is))
}

pub(in super::super) fn in_list<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    for member in args[1].members() {
        if member?.equals(&args[0], budget)? {
            return Ok(Val::Bool(true));
        }
    }
    Ok(Val::Bool(false))
}

pub(in super::super) fn in_map<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    Ok(Val::Bool(args[1].get(&args[0], budget)?.is_some()))
}

pub(in super::super) fn not<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    match args[0] {
        Val::Bool(is) => Ok(Val::Bool(!is)),
        _ => error("no such overload"),
    }
}

fn whole<'a>(value: Option<Val<'a>>, what: &str) -> Outcome<'a> {
    value.map_or_else(|| error(format!("{what} overflow")), Ok)
}

pub(in super::super) fn negative<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    match args[0] {
        Val::Int(number) => whole(number.checked_neg().map(Val::Int), "integer"),
        Val::Double(number) => Ok(Val::Double(-number)),
        _ => error("no such overload"),
    }
}

/// A time moved by nanoseconds.
fn moved<'a>(time: Moment, nanoseconds: i128) -> Outcome<'a> {
    whole(time.later(nanoseconds).map(Val::Time), "timestamp")
}

pub(in super::super) fn plus<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    match (&args[0], &args[1]) {
        (Val::Int(one), Val::Int(other)) => whole(one.checked_add(*other).map(Val::Int), "integer"),
        (Val::Uint(one), Val::Uint(other)) => whole(one.checked_add(*other).map(Val::Uint), "unsigned integer"),
        (Val::Double(one), Val::Double(other)) => Ok(Val::Double(one + other)),
        (Val::Text(one), Val::Text(other)) => {
            budget.make(one.len().saturating_add(other.len()).saturating_mul(2))?;
            Ok(Val::text([&**one, &**other].concat()))
        }
        (Val::Bytes(one), Val::Bytes(other)) => {
            budget.make(one.len().saturating_add(other.len()).saturating_mul(2))?;
            Ok(Val::Bytes([&**one, &**other].concat().into()))
        }
        (Val::Duration(one), Val::Duration(other)) => whole(one.checked_add(*other).map(Val::Duration), "duration"),
        (Val::Time(time), Val::Duration(by)) | (Val::Duration(by), Val::Time(time)) => moved(*time, i128::from(*by)),
        _ => error("no such overload"),
    }
}

pub(in super::super) fn minus<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    match (&args[0], &args[1]) {
        (Val::Int(one), Val::Int(other)) => whole(one.checked_sub(*other).map(Val::Int), "integer"),
        (Val::Uint(one), Val::Uint(other)) => whole(one.checked_sub(*other).map(Val::Uint), "unsigned integer"),
        (Val::Double(one), Val::Double(other)) => Ok(Val::Double(one - other)),
        (Val::Duration(one), Val::Duration(other)) => whole(one.checked_sub(*other).map(Val::Duration), "duration"),
        (Val::Time(time), Val::Duration(by)) => moved(*time, -i128::from(*by)),
        (Val::Time(one), Val::Time(other)) => whole(one.since(*other).map(Val::Duration), "duration"),
        _ => error("no such overload"),
    }
}

pub(in super::super) fn times<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    match (&args[0], &args[1]) {
        (Val::Int(one), Val::Int(other)) => whole(one.checked_mul(*other).map(Val::Int), "integer"),
        (Val::Uint(one), Val::Uint(other)) => whole(one.checked_mul(*other).map(Val::Uint), "unsigned integer"),
        (Val::Double(one), Val::Double(other)) => Ok(Val::Double(one * other)),
        _ => error("no such overload"),
    }
}

pub(in super::super) fn over<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    match (&args[0], &args[1]) {
        (Val::Int(_), Val::Int(0)) | (Val::Uint(_), Val::Uint(0)) => error("division by zero"),
        (Val::Int(one), Val::Int(other)) => whole(one.checked_div(*other).map(Val::Int), "integer"),
        (Val::Uint(one), Val::Uint(other)) => Ok(Val::Uint(one / other)),
        (Val::Double(one), Val::Double(other)) => Ok(Val::Double(one / other)),
        _ => error("no such overload"),
    }
}

pub(in super::super) fn modulo<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    match (&args[0], &args[1]) {
        (Val::Int(_), Val::Int(0)) | (Val::Uint(_), Val::Uint(0)) => error("modulus by zero"),
        (Val::Int(one), Val::Int(other)) => whole(one.checked_rem(*other).map(Val::Int), "integer"),
        (Val::Uint(one), Val::Uint(other)) => Ok(Val::Uint(one % other)),
        _ => error("no such overload"),
    }
}
