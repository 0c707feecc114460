//! Which containers ended between two statuses of a pod. Pure.

use crate::metrics::Ended;
use crate::pod_object::Kind;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, PodStatus};

/// The containers that the newer status says have ended and the older one does not.
pub(super) fn containers<'a>(older: &'a PodStatus, newer: &'a PodStatus) -> impl Iterator<Item = Ended<'a>> {
    fn lists(status: &PodStatus) -> [(Kind, &[ContainerStatus]); 3] {
        [
            (
                Kind::Init,
                status.init_container_statuses.as_deref().unwrap_or_default(),
            ),
            (Kind::Regular, status.container_statuses.as_deref().unwrap_or_default()),
            (
                Kind::Ephemeral,
                status.ephemeral_container_statuses.as_deref().unwrap_or_default(),
            ),
        ]
    }
    let pairs = lists(newer).into_iter().zip(lists(older));
    pairs.flat_map(|((kind, newer), (_, older))| {
        newer.iter().flat_map(move |now| {
            let before = older.iter().find(|before| before.name == now.name);
            // One that was started again may be seen only as the last.
            let states = [now.last_state.as_ref(), now.state.as_ref()];
            let ends = states.into_iter().flat_map(ended);
            ends.filter(move |end| !is_known(before, now, end))
                .map(move |end| Ended {
                    kind,
                    exit_code: end.exit_code,
                    reason: end.reason.as_deref().unwrap_or_default(),
                })
        })
    })
}

fn ended(state: Option<&ContainerState>) -> Option<&ContainerStateTerminated> {
    state?.terminated.as_ref()
}

/// Whether the older status told of this end.
fn is_known(before: Option<&ContainerStatus>, now: &ContainerStatus, end: &ContainerStateTerminated) -> bool {
    let is_last = ended(now.last_state.as_ref()).is_some_and(|last| std::ptr::eq(last, end));
    let Some(before) = before else {
        // Nothing was known of it: what it was last is an earlier kubelet's.
        return is_last;
    };
    let known = [before.last_state.as_ref(), before.state.as_ref()];
    known.into_iter().flat_map(ended).any(|known| {
        let same = (&known.container_id, &known.finished_at) == (&end.container_id, &end.finished_at);
        same && known.exit_code == end.exit_code
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn end(id: &str, code: i32, reason: &str) -> Value {
        json!({"terminated": {"containerID": id, "exitCode": code, "reason": reason}})
    }

    fn told(older: Value, newer: Value) -> Vec<(Kind, i32, String)> {
        let status = |of: Value| serde_json::from_value::<PodStatus>(of).expect("a status");
        let (older, newer) = (status(older), status(newer));
        containers(&older, &newer)
            .map(|ended| (ended.kind, ended.exit_code, ended.reason.to_owned()))
            .collect()
    }

    fn pod(state: Value, last: Value) -> Value {
        json!({"containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": state, "lastState": last}]})
    }

    #[test]
    fn an_end_is_told_once_though_the_container_is_started_again() {
        let running = || json!({"running": {}});
        let waiting = || json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let first = || end("a", 1, "Error");
        let of = |code, reason: &str| vec![(Kind::Regular, code, reason.to_owned())];
        for (older, newer, expected) in [
            (pod(running(), json!({})), pod(first(), json!({})), of(1, "Error")),
            (pod(first(), json!({})), pod(first(), json!({})), vec![]),
            (pod(first(), json!({})), pod(waiting(), first()), vec![]),
            (pod(waiting(), first()), pod(running(), first()), vec![]),
            // Seen only after the next one was started.
            (pod(running(), json!({})), pod(running(), first()), of(1, "Error")),
            (
                pod(running(), first()),
                pod(end("b", 0, "Completed"), first()),
                of(0, "Completed"),
            ),
            // What an earlier kubelet had seen.
            (json!({}), pod(running(), first()), vec![]),
            (json!({}), pod(first(), json!({})), of(1, "Error")),
        ] {
            assert_eq!(told(older.clone(), newer.clone()), expected, "{older} {newer}");
        }
        let init = json!({"initContainerStatuses": [{"name": "i", "image": "i", "imageID": "", "ready": true,
            "restartCount": 0, "state": end("i", 137, "OOMKilled")}]});
        assert_eq!(told(json!({}), init), [(Kind::Init, 137, "OOMKilled".to_owned())]);
    }
}
