//! Lists and sets.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::super::budget::{Budget, Failure, Outcome};
use super::super::types::DeclKind;
use super::super::value::{Val, error};

/// Members that a list may be made with.
const RANGE_MAX: i64 = 100_000;

/// All members, in room that is charged before.
fn all<'a>(list: &Val<'a>, budget: &mut Budget) -> Result<Vec<Val<'a>>, Failure> {
    budget.make_values(list.len())?;
    list.members().map(|member| read(member, budget)).collect()
}

/// A member that is kept: bytes are decoded anew.
fn read<'a>(member: Outcome<'a>, budget: &mut Budget) -> Outcome<'a> {
    let member = member?;
    if let Val::Bytes(bytes) = &member {
        budget.make(bytes.len())?;
    }
    Ok(member)
}

/// `+`: where members have an identity, those of the right stand for those of the left, and the sum has the left's.
pub(in super::super) fn append<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let listed = args[0].listed();
    let mut out = Vec::new();
    budget.make_values(args[0].len().saturating_add(args[1].len()))?;
    out.reserve_exact(args[0].len().saturating_add(args[1].len()));
    let mut places = HashMap::new();
    for (at, member) in args[0].members().enumerate() {
        let member = read(member, budget)?;
        if let Some(identity) = member.identity(listed, budget)? {
            places.insert(identity, at);
        }
        out.push(member);
    }
    for member in args[1].members() {
        let member = read(member, budget)?;
        let identity = member.identity(listed, budget)?;
        match identity.as_ref().and_then(|identity| places.get(identity)) {
            Some(at) => out[*at] = member,
            None => {
                places.extend(identity.map(|identity| (identity, out.len())));
                out.push(member);
            }
        }
    }
    Ok(Val::listing(out, listed))
}

fn compared(one: &Val<'_>, other: &Val<'_>, budget: &mut Budget) -> Result<Ordering, Failure> {
    budget.work(1 + one.load().min(other.load()).saturating_mul(4))?;
    one.compare(other).map_or_else(|| error("no such overload"), Ok)
}

pub(in super::super) fn is_sorted<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let mut before: Option<Val<'a>> = None;
    for member in args[0].members() {
        let member = member?;
        if let Some(before) = &before
            && compared(before, &member, budget)?.is_gt()
        {
            return Ok(Val::Bool(false));
        }
        before = Some(member);
    }
    Ok(Val::Bool(true))
}

fn sum_from<'a>(args: &[Val<'a>], nothing: Val<'a>, budget: &mut Budget) -> Outcome<'a> {
    let mut sum: Option<Val<'a>> = None;
    for member in args[0].members() {
        let member = member?;
        sum = Some(match sum {
            None => member,
            Some(sum) => super::operators::plus(&[sum, member], budget)?,
        });
    }
    Ok(sum.unwrap_or(nothing))
}

pub(in super::super) fn sum<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let nothing = match &args[0] {
        Val::Data(_, decl) => match decl.member().map(|member| &member.kind) {
            Some(DeclKind::Duration) => Val::Duration(0),
            Some(DeclKind::Double) => Val::Double(0.0),
            _ => Val::Int(0),
        },
        _ => Val::Int(0),
    };
    sum_from(args, nothing, budget)
}

fn extreme<'a>(list: &Val<'a>, name: &str, is: fn(Ordering) -> bool, budget: &mut Budget) -> Outcome<'a> {
    let mut found: Option<Val<'a>> = None;
    for member in list.members() {
        let member = member?;
        found = Some(match found {
            Some(known) if !is(compared(&member, &known, budget)?) => known,
            _ => member,
        });
    }
    found.map_or_else(|| error(format!("{name} called on empty list")), Ok)
}

pub(in super::super) fn max<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    extreme(&args[0], "max", Ordering::is_gt, budget)
}

pub(in super::super) fn min<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    extreme(&args[0], "min", Ordering::is_lt, budget)
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
    if *from < 0 || *to < 0 {
        return error(format!("cannot slice({from}, {to}), negative indexes not supported"));
    }
    if from > to {
        let why = "start index must be less than or equal to end index";
        return error(format!("cannot slice({from}, {to}), {why}"));
    }
    if *to > length {
        return error(format!("cannot slice({from}, {to}), list is length {length}"));
    }
    let range = usize::try_from(*from).unwrap_or_default()..usize::try_from(*to).unwrap_or_default();
    budget.make_values(range.len())?;
    let members: Result<Vec<_>, _> = range
        .filter_map(|at| args[0].member(at))
        .map(|member| read(member, budget))
        .collect();
    members.map(Val::list)
}

pub(in super::super) fn distinct<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let mut out: Vec<Val<'a>> = Vec::new();
    budget.make_values(args[0].len().saturating_mul(2))?;
    for member in args[0].members() {
        let member = read(member, budget)?;
        let mut is_known = false;
        for known in &out {
            if known.equals(&member, budget)? {
                is_known = true;
                break;
            }
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
    budget.make_values(args[0].len().saturating_mul(2))?;
    let mut sorted: Vec<Val<'a>> = Vec::new();
    // By hand: the library's own may panic where the order is none, as with what is no number.
    for member in all(&args[0], budget)? {
        let (mut from, mut to) = (0, sorted.len());
        while from < to {
            let middle = from + (to - from) / 2;
            match compared(&sorted[middle], &member, budget)? {
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
    budget.make_values(usize::try_from(count).unwrap_or_default())?;
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

/// What optional members hold, without those that hold nothing.
pub(in super::super) fn unwrap<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    budget.make_values(args[0].len())?;
    let mut out = Vec::new();
    for member in args[0].members() {
        match member? {
            Val::Optional(None) => {}
            Val::Optional(Some(inner)) => out.push((*inner).clone()),
            _ => return error("no such overload"),
        }
    }
    Ok(Val::list(out))
}
