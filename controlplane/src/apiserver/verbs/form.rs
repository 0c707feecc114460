//! The two forms of an object within a verb: that of the version asked for, which is sent, patched and answered, and that which is
//! prepared, validated and stored ([`crate::resource::Conversion`]).

use super::Call;
use crate::apiserver::reply;
use crate::apiserver::status::ApiError;
use crate::schema;
use crate::store::window::Stored;
use serde_json::Value;

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

    /// The object with kind, apiVersion and resourceVersion.
    pub(super) fn whole(&self, stored: &Stored) -> Value {
        reply::whole(stored, stored.revision, &self.kind)
    }

    /// As [`Call::whole`], in the form that is stored.
    pub(super) fn whole_as_stored(&self, stored: &Stored) -> Value {
        reply::whole(stored, stored.revision, self.kind.storage())
    }
}
