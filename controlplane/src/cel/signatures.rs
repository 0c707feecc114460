//! The functions that expressions may call: their types, what they cost, and who does them. Pure.

mod plain;
mod typed;

use super::budget::{Budget, Outcome};
use super::cost::Charge;
use super::types::T;
use super::value::Val;

/// Does a call, with the target as the first argument.
pub(super) type Run = for<'a> fn(&[Val<'a>], &mut Budget) -> Outcome<'a>;

/// One form of a function.
pub(super) struct Overload {
    pub(super) name: &'static str,
    pub(super) is_member: bool,
    /// With the target.
    pub(super) args: &'static [T],
    pub(super) gives: T,
    pub(super) charge: Charge,
    pub(super) run: Run,
}

impl std::fmt::Debug for Overload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A function that is called by its name alone.
const fn global(name: &'static str, args: &'static [T], gives: T, charge: Charge, run: Run) -> Overload {
    Overload {
        name,
        is_member: false,
        args,
        gives,
        charge,
        run,
    }
}

/// A function of its first argument.
const fn member(name: &'static str, args: &'static [T], gives: T, charge: Charge, run: Run) -> Overload {
    Overload {
        name,
        is_member: true,
        args,
        gives,
        charge,
        run,
    }
}

const TEXTS: T = T::List(&T::Text);
const LIST: T = T::List(&T::A);
const QUANTITY: T = T::Named("kubernetes.Quantity");
const URL: T = T::Named("kubernetes.URL");
const IP: T = T::Named("net.IP");
const CIDR: T = T::Named("net.CIDR");
const SEMVER: T = T::Named("kubernetes.Semver");
const FORMAT: T = T::Named("kubernetes.NamedFormat");

/// The forms of a function.
pub(super) fn named(name: &str, is_member: bool) -> impl Iterator<Item = &'static Overload> {
    let all = plain::PLAIN.into_iter().flatten().chain(&typed::TYPED);
    all.filter(move |overload| overload.is_member == is_member && overload.name == name)
}
