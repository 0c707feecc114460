//! Keys that hold what does not belong there ([`crate::store::window::Misfit`]): told to who asks for them, and removed for who asks for
//! that by name and may (KEP-3926).

use super::delete::IGNORE_READ_ERROR;
use super::{Answer, Call, RequestInfo, object, store_failed};
use crate::apiserver::status::ApiError;
use crate::resource::field_error::FieldError;
use crate::store::StoreError;
use crate::store::window::{Snapshot, Stored};
use serde_json::{Value, json};
use std::sync::Arc;

/// What has to be allowed beside `delete`.
const VERB: &str = "unsafe-delete-ignore-read-errors";

impl Call<'_> {
    /// The object of a name; an error that names the key if it holds what does not belong there.
    pub(super) fn object_of(&self, snapshot: &Snapshot, name: &str) -> Result<Option<Arc<Stored>>, ApiError> {
        let key = self.key(name);
        let found = snapshot.objects.get(key.as_str()).map(Arc::clone);
        match found.is_none().then(|| self.window.misfit_at(&key)).flatten() {
            Some(misfit) => Err(ApiError::internal(misfit)),
            None => Ok(found),
        }
    }

    /// An error that names the first key of the collection that holds what does not belong there.
    pub(super) fn refuse_misfits(&self) -> Result<(), ApiError> {
        let found = self.window.misfit_under(&self.collection());
        found.map_or(Ok(()), |misfit| Err(ApiError::internal(misfit)))
    }
}

/// Removes what the key of a name holds that does not belong there; nobody's finalizers and no admission are asked, for nothing can
/// be said of it.
///
/// # Errors
/// 403 if the user may not, 422 if the key holds what belongs there, 404 if it holds nothing.
pub(super) async fn remove(call: &Call<'_>, name: &str) -> Result<Answer, ApiError> {
    let (group, plural) = (&call.kind.group, &call.kind.plural);
    let info = RequestInfo {
        verb: VERB.to_owned(),
        ..call.info.clone()
    };
    let allowed = call.server.gate().authorize(call.user, &info, call.server.reader());
    allowed.await.map_err(|refused| {
        let why = format!("not permitted to do {VERB:?}, reason: {}", refused.message);
        ApiError::forbidden(group, plural, name, &why)
    })?;
    let snapshot = call.window.latest().await.map_err(|error| store_failed(&error))?;
    let key = call.key(name);
    let Some((misfit, stored)) = call.window.misfit_held(&key) else {
        return Err(match snapshot.objects.get(key.as_str()) {
            None => call.not_found(name),
            Some(_) => {
                let why = "is exclusively used to delete corrupt object(s), try again by removing this option";
                ApiError::invalid(group, plural, name, vec![refused(why)])
            }
        });
    };
    tracing::warn!(user = call.user.name, error = %misfit, "what does not belong there is removed");
    match call.server.store().delete(&stored.key, stored.revision).await {
        Ok(_) => {
            let mut object = object::deleted_status(&call.kind, &json!({"metadata": {"name": name}}));
            // Nobody knows it.
            if let Some(details) = object["details"].as_object_mut() {
                details.remove("uid");
            }
            Ok(Answer::Object { code: 200, object })
        }
        // Somebody else has removed it, or put there what belongs.
        Err(StoreError::Conflict { .. }) => Err(call.modified(name)),
        Err(error) => Err(store_failed(&error)),
    }
}

/// The option is of one name.
pub(super) fn not_many() -> ApiError {
    let why = "is not allowed with DELETECOLLECTION, try again after removing the option";
    ApiError::invalid("meta.k8s.io", "DeleteOptions", "", vec![refused(why)])
}

fn refused(why: &str) -> FieldError {
    FieldError::invalid_value(IGNORE_READ_ERROR, &Value::Bool(true), why)
}
