//! Carries hooks of one container instance out, and leaves the mark that keeps a preStop hook from running twice.

use super::declared;
use super::handler::{self, Done, HookError, Target};
use crate::id::ContainerId;
use crate::pod::execute::{Executor, Subject};
use crate::pod::failure::Failure;
use crate::pod_object;
use crate::reason::event;
use crate::runtime::observed::ObservedContainer;
use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use std::time::Duration;

impl Executor {
    /// Runs a postStart hook to its end; the plan's end of it is its only bound, as upstream has none.
    pub(in crate::pod) async fn post_start(
        &self,
        subject: &Subject,
        id: &ContainerId,
        name: &str,
    ) -> Result<(), HookError> {
        let Some((_, container)) = pod_object::find(&subject.pod, name) else {
            return Ok(());
        };
        match declared::post_start(&container) {
            Some(handler) => self.hook(subject, id, &container, handler).await,
            None => Ok(()),
        }
    }

    /// Runs a preStop hook for at most its grace. It holds nothing up that it fails.
    pub(in crate::pod) async fn pre_stop(&self, subject: &Subject, id: &ContainerId, grace_seconds: i64) {
        let Some(observed) = subject.observed.containers.iter().find(|c| c.id == *id) else {
            return;
        };
        let container = declared::spec_of(&subject.pod, observed);
        let Some(handler) = declared::pre_stop(&container) else {
            return;
        };
        if !self.is_first(subject, observed).await {
            tracing::info!(pod = %subject.uid, container = %id, "preStop hook was begun before, not run again");
            return;
        }
        let grace = Duration::from_secs(u64::try_from(grace_seconds).unwrap_or(0));
        match tokio::time::timeout(grace, self.hook(subject, id, &container, handler)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(pod = %subject.uid, container = %id, %error, "preStop hook failed");
                self.tell(subject, Some(&container.name), &Failure::PreStop(error));
            }
            Err(_) => {
                if handler.sleep.is_some() {
                    self.parts.metrics.pods.sleep_cut_short();
                }
                tracing::warn!(pod = %subject.uid, container = %id, "preStop hook not completed in grace period");
            }
        }
    }

    /// Marks the instance, and tells whether no kubelet did before. If no mark can be left, the hook runs: it may then run
    /// again after a restart, which is better than not at all.
    async fn is_first(&self, subject: &Subject, observed: &ObservedContainer) -> bool {
        let marked = self
            .parts
            .volumes
            .mark_pre_stop(&subject.uid, &observed.name, &observed.id);
        marked.await.unwrap_or_else(|error| {
            tracing::warn!(pod = %subject.uid, container = %observed.id, %error, "preStop hook cannot be marked as begun");
            true
        })
    }

    async fn hook(
        &self,
        subject: &Subject,
        id: &ContainerId,
        container: &Container,
        handler: &LifecycleHandler,
    ) -> Result<(), HookError> {
        let described = pod_object::described(&subject.pod);
        let host_ips = self.parts.context.host_ips.texts();
        let pod_ips = match subject.observed.sandbox() {
            Some(sandbox) => sandbox.addresses(&host_ips),
            None => host_ips,
        };
        let target = Target {
            container,
            id,
            pod: &described,
            pod_ip: pod_ips.first().map(String::as_str),
        };
        match handler::run(&*self.parts.runtime, handler, &target).await {
            Ok(Done::Plainly) => Ok(()),
            Ok(Done::WithoutTls(host)) => {
                self.parts.metrics.pods.hook_fell_back();
                let message =
                    format!("request to HTTPS lifecycle hook {host} got HTTP response, retry with HTTP succeeded");
                self.warn(subject, event::LIFECYCLE_HTTP_FALLBACK, message);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
