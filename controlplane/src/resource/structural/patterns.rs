//! Patterns of a schema: compiled within bounds, each text once. Pure.
//!
//! Owns how much memory the patterns of a version take, since a few bytes of text make many kilobytes of pattern.

use std::collections::HashMap;
use std::sync::Arc;

use crate::pattern::Pattern;

/// Bytes a compiled pattern may take.
const PATTERN_BYTES: usize = 256 << 10;
/// Bytes of a pattern's text.
const PATTERN_TEXT_BYTES: usize = 4 << 10;
/// Different patterns of a version.
const PATTERNS_MAX: usize = 1000;
/// Bytes that all compiled patterns of a version may take.
const PATTERNS_BYTES: usize = 4 << 20;
/// Why a pattern is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum PatternError {
    #[error("must have at most {PATTERN_TEXT_BYTES} bytes")]
    TextTooLong,
    #[error("must be a valid regular expression, but isn't: {0}")]
    Invalid(String),
    #[error("this server takes at most {PATTERNS_MAX} different patterns in a version")]
    TooMany,
    #[error("this server takes at most {PATTERNS_BYTES} bytes of compiled patterns in a version")]
    TooLarge,
}

/// The patterns of a version so far.
#[derive(Default)]
pub(super) struct Patterns {
    known: HashMap<Box<str>, Arc<Pattern>>,
    bytes: usize,
    is_full: bool,
}

impl Patterns {
    /// The pattern of a text. Once there is no room for one, nothing more is compiled.
    ///
    /// # Errors
    /// It is no pattern, or there is no room for it.
    pub(super) fn compile(&mut self, text: &str) -> Result<Arc<Pattern>, PatternError> {
        if let Some(known) = self.known.get(text) {
            return Ok(Arc::clone(known));
        }
        if text.len() > PATTERN_TEXT_BYTES {
            return Err(PatternError::TextTooLong);
        }
        if self.known.len() >= PATTERNS_MAX {
            return Err(PatternError::TooMany);
        }
        if self.is_full {
            return Err(PatternError::TooLarge);
        }
        let pattern = Pattern::compile(text, PATTERN_BYTES).map_err(PatternError::Invalid)?;
        if self.bytes + pattern.bytes > PATTERNS_BYTES {
            self.is_full = true;
            return Err(PatternError::TooLarge);
        }
        self.bytes += pattern.bytes;
        let pattern = Arc::new(pattern);
        self.known.insert(text.into(), Arc::clone(&pattern));
        Ok(pattern)
    }
}
