//! Who owns which field of an object, and server-side apply, which decides by that what may be changed (control-plane contract §2.5;
//! KEP-555). Pure: no store, no clock, no request.
//!
//! [`track`] keeps `metadata.managedFields` for every other kind of write, [`Apply`] merges a configuration. Both see an object
//! through its [`Typing`] (what is one value, which lists have members of their own) and its endpoint's [`Scope`] (what it can
//! change at all). Sets of fields stay in the form objects carry them in ([`FieldSet`]). Nothing here decides whether the
//! result is a valid object: it goes the way of every other change.

mod apply;
mod check;
mod compare;
mod conflict;
mod element;
mod entry;
mod extract;
mod field_set;
mod last_applied;
mod merge;
mod name;
mod remove;
mod scale;
mod scope;
mod typing;
mod update;

pub use apply::{Applied, Apply, ApplyError, nothing};
pub use conflict::{Conflict, Conflicts};
pub use entry::problems;
pub use field_set::{BadFields, FieldSet};
pub use name::{check_name, manager_name};
pub use scale::{to_object, to_scale};
pub use scope::Scope;
pub use typing::Typing;
pub use update::{Live, Writer, put, settled, take, track};

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests;
