//! Keys that hold what does not belong there ([`crate::store::window::Misfit`]): told to who asks for them.

use super::Call;
use crate::apiserver::status::ApiError;
use crate::store::window::{Snapshot, Stored};
use std::sync::Arc;

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
