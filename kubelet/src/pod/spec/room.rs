//! How much a container may be given to start with: its environment and the words of its command.
//!
//! Pure. A short manifest can ask for any amount: variables are expanded from variables, and one ConfigMap is taken under
//! many names. Everything that is made of such a wish takes its place here first.

use super::SpecError;
use crate::expansion::{START_BYTES_MAX, TooLong, expand};
use std::collections::BTreeMap;

/// The most of a wish that is named, bytes.
const NAMED_BYTES_MAX: usize = 256;

/// What is left of it.
pub(super) struct Room {
    left: usize,
}

impl Room {
    /// All of it.
    pub(super) fn new() -> Self {
        Self { left: START_BYTES_MAX }
    }

    /// What an environment leaves.
    pub(super) fn beside(environment: &BTreeMap<String, String>) -> Self {
        let taken = environment.iter().map(|(name, value)| cost(name, value)).sum();
        Self {
            left: START_BYTES_MAX.saturating_sub(taken),
        }
    }

    /// Takes the place of a variable.
    ///
    /// # Errors
    /// There is none; the error names the variable.
    pub(super) fn take(&mut self, name: &str, value: &str) -> Result<(), SpecError> {
        let left = self.left.checked_sub(cost(name, value));
        self.left = left.ok_or_else(|| exceeded(&variable(name)))?;
        Ok(())
    }

    /// The text of the variable `name`, expanded; its place is not taken yet.
    ///
    /// # Errors
    /// There is no room for it.
    pub(super) fn value<'a>(
        &self,
        name: &str,
        text: &str,
        lookup: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<String, SpecError> {
        expand(text, self.left, lookup).map_err(|TooLong| exceeded(&variable(name)))
    }

    /// The words of a field, expanded, their places taken.
    ///
    /// # Errors
    /// There is no room for one of them; the error says which.
    pub(super) fn words<'a>(
        &mut self,
        field: &str,
        words: &[String],
        lookup: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Vec<String>, SpecError> {
        let word = |(at, word): (usize, &String)| {
            let word = expand(word, self.left, &lookup).ok();
            let left = word.as_ref().and_then(|word| self.left.checked_sub(word.len() + 1));
            match word.zip(left) {
                Some((word, left)) => {
                    self.left = left;
                    Ok(word)
                }
                None => Err(exceeded(&format!("{field}[{at}]"))),
            }
        };
        words.iter().enumerate().map(word).collect()
    }
}

/// With what stands between and behind them.
fn cost(name: &str, value: &str) -> usize {
    name.len() + value.len() + 2
}

fn variable(name: &str) -> String {
    let shown = &name[..name.floor_char_boundary(NAMED_BYTES_MAX)];
    format!("environment variable {shown:?}")
}

fn exceeded(what: &str) -> SpecError {
    SpecError::Size { what: what.to_owned() }
}
