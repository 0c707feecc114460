//! Keys with their data, many of them behind one another: a first write has hundreds of thousands.

/// Key and data of elements, in the order they were added.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Pairs {
    /// Of each: the lengths of key and data, the key, the data.
    bytes: Vec<u8>,
}

impl Pairs {
    /// One more. Neither is longer than 255 bytes: the longest key is that of a source range, 80.
    pub fn push(&mut self, key: &[u8], data: &[u8]) {
        let lengths = [key.len(), data.len()].map(|length| length.min(usize::from(u8::MAX)) as u8);
        self.bytes.extend_from_slice(&lengths);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(data);
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let [key, data, behind @ ..] = rest else { return None };
            let (key, behind) = behind.split_at_checked(usize::from(*key))?;
            let (data, behind) = behind.split_at_checked(usize::from(*data))?;
            rest = behind;
            Some((key, data))
        })
    }
}

impl std::fmt::Debug for Pairs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
