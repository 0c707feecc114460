//! Strings. Places are counted in characters.

use super::super::budget::{Budget, Failure, Outcome};
use super::super::value::{Text, Val, error, text};

/// Bytes of a part that a text is split into, beside its own: a value in a list that grows, with counts.
const PART_BYTES: usize = 256;

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
        Val::Double(number) => super::format::shortest(*number),
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
    let (own, pattern) = (text(args, 0)?, budget.pattern(text(args, 1)?)?);
    budget.tries(&pattern, own)?;
    Ok(Val::Bool(pattern.regex.is_match(own)))
}

pub(in super::super) fn find<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let (own, pattern) = (text(args, 0)?, budget.pattern(text(args, 1)?)?);
    budget.tries(&pattern, own)?;
    let found = pattern.regex.find(own).map_or("", |found| found.as_str());
    budget.make(found.len())?;
    Ok(Val::text(found))
}

pub(in super::super) fn find_all<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let most = match int(args, 2)? {
        Some(most) if most >= 0 => usize::try_from(most).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    let own = text(args, 0)?;
    let pattern = budget.pattern(text(args, 1)?)?;
    let (mut found, mut rest) = (Vec::new(), own);
    let mut all = pattern.regex.find_iter(own);
    while found.len() < most {
        // Each is looked for anew from where the one before ended, and may be read for to the text's end however short it is.
        budget.tries(&pattern, rest)?;
        let Some(one) = all.next() else { break };
        rest = own.get(one.end()..).unwrap_or_default();
        budget.make(PART_BYTES + one.len())?;
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

pub(in super::super) fn lower<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    budget.make(text(args, 0)?.len())?;
    Ok(Val::text(text(args, 0)?.to_ascii_lowercase()))
}

pub(in super::super) fn upper<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    budget.make(text(args, 0)?.len())?;
    Ok(Val::text(text(args, 0)?.to_ascii_uppercase()))
}

pub(in super::super) fn trim<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    Ok(match &args[0] {
        Val::Text(Text::Ref(text)) => Val::Text(Text::Ref(text.trim())),
        _ => {
            let own = text(args, 0)?.trim();
            budget.make(own.len())?;
            Val::text(own)
        }
    })
}

pub(in super::super) fn substring<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
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
        _ => {
            budget.make(to - from)?;
            Val::text(own.get(from..to).unwrap_or_default())
        }
    })
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
    // Once as it grows, and once as a value.
    let bytes = own.len().saturating_add(count.min(most).saturating_mul(new.len()));
    budget.make(bytes.saturating_mul(2))?;
    Ok(Val::text(own.replacen(old, new, most)))
}

pub(in super::super) fn split<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let (own, separator) = (text(args, 0)?, text(args, 1)?);
    let most = match int(args, 2)? {
        Some(0) => return Ok(Val::list(Vec::new())),
        Some(most) if most > 0 => usize::try_from(most).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    let count = match separator {
        "" => own.len(),
        separator => own.matches(separator).take(most).count(),
    };
    budget.make(
        own.len()
            .saturating_add(count.saturating_add(1).saturating_mul(PART_BYTES)),
    )?;
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
        budget.make((member.len() + separator.len()).saturating_mul(2))?;
        if i > 0 {
            out.push_str(separator);
        }
        out.push_str(&member);
    }
    Ok(Val::text(out))
}

/// How Go writes a character between quotes that does not stand for itself there.
pub(super) fn escape(character: char) -> Option<&'static str> {
    Some(match character {
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{b}' => "\\v",
        '\\' => "\\\\",
        '"' => "\\\"",
        _ => return None,
    })
}

pub(in super::super) fn quote<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let own = text(args, 0)?;
    budget.make(own.len().saturating_mul(4))?;
    let mut out = String::from("\"");
    for character in own.chars() {
        match escape(character) {
            Some(escape) => out.push_str(escape),
            None => out.push(character),
        }
    }
    out.push('"');
    Ok(Val::text(out))
}
