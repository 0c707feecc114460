//! The two forms of an object within a verb: that of the version asked for, which is sent, patched and answered, and that which is
//! prepared, validated and stored ([`crate::resource::Conversion`]).

use super::Call;
use crate::apiserver::heavy;
use crate::apiserver::reply;
use crate::apiserver::status::ApiError;
use crate::resource::field_error::FieldErrors;
use crate::schema;
use crate::store::window::Stored;
use serde_json::Value;
use std::sync::Arc;

impl Call<'_> {
    /// An object of the call's kind in the form that is stored.
    pub(super) fn stored_form(&self, object: Value) -> Result<Value, ApiError> {
        let mut object = self.kind.stored(object);
        if let Some(conversion) = &self.kind.conversion
            && conversion.converter.renamed().is_none()
        {
            // What annotations carry was read as text alone.
            schema::normalize(&conversion.storage, &mut object)?;
        }
        Ok(object)
    }

    /// Everything wrong with an object, which was `old` before unless it is new. What schemas and rules of expressions ask for may
    /// take its time, which nothing but doing it tells: what is not done after a little is done anew in the user's turn, on a thread
    /// that serves nobody. Called with locks held.
    pub(super) async fn problems(&self, new: &Value, old: Option<&Value>) -> Result<FieldErrors, ApiError> {
        let part = self.info.subresource.as_str();
        if self.in_turn {
            return Ok(match old {
                None => self.kind.validate(new),
                Some(old) => self.kind.validate_update(new, old, part),
            });
        }
        if let Some(errors) = self.kind.validate_briefly(new, old, part) {
            return Ok(errors);
        }
        let (kind, part) = (Arc::clone(&self.kind), part.to_owned());
        let (new, old) = (new.clone(), old.cloned());
        let work = move || match &old {
            None => kind.validate(&new),
            Some(old) => kind.validate_update(&new, old, &part),
        };
        heavy::run_locked(self.server.flow(), self.user, self.info, work).await
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
