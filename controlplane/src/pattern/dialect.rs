//! The syntax of RE2, which schemas and rules are written in, as that of the crate that compiles them. Pure.
//!
//! Owns where the two differ: what one takes for a letter is a sign to the other. Classes of Unicode (`\p`) are not here; the
//! compiler refuses them.

/// Most repetitions that may be asked for.
const REPEAT_MAX: u32 = 1000;

/// The pattern in the other syntax.
///
/// # Errors
/// What RE2 refuses and the compiler does not, in Go's words.
pub(super) fn translate(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    // The operator that repeats what is before, if one ends here.
    let mut repeated: Option<&str> = None;
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        let repeat = match first {
            '*' | '+' | '?' => Some(after),
            '{' => counted(rest)?,
            _ => None,
        };
        if let Some(after) = repeat {
            let after = after.strip_prefix('?').unwrap_or(after);
            let operator = &rest[..rest.len() - after.len()];
            if let Some(before) = repeated {
                return Err(format!("invalid nested repetition operator: `{before}{operator}`"));
            }
            out.push_str(operator);
            (repeated, rest) = (Some(operator), after);
            continue;
        }
        repeated = None;
        rest = match first {
            '\\' => match after.strip_prefix('Q') {
                Some(literal) => {
                    let (literal, after) = literal.split_once("\\E").unwrap_or((literal, ""));
                    literal.chars().for_each(|letter| push(letter, &mut out));
                    after
                }
                None => escape(rest, &mut out),
            },
            '[' => class(rest, &mut out),
            '{' | '}' => {
                push(first, &mut out);
                after
            }
            '(' => {
                // What follows a question mark here is no operator.
                out.push('(');
                match after.strip_prefix('?') {
                    Some(flags) => {
                        out.push('?');
                        flags
                    }
                    None => after,
                }
            }
            other => {
                out.push(other);
                after
            }
        };
    }
    Ok(out)
}

/// A letter that stands for itself.
fn push(letter: char, out: &mut String) {
    if "\\.+*?()|[]{}^$#&-~".contains(letter) {
        out.push('\\');
    }
    out.push(letter);
}

/// What is after `{1}`, `{1,}` or `{1,2}`; `None` if the brace is a letter.
fn counted(text: &str) -> Result<Option<&str>, String> {
    let Some((inner, after)) = text.strip_prefix('{').and_then(|inner| inner.split_once('}')) else {
        return Ok(None);
    };
    let (least, most) = inner.split_once(',').unwrap_or((inner, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if least.is_empty() || !is_number(least) || !is_number(most) {
        return Ok(None);
    }
    let is_within = |text: &str| text.is_empty() || text.parse().is_ok_and(|count: u32| count <= REPEAT_MAX);
    match is_within(least) && is_within(most) {
        true => Ok(Some(after)),
        false => Err(format!(
            "invalid repeat count: `{{{}}}`",
            inner.get(..32).unwrap_or(inner)
        )),
    }
}

/// An escape: of a sign it is that sign. Gives what is after it.
fn escape<'t>(text: &'t str, out: &mut String) -> &'t str {
    let after = &text[1..];
    match after.chars().next() {
        Some(sign) if sign.is_ascii() && !sign.is_ascii_alphanumeric() => {
            push(sign, out);
            &after[1..]
        }
        Some(letter) => {
            out.push('\\');
            out.push(letter);
            &after[letter.len_utf8()..]
        }
        None => {
            out.push('\\');
            after
        }
    }
}

/// A class between brackets, within which only a few letters are signs. Gives what is after it.
fn class<'t>(text: &'t str, out: &mut String) -> &'t str {
    let mut rest = &text[1..];
    out.push('[');
    if let Some(after) = rest.strip_prefix('^') {
        out.push('^');
        rest = after;
    }
    let mut is_first = true;
    while let Some(first) = rest.chars().next() {
        if first == ']' && !is_first {
            out.push(']');
            return &rest[1..];
        }
        is_first = false;
        if let Some(end) = rest.strip_prefix("[:").and_then(|named| named.find(":]")) {
            let (named, after) = rest.split_at(end + 4);
            out.push_str(named);
            rest = after;
            continue;
        }
        rest = member(rest, out);
        // A range, unless the sign is the last.
        if let Some(to) = rest
            .strip_prefix('-')
            .filter(|to| !to.starts_with(']') && !to.is_empty())
        {
            out.push('-');
            rest = member(to, out);
        }
    }
    rest
}

/// A letter of a class, or an escape.
fn member<'t>(text: &'t str, out: &mut String) -> &'t str {
    match text.chars().next() {
        Some('\\') => {
            // With braces, such as of a number, all of it.
            let after = escape(text, out);
            match text.get(..3) {
                Some("\\x{" | "\\p{" | "\\P{") => {
                    let end = after.find('}').map_or(after.len(), |end| end + 1);
                    out.push_str(&after[..end]);
                    &after[end..]
                }
                _ => match text.strip_prefix("\\x").and_then(|digits| digits.get(..2)) {
                    Some(digits) => {
                        out.push_str(digits);
                        &after[2..]
                    }
                    None => after,
                },
            }
        }
        Some(letter) => {
            push(letter, out);
            &text[letter.len_utf8()..]
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;
    use proptest::prelude::*;

    #[test]
    fn what_is_a_letter_to_re2_is_one_here() {
        for (pattern, takes, not) in [
            ("^[[]$", "[", "a"),
            ("^[]a]$", "]", "b"),
            ("^[^]a]$", "b", "]"),
            ("^{a}$", "{a}", "a"),
            ("^a{,3}$", "a{,3}", "aaa"),
            ("^[a-z&&b]$", "&", "A"),
            ("^[a~~b]$", "~", "c"),
            ("^[+--]$", ",", "."),
            ("^[a-]$", "-", "b"),
            (r"^\Qa.b*\E$", "a.b*", "axb*"),
            (r"^\<\/\_\-$", "</_-", "a"),
            (r"^[\w.\-/]+$", "a-/.", " "),
            ("^[[:alpha:]]+$", "abc", "1"),
            (r"^[\x41-\x{43}]$", "B", "D"),
            ("^(?i)a(?:b|c)?d*?$", "ABd", "x"),
            ("^.{1,1000}$", "é", ""),
            (r"^\d{1,1000}$", "12", "a"),
            ("^[a-zA-Z0-9_.-]{1,1000}$", "a.b", " "),
        ] {
            let compiled = Pattern::compile(pattern, 256 << 10).unwrap_or_else(|why| panic!("{pattern}: {why}"));
            assert!(
                compiled.regex.is_match(takes) && !compiled.regex.is_match(not),
                "{pattern}"
            );
            assert_eq!(&*compiled.text, pattern);
        }
    }

    #[test]
    fn what_re2_refuses_is_refused() {
        for (pattern, why) in [
            ("x++", "invalid nested repetition operator: `++`"),
            ("x*{2}", "invalid nested repetition operator: `*{2}`"),
            ("x*?*", "invalid nested repetition operator: `*?*`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{1,99999999999}", "invalid repeat count: `{1,99999999999}`"),
        ] {
            assert_eq!(translate(pattern), Err(why.to_owned()), "{pattern}");
        }
        for pattern in ["[a", "(a", "*a", "[z-a]", r"\p{L}", r"a\"] {
            assert!(Pattern::compile(pattern, 256 << 10).is_err(), "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_the_translator(text in "[a-cxpPQE0-9é\\\\\\[\\]{}^$.*+?|():,&~-]{0,24}") {
            let _ = Pattern::compile(&text, 16 << 10);
        }
    }
}
