//! FNV-32a, upstream's checksum of what a kubelet leaves for the next one (kubelet contract §2). Pure.

const OFFSET: u32 = 0x811c_9dc5;
const PRIME: u32 = 0x0100_0193;

/// The hash of these bytes.
pub(crate) fn fnv32a(bytes: impl Iterator<Item = u8>) -> u32 {
    let mut sum = Fnv32a::default();
    bytes.for_each(|byte| sum.add(byte));
    sum.0
}

/// The hash of what is written into it, piece by piece: nothing of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fnv32a(pub(crate) u32);

impl Default for Fnv32a {
    fn default() -> Self {
        Self(OFFSET)
    }
}

impl Fnv32a {
    fn add(&mut self, byte: u8) {
        self.0 = (self.0 ^ u32::from(byte)).wrapping_mul(PRIME);
    }
}

impl std::fmt::Write for Fnv32a {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        text.bytes().for_each(|byte| self.add(byte));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn pieces_have_the_hash_of_the_whole() {
        let mut sum = Fnv32a::default();
        for piece in ["foo", "", "b", "ar"] {
            write!(sum, "{piece}").unwrap();
        }
        // The hash's published example.
        assert_eq!((sum.0, fnv32a("foobar".bytes())), (0xbf9c_f968, 0xbf9c_f968));
    }
}
