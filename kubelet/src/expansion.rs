//! `$(VAR)` in commands, arguments, values and paths (kubelet contract §6). Pure; written once for everyone who expands.
//!
//! What was expanded may be expanded again, and each time be twice as long: nobody expands without a bound.

/// The most of variables and words that one process is started with, bytes: a quarter of the usual stack limit, with more of
/// which the kernel starts none (`execve(2)`, E2BIG).
pub const START_BYTES_MAX: usize = 2 << 20;

/// The text would be longer than it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// Text that is never longer than it may be.
struct Bounded {
    text: String,
    bytes_max: usize,
}

impl Bounded {
    fn put(&mut self, part: &str) -> Result<(), TooLong> {
        if part.len() > self.bytes_max - self.text.len() {
            return Err(TooLong);
        }
        self.text.push_str(part);
        Ok(())
    }
}

/// `$(NAME)` replaced by `lookup(NAME)`, `$$` by `$`; unknown names and everything else stay as written.
///
/// # Errors
/// The result would have more than `bytes_max` bytes.
pub fn expand<'a>(text: &str, bytes_max: usize, lookup: impl Fn(&str) -> Option<&'a str>) -> Result<String, TooLong> {
    let mut out = Bounded {
        text: String::with_capacity(text.len().min(bytes_max)),
        bytes_max,
    };
    // Known from the start: many beginnings without an end would each look for one to the end of the text.
    let last_end = text.rfind(')').unwrap_or(0);
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.put(&rest[..at])?;
        rest = &rest[at + 1..];
        let ends = text.len() - rest.len() < last_end;
        let reference = rest.strip_prefix('(').filter(|_| ends);
        if let Some(after) = rest.strip_prefix('$') {
            out.put("$")?;
            rest = after;
        } else if let Some((name, after)) = reference.and_then(|reference| reference.split_once(')')) {
            match lookup(name) {
                Some(value) => out.put(value)?,
                None => ["$(", name, ")"].into_iter().try_for_each(|part| out.put(part))?,
            }
            rest = after;
        } else {
            out.put("$")?;
        }
    }
    out.put(rest)?;
    Ok(out.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<&'static str> {
        (name == "A").then_some("1")
    }

    #[test]
    fn known_names_are_replaced_and_the_rest_stays() {
        for (text, expected) in [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$(B)", "$(B)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$A ${A}", "$A ${A}"),
            ("$(A", "$(A"),
            ("$(B$(A)", "$(B$(A)"),
            ("$(A)$(A$$(", "1$(A$("),
            ("$()", "$()"),
            (")$(A", ")$(A"),
            ("cost $", "cost $"),
            ("", ""),
        ] {
            assert_eq!(expand(text, 100, lookup).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn no_part_makes_the_text_longer_than_it_may_be() {
        for text in ["abc", "$(A)bc", "ab$(A)", "a$$c", "ab$", "$(B"] {
            assert!(expand(text, 3, lookup).is_ok(), "{text}");
            assert_eq!(expand(text, 2, lookup), Err(TooLong), "{text}");
        }
        assert_eq!(expand("$(B)", 3, lookup), Err(TooLong));
        assert_eq!(expand("", 0, lookup).as_deref(), Ok(""));
    }
}
