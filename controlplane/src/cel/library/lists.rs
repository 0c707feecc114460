//! Lists and sets.

use std::cmp::Ordering;

use serde_json::Value;

use super::super::eval::{Budget, Failure, Outcome};
use super::super::types::{DeclKind, Listed};
use super::super::value::{Val, error};

/// Members that a list may be made with.
const RANGE_MAX: i64 = 100_000;

/// All members; each is work.
fn all<'a>(list: &Val<'a>, budget: &mut Budget) -> Result<Vec<Val<'a>>, Failure> {
    budget.work(list.size())?;
    list.members().collect()
}

/// `+`: where members have an identity, those of the right stand for those of the left.
pub(in super::super) fn append<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let (one, other) = (all(&args[0], budget)?, all(&args[1], budget)?);
    let keys: Option<&[Box<str>]> = match &args[0] {
        Val::Data(_, decl) => match &decl.kind {
            DeclKind::List(_, Listed::Set) => Some(&[]),
            DeclKind::List(_, Listed::Keys(keys)) => Some(keys),
            _ => None,
        },
        _ => None,
    };
    let Some(keys) = keys else {
        return Ok(Val::list([one, other].concat()));
    };
    budget.work((one.len() as u64).saturating_mul(other.len() as u64))?;
    let mut out = one;
    for member in other {
        let mut place = None;
        for (i, own) in out.iter().enumerate() {
            if is_same(own, &member, keys, budget)? {
                place = Some(i);
                break;
            }
        }
        match place {
            Some(i) => out[i] = member,
            None => out.push(member),
        }
    }
    Ok(Val::list(out))
}

/// Whether two members are one: by their keys, or as a whole.
fn is_same(one: &Val<'_>, other: &Val<'_>, keys: &[Box<str>], budget: &mut Budget) -> Result<bool, Failure> {
    match (one, other) {
        (Val::Data(Value::Object(one), _), Val::Data(Value::Object(other), _)) if !keys.is_empty() => {
            budget.work(keys.len() as u64)?;
            Ok(keys.iter().all(|key| one.get(&**key) == other.get(&**key)))
        }
        _ => one.equals(other, budget),
    }
}

fn compared(one: &Val<'_>, other: &Val<'_>) -> Result<Ordering, Failure> {
    one.compare(other).map_or_else(|| error("no such overload"), Ok)
}

pub(in super::super) fn is_sorted<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let mut before: Option<Val<'a>> = None;
    for member in args[0].members() {
        let member = member?;
        budget.work(1)?;
        if let Some(before) = &before
            && compared(before, &member)?.is_gt()
        {
            return Ok(Val::Bool(false));
        }
        before = Some(member);
    }
    Ok(Val::Bool(true))
}

pub(in super::super) fn sum<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let mut sum: Option<Val<'a>> = None;
    for member in args[0].members() {
        let member = member?;
        sum = Some(match sum {
            None => member,
            Some(sum) => super::operators::plus(&[sum, member], budget)?,
        });
    }
    Ok(sum.unwrap_or(Val::Int(0)))
}

fn extreme<'a>(list: &Val<'a>, name: &str, is: fn(Ordering) -> bool) -> Outcome<'a> {
    let mut found: Option<Val<'a>> = None;
    for member in list.members() {
        let member = member?;
        found = Some(match found {
            Some(known) if !is(compared(&member, &known)?) => known,
            _ => member,
        });
    }
    found.map_or_else(|| error(format!("{name} called on empty list")), Ok)
}

pub(in super::super) fn max<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    budget.work(args[0].size())?;
    extreme(&args[0], "max", Ordering::is_gt)
}

pub(in super::super) fn min<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    budget.work(args[0].size())?;
    extreme(&args[0], "min", Ordering::is_lt)
}

/// Where a value stands in a list.
fn places<'a>(args: &[Val<'a>], budget: &mut Budget) -> Result<Vec<usize>, Failure> {
    let mut places = Vec::new();
    for (i, member) in args[0].members().enumerate() {
        if member?.equals(&args[1], budget)? {
            places.push(i);
        }
    }
    Ok(places)
}

fn place<'a>(at: Option<&usize>) -> Outcome<'a> {
    Ok(Val::Int(at.map_or(-1, |at| i64::try_from(*at).unwrap_or(i64::MAX))))
}

pub(in super::super) fn index_of<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    place(places(args, budget)?.first())
}

pub(in super::super) fn last_index_of<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    place(places(args, budget)?.last())
}

pub(in super::super) fn includes<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    Ok(Val::Bool(has(&args[0], &args[1], budget)?))
}

fn has(list: &Val<'_>, wanted: &Val<'_>, budget: &mut Budget) -> Result<bool, Failure> {
    for member in list.members() {
        if member?.equals(wanted, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(in super::super) fn slice<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let (Val::Int(from), Val::Int(to)) = (&args[1], &args[2]) else {
        return error("no such overload");
    };
    let length = i64::try_from(args[0].size()).unwrap_or(i64::MAX);
    if *from < 0 || *to < 0 || from > to {
        return error(format!(
            "cannot slice({from}, {to}), negative or reversed indexes not supported"
        ));
    }
    if *to > length {
        return error(format!("cannot slice({from}, {to}), list is length {length}"));
    }
    budget.work((to - from).unsigned_abs())?;
    let range = usize::try_from(*from).unwrap_or_default()..usize::try_from(*to).unwrap_or_default();
    let members: Result<Vec<_>, _> = range.filter_map(|at| args[0].member(at)).collect();
    members.map(Val::list)
}

pub(in super::super) fn distinct<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let mut out: Vec<Val<'a>> = Vec::new();
    for member in args[0].members() {
        let member = member?;
        let mut is_known = false;
        for known in &out {
            is_known |= known.equals(&member, budget)?;
        }
        if !is_known {
            out.push(member);
        }
    }
    Ok(Val::list(out))
}

pub(in super::super) fn reverse<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let mut members = all(&args[0], budget)?;
    members.reverse();
    Ok(Val::list(members))
}

pub(in super::super) fn sort<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let size = args[0].size();
    budget.work(size.saturating_mul(size) / 64)?;
    let mut sorted: Vec<Val<'a>> = Vec::new();
    // By hand: the library's own may panic where the order is none, as with what is no number.
    for member in all(&args[0], budget)? {
        let (mut from, mut to) = (0, sorted.len());
        while from < to {
            let middle = from + (to - from) / 2;
            match compared(&sorted[middle], &member)? {
                Ordering::Greater => to = middle,
                _ => from = middle + 1,
            }
        }
        sorted.insert(from, member);
    }
    Ok(Val::list(sorted))
}

pub(in super::super) fn first<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    args[0]
        .member(0)
        .map_or(Ok(Val::Optional(None)), |member| member.map(Val::some))
}

pub(in super::super) fn last<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    let last = args[0].len().checked_sub(1).and_then(|at| args[0].member(at));
    last.map_or(Ok(Val::Optional(None)), |member| member.map(Val::some))
}

pub(in super::super) fn range<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let Val::Int(count) = args[0] else {
        return error("no such overload");
    };
    if count > RANGE_MAX {
        return error(format!("lists.range({count}) is larger than {RANGE_MAX}"));
    }
    budget.work(count.max(0).unsigned_abs())?;
    // Upstream's charge for it is one; what it makes is memory.
    budget.charge(count.max(0).unsigned_abs() / 10)?;
    Ok(Val::list((0..count).map(Val::Int).collect()))
}

pub(in super::super) fn set_contains<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    for member in args[1].members() {
        if !has(&args[0], &member?, budget)? {
            return Ok(Val::Bool(false));
        }
    }
    Ok(Val::Bool(true))
}

pub(in super::super) fn set_equivalent<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let Val::Bool(true) = set_contains(args, budget)? else {
        return Ok(Val::Bool(false));
    };
    set_contains(&[args[1].clone(), args[0].clone()], budget)
}

pub(in super::super) fn set_intersects<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    for member in args[1].members() {
        if has(&args[0], &member?, budget)? {
            return Ok(Val::Bool(true));
        }
    }
    Ok(Val::Bool(false))
}
