//! The kernel's formats that both versions of cgroups share. Pure; takes any bytes.

use super::numbers::{Stall, Stalls};

/// A cgroup's files.
pub(super) trait Texts {
    /// What a file in a tree's directory says; nothing if it is not there. Where there is one tree nobody looks at its name.
    fn text(&mut self, tree: &'static str, file: &'static str) -> Option<&str>;
}

/// A file that is one number; nothing for `max`.
pub(super) fn number(text: &str) -> Option<u64> {
    let digits = text.trim_ascii().as_bytes();
    let mut number = 0u64;
    // By hand: of many pods there are thousands.
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    (!digits.is_empty()).then_some(number)
}

/// The pairs of a flat keyed file; lines of another shape are left out.
pub(super) fn keyed(text: &str) -> impl Iterator<Item = (&str, u64)> {
    pairs(text).filter_map(|(key, value)| Some((key, number(value)?)))
}

/// The same, where few of many are wanted: whoever takes a value makes a number of it.
pub(super) fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let (line, space) = first_line(rest.as_bytes());
            let begun = rest;
            rest = begun.get(line + 1..).unwrap_or_default();
            // Both are at characters of their own.
            if let Some(space) = space {
                return Some((&begun[..space], &begun[space + 1..line]));
            }
        }
        None
    })
}

/// How long the first line is, and where its first space is: both found in one go, because these texts are long and of many pods.
fn first_line(text: &[u8]) -> (usize, Option<usize>) {
    let mut space = None;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'\n' => return (at, space),
            b' ' if space.is_none() => space = Some(at),
            _ => {}
        }
    }
    (text.len(), space)
}

/// The value of one key.
pub(super) fn value_of(text: &str, key: &str) -> Option<u64> {
    let mut pairs = pairs(text).filter(|(found, _)| *found == key);
    pairs.find_map(|(_, value)| number(value))
}

/// A pressure file. Kernels that cannot say when all wait for a CPU have no such line, and there it is never.
pub(super) fn stalls(text: &str) -> Option<Stalls> {
    let stall = |line: &str| {
        let mut stall = Stall::default();
        for word in line.split_whitespace() {
            let (key, value) = word.split_once('=')?;
            match key {
                "avg10" => stall.averages[0] = finite(value)?,
                "avg60" => stall.averages[1] = finite(value)?,
                "avg300" => stall.averages[2] = finite(value)?,
                "total" => stall.total_us = value.parse().ok()?,
                _ => {}
            }
        }
        Some(stall)
    };
    let line = |kind: &str| text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
    Some(Stalls {
        some: stall(line("some")?)?,
        full: line("full").and_then(stall).unwrap_or_default(),
    })
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// A device's number, `8:16`.
pub(super) fn device(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_and_anything_else_is_none() {
        let some = "some avg10=19.48 avg60=8.38 avg300=5.44 total=7601121777\n";
        let full = "full avg10=0.50 avg60=0.00 avg300=0.00 total=12\n";
        let stall = |averages, total_us| Stall { averages, total_us };
        let expected = stall([19.48, 8.38, 5.44], 7_601_121_777);
        let both = Stalls {
            some: expected,
            full: stall([0.5, 0.0, 0.0], 12),
        };
        assert_eq!(stalls(&format!("{some}{full}")), Some(both));
        let alone = Stalls {
            some: expected,
            full: Stall::default(),
        };
        assert_eq!(stalls(some), Some(alone));
        for text in [
            "",
            full,
            "some",
            "some avg10=x",
            "some avg10=NaN total=1",
            "some avg10 total=1",
            "\u{fffd}some",
        ] {
            assert_eq!(stalls(text), None, "{text}");
        }
    }

    #[test]
    fn flat_files_are_read_line_by_line() {
        let text = "usage_usec 12\nbroken\nuser_usec x\nsystem_usec 5\n";
        assert_eq!(
            keyed(text).collect::<Vec<_>>(),
            [("usage_usec", 12), ("system_usec", 5)]
        );
        assert_eq!(value_of(text, "system_usec"), Some(5));
        assert_eq!(value_of(text, "usage"), None);
        assert_eq!((number("7\n"), number("max\n"), number("")), (Some(7), None, None));
        assert_eq!(number("18446744073709551615"), Some(u64::MAX));
        for none in ["18446744073709551616", "-1", "1 2", "1x", " \n"] {
            assert_eq!(number(none), None, "{none}");
        }
        let told: Vec<_> = pairs("a 1\n\nb\nc 2 3\n é ü\nlast 9").collect();
        assert_eq!(told, [("a", "1"), ("c", "2 3"), ("", "é ü"), ("last", "9")]);
        assert_eq!(
            (device("8:16"), device("8"), device("a:b")),
            (Some((8, 16)), None, None)
        );
    }
}
