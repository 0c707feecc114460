//! Fields that an apply would change and others own, in upstream's words. Pure.

use super::element;
use super::entry::Manager;
use super::field_set::FieldSet;

/// Most conflicts that are named; the others are counted.
const NAMED_MAX: usize = 100;
/// Longest text of a field.
const FIELD_MAX_BYTES: usize = 1024;

/// One field that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Who, as errors say it: `"kubectl" using apps/v1`.
    pub manager: String,
    /// The field, such as `.spec.replicas`; cut after a while.
    pub field: String,
}

/// All conflicts of an apply: by manager, in the order in which errors name these.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conflicts(Vec<(String, FieldSet)>);

impl Conflicts {
    /// Adds those with one manager about the fields that change.
    pub(super) fn add(&mut self, manager: &Manager, owned: &FieldSet, changed: &FieldSet) {
        let mut disputed = owned.clone();
        disputed.intersect(changed);
        if !disputed.is_empty() {
            let shown = manager.shown();
            let at = self.0.partition_point(|(other, _)| *other <= shown);
            self.0.insert(at, (shown, disputed));
        }
    }

    /// Forgets those about some fields.
    pub(super) fn forget(&mut self, fields: &FieldSet) {
        self.0.iter_mut().for_each(|(_, disputed)| disputed.subtract(fields));
        self.0.retain(|(_, disputed)| !disputed.is_empty());
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.iter().map(|(_, disputed)| disputed.count()).sum()
    }

    /// The first of them, at most [`NAMED_MAX`].
    pub fn first(&self) -> Vec<Conflict> {
        let mut first = Vec::new();
        for (manager, disputed) in &self.0 {
            let paths = disputed.first_paths(NAMED_MAX - first.len());
            first.extend(paths.iter().map(|path| Conflict {
                manager: manager.clone(),
                field: field(path),
            }));
        }
        first
    }

    /// The message of all together, which names the first.
    pub fn message(&self) -> String {
        let (first, count) = (self.first(), self.count());
        if let [only] = first.as_slice() {
            return format!(
                "Apply failed with 1 conflict: conflict with {}: {}",
                only.manager, only.field
            );
        }
        let mut lines = Vec::new();
        let mut last = None;
        for Conflict { manager, field } in &first {
            if last != Some(manager) {
                lines.push(format!("conflicts with {manager}:"));
                last = Some(manager);
            }
            lines.push(format!("- {field}"));
        }
        if count > first.len() {
            lines.push(format!("and {} more conflicts", count - first.len()));
        }
        format!("Apply failed with {count} conflicts: {}", lines.join("\n"))
    }
}

fn field(path: &[&str]) -> String {
    shown(path.iter().copied(), FIELD_MAX_BYTES)
}

/// A path as errors name it, cut after so many bytes.
pub(super) fn shown<'p>(path: impl Iterator<Item = &'p str>, most: usize) -> String {
    let mut text = String::new();
    for step in path {
        text.push_str(&element::shown(step));
        if text.len() > most {
            break;
        }
    }
    crate::resource::field_error::cut(text, most)
}
