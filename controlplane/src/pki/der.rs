//! The few DER forms a certificate is written in. Pure; reading is left to the parser.

use k8s_openapi::jiff::Timestamp;

/// Context tag 0, constructed.
pub(super) const CONTEXT_0: u8 = 0xa0;
/// Context tag 3, constructed.
pub(super) const CONTEXT_3: u8 = 0xa3;

/// A value of any tag, made of parts that are DER already (or the bytes of a primitive value).
pub(super) fn tagged(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    let bytes = length.to_be_bytes();
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len() - 1);
    let digits = &bytes[first..];
    match digits {
        [short] if *short < 0x80 => out.push(*short),
        long => {
            out.push(0x80 | u8::try_from(long.len()).unwrap_or(8));
            out.extend_from_slice(long);
        }
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

pub(super) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    tagged(0x30, parts)
}

pub(super) fn set(parts: &[&[u8]]) -> Vec<u8> {
    tagged(0x31, parts)
}

/// An unsigned integer from its big-endian bytes.
pub(super) fn integer(bytes: &[u8]) -> Vec<u8> {
    match bytes.first() {
        Some(first) if *first < 0x80 => tagged(2, &[bytes]),
        _ => tagged(2, &[&[0], bytes]),
    }
}

pub(super) fn boolean(value: bool) -> Vec<u8> {
    tagged(1, &[&[if value { 0xff } else { 0 }]])
}

pub(super) fn octets(bytes: &[u8]) -> Vec<u8> {
    tagged(4, &[bytes])
}

/// A bit string of whole bytes.
pub(super) fn bits(bytes: &[u8]) -> Vec<u8> {
    tagged(3, &[&[0], bytes])
}

/// A bit string of named bits (bit 0 is the first), without trailing zeros as DER wants.
pub(super) fn named_bits(set: u16) -> Vec<u8> {
    // Named bit 0 is the highest bit of the first byte.
    let [high, low] = set.reverse_bits().to_be_bytes();
    let bytes: &[u8] = if low == 0 { &[high] } else { &[high, low] };
    let unused = bytes.last().map_or(0, |last| last.trailing_zeros().min(7));
    tagged(3, &[&[u8::try_from(unused).unwrap_or(0)], bytes])
}

pub(super) fn utf8(text: &str) -> Vec<u8> {
    tagged(0x0c, &[text.as_bytes()])
}

/// An object identifier, such as `[2, 5, 4, 3]`.
pub(super) fn oid(arcs: &[u32]) -> Vec<u8> {
    let mut body = Vec::new();
    let (head, rest) = arcs.split_at(arcs.len().min(2));
    let first = head.first().unwrap_or(&0) * 40 + head.get(1).unwrap_or(&0);
    for arc in std::iter::once(&first).chain(rest) {
        let mut digits = vec![u8::try_from(arc & 0x7f).unwrap_or(0)];
        let mut left = arc >> 7;
        while left > 0 {
            digits.push(0x80 | u8::try_from(left & 0x7f).unwrap_or(0));
            left >>= 7;
        }
        digits.reverse();
        body.extend_from_slice(&digits);
    }
    tagged(6, &[&body])
}

/// A time as certificates write it: two digits of the year before 2050, four from then on.
pub(super) fn time(at: Timestamp) -> Vec<u8> {
    let utc = at.strftime("%Y%m%d%H%M%SZ").to_string();
    match utc.strip_prefix("19").or_else(|| utc.strip_prefix("20")) {
        Some(short) if utc.as_str() < "2050" => tagged(0x17, &[short.as_bytes()]),
        _ => tagged(0x18, &[utc.as_bytes()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_der() {
        let check = |found: Vec<u8>, expected: &str| assert_eq!(hex::encode(found), expected);
        check(oid(&[1, 2, 840, 10045, 4, 3, 2]), "06082a8648ce3d040302");
        check(oid(&[2, 5, 29, 15]), "0603551d0f");
        check(integer(&[0x80]), "02020080");
        check(integer(&[0x7f]), "02017f");
        check(named_bits(0b1), "03020780");
        check(named_bits(0b101), "030205a0");
        check(named_bits(1 << 8), "0303070080");
        check(boolean(true), "0101ff");
        assert_eq!(tagged(4, &[&[0; 200]])[..3], [4, 0x81, 200]);
        assert_eq!(tagged(4, &[&[0; 300]])[..4], [4, 0x82, 1, 44]);
        let at = |text: &str| time(text.parse().unwrap());
        assert_eq!(at("2027-01-15T08:00:00Z"), tagged(0x17, &[b"270115080000Z"]));
        assert_eq!(at("2050-01-15T08:00:00Z"), tagged(0x18, &[b"20500115080000Z"]));
    }
}
