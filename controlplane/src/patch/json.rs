//! RFC 6902 with upstream's limits on operations and copies, and with bounds on depth and work. Pure.
//!
//! Operations are applied one at a time, each judged before it is: `copy` alone can double a document's depth or size, so that
//! a dozen of them would be more than any stack or memory holds.

use json_patch::PatchOperation;
use json_patch::jsonptr::Pointer;
use serde_json::Value;

use super::PatchError;
use super::step_budget::StepBudget;
use crate::tree::{self, DEPTH_MAX, SIZE_MAX_BYTES};

/// Most operations in one patch.
const OPERATIONS_MAX: usize = 10_000;

pub(super) fn apply(original: &Value, patch: &Value) -> Result<Value, PatchError> {
    let count = patch.as_array().map_or(0, Vec::len);
    if count > OPERATIONS_MAX {
        return Err(PatchError::new(
            413,
            format!("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}"),
        ));
    }
    let operations: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| PatchError::new(400, format!("error decoding patch: {error}")))?;
    let mut document = Document {
        tree: original.clone(),
        copied_bytes: 0,
        budget: StepBudget::new(),
    };
    for (index, operation) in operations.0.iter().enumerate() {
        document.admit(operation)?;
        if document.tests_for_absence(operation) {
            continue;
        }
        json_patch::patch_unsafe(&mut document.tree, std::slice::from_ref(operation)).map_err(|mut error| {
            error.operation = index;
            PatchError::new(422, error.to_string())
        })?;
    }
    Ok(document.tree)
}

struct Document {
    tree: Value,
    /// What all copies so far have added.
    copied_bytes: usize,
    budget: StepBudget,
}

impl Document {
    /// Whether the operation leaves the document within the bounds. Paths that lead nowhere are left to the operation itself.
    fn admit(&mut self, operation: &PatchOperation) -> Result<(), PatchError> {
        match operation {
            PatchOperation::Add(add) => {
                self.shift(&add.path)?;
                fits(&add.path, tree::depth(&add.value))
            }
            PatchOperation::Replace(replace) => fits(&replace.path, tree::depth(&replace.value)),
            PatchOperation::Remove(remove) => self.shift(&remove.path),
            PatchOperation::Copy(copy) => {
                self.shift(&copy.path)?;
                self.copy(&copy.from, &copy.path)
            }
            PatchOperation::Move(change) => {
                self.shift(&change.from)?;
                self.shift(&change.path)?;
                // What goes up or stays on its level cannot make the document deeper.
                if levels(&change.path) <= levels(&change.from) {
                    return Ok(());
                }
                let Some(source) = self.tree.pointer(change.from.as_str()) else {
                    return Ok(());
                };
                let found = tree::measure(source);
                self.budget.spend(found.nodes)?;
                fits(&change.path, found.depth)
            }
            PatchOperation::Test(_) => Ok(()),
        }
    }

    /// Whether the operation tests for null what its object does not have: upstream takes the one for the other, and clients
    /// (kube-rs, before the first finalizer) rely on it.
    fn tests_for_absence(&self, operation: &PatchOperation) -> bool {
        let PatchOperation::Test(test) = operation else {
            return false;
        };
        let Some((parent, key)) = test.path.split_back() else {
            return false;
        };
        let parent = self.tree.pointer(parent.as_str()).and_then(Value::as_object);
        test.value.is_null() && parent.is_some_and(|parent| !parent.contains_key(key.decoded().as_ref()))
    }

    fn copy(&mut self, from: &Pointer, path: &Pointer) -> Result<(), PatchError> {
        let Some(source) = self.tree.pointer(from.as_str()) else {
            return Ok(());
        };
        self.copied_bytes += tree::size(source, SIZE_MAX_BYTES - self.copied_bytes);
        if self.copied_bytes > SIZE_MAX_BYTES {
            return Err(PatchError::new(
                422,
                format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {SIZE_MAX_BYTES}",
                    self.copied_bytes
                ),
            ));
        }
        fits(path, tree::depth(source))
    }

    /// Pays for a member that is put into a list or taken out of one: those behind it move.
    fn shift(&self, path: &Pointer) -> Result<(), PatchError> {
        let parent = path.parent().and_then(|parent| self.tree.pointer(parent.as_str()));
        let members = parent.and_then(Value::as_array).map_or(0, Vec::len);
        self.budget.spend(1 + members / 8)
    }
}

/// Lists and objects around the value at `path`.
fn levels(path: &Pointer) -> usize {
    path.as_str().bytes().filter(|byte| *byte == b'/').count()
}

fn fits(path: &Pointer, depth: usize) -> Result<(), PatchError> {
    match levels(path) + depth {
        sum if sum > DEPTH_MAX => Err(PatchError::new(422, tree::TreeError::TooDeep.to_string())),
        _ => Ok(()),
    }
}
