//! Fields of messages, written by hand.

/// A field of this content.
pub(super) fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let length = match length < 128 {
        true => vec![length as u8],
        false => vec![(length & 0x7f) as u8 | 0x80, (length >> 7) as u8],
    };
    let tag = u32::from(number) << 3 | 2;
    let tag = match tag < 128 {
        true => vec![tag as u8],
        false => vec![(tag & 0x7f) as u8 | 0x80, (tag >> 7) as u8],
    };
    [tag, length, content.to_vec()].concat()
}

/// A pair of a name and a message, as a field.
pub(super) fn named(number: u8, name: &str, content: &[u8]) -> Vec<u8> {
    field(number, &[field(1, name.as_bytes()), field(2, content)].concat())
}
