//! Names in wire form: labels, each behind its length, and the root's empty one. Pure.

use std::fmt;

/// The longest name, in bytes with its root (RFC 1035 §2.3.4).
pub const NAME_BYTES: usize = 255;
/// The longest label, in bytes.
pub const LABEL_BYTES: usize = 63;

/// A name without pointers, on the stack.
#[derive(Clone)]
pub struct Name {
    bytes: [u8; NAME_BYTES],
    length: u8,
}

impl Name {
    /// The root.
    pub const ROOT: Self = Self {
        bytes: [0; NAME_BYTES],
        length: 1,
    };

    /// Reads the name at `at` of a message, and where the message goes on. Pointers lead backwards, each before the other, so
    /// there is an end.
    pub fn read(message: &[u8], at: usize) -> Option<(Self, usize)> {
        let mut name = Self {
            bytes: [0; NAME_BYTES],
            length: 0,
        };
        let (mut at, mut segment, mut after) = (at, at, None);
        loop {
            let head = *message.get(at)?;
            match head {
                0 => {
                    name.append(&[0])?;
                    return Some((name, after.unwrap_or(at + 1)));
                }
                1..=63 => {
                    let end = at + 1 + usize::from(head);
                    name.append(message.get(at..end)?)?;
                    at = end;
                }
                0xc0.. => {
                    let target = usize::from(head & 0x3f) << 8 | usize::from(*message.get(at + 1)?);
                    after.get_or_insert(at + 2);
                    if target >= segment {
                        return None;
                    }
                    (at, segment) = (target, target);
                }
                _ => return None,
            }
        }
    }

    /// A name of text with dots, with or without the last.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let mut name = Self {
            bytes: [0; NAME_BYTES],
            length: 0,
        };
        for label in text.split('.').filter(|_| !text.is_empty()) {
            let length = u8::try_from(label.len())
                .ok()
                .filter(|length| (1..=63).contains(length))?;
            name.append(&[length])?;
            name.append(label.as_bytes())?;
        }
        name.append(&[0])?;
        Some(name)
    }

    /// The name made of pieces of others; the last brings the root.
    pub fn of(pieces: &[&[u8]]) -> Option<Self> {
        let mut name = Self {
            bytes: [0; NAME_BYTES],
            length: 0,
        };
        for piece in pieces {
            name.append(piece)?;
        }
        Some(name)
    }

    fn append(&mut self, piece: &[u8]) -> Option<()> {
        let from = usize::from(self.length);
        self.bytes.get_mut(from..from + piece.len())?.copy_from_slice(piece);
        self.length = (from + piece.len()) as u8;
        Some(())
    }

    /// With small letters. (Lengths of labels are no letters.)
    pub fn lower(&self) -> Self {
        let mut lower = self.clone();
        // Not the whole room: a name takes a tenth of it, and this is done for each question.
        lower.bytes[..usize::from(self.length)].make_ascii_lowercase();
        lower
    }

    /// Its bytes, the root among them.
    pub fn wire(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.length == 1 {
            return formatter.write_str(".");
        }
        for label in labels(self.wire()) {
            write!(formatter, "{}.", label.escape_ascii())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

/// The labels of a name in wire form without pointers.
pub fn labels(mut wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (&length, rest) = wire.split_first().filter(|(length, _)| **length != 0)?;
        let (label, rest) = rest.split_at_checked(usize::from(length))?;
        wire = rest;
        Some(label)
    })
}

/// A label as it stands in a name: small letters behind their length. Nothing for what is no label.
pub fn label(text: &str) -> Option<Box<[u8]>> {
    key(&[text])
}

/// Labels one behind the other, without the root: how a part of a name is looked up.
pub fn key(texts: &[&str]) -> Option<Box<[u8]>> {
    let mut wire = Vec::with_capacity(texts.iter().map(|text| text.len() + 1).sum());
    for text in texts {
        if text.is_empty() || text.len() > LABEL_BYTES {
            return None;
        }
        wire.push(text.len() as u8);
        wire.extend(text.bytes().map(|byte| byte.to_ascii_lowercase()));
    }
    Some(wire.into())
}
