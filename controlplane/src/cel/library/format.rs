//! `'%s is %d'.format([…])`, and how numbers are written as texts, in the forms of Go.

use super::super::budget::{Budget, Failure, Outcome};
use super::super::types::{DeclKind, Ty};
use super::super::value::{Text, Val, error, text};
use super::strings::escape;

/// Digits after the point, where nothing else is said.
const PRECISION: usize = 6;
const PRECISION_MAX: usize = 1000;

/// A part of a text that is formatted.
enum Piece<'t> {
    Plain(&'t str),
    /// A place for a value.
    Clause {
        letter: char,
        precision: Option<usize>,
    },
}

/// The next part, which is taken off `rest`.
fn next<'t>(rest: &mut &'t str) -> Option<Result<Piece<'t>, String>> {
    if rest.is_empty() {
        return None;
    }
    let Some(clause) = rest.strip_prefix('%') else {
        let (plain, after) = rest.split_at(rest.find('%').unwrap_or(rest.len()));
        *rest = after;
        return Some(Ok(Piece::Plain(plain)));
    };
    if let Some(after) = clause.strip_prefix('%') {
        *rest = after;
        return Some(Ok(Piece::Plain("%")));
    }
    let (precision, clause) = match clause.strip_prefix('.') {
        None => (None, clause),
        Some(digits) => {
            let after = digits.trim_start_matches(|c: char| c.is_ascii_digit());
            let digits = &digits[..digits.len() - after.len()];
            match digits.parse() {
                Ok(precision) if precision <= PRECISION_MAX => (Some(precision), after),
                _ => {
                    let why = "could not parse formatting clause: error while parsing precision: this server takes at most 1000 digits";
                    return Some(Err(why.to_owned()));
                }
            }
        }
    };
    let Some(letter) = clause.chars().next() else {
        return Some(Err("unexpected end of string".to_owned()));
    };
    *rest = &clause[letter.len_utf8()..];
    if !"sdfebxXo".contains(letter) {
        let why = format!("could not parse formatting clause: unrecognized formatting clause \"{letter}\"");
        return Some(Err(why));
    }
    Some(Ok(Piece::Clause { letter, precision }))
}

/// What is wrong with a value of another type than a clause takes.
fn unfit(letter: char, given: &str) -> String {
    let what = match letter {
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'b' => "only integers and bools can be formatted as binary",
        'o' => "octal clause can only be used on integers",
        'x' | 'X' => "only integers, byte buffers, and strings can be formatted as hex",
        _ => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
        }
    };
    format!("error during formatting: {what}, was given {given}")
}

/// What is wrong with a text and the types of what it is to be formatted with, if so.
pub(in super::super) fn mistake(format: &str, types: &[Ty]) -> Option<String> {
    let (mut rest, mut count) = (format, 0);
    while let Some(piece) = next(&mut rest) {
        let letter = match piece {
            Err(why) => return Some(why),
            Ok(Piece::Plain(_)) => continue,
            Ok(Piece::Clause { letter, .. }) => letter,
        };
        let Some(ty) = types.get(count) else {
            return Some(format!("index {count} out of range"));
        };
        count += 1;
        let takes = match (letter, ty) {
            (_, Ty::Dyn) => true,
            ('d' | 'o', Ty::Int | Ty::Uint) => true,
            ('b', Ty::Int | Ty::Uint | Ty::Bool) => true,
            ('x' | 'X', Ty::Int | Ty::Uint | Ty::Text | Ty::Bytes) => true,
            ('f' | 'e', Ty::Double | Ty::Text) => true,
            ('s', ty) => !matches!(ty, Ty::Named(_) | Ty::Optional(_) | Ty::Object(_)),
            _ => false,
        };
        if !takes {
            return Some(unfit(letter, &ty.to_string()));
        }
    }
    (count < types.len()).then(|| {
        format!(
            "too many arguments supplied to string.format (expected {count}, got {})",
            types.len()
        )
    })
}

pub(in super::super) fn format<'a>(args: &[Val<'a>], budget: &mut Budget) -> Outcome<'a> {
    let (mut out, mut rest, mut count) = (String::new(), text(args, 0)?, 0);
    while let Some(piece) = next(&mut rest) {
        match piece.or_else(error)? {
            Piece::Plain(plain) => push(&mut out, plain, budget)?,
            Piece::Clause { letter, precision } => {
                let Some(value) = args[1].member(count) else {
                    return error(format!("index {count} out of range"));
                };
                count += 1;
                clause(&value?, letter, precision, &mut out, budget)?;
            }
        }
    }
    Ok(Val::text(out))
}

/// Adds to a text that grows: once as it does, and once as the value it becomes.
fn push(out: &mut String, piece: &str, budget: &mut Budget) -> Result<(), Failure> {
    budget.make(piece.len().saturating_mul(3))?;
    out.push_str(piece);
    Ok(())
}

fn clause(
    value: &Val<'_>,
    letter: char,
    precision: Option<usize>,
    out: &mut String,
    budget: &mut Budget,
) -> Result<(), Failure> {
    let signed = |number: i64, digits: String| format!("{}{digits}", if number < 0 { "-" } else { "" });
    let double = match value {
        Val::Double(number) => Some(*number),
        Val::Text(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    };
    let piece = match (letter, value) {
        ('s', value) => return whole(value, out, budget),
        ('d', Val::Int(number)) => number.to_string(),
        ('d', Val::Uint(number)) => number.to_string(),
        ('b', Val::Int(number)) => signed(*number, format!("{:b}", number.unsigned_abs())),
        ('b', Val::Uint(number)) => format!("{number:b}"),
        ('b', Val::Bool(is)) => u8::from(*is).to_string(),
        ('o', Val::Int(number)) => signed(*number, format!("{:o}", number.unsigned_abs())),
        ('o', Val::Uint(number)) => format!("{number:o}"),
        ('x', Val::Int(number)) => signed(*number, format!("{:x}", number.unsigned_abs())),
        ('X', Val::Int(number)) => signed(*number, format!("{:X}", number.unsigned_abs())),
        ('x', Val::Uint(number)) => format!("{number:x}"),
        ('X', Val::Uint(number)) => format!("{number:X}"),
        ('x' | 'X', Val::Text(_) | Val::Bytes(_)) => {
            let bytes = match value {
                Val::Text(text) => text.as_bytes(),
                Val::Bytes(bytes) => bytes,
                _ => &[],
            };
            budget.make(bytes.len().saturating_mul(2))?;
            if letter == 'x' {
                hex::encode(bytes)
            } else {
                hex::encode_upper(bytes)
            }
        }
        ('f', _) => match double {
            Some(number) if number.is_finite() => format!("{number:.*}", precision.unwrap_or(PRECISION)),
            Some(number) => beyond(number).to_owned(),
            None => return error(unfit(letter, value.type_name())),
        },
        ('e', _) => match double {
            // What is asked for is the width, of which there are digits enough.
            Some(number) if number.is_finite() => {
                let text = scientific(number);
                let missing = precision.unwrap_or(0).saturating_sub(text.chars().count());
                format!("{}{text}", " ".repeat(missing))
            }
            Some(number) => beyond(number).to_owned(),
            None => return error(unfit(letter, value.type_name())),
        },
        _ => return error(unfit(letter, value.type_name())),
    };
    push(out, &piece, budget)
}

/// A number that is none, or has no end.
fn beyond(number: f64) -> &'static str {
    match (number.is_nan(), number > 0.0) {
        (true, _) => "NaN",
        (_, true) => "\u{221e}",
        _ => "-\u{221e}",
    }
}

/// Such as `3.140000×10⁰⁰`.
fn scientific(number: f64) -> String {
    let text = format!("{number:.PRECISION$e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or_default();
    let raised = |digit: char| match digit {
        '1' => '\u{b9}',
        '2' => '\u{b2}',
        '3' => '\u{b3}',
        other => char::from_u32(0x2070 + other.to_digit(10).unwrap_or(0)).unwrap_or(other),
    };
    let sign = if power < 0 { "\u{207b}" } else { "" };
    let digits: String = format!("{:02}", power.abs()).chars().map(raised).collect();
    format!("{mantissa}\u{d7}10{sign}{digits}")
}

/// A number as Go's `%g` writes it: the fewest digits, with an exponent below 0.0001 and from a million on.
pub(in super::super) fn shortest(number: f64) -> String {
    if !number.is_finite() {
        return match (number.is_nan(), number > 0.0) {
            (true, _) => "NaN",
            (_, true) => "+Inf",
            _ => "-Inf",
        }
        .to_owned();
    }
    let text = format!("{number:e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or_default();
    match !(-4..6).contains(&power) {
        true => format!("{mantissa}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs()),
        false => number.to_string(),
    }
}

/// A text between quotes, as Go's `%q` writes it.
fn quoted(text: &str, out: &mut String, budget: &mut Budget) -> Result<(), Failure> {
    budget.make(text.len().saturating_mul(12))?;
    out.push('"');
    for character in text.chars() {
        match escape(character) {
            Some(escape) => out.push_str(escape),
            None if character.is_ascii_control() => out.push_str(&format!("\\x{:02x}", character as u32)),
            None => out.push(character),
        }
    }
    out.push('"');
    Ok(())
}

/// A value as `%s` writes it, with all that is in it.
fn whole(value: &Val<'_>, out: &mut String, budget: &mut Budget) -> Result<(), Failure> {
    match value {
        Val::Null => push(out, "null", budget),
        Val::Type(name) => push(out, name, budget),
        Val::Quantity(_)
        | Val::Ip(_)
        | Val::Cidr(..)
        | Val::Url(_)
        | Val::Semver(_)
        | Val::Format(_)
        | Val::Optional(_) => error(unfit('s', value.type_name())),
        Val::List(..) | Val::Map(_) | Val::Data(..) => inner(value, out, budget),
        _ => match super::convert::string(std::slice::from_ref(value), budget)? {
            Val::Text(text) => push(out, &text, budget),
            _ => error(unfit('s', value.type_name())),
        },
    }
}

/// A value as it is written in a list or a map: as an expression would write it.
fn inner(value: &Val<'_>, out: &mut String, budget: &mut Budget) -> Result<(), Failure> {
    budget.work(1)?;
    match value {
        Val::Text(text) => quoted(text, out, budget),
        Val::Bytes(bytes) => {
            let Ok(text) = std::str::from_utf8(bytes) else {
                return error("invalid UTF-8 in bytes, cannot convert to string");
            };
            push(out, "b", budget)?;
            quoted(text, out, budget)
        }
        Val::Double(number) if number.is_finite() => push(out, &format!("{number:.PRECISION$}"), budget),
        Val::Double(number) => push(out, &format!("{:?}", shortest(*number)), budget),
        Val::Time(_) | Val::Duration(_) => {
            let name = if matches!(value, Val::Time(_)) {
                "timestamp"
            } else {
                "duration"
            };
            push(out, name, budget)?;
            push(out, "(\"", budget)?;
            whole(value, out, budget)?;
            push(out, "\")", budget)
        }
        Val::List(..) | Val::Map(_) | Val::Data(..) if value.type_name() == "list" => {
            push(out, "[", budget)?;
            for (i, member) in value.members().enumerate() {
                if i > 0 {
                    push(out, ", ", budget)?;
                }
                inner(&member?, out, budget)?;
            }
            push(out, "]", budget)
        }
        Val::Map(_) | Val::Data(..) => pairs(value, out, budget),
        _ => whole(value, out, budget),
    }
}

/// Keys and values, by the keys as they are written.
fn pairs(value: &Val<'_>, out: &mut String, budget: &mut Budget) -> Result<(), Failure> {
    let keys = match value {
        Val::Data(_, decl) => match &decl.kind {
            DeclKind::Object(fields) => {
                budget.make_values(fields.len())?;
                fields.keys().map(|key| Val::Text(Text::Ref(key))).collect()
            }
            _ => {
                budget.make_values(value.len())?;
                value.keys()
            }
        },
        _ => {
            budget.make_values(value.len())?;
            value.keys()
        }
    };
    let mut written = Vec::new();
    for key in &keys {
        if let Some(value) = value.get(key, budget)? {
            let mut pair = String::new();
            budget.make(128)?;
            inner(key, &mut pair, budget)?;
            let length = pair.len();
            push(&mut pair, ":", budget)?;
            inner(&value, &mut pair, budget)?;
            written.push((length, pair));
        }
    }
    let key = |pair: &(usize, String)| pair.1.get(..pair.0).unwrap_or_default().to_owned();
    written.sort_by_cached_key(key);
    push(out, "{", budget)?;
    for (i, (_, pair)) in written.iter().enumerate() {
        if i > 0 {
            push(out, ", ", budget)?;
        }
        push(out, pair, budget)?;
    }
    push(out, "}", budget)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (number, wanted) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (100_000.0, "100000"),
            (999_999.5, "999999.5"),
            (1_000_000.0, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (1e20, "1e+20"),
            (1e100, "1e+100"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(shortest(number), wanted);
        }
        assert_eq!(scientific(3.25), "3.250000\u{d7}10\u{2070}\u{2070}");
        assert_eq!(scientific(-0.025), "-2.500000\u{d7}10\u{207b}\u{2070}\u{b2}");
    }
}
