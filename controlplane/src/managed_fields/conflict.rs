//! Fields that an apply would change and others own, in upstream's words. Pure.

use std::collections::BTreeMap;

use super::element;
use super::entry::Manager;
use super::field_set::FieldSet;

/// One field that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// Who, as errors say it: `"kubectl" using apps/v1`.
    pub manager: String,
    /// Where the conflict stands among those with this manager.
    place: usize,
    /// The field's steps.
    pub(super) path: Vec<String>,
}

impl Conflict {
    /// The conflicts with one manager about the fields that change.
    pub(super) fn all(manager: &Manager, owned: &FieldSet, changed: &FieldSet) -> Vec<Self> {
        let mut disputed = owned.clone();
        disputed.intersect(changed);
        let paths = disputed.paths().into_iter().enumerate();
        let all = paths.map(|(place, path)| Self {
            manager: manager.shown(),
            place,
            path: path.into_iter().map(str::to_owned).collect(),
        });
        all.collect()
    }

    /// The field, such as `.spec.replicas`.
    pub fn field(&self) -> String {
        self.path.iter().map(|step| element::shown(step)).collect()
    }

    /// The message of all conflicts together.
    pub fn message(all: &[Self]) -> String {
        if let [only] = all {
            return format!(
                "Apply failed with 1 conflict: conflict with {}: {}",
                only.manager,
                only.field()
            );
        }
        let mut by_manager: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for conflict in all {
            by_manager.entry(&conflict.manager).or_default().push(conflict.field());
        }
        let lines = by_manager.into_iter().flat_map(|(manager, fields)| {
            let fields = fields.into_iter().map(|field| format!("- {field}"));
            std::iter::once(format!("conflicts with {manager}:")).chain(fields)
        });
        let lines: Vec<String> = lines.collect();
        format!("Apply failed with {} conflicts: {}", all.len(), lines.join("\n"))
    }
}
