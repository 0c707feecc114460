//! Strings. Places are counted in characters.

use super::super::eval::{Budget, Failure, Outcome};
use super::super::value::{Text, Val, error, text};

/// Work of a part that a text is split into: a value of its own, however few characters it has.
const PART_WORK: u64 = 32;

fn int(args: &[Val<'_>], at: usize) -> Result<Option<i64>, Failure> {
    match args.get(at) {
        Some(Val::Int(number)) => Ok(Some(*number)),
        None => Ok(None),
        _ => error("no such overload"),
    }
}

/// A value as messages show it.
pub(in super::super) fn shown(value: &Val<'_>) -> String {
    match value {
        Val::Text(text) => text.chars().take(1024).collect(),
        Val::Int(number) => number.to_string(),
        Val::Uint(number) => number.to_string(),
        Val::Double(number) => number.to_string(),
        Val::Bool(is) => is.to_string(),
        other => other.type_name().to_owned(),
    }
}

pub(in super::super) fn contains<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::Bool(text(args, 0)?.contains(text(args, 1)?)))
}

pub(in super::super) fn starts_with<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::Bool(text(args, 0)?.starts_with(text(args, 1)?)))
}

pub(in super::super) fn ends_with<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::Bool(text(args, 0)?.ends_with(text(args, 1)?)))
}

pub(in super::super) fn matches<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    budget.tries(text(args, 0)?)?;
    let regex = budget.pattern(text(args, 1)?)?;
    Ok(Val::Bool(regex.is_match(text(args, 0)?)))
}

pub(in super::super) fn find<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    budget.tries(text(args, 0)?)?;
    let regex = budget.pattern(text(args, 1)?)?;
    let found = regex.find(text(args, 0)?).map_or("", |found| found.as_str());
    Ok(Val::text(found))
}

pub(in super::super) fn find_all<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let most = match int(args, 2)? {
        Some(most) if most >= 0 => usize::try_from(most).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    let own = text(args, 0)?;
    let regex = budget.pattern(text(args, 1)?)?;
    let (mut found, mut rest) = (Vec::new(), own);
    let mut all = regex.find_iter(own);
    while found.len() < most {
        // Each is looked for anew from where the one before ended, and may be read for to the text's end however short it is.
        budget.tries(rest)?;
        let Some(one) = all.next() else { break };
        rest = own.get(one.end()..).unwrap_or_default();
        found.push(Val::text(one.as_str()));
    }
    Ok(Val::list(found))
}

pub(in super::super) fn char_at<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let (own, at) = (text(args, 0)?, int(args, 1)?.unwrap_or_default());
    budget.work(own.len() as u64 / 8)?;
    let length = own.chars().count();
    match usize::try_from(at) {
        Ok(at) if at == length => Ok(Val::text("")),
        Ok(at) if at < length => Ok(Val::text(own.chars().nth(at).map_or_else(String::new, String::from))),
        _ => error(format!("index out of range: {at}")),
    }
}

/// The byte where a character is.
fn byte(text: &str, at: usize) -> usize {
    text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte)
}

fn place<'a>(text: &str, byte: Option<usize>) -> Outcome<'a> {
    let count = |byte: usize| text.get(..byte).map_or(0, |before| before.chars().count());
    Ok(Val::Int(
        byte.map_or(-1, |byte| i64::try_from(count(byte)).unwrap_or(i64::MAX)),
    ))
}

pub(in super::super) fn index_of<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let (own, wanted) = (text(args, 0)?, text(args, 1)?);
    budget.work(own.len() as u64 / 8)?;
    let from = int(args, 2)?.unwrap_or(0);
    let length = own.chars().count();
    let from = match usize::try_from(from) {
        Ok(from) if from <= length => byte(own, from),
        _ => return error(format!("index out of range: {from}")),
    };
    let found = own.get(from..).and_then(|rest| rest.find(wanted));
    place(own, found.map(|at| at + from))
}

pub(in super::super) fn last_index_of<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let (own, wanted) = (text(args, 0)?, text(args, 1)?);
    budget.work(own.len() as u64 / 8)?;
    let length = own.chars().count();
    let last = int(args, 2)?.map_or(Ok(length), |last| match usize::try_from(last) {
        Ok(last) if last <= length => Ok(last),
        _ => error(format!("index out of range: {last}")),
    })?;
    // It may begin there at the latest.
    let end = byte(own, last.saturating_add(wanted.chars().count()));
    place(own, own.get(..end).and_then(|part| part.rfind(wanted)))
}

pub(in super::super) fn lower<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::text(text(args, 0)?.to_ascii_lowercase()))
}

pub(in super::super) fn upper<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(Val::text(text(args, 0)?.to_ascii_uppercase()))
}

pub(in super::super) fn trim<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    Ok(match &args[0] {
        Val::Text(Text::Ref(text)) => Val::Text(Text::Ref(text.trim())),
        _ => Val::text(text(args, 0)?.trim()),
    })
}

pub(in super::super) fn substring<'a>(args: &[Val<'a>], _: &mut Budget) -> Outcome<'a> {
    let own = text(args, 0)?;
    let length = i64::try_from(own.chars().count()).unwrap_or(i64::MAX);
    let from = int(args, 1)?.unwrap_or(0);
    let to = int(args, 2)?.unwrap_or(length);
    if from < 0 || from > length {
        return error(format!("index out of range: {from}"));
    }
    if to < 0 || to > length {
        return error(format!("index out of range: {to}"));
    }
    if from > to {
        return error(format!("invalid substring range. start: {from}, end: {to}"));
    }
    let at = |place: i64| byte(own, usize::try_from(place).unwrap_or_default());
    let (from, to) = (at(from), at(to));
    Ok(match &args[0] {
        Val::Text(Text::Ref(text)) => Val::Text(Text::Ref(text.get(from..to).unwrap_or_default())),
        _ => Val::text(own.get(from..to).unwrap_or_default()),
    })
}

/// The length of a text that is going to be made must fit into what is left.
fn room(bytes: usize, budget: &mut Budget) -> Result<(), Failure> {
    budget.work(bytes as u64)
}

pub(in super::super) fn replace<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let (own, old, new) = (text(args, 0)?, text(args, 1)?, text(args, 2)?);
    let most = match int(args, 3)? {
        Some(most) if most >= 0 => usize::try_from(most).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    let count = match old.is_empty() {
        true => own.chars().count() + 1,
        false => own.matches(old).count(),
    };
    room(
        own.len().saturating_add(count.min(most).saturating_mul(new.len())),
        budget,
    )?;
    Ok(Val::text(own.replacen(old, new, most)))
}

pub(in super::super) fn split<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let (own, separator) = (text(args, 0)?, text(args, 1)?);
    let most = match int(args, 2)? {
        Some(0) => return Ok(Val::list(Vec::new())),
        Some(most) if most > 0 => usize::try_from(most).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    room(own.len().saturating_mul(4), budget)?;
    let count = match separator {
        "" => own.len(),
        separator => own.matches(separator).take(most).count(),
    };
    budget.work((count as u64).saturating_mul(PART_WORK))?;
    let parts = match &args[0] {
        // What is there is looked at where it is.
        Val::Text(Text::Ref(own)) => split_at(own, separator, most, |part| Val::Text(Text::Ref(part))),
        _ => split_at(own, separator, most, Val::text),
    };
    Ok(Val::list(parts))
}

fn split_at<'t, 'a>(own: &'t str, separator: &str, most: usize, made: fn(&'t str) -> Val<'a>) -> Vec<Val<'a>> {
    if !separator.is_empty() {
        return own.splitn(most, separator).map(made).collect();
    }
    let (mut parts, mut rest) = (Vec::new(), own);
    while let Some(first) = rest.chars().next().filter(|_| parts.len() + 1 < most) {
        let (part, after) = rest.split_at(first.len_utf8());
        parts.push(made(part));
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(made(rest));
    }
    parts
}

pub(in super::super) fn join<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let separator = match args.len() {
        1 => "",
        _ => text(args, 1)?,
    };
    let mut out = String::new();
    for (i, member) in args[0].members().enumerate() {
        let Val::Text(member) = member? else {
            return error("no such overload");
        };
        room(member.len() + separator.len(), budget)?;
        if i > 0 {
            out.push_str(separator);
        }
        out.push_str(&member);
    }
    Ok(Val::text(out))
}

pub(in super::super) fn quote<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let own = text(args, 0)?;
    room(own.len() * 2, budget)?;
    let mut out = String::from("\"");
    for character in own.chars() {
        match character {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            other => out.push(other),
        }
    }
    out.push('"');
    Ok(Val::text(out))
}

/// `'%s is %d'.format([...])`.
pub(in super::super) fn format<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let mut out = String::new();
    let mut rest = text(args, 0)?;
    let mut next = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let precision_end = rest
            .find(|c: char| c != '.' && !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (precision, after) = rest.split_at(precision_end);
        let precision = precision
            .strip_prefix('.')
            .and_then(|digits| digits.parse::<usize>().ok());
        if precision.is_some_and(|precision| precision > 1000) {
            return error("could not parse formatting clause: precision is too large");
        }
        let Some(clause) = after.chars().next() else {
            return error("could not parse formatting clause: unexpected end of string");
        };
        rest = &after[clause.len_utf8()..];
        let Some(value) = args[1].member(next) else {
            return error(format!("index {next} out of range"));
        };
        next += 1;
        let piece = formatted(&value?, clause, precision, budget)?;
        room(piece.len(), budget)?;
        out.push_str(&piece);
    }
    out.push_str(rest);
    Ok(Val::text(out))
}

fn formatted(value: &Val<'_>, clause: char, precision: Option<usize>, budget: &mut Budget) -> Result<String, Failure> {
    let precision = precision.unwrap_or(6);
    let refused = || {
        error(format!(
            "error during formatting: {clause:?} clause cannot be used on {}",
            value.type_name()
        ))
    };
    Ok(match (clause, value) {
        ('s', value) => {
            let mut out = String::new();
            whole(value, &mut out, budget)?;
            out
        }
        ('d', Val::Int(number)) => number.to_string(),
        ('d', Val::Uint(number)) => number.to_string(),
        ('b', Val::Int(number)) => format!("{}{:b}", if *number < 0 { "-" } else { "" }, number.unsigned_abs()),
        ('b', Val::Uint(number)) => format!("{number:b}"),
        ('b', Val::Bool(is)) => u8::from(*is).to_string(),
        ('o', Val::Int(number)) => format!("{}{:o}", if *number < 0 { "-" } else { "" }, number.unsigned_abs()),
        ('o', Val::Uint(number)) => format!("{number:o}"),
        ('x', Val::Int(number)) => format!("{}{:x}", if *number < 0 { "-" } else { "" }, number.unsigned_abs()),
        ('X', Val::Int(number)) => format!("{}{:X}", if *number < 0 { "-" } else { "" }, number.unsigned_abs()),
        ('x', Val::Uint(number)) => format!("{number:x}"),
        ('X', Val::Uint(number)) => format!("{number:X}"),
        ('x', Val::Text(text)) => hex::encode(text.as_bytes()),
        ('X', Val::Text(text)) => hex::encode_upper(text.as_bytes()),
        ('f', Val::Double(number)) => format!("{number:.precision$}"),
        ('f', Val::Int(number)) => format!("{:.precision$}", *number as f64),
        ('e', Val::Double(number)) => exponent(*number, precision),
        ('e', Val::Int(number)) => exponent(*number as f64, precision),
        ('d' | 'b' | 'o' | 'x' | 'X' | 'f' | 'e', _) => return refused(),
        (other, _) => return error(format!("unrecognized formatting clause {:?}", other.to_string())),
    })
}

/// As Go writes it: two digits of exponent at least.
fn exponent(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    match text.split_once('e') {
        Some((mantissa, power)) => {
            let power: i32 = power.parse().unwrap_or_default();
            format!("{mantissa}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
        }
        None => text,
    }
}

/// A value as `%s` writes it, with all that is in it.
fn whole(value: &Val<'_>, out: &mut String, budget: &mut Budget) -> Result<(), Failure> {
    budget.work(1 + out.len() as u64 / 1024)?;
    match value.type_name() {
        "list" => {
            out.push('[');
            for (i, member) in value.members().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                whole(&member?, out, budget)?;
            }
            out.push(']');
        }
        "map" => {
            out.push('{');
            for (i, key) in value.keys().iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                whole(key, out, budget)?;
                out.push_str(": ");
                if let Some(value) = value.get(key, budget)? {
                    whole(&value, out, budget)?;
                }
            }
            out.push('}');
        }
        "null_type" => out.push_str("null"),
        _ => match super::convert::string(std::slice::from_ref(value), budget) {
            Ok(Val::Text(text)) => {
                budget.work(text.len() as u64)?;
                out.push_str(&text);
            }
            _ => out.push_str(&shown(value)),
        },
    }
    Ok(())
}
