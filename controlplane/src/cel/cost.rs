//! What expressions cost: estimates from what a schema allows, and charges for what is there. The units are upstream's. Pure.

use std::sync::Arc;

use super::budget::{Budget, Failure};
use super::types::{Decl, DeclKind, Ty};
use super::value::Val;

/// A range of costs or sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

/// What is known of an expression before there are values.
#[derive(Clone, Debug, Default)]
pub(super) struct Estimate {
    pub(super) cost: Range,
    /// `None` where nothing is known.
    pub(super) size: Option<Range>,
    /// The sizes of its keys (or indices) and values.
    pub(super) entries: Option<(Range, Range)>,
    /// What of the schema it is.
    pub(super) decl: Option<Arc<Decl>>,
    /// A whole number that is written.
    pub(super) literal: Option<i64>,
}

/// What a call costs beside its arguments.
#[derive(Clone, Copy, Debug)]
pub(super) enum Charge {
    One,
    /// The argument is read once.
    Scan(usize),
    /// It is read twice.
    Twice(usize),
    /// As `startsWith`: upstream's estimate asks for the prefix, its charge for the text.
    Start,
    /// All members of the argument are compared with one value.
    In,
    /// Two values are compared as far as the shorter goes.
    Compare,
    /// Two texts become one.
    Concatenate,
    /// Two lists become one.
    Append,
    /// A pattern is looked for.
    Match,
    Contains,
    /// The members of the list, or the characters of the text, are visited.
    Visit,
    /// As many members are made as are there, or as are asked for.
    Reverse,
    Slice,
    Range,
    /// All members of a list are compared with one another; for estimates, whether what texts cost is known.
    Sort(bool),
    /// All members of two lists are compared, so many times.
    Sets(u64),
    Join,
    Replace,
    Split,
    Validate,
    /// An address or a range in a range; whether it is a text.
    Within(bool),
    WithinRange(bool),
}

/// What a call that makes a list costs beside the members.
const ALLOCATED: u64 = 11;
/// Bytes of the longest pattern behind a named format, as upstream counts them.
const FORMAT_PATTERN: u64 = 128;

fn factor(value: u64, tenths: f64) -> u64 {
    let product = (value as f64 * tenths).ceil();
    if product >= 18_446_744_073_709_551_616.0 {
        u64::MAX
    } else {
        product as u64
    }
}

impl Range {
    pub(super) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub(super) fn fixed(value: u64) -> Self {
        Self { min: value, max: value }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(super) fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    fn scaled(self, by: f64) -> Self {
        Self {
            min: factor(self.min, by),
            max: factor(self.max, by),
        }
    }
}

impl Estimate {
    pub(super) fn of(cost: Range, size: Option<Range>) -> Self {
        Self {
            cost,
            size,
            ..Self::default()
        }
    }

    pub(super) fn size(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }

    /// The size by what is known of the schema, else of the type.
    pub(super) fn sized(mut self, ty: &Ty) -> Self {
        if self.size.is_none() {
            self.size = match &self.decl {
                Some(decl) => Some(Range { min: 0, max: decl.max }),
                None => ty.is_scalar().then(|| Range::fixed(1)),
            };
        }
        self
    }

    /// What is known of a member of a list, or a value of a map, of this.
    pub(super) fn member(&self) -> Self {
        let decl = self.decl.as_ref().and_then(|decl| decl.member()).map(Arc::clone);
        Self {
            size: match &decl {
                Some(decl) => Some(Range { min: 0, max: decl.max }),
                None => self.entries.map(|(_, value)| value),
            },
            decl,
            ..Self::default()
        }
    }

    /// Likewise of a key of a map. Those of a map that a schema declares are counted as empty, as upstream does: rules over keys
    /// would be refused whatever bounds the map has. What they cost is charged when they are evaluated.
    pub(super) fn key(&self) -> Self {
        let is_declared = self
            .decl
            .as_ref()
            .is_some_and(|decl| matches!(decl.kind, DeclKind::Map(_)));
        let known = self.entries.map(|(key, _)| key);
        Self::of(Range::default(), known.or(is_declared.then(Range::default)))
    }
}

impl Charge {
    /// What the call costs with these arguments. What is looked at to know is work.
    pub(super) fn of(self, args: &[Val<'_>], budget: &mut Budget) -> Result<u64, Failure> {
        let size = |i: usize| args.get(i).map_or(0, Val::size);
        let scan = |size: u64| factor(size, 0.1);
        Ok(match self {
            Self::One | Self::Append | Self::Join => 1,
            Self::Reverse => ALLOCATED + size(0),
            Self::Slice => match (args.get(1), args.get(2)) {
                (Some(Val::Int(from)), Some(Val::Int(to))) => {
                    ALLOCATED + u64::try_from(to.saturating_sub(*from)).unwrap_or(0)
                }
                _ => ALLOCATED,
            },
            Self::Range => match args.first() {
                Some(Val::Int(count)) => ALLOCATED + u64::try_from(*count).unwrap_or(0),
                _ => ALLOCATED,
            },
            Self::Sort(_) => {
                let first = args.first().and_then(|list| list.member(0)).transpose()?;
                let each = match first {
                    Some(Val::Text(_) | Val::Bytes(_)) => 2.1,
                    _ => 2.0,
                };
                (size(0).saturating_mul(size(0)) as f64 * each) as u64 + ALLOCATED
            }
            Self::Sets(times) => size(0).saturating_mul(size(1)).saturating_mul(times).saturating_add(1),
            Self::Scan(i) => scan(size(i)),
            Self::Start => scan(size(0)),
            Self::Twice(i) => factor(size(i), 0.2),
            Self::Replace | Self::Split => factor(size(0), 0.2),
            Self::In => size(1),
            Self::Compare => match args.first() {
                Some(Val::Quantity(_) | Val::Ip(_) | Val::Cidr(..) | Val::Url(_) | Val::Semver(_) | Val::Format(_)) => {
                    1
                }
                _ => scan(size(0).min(size(1))),
            },
            Self::Concatenate => scan(size(0).saturating_add(size(1))),
            Self::Match => scan(size(0) + 1).saturating_mul(factor(size(1), 0.25)),
            Self::Contains => scan(size(0)).saturating_mul(scan(size(1))),
            Self::Visit => match args.first() {
                Some(Val::Text(_)) => scan(size(0)),
                Some(list) => {
                    let mut cost = 0u64;
                    for member in list.members() {
                        let member = member?;
                        budget.work(1 + member.load())?;
                        cost = cost.saturating_add(scan(member.size()).max(1));
                        if cost > budget.cost_left() {
                            break;
                        }
                    }
                    cost
                }
                None => 0,
            },
            Self::Validate => scan(size(1) + 1).saturating_mul(FORMAT_PATTERN / 4),
            Self::Within(is_text) => scan(size(0) * 2) + if is_text { scan(size(1)) } else { 0 },
            Self::WithinRange(is_text) => {
                scan(size(0) * 2) + scan(size(0)) + 1 + if is_text { scan(size(1)) } else { 0 }
            }
        })
    }

    /// What the call may cost, and how large what it gives may be.
    pub(super) fn estimate(self, args: &[&Estimate], types: &[Ty]) -> (Range, Option<Range>) {
        let size = |i: usize| args.get(i).map_or(Range::UNKNOWN, |arg| arg.size());
        let scan = |i: usize| size(i).scaled(0.1);
        let one = Range::fixed(1);
        let bytes = Range { min: 4, max: 16 };
        match self {
            Self::One => (one, None),
            Self::Scan(i) => (scan(i), Some(size(i))),
            Self::Twice(i) => (size(i).scaled(0.2), None),
            Self::Start => (scan(1), None),
            Self::In => (size(1), None),
            Self::Compare => {
                let max = size(0).max.min(size(1).max);
                let cost = Range {
                    min: u64::from(max > 0),
                    max,
                };
                (cost.scaled(0.1), None)
            }
            Self::Concatenate => {
                let size = size(0).plus(size(1));
                (size.scaled(0.1), Some(size))
            }
            Self::Append => (one, Some(size(0).plus(size(1)))),
            Self::Match => (size(0).plus(one).scaled(0.1).times(size(1).scaled(0.25)), None),
            Self::Contains => (scan(0).times(scan(1)), None),
            Self::Visit => (visit(args, types), None),
            Self::Reverse => allocating(1.0, size(0)),
            Self::Slice => {
                let literal = |i: usize, other: u64| args.get(i).map_or(other, |arg| whole(arg, other));
                let count = literal(2, size(0).max).saturating_sub(literal(1, 0));
                allocating(1.0, Range::fixed(count))
            }
            Self::Range => {
                let count = args.first().map_or(u64::MAX, |count| whole(count, u64::MAX));
                allocating(1.0, Range::fixed(count))
            }
            Self::Sort(has_texts) => {
                let is_text = matches!(types.first(), Some(Ty::List(of)) if matches!(**of, Ty::Text | Ty::Bytes));
                let each = if has_texts && is_text { 2.1 } else { 2.0 };
                allocating(each, size(0).times(size(0)))
            }
            Self::Sets(times) => (size(0).times(size(1)).times(Range::fixed(times)).plus(one), None),
            Self::Join => {
                let member = args.first().map_or(Range::UNKNOWN, |list| list.member().size());
                let gaps = Range {
                    min: size(0).min.saturating_sub(1),
                    max: size(0).max.saturating_sub(1),
                };
                let separators = args
                    .get(1)
                    .map_or(Range::default(), |separator| separator.size().times(gaps));
                let size = size(0).times(member).plus(separators);
                (size.scaled(0.1), Some(size))
            }
            Self::Replace => (size(0).scaled(0.2), Some(replaced(size(0), size(1), size(2)))),
            Self::Split => (
                size(0).scaled(0.2),
                Some(Range {
                    min: 0,
                    max: size(0).max,
                }),
            ),
            Self::Validate => (scan(1).scaled(FORMAT_PATTERN as f64 * 0.25), None),
            Self::Within(is_text) => {
                let cost = bytes.plus(bytes).scaled(0.1);
                (if is_text { cost.plus(scan(1)) } else { cost }, None)
            }
            Self::WithinRange(is_text) => {
                let cost = bytes.plus(bytes).scaled(0.1).plus(bytes.scaled(0.1)).plus(one);
                (if is_text { cost.plus(scan(1)) } else { cost }, None)
            }
        }
    }
}

/// A call that makes a list of so many members, or compares as many pairs; upstream takes their number for the list's size, too.
fn allocating(each: f64, size: Range) -> (Range, Option<Range>) {
    (size.scaled(each).plus(Range::fixed(ALLOCATED)), Some(size))
}

/// A whole number that is written; what is below zero is beyond all bounds.
fn whole(arg: &Estimate, other: u64) -> u64 {
    arg.literal
        .map_or(other, |literal| u64::try_from(literal).unwrap_or(u64::MAX))
}

fn visit(args: &[&Estimate], types: &[Ty]) -> Range {
    let Some(list) = args.first() else {
        return Range::UNKNOWN;
    };
    match types.first() {
        Some(Ty::List(of)) => {
            let each = match **of {
                Ty::Text | Ty::Bytes => list.member().size().scaled(0.1),
                _ => Range::default(),
            };
            list.size().times(Range::fixed(1).plus(each))
        }
        _ => list.size().scaled(0.1),
    }
}

/// How long a text is after replacements.
fn replaced(text: Range, old: Range, new: Range) -> Range {
    let (mut count, mut kept) = (Range::default(), Range::default());
    if old.min == 0 {
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if new.max <= old.min {
        kept.max = text.max;
    } else {
        count.max = text.max.div_ceil(old.min);
    }
    if old.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if old.max <= new.min {
        kept.min = text.min;
    } else {
        count.min = text.min.div_ceil(old.max);
    }
    count.times(new).plus(kept)
}
