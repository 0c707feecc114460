//! Versions of one resource: how the form of a version is made from the one that is stored, and the other way round. Pure.
//!
//! A resource is stored in the form of one kind; each other kind of it has a [`Conversion`]. Verbs convert at their edges: what
//! is sent and what patches change has the form of the version asked for, what is prepared, validated and stored the form
//! of the stored one, as upstream does with its internal versions.

mod autoscaler;
mod event;

pub(super) use autoscaler::AutoscalerV1;
pub(super) use event::EventsV1;

use std::sync::Arc;

use serde_json::Value;

use super::Kind;
use super::field_error::FieldErrors;

/// The two forms of a version's objects. Neither function touches `apiVersion` and `kind`.
pub trait Converter: Send + Sync {
    /// Makes the stored form this version's.
    fn present(&self, object: &mut Value);

    /// Makes this version's form the stored one.
    fn store(&self, object: &mut Value);

    /// The members that have other names in this version, and the stored ones, if nothing else differs: types are the same, and each form
    /// is made of the other's text.
    fn renamed(&self) -> Option<&'static [(&'static str, &'static str)]> {
        None
    }

    /// The stored form's name of a field label of this version; `None` if it has no such label.
    fn field_label(&self, label: &str) -> Option<&'static str> {
        let _ = label;
        None
    }

    /// What this version asks of a new object (`old` is null) or a change beside the rules of the stored kind; both in the
    /// stored form.
    fn validate(&self, new: &Value, old: &Value) -> FieldErrors {
        let _ = (new, old);
        FieldErrors::default()
    }
}

/// Where the objects of a kind are stored in another form.
#[derive(Clone)]
pub struct Conversion {
    /// The kind whose form is stored.
    pub storage: Arc<Kind>,
    /// How.
    pub converter: Arc<dyn Converter>,
}

impl Kind {
    /// The kind in whose form objects of this one are stored; most often itself.
    pub fn storage(self: &Arc<Self>) -> &Arc<Self> {
        self.conversion.as_ref().map_or(self, |conversion| &conversion.storage)
    }

    /// An object in the form of this kind, of the form that is stored; another object, such as a Status, stays what it is.
    #[must_use]
    pub fn presented(&self, mut object: Value) -> Value {
        if let Some(Conversion { storage, converter }) = &self.conversion
            && is_of(&object, storage)
        {
            converter.present(&mut object);
            name(&mut object, self);
        }
        object
    }

    /// An object of this kind in the form that is stored.
    #[must_use]
    pub fn stored(&self, mut object: Value) -> Value {
        if let Some(Conversion { storage, converter }) = &self.conversion
            && is_of(&object, self)
        {
            converter.store(&mut object);
            name(&mut object, storage);
        }
        object
    }
}

fn is_of(object: &Value, kind: &Kind) -> bool {
    object["kind"] == *kind.kind && object["apiVersion"] == *kind.api_version
}

fn name(object: &mut Value, kind: &Kind) {
    object["kind"] = Value::from(&*kind.kind);
    object["apiVersion"] = Value::from(&*kind.api_version);
}

#[cfg(test)]
mod tests;
