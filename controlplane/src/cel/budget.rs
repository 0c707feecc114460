//! What evaluating an expression may take. Pure.
//!
//! Owns the bounds: who wrote the rule and who wrote the object may both mean harm. Costs are upstream's units and what they say is
//! upstream's; work counts what these leave out (nodes, copies, comparisons of large values, patterns), and bytes what is made,
//! before it is made.

use std::rc::Rc;

use super::value::{Val, error};
use crate::pattern::Pattern;

/// Bytes a pattern may take when it is compiled while a rule is evaluated.
pub(super) const PATTERN_BYTES: usize = 256 << 10;
/// Work of compiling one, beside its bytes.
const PATTERN_WORK: u64 = 10_000;
/// Patterns that are kept while a rule is evaluated.
const PATTERNS_MAX: usize = 16;
/// Bytes that may be made while an expression is evaluated. None come back: what is let go on the way counts, too.
const MADE_BYTES_MAX: u64 = 64 << 20;
/// Bytes that are made for a step of work.
const MADE_PER_STEP: u64 = 8;

/// Why there is no value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Failure {
    /// The expression's own error, which `||` and `&&` may make good.
    Error(String),
    /// It costs more than it may.
    Cost,
}

pub(super) type Outcome<'a> = Result<Val<'a>, Failure>;

/// What evaluating may still take.
#[derive(Debug)]
pub(super) struct Budget {
    /// Upstream's units for the call.
    pub(super) cost: u64,
    pub(super) limit: u64,
    pub(super) work_left: u64,
    bytes_left: u64,
    patterns: Vec<(String, Rc<Pattern>)>,
}

impl Budget {
    pub(super) fn new(limit: u64, work_left: u64) -> Self {
        Self {
            cost: 0,
            limit,
            work_left,
            bytes_left: MADE_BYTES_MAX,
            patterns: Vec::new(),
        }
    }

    /// Charges units of cost.
    pub(super) fn charge(&mut self, cost: u64) -> Result<(), Failure> {
        self.cost = self.cost.saturating_add(cost);
        match self.cost > self.limit {
            true => Err(Failure::Cost),
            false => self.work(1),
        }
    }

    /// Units of cost that are left.
    pub(super) fn cost_left(&self) -> u64 {
        self.limit.saturating_sub(self.cost)
    }

    /// Counts work that costs nothing.
    pub(super) fn work(&mut self, steps: u64) -> Result<(), Failure> {
        self.work_left = self.work_left.saturating_sub(steps);
        match self.work_left {
            0 => Err(Failure::Cost),
            _ => Ok(()),
        }
    }

    /// Counts bytes that are going to be made, and the work of it.
    pub(super) fn make(&mut self, bytes: usize) -> Result<(), Failure> {
        let bytes = bytes as u64;
        let Some(left) = self.bytes_left.checked_sub(bytes) else {
            self.bytes_left = 0;
            return Err(Failure::Cost);
        };
        self.bytes_left = left;
        self.work(bytes / MADE_PER_STEP)
    }

    /// As [`Budget::make`], of values in a list or a map.
    pub(super) fn make_values(&mut self, count: usize) -> Result<(), Failure> {
        self.make(count.saturating_mul(size_of::<Val<'_>>()))
    }

    /// A pattern, compiled within bounds.
    pub(super) fn pattern(&mut self, text: &str) -> Result<Rc<Pattern>, Failure> {
        if let Some((_, known)) = self.patterns.iter().find(|(own, _)| own == text) {
            return Ok(Rc::clone(known));
        }
        self.work(PATTERN_WORK)?;
        let pattern = match Pattern::compile(text, PATTERN_BYTES) {
            Ok(pattern) => Rc::new(pattern),
            Err(why) => return error(format!("error parsing regexp: {why}")),
        };
        self.work(pattern.bytes as u64)?;
        if self.patterns.len() == PATTERNS_MAX {
            self.patterns.remove(0);
        }
        self.patterns.push((text.to_owned(), Rc::clone(&pattern)));
        Ok(pattern)
    }

    /// Tries a pattern on a text: the work is bounded by the product.
    pub(super) fn tries(&mut self, pattern: &Pattern, text: &str) -> Result<(), Failure> {
        self.work(pattern.steps(text.len()))
    }
}
