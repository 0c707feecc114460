//! Quantities: exact parsing, arithmetic and the canonical text form.
//!
//! Amounts are held in billionths, so every value upstream can express without its arbitrary-precision path is exact here.
//! Magnitudes above 2^63-1 are capped and fractions finer than one billionth are rounded away from zero.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

const NANO: i128 = 1_000_000_000;
const MAX_NANOS: i128 = i64::MAX as i128 * NANO;

/// Which family of suffixes a quantity was written with, and is written back with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// `m`, none, `k`, `M`, ... (powers of ten).
    #[default]
    DecimalSi,
    /// `Ki`, `Mi`, ... (powers of two).
    BinarySi,
    /// `e3`, `e6`, ...
    DecimalExponent,
}

/// A parsed quantity. Equality and order compare amounts, not spelling.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// Why a text is not a quantity. The texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not of the form number + suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number is not one.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

enum Scale {
    Ten(i32),
    Two(u32),
}

fn suffix_scale(suffix: &str) -> Result<(Scale, Format), QuantityError> {
    let si = |exponent| Ok((Scale::Ten(exponent), Format::DecimalSi));
    let binary = |exponent| Ok((Scale::Two(exponent), Format::BinarySi));
    match suffix {
        "n" => si(-9),
        "u" => si(-6),
        "m" => si(-3),
        "" => si(0),
        "k" => si(3),
        "M" => si(6),
        "G" => si(9),
        "T" => si(12),
        "P" => si(15),
        "E" => si(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let digits = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
            let exponent: i64 = digits.parse().map_err(|_| QuantityError::Suffix)?;
            // Beyond these bounds the result is capped or rounded to one billionth anyway.
            let exponent = exponent.clamp(-100, 100) as i32;
            Ok((Scale::Ten(exponent), Format::DecimalExponent))
        }
    }
}

/// `mantissa / 10^digits`, rounded away from zero.
fn divide_up(mantissa: i128, digits: u32) -> i128 {
    match 10i128.checked_pow(digits) {
        Some(divisor) => mantissa / divisor + i128::from(mantissa % divisor != 0),
        None => i128::from(mantissa != 0),
    }
}

/// `mantissa * 10^exponent`, rounded away from zero or saturated.
fn scale_ten(mantissa: i128, exponent: i32) -> i128 {
    if mantissa == 0 {
        return 0;
    }
    if exponent < 0 {
        return divide_up(mantissa, exponent.unsigned_abs());
    }
    let factor = 10i128.checked_pow(exponent.unsigned_abs());
    factor.and_then(|f| mantissa.checked_mul(f)).unwrap_or(i128::MAX)
}

/// Reads decimal digits; keeps at most 36 significant ones, and tells how many were dropped (with a sticky non-zero mark).
fn read_digits(digits: &str) -> (i128, i32, bool) {
    let (mut value, mut dropped, mut sticky) = (0i128, 0, false);
    for digit in digits.bytes() {
        let digit = i128::from(digit - b'0');
        if value >= 10i128.pow(35) {
            dropped += 1;
            sticky |= digit != 0;
        } else {
            value = value * 10 + digit;
        }
    }
    (value, dropped, sticky)
}

impl Quantity {
    /// Zero, written without a suffix.
    pub const ZERO: Self = Self {
        nanos: 0,
        format: Format::DecimalSi,
    };

    /// A whole number of units.
    pub fn from_units(value: i64, format: Format) -> Self {
        Self::capped(i128::from(value) * NANO, format)
    }

    /// A number of thousandths, as CPU amounts are counted.
    pub fn from_milli(value: i64) -> Self {
        Self::capped(i128::from(value) * 1_000_000, Format::DecimalSi)
    }

    /// Parses upstream's grammar: signed number, then a decimal SI, binary SI or exponent suffix.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let (negative, rest) = match text.as_bytes().first() {
            None => return Err(QuantityError::Format),
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
        };
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if number.is_empty() {
            return Err(QuantityError::Format);
        }
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(QuantityError::Numeric);
        }
        if !suffix.bytes().all(|b| b"eEinumkKMGTP+-0123456789".contains(&b)) {
            return Err(QuantityError::Format);
        }
        let (scale, format) = suffix_scale(suffix)?;
        let nanos = match scale {
            Scale::Ten(exponent) => {
                let (mantissa, dropped, sticky) = read_digits(&format!("{whole}{fraction}"));
                let digits = i32::try_from(fraction.len()).unwrap_or(i32::MAX / 2);
                scale_ten(mantissa, exponent + 9 + dropped - digits).saturating_add(i128::from(sticky))
            }
            Scale::Two(shift) => {
                let (units, dropped, _) = read_digits(whole);
                let units = if dropped > 0 { i128::MAX } else { units };
                let kept = &fraction[..fraction.len().min(18)];
                let (part, _, _) = read_digits(kept);
                let sticky = fraction[kept.len()..].bytes().any(|b| b != b'0');
                let part = scale_ten(part << shift, 9 - kept.len() as i32) + i128::from(sticky);
                let whole = units.checked_mul(NANO << shift).unwrap_or(i128::MAX);
                whole.saturating_add(part)
            }
        };
        let nanos = nanos.min(MAX_NANOS);
        // A positive binary amount below one is kept in decimal, as upstream does, to avoid rounding.
        let format = match format {
            Format::BinarySi if !negative && nanos > 0 && nanos < NANO => Format::DecimalSi,
            other => other,
        };
        Ok(Self {
            nanos: if negative { -nanos } else { nanos },
            format,
        })
    }

    /// Parses the API type; a text that is not a quantity counts as zero (the API server refuses such objects).
    pub fn of(quantity: &ApiQuantity) -> Self {
        Self::parse(&quantity.0).unwrap_or_default()
    }

    /// The API type, in canonical form.
    pub fn to_api(self) -> ApiQuantity {
        ApiQuantity(self.to_string())
    }

    fn capped(nanos: i128, format: Format) -> Self {
        Self {
            nanos: nanos.clamp(-MAX_NANOS, MAX_NANOS),
            format,
        }
    }

    fn rounded(self, unit: i128) -> i64 {
        let whole = self.nanos / unit;
        let up = if self.nanos % unit == 0 { 0 } else { self.nanos.signum() };
        let value = (whole + up).clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        i64::try_from(value).expect("clamped into range")
    }

    /// Units, rounded away from zero.
    pub fn value(self) -> i64 {
        self.rounded(NANO)
    }

    /// Thousandths, rounded away from zero; capped at 2^63-1.
    pub fn milli_value(self) -> i64 {
        self.rounded(1_000_000)
    }

    /// Whether the amount is zero.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether the amount is below zero.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The suffix family it is written with.
    pub fn format(self) -> Format {
        self.format
    }

    /// The sum, written like `self` unless `self` is zero.
    pub fn plus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self::capped(self.nanos + other.nanos, format)
    }

    /// The difference, written like `self` unless `self` is zero.
    pub fn minus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self::capped(self.nanos - other.nanos, format)
    }

    /// The larger of the two (`self` when equal).
    pub fn or_larger(self, other: Self) -> Self {
        if other > self { other } else { self }
    }

    fn write_decimal(self, f: &mut fmt::Formatter<'_>, format: Format) -> fmt::Result {
        let (mut mantissa, mut exponent) = (self.nanos, -9);
        while exponent < 18 && mantissa % 1000 == 0 {
            mantissa /= 1000;
            exponent += 3;
        }
        if format == Format::DecimalExponent {
            return if exponent == 0 {
                write!(f, "{mantissa}")
            } else {
                write!(f, "{mantissa}e{exponent}")
            };
        }
        const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let index = usize::try_from((exponent + 9) / 3).expect("the exponent starts at -9 and grows");
        write!(f, "{mantissa}{}", SUFFIXES[index])
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let small = self.nanos.abs() < 1024 * NANO;
        if self.format != Format::BinarySi || small || self.nanos % NANO != 0 {
            let format = if self.format == Format::BinarySi {
                Format::DecimalSi
            } else {
                self.format
            };
            return self.write_decimal(f, format);
        }
        let mut mantissa = self.nanos / NANO;
        let mut suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].into_iter();
        let mut suffix = suffixes.next().unwrap_or_default();
        while mantissa % 1024 == 0 {
            let Some(next) = suffixes.next() else { break };
            mantissa /= 1024;
            suffix = next;
        }
        write!(f, "{mantissa}{suffix}")
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn canonical_forms() {
        let table = [
            ("0", "0"),
            ("0Ki", "0"),
            ("-0", "0"),
            ("1", "1"),
            ("+1", "1"),
            ("-1", "-1"),
            ("1.", "1"),
            (".5", "500m"),
            ("0.5", "500m"),
            ("1000", "1k"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("2500k", "2500k"),
            ("1000000", "1M"),
            ("1024", "1024"),
            ("1Ki", "1Ki"),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("100Ki", "100Ki"),
            ("1023.5Ki", "1048064"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("1e2", "100"),
            ("100e3", "100e3"),
            ("12E6", "12e6"),
            ("1E", "1E"),
            ("5E3", "5e3"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("0.0000000001", "1n"),
            ("100m", "100m"),
            ("0.001", "1m"),
            ("1.1Mi", "1153433600m"),
            ("9223372036854775807", "9223372036854775807"),
            ("9223372036854775808", "9223372036854775807"),
            ("1e100", "9223372036854775807"),
            ("1e-100", "1e-9"),
            ("-1Gi", "-1Gi"),
            ("8Ei", "9223372036854775807"),
            ("99999999999999999999999999999999999999999999", "9223372036854775807"),
        ];
        for (text, want) in table {
            assert_eq!(Quantity::parse(text).unwrap().to_string(), want, "{text}");
        }
    }

    #[test]
    fn refusals() {
        use QuantityError::{Format as F, Numeric as N, Suffix as S};
        let table = [
            ("", F),
            (" 1", F),
            ("1 ", F),
            ("a", F),
            ("--1", F),
            ("1.1.1", N),
            (".", N),
            ("1i", S),
            ("1Kii", S),
            ("1mi", S),
            ("1e", S),
            ("1e1.5", F),
            ("1K", S),
            ("1e+", S),
            ("12,5", F),
        ];
        for (text, want) in table {
            assert_eq!(Quantity::parse(text).unwrap_err(), want, "{text:?}");
        }
    }

    #[test]
    fn rounding_is_away_from_zero() {
        let q = |text: &str| Quantity::parse(text).unwrap();
        assert_eq!(q("1m").value(), 1);
        assert_eq!(q("1500m").value(), 2);
        assert_eq!(q("-1500m").value(), -2);
        assert_eq!(q("1n").milli_value(), 1);
        assert_eq!(q("1.5").milli_value(), 1500);
        assert_eq!(q("1Gi").value(), 1 << 30);
        assert_eq!(q("8E").milli_value(), i64::MAX);
    }

    #[test]
    fn arithmetic_keeps_the_format() {
        let q = |text: &str| Quantity::parse(text).unwrap();
        assert_eq!(q("1Gi").plus(q("1024Mi")).to_string(), "2Gi");
        assert_eq!(q("0").plus(q("1Ki")).to_string(), "1Ki");
        assert_eq!(q("1").minus(q("250m")).to_string(), "750m");
        assert!(q("1Ki") > q("1k"));
        assert_eq!(q("1000m"), q("1"));
    }

    proptest! {
        #[test]
        fn format_then_parse_keeps_amount_and_spelling(
            number in -10_000_000_000i64..10_000_000_000,
            suffix in prop::sample::select(vec!["n", "u", "m", "", "k", "M", "Ki", "Mi", "Gi", "e3", "e-3"]),
        ) {
            let first = Quantity::parse(&format!("{number}{suffix}")).unwrap();
            let text = first.to_string();
            let second = Quantity::parse(&text).unwrap();
            prop_assert_eq!(first, second);
            prop_assert_eq!(text, second.to_string());
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = Quantity::parse(&text);
        }

        #[test]
        fn no_number_panics(text in "[+-]?[0-9.]{0,50}(e|E|Ki|Ei|m|n)?[+-]?[0-9]{0,20}") {
            let _ = Quantity::parse(&text);
        }

        #[test]
        fn fractions_agree_with_milli(whole in 0i64..1_000_000, part in 0i64..1000) {
            let q = Quantity::parse(&format!("{whole}.{part:03}")).unwrap();
            prop_assert_eq!(q.milli_value(), whole * 1000 + part);
        }
    }
}
