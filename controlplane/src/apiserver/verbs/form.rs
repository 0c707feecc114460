//! The two forms of an object within a verb: that of the version asked for, which is sent, patched and answered, and that which is
//! prepared, validated and stored ([`crate::resource::Conversion`]).

use super::Call;
use crate::apiserver::heavy;
use crate::apiserver::reply;
use crate::apiserver::status::ApiError;
use crate::resource::Kind;
use crate::resource::field_error::FieldErrors;
use crate::resource::structural::Structural;
use crate::schema;
use crate::store::window::Stored;
use crate::tree;
use serde_json::Value;
use std::sync::Arc;

/// What the rules of a version may cost by estimate before they are evaluated apart: some milliseconds' worth.
const COSTLY: u64 = 50_000;
/// As much of an object is counted to know whether it is large.
const LARGE_BYTES: usize = 128 << 10;

impl Call<'_> {
    /// An object of the call's kind in the form that is stored.
    pub(super) fn stored_form(&self, object: Value) -> Result<Value, ApiError> {
        let mut object = self.kind.stored(object);
        if let Some(conversion) = &self.kind.conversion {
            // What annotations carry was read as text alone.
            schema::normalize(&conversion.storage, &mut object)?;
        }
        Ok(object)
    }

    /// Everything wrong with an object, which was `old` before unless it is new. Rules of expressions may take their time: where
    /// they can, they are evaluated in the user's turn on a thread that serves nobody.
    pub(super) async fn problems(&self, new: &Value, old: Option<&Value>) -> Result<FieldErrors, ApiError> {
        let judge = |kind: &Kind, new: &Value, old: Option<&Value>, part: &str| match old {
            None => kind.validate(new),
            Some(old) => kind.validate_update(new, old, part),
        };
        let part = self.info.subresource.as_str();
        // What is compared as a whole costs little by estimate, however large it is.
        let is_large = || heavy::is_large(tree::size(new, LARGE_BYTES));
        let is_costly = |schema: &Structural| schema.has_rules() && (schema.most_cost() > COSTLY || is_large());
        if !self.kind.structural.as_deref().is_some_and(is_costly) {
            return Ok(judge(&self.kind, new, old, part));
        }
        let (kind, part) = (Arc::clone(&self.kind), part.to_owned());
        let (new, old) = (new.clone(), old.cloned());
        let work = move || judge(&kind, &new, old.as_ref(), &part);
        heavy::run(self.server.flow(), self.user, self.info, work).await
    }

    /// The object with kind, apiVersion and resourceVersion.
    pub(super) fn whole(&self, stored: &Stored) -> Value {
        reply::whole(stored, stored.revision, &self.kind)
    }

    /// As [`Call::whole`], in the form that is stored.
    pub(super) fn whole_as_stored(&self, stored: &Stored) -> Value {
        reply::whole(stored, stored.revision, self.kind.storage())
    }
}
