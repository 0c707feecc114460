//! One field of a schedule: which numbers it stands for. Pure.

/// What a field may say.
pub(super) struct Bounds {
    low: u8,
    high: u8,
    names: &'static [&'static str],
}

const fn bounds(low: u8, high: u8, names: &'static [&'static str]) -> Bounds {
    Bounds { low, high, names }
}

pub(super) const MINUTES: Bounds = bounds(0, 59, &[]);
pub(super) const HOURS: Bounds = bounds(0, 23, &[]);
pub(super) const DAYS: Bounds = bounds(1, 31, &[]);
pub(super) const MONTHS: Bounds = bounds(
    1,
    12,
    &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
);
pub(super) const WEEKDAYS: Bounds = bounds(0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]);

/// A set of numbers below 64, and whether it was written as a star.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Field {
    bits: u64,
    star: bool,
}

impl Field {
    pub(super) fn has(self, number: u8) -> bool {
        number < 64 && self.bits & (1 << number) != 0
    }

    pub(super) fn is_star(self) -> bool {
        self.star
    }

    /// A comma-separated list of ranges.
    pub(super) fn parse(text: &str, bounds: &Bounds) -> Result<Self, String> {
        let mut all = Self::default();
        for range in text.split(',').filter(|range| !range.is_empty()) {
            let one = parse_range(range, bounds)?;
            all.bits |= one.bits;
            all.star |= one.star;
        }
        Ok(all)
    }
}

/// `*`, `?`, `N` or `N-M`, and perhaps `/STEP`; `N/STEP` goes to the end.
fn parse_range(text: &str, bounds: &Bounds) -> Result<Field, String> {
    let mut halves = text.split('/');
    let (range, step, more) = (halves.next().unwrap_or_default(), halves.next(), halves.next());
    let mut ends = range.split('-');
    let (first, last, beyond) = (ends.next().unwrap_or_default(), ends.next(), ends.next());
    let is_all = first == "*" || first == "?";
    let (low, mut high) = if is_all {
        (u64::from(bounds.low), u64::from(bounds.high))
    } else {
        let low = number_or_name(first, bounds)?;
        let high = match (last, beyond) {
            (None, _) => low,
            (Some(last), None) => number_or_name(last, bounds)?,
            (Some(_), Some(_)) => return Err(format!("too many hyphens: {text}")),
        };
        (low, high)
    };
    if more.is_some() {
        return Err(format!("too many slashes: {text}"));
    }
    let width = match step {
        None => 1,
        Some(step) => {
            let width = number(step)?;
            if last.is_none() {
                high = u64::from(bounds.high);
            }
            width
        }
    };
    let (least, most) = (bounds.low, bounds.high);
    if low < u64::from(least) {
        return Err(format!("beginning of range ({low}) below minimum ({least}): {text}"));
    }
    if high > u64::from(most) {
        return Err(format!("end of range ({high}) above maximum ({most}): {text}"));
    }
    if low > high {
        return Err(format!(
            "beginning of range ({low}) beyond end of range ({high}): {text}"
        ));
    }
    if width == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let fits = |n: &u64| (n - low).is_multiple_of(width);
    let bits = (low..=high).filter(fits).fold(0, |bits, n| bits | 1_u64 << n);
    Ok(Field {
        bits,
        star: is_all && width == 1,
    })
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let named = bounds.names.iter().position(|name| text.eq_ignore_ascii_case(name));
    match named.and_then(|place| u64::try_from(place).ok()) {
        Some(place) => Ok(place + u64::from(bounds.low)),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    match text.parse::<i64>() {
        Ok(number) => u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}")),
        Err(error) => {
            use std::num::IntErrorKind::{NegOverflow, PosOverflow};
            let why = match error.kind() {
                PosOverflow | NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            Err(format!(
                "failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}"
            ))
        }
    }
}
