//! What the parts have to say, as events and log lines.

use crate::events::{Recorder, Severity};
use crate::reason::event;
use k8s_openapi::api::core::v1::ObjectReference;
use policy::settings::Notice;
use proxy::told::Told;

fn severity(is_warning: bool) -> Severity {
    match is_warning {
        true => Severity::Warning,
        false => Severity::Normal,
    }
}

/// An object by its place.
fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> ObjectReference {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ObjectReference {
        api_version: given(api_version),
        kind: given(kind),
        namespace: given(namespace),
        name: given(name),
        ..ObjectReference::default()
    }
}

/// What the proxy has to say of a Service or of its node.
pub(super) fn of_proxy(recorder: &Recorder, told: &Told) {
    let severity = severity(told.is_warning);
    match told.kind {
        "Node" => recorder.node(&told.name, severity, told.reason, told.note.clone()),
        kind => {
            let service = object("v1", kind, &told.namespace, &told.name);
            recorder.object(service, severity, told.reason, told.note.clone());
        }
    }
}

/// What the overlay has to say of its node.
pub(super) fn of_overlay(recorder: &Recorder, node: &str, notice: overlay::Notice) {
    recorder.node(node, severity(notice.is_warning), notice.reason, notice.message);
}

/// What is to be said of policies.
pub(super) fn of_policies(recorder: &Recorder, node: &str, notice: &Notice) {
    match notice {
        Notice::Flawed { policy, uid, text } => {
            let mut flawed = object("networking.k8s.io/v1", "NetworkPolicy", &policy.namespace, &policy.name);
            flawed.uid = Some(uid.clone());
            recorder.object(flawed, Severity::Warning, event::POLICY_NOT_ENFORCED, text.clone());
        }
        Notice::Failed(why) => {
            tracing::error!(why, "network policies are not in the kernel as they should be");
            let message = format!("network policies: {why}");
            recorder.node(node, Severity::Warning, event::CLUSTER_NETWORK, message);
        }
        Notice::Rebuilt => tracing::warn!("somebody removed the rules of network policies: they are made again"),
    }
}
