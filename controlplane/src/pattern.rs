//! Regular expressions of schemas and rules, compiled within bounds. Pure.
//!
//! Owns how the work of a pattern is counted: by its states, since each byte of a text may be tried at all of them.

mod dialect;

use regex_lite::{Regex, RegexBuilder};

/// What the compiler is first allowed; then twice as much each time.
const FIRST_BYTES: usize = 512;
/// Bytes of a compiled state.
const STATE_BYTES: usize = 32;

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// As it was written, in RE2's syntax.
    pub(crate) text: Box<str>,
    pub(crate) regex: Regex,
    /// Bytes that it takes at most.
    pub(crate) bytes: usize,
}

impl Pattern {
    /// Compiles a text to at most so many bytes: to the least power of two that the compiler is content with, since that does not
    /// say how much it took.
    ///
    /// # Errors
    /// It is no pattern, or takes more.
    pub(crate) fn compile(text: &str, most_bytes: usize) -> Result<Self, String> {
        let translated = dialect::translate(text)?;
        let mut bytes = FIRST_BYTES.min(most_bytes);
        loop {
            match RegexBuilder::new(&translated).size_limit(bytes).build() {
                Ok(regex) => {
                    let text = text.into();
                    return Ok(Self { text, regex, bytes });
                }
                Err(error) if bytes >= most_bytes => return Err(error.to_string()),
                Err(_) => bytes = bytes.saturating_mul(2).min(most_bytes),
            }
        }
    }

    /// Steps of work that trying it on so many bytes of text is, at most.
    pub(crate) fn steps(&self, text_bytes: usize) -> u64 {
        (text_bytes as u64 + 1).saturating_mul((self.bytes / STATE_BYTES) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_of_more_states_is_more_work() {
        let steps = |text: &str| Pattern::compile(text, 32 << 10).unwrap().steps(99);
        assert_eq!(steps("a"), 1_600);
        assert!(steps("(.*a.{200}){2}c") > 10 * steps("^[a-z]+$"));
        assert!(Pattern::compile("(a{100}){100}", 32 << 10).is_err());
    }
}
