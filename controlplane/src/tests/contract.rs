//! The control-plane contract's tables (§2.3 to §2.8, §4, §5) as tests: every kind is what the contract says it is, and there is none it
//! does not name. The tables are written from the contract, not from the code; a row that is missing on either side fails.

mod columns;
mod defaults;
mod generation;
mod merge_keys;
mod surface;
mod traits;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::resource::{Kind, Registry};

/// Kinds that are stored under forms of their own: of the others there is one for each resource.
fn stored() -> impl Iterator<Item = &'static Arc<Kind>> {
    Registry::built_in()
        .kinds()
        .filter(|kind| kind.is_stored() && kind.conversion.is_none())
}

/// Plural names, of groups other than core and those that are alone with the name with theirs.
fn plurals(of: impl Fn(&Kind) -> bool) -> BTreeSet<String> {
    stored()
        .filter(|kind| of(kind))
        .map(|kind| kind.plural.to_string())
        .collect()
}

fn words(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
