//! Runtime classes, by which pods name the handler of the runtime they are run by. They are watched from the first pod on that names
//! one: most nodes never do.

use super::{ObjectError, Objects, Server, answered, scope};
use client::informer::Informer;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;

const KIND: &str = "runtimeclass";

impl Objects {
    pub(super) fn runtime_classes<'a>(&self, server: &'a Server) -> &'a Informer<RuntimeClass> {
        server
            .runtime_classes
            .get_or_init(|| Informer::spawn_as_tree(Api::all(server.client.clone()), scope("", self.seed)))
    }

    /// The handler of the class a pod names.
    ///
    /// # Errors
    /// There is no such class, or no API server to tell.
    pub async fn runtime_handler(&self, class: &str) -> Result<String, ObjectError> {
        let server = self.server.as_ref().ok_or(ObjectError::NoServer(KIND))?;
        let classes = self.runtime_classes(server);
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
