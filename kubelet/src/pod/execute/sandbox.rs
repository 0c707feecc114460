//! One start of one sandbox: by which handler, with whose ids.

use super::{Executor, Subject};
use crate::events::Severity;
use crate::id::SandboxId;
use crate::pod::failure::SandboxError;
use crate::pod::spec;
use crate::pod_object::{self, annotation};
use crate::reason::event;
use crate::source::merge::Origin;
use crate::user_namespace::IdRange;
use crate::volume::VolumeError;
use jiff::Timestamp;
use std::collections::HashMap;

/// Says where the pod came from and since when it is here, as upstream's sandboxes do; of static pods that is told already.
fn note_source(annotations: &mut HashMap<String, String>, now: Timestamp) {
    let source = annotations.entry(annotation::SOURCE.to_owned());
    source.or_insert_with(|| Origin::Api.as_str().to_owned());
    let seen = annotations.entry(annotation::SEEN.to_owned());
    seen.or_insert_with(|| now.to_string());
}

impl Executor {
    /// Creates and starts the pod's sandbox.
    pub(super) async fn start_sandbox(&self, subject: &Subject, attempt: u32) -> Result<SandboxId, SandboxError> {
        if attempt > 0 && subject.observed.sandbox().is_some() {
            let message = "Pod sandbox changed, it will be killed and re-created.";
            let reason = event::SANDBOX_CHANGED;
            self.parts.recorder.pod(&subject.pod, Severity::Normal, reason, message);
        }
        let handler = self.handler(subject).await?;
        self.check_users(subject, &handler)?;
        let ids = self.ids(subject).await.map_err(SandboxError::Ids)?;
        let node = self.resolver().await.map_err(SandboxError::NodeFile)?;
        let (context, unbounded) = (&self.parts.context, self.parts.pinning.unbounded(&subject.uid));
        let config = spec::sandbox_config(&subject.pod, attempt, context, &node, ids, &unbounded);
        let mut config = config.map_err(SandboxError::Spec)?;
        note_source(&mut config.annotations, self.parts.clock.now());
        for warning in spec::dns_config(&subject.pod, &self.parts.context, &node).1 {
            self.warn(subject, warning.reason, warning.message);
        }
        let permit = self.sandbox_permits.acquire().await;
        let _permit = permit.map_err(|_| SandboxError::Shutdown)?;
        let started = self.parts.runtime.run_pod_sandbox(config, &handler).await;
        started.map_err(SandboxError::Runtime)
    }

    /// The handler of the pod's class; the runtime's own choice (empty) for pods without one.
    async fn handler(&self, subject: &Subject) -> Result<String, SandboxError> {
        let class = pod_object::spec(&subject.pod).runtime_class_name.as_deref();
        match class.filter(|class| !class.is_empty()) {
            Some(class) => {
                let handler = self.parts.objects.runtime_handler(class).await;
                handler.map_err(SandboxError::RuntimeClass)
            }
            None => Ok(String::new()),
        }
    }

    /// Refuses a pod that is to have users of its own where the handler cannot give it any: the node's would be no substitute.
    fn check_users(&self, subject: &Subject, handler: &str) -> Result<(), SandboxError> {
        if !pod_object::own_users(&subject.pod) {
            return Ok(());
        }
        let status = self.parts.runtime_status.borrow();
        if status.has_user_namespaces(handler) {
            return Ok(());
        }
        Err(SandboxError::NoUserNamespaces {
            handler: handler.to_owned(),
            known: status.has_handler(handler),
        })
    }

    /// The node's ids of a pod with users of its own; nothing for others.
    pub(super) async fn ids(&self, subject: &Subject) -> Result<Option<IdRange>, VolumeError> {
        if !pod_object::own_users(&subject.pod) {
            return Ok(None);
        }
        self.parts.volumes.user_namespace(&subject.uid).await.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_says_where_its_pod_came_from() {
        let noted = |given: &[(&str, &str)]| {
            let pairs = given
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let mut annotations: HashMap<String, String> = pairs.collect();
            note_source(&mut annotations, Timestamp::UNIX_EPOCH);
            (
                annotations[annotation::SOURCE].clone(),
                annotations[annotation::SEEN].clone(),
            )
        };
        assert_eq!(noted(&[]), ("api".to_owned(), "1970-01-01T00:00:00Z".to_owned()));
        let of_file = [(annotation::SOURCE, "file"), (annotation::SEEN, "before")];
        assert_eq!(noted(&of_file), ("file".to_owned(), "before".to_owned()));
    }
}
