//! Static pods after a shutdown that was taken back: nobody else makes them anew, so the node does.

use super::Workers;
use crate::id::PodUid;
use crate::pod::state::Cause;
use crate::pod_object;
use crate::reason::{admission, pod as reason};
use k8s_openapi::api::core::v1::Pod;

impl Workers {
    /// Has a static pod that a shutdown ended, or did not let in, finish as one that is taken away and comes back: a turn after that
    /// admits it anew. Only for a machine that stays.
    pub(super) fn bring_back(&self, uid: &PodUid, pod: &Pod) {
        let Some(live) = self.live.get(uid).filter(|_| pod_object::is_static(pod)) else {
            return;
        };
        let told = self.shared.parts.pods.by_uid(uid);
        // As an earlier kubelet marked it.
        let went_on = told.is_some_and(|told| told.status.reason.as_deref() == Some(reason::TERMINATED));
        live.desired.send_if_modified(|desired| {
            let kill = desired.kill.as_ref().map(|kill| &kill.cause);
            let was_ended = matches!(kill, Some(Cause::Failed { reason, .. }) if reason == reason::TERMINATED);
            let rejected = desired.rejected.as_ref();
            let was_refused = rejected.is_some_and(|(reason, _)| reason == admission::NODE_SHUTDOWN);
            let returns = desired.present && (was_ended || was_refused || went_on);
            if returns {
                (desired.present, desired.returns) = (false, true);
            }
            returns
        });
    }
}
