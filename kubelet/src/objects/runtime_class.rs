//! Runtime classes, by which pods name the handler of the runtime they are run by. They are watched from the first pod on that names
//! one: most nodes never do.

use super::{ObjectError, Objects, answered, scope};
use client::informer::Informer;
use kube::Api;

const KIND: &str = "runtimeclass";

impl Objects {
    /// The handler of the class a pod names.
    ///
    /// # Errors
    /// There is no such class, or no API server to tell.
    pub async fn runtime_handler(&self, class: &str) -> Result<String, ObjectError> {
        let server = self.server.as_ref().ok_or(ObjectError::NoServer(KIND))?;
        let classes = server
            .runtime_classes
            .get_or_init(|| Informer::spawn_as_tree(Api::all(server.client.clone()), scope("", self.seed)));
        if !classes.is_synced()
            && let Some(kept) = self.kept_handler(class).await
        {
            return Ok(kept);
        }
        answered(classes, KIND).await?;
        let found = classes.get("", class);
        let found = found.ok_or_else(|| ObjectError::RuntimeClass(class.to_owned()))?;
        Ok(found.handler.clone())
    }
}
