//! How much one plan may ask for: so many writes, and no more memory for their bodies than this. The next plan does the rest. Pure.

use super::write::Write;

/// Bytes that the bodies of one plan's writes may take, but for the last of them: a plan always has one write at least.
pub const HELD_MAX: usize = 32 << 20;

/// Writes, as long as there is room.
#[derive(Debug)]
pub struct Burst {
    most: usize,
    held: usize,
    writes: Vec<Write>,
}

impl Burst {
    /// Room for `most` writes.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            held: 0,
            writes: Vec::new(),
        }
    }

    /// Whether there is no more room.
    pub fn is_full(&self) -> bool {
        self.writes.len() >= self.most || self.held >= HELD_MAX
    }

    /// Takes writes that belong together, whether there is room or not.
    pub fn add(&mut self, writes: impl IntoIterator<Item = Write>) {
        for write in writes {
            self.held = self.held.saturating_add(write.held());
            self.writes.push(write);
        }
    }

    /// Takes from `writes`, which are made one by one, as long as there is room.
    pub fn fill(mut self, writes: impl IntoIterator<Item = Write>) -> Self {
        let mut writes = writes.into_iter();
        while !self.is_full()
            && let Some(write) = writes.next()
        {
            self.add([write]);
        }
        self
    }

    /// The writes.
    pub fn into_writes(self) -> Vec<Write> {
        self.writes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::write::{PODS, Verb};
    use client::Key;
    use serde_json::{Value, json};

    fn write(body: Value) -> Write {
        Write::new(PODS, Key::new("default", ""), Verb::Create(body))
    }

    fn filled(body: &Value) -> usize {
        let endless = std::iter::repeat_with(|| write(body.clone()));
        Burst::new(500).fill(endless).into_writes().len()
    }

    #[test]
    fn small_writes_are_bounded_by_number_and_large_ones_by_memory() {
        assert_eq!(filled(&json!({"spec": {"containers": [{"name": "c"}]}})), 500);
        assert_eq!(filled(&json!("x".repeat(3 << 20))), 11);
        assert!(filled(&json!(vec![json!({}); 100_000])) < 500);
        assert_eq!(filled(&json!("x".repeat(HELD_MAX + 1))), 1, "there is always one");
        assert!(Burst::new(0).fill([write(json!(0))]).into_writes().is_empty());
    }
}
