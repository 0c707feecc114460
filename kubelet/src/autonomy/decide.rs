//! What is kept: the pods this node took, as they were last told of, and what it takes to start them. Pure.

use crate::id::PodUid;
use crate::objects::{ObjectRef, TokenRequestKey};
use crate::pod::spec::env_references;
use crate::pod::status::is_terminal;
use crate::pod_object;
use crate::volume;
use k8s_openapi::api::core::v1::{Pod, PodStatus, Service};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Something that is kept in a file of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// A pod with its status.
    Pod(PodUid),
    /// A ConfigMap or Secret, or that there is none.
    Object(ObjectRef),
    /// The last token a pod had.
    Token(TokenRequestKey),
    /// The handler of a runtime class.
    RuntimeClass(String),
    /// The services that pods' environments tell of.
    Services,
}

/// What the files of pods begin with.
pub(super) const POD_PREFIX: &str = "pod-";

impl Item {
    /// The name of its file: what names it may hold anything, and be longer than a file's name.
    pub(super) fn file_name(&self) -> String {
        let (kind, identity) = match self {
            Self::Pod(uid) => (POD_PREFIX, json!([uid.as_str()])),
            Self::Object(of) => ("object-", json!([format!("{:?}", of.kind), of.namespace, of.name])),
            Self::Token(of) => (
                "token-",
                json!([
                    of.pod_uid.as_str(),
                    of.pod_name,
                    of.namespace,
                    of.service_account,
                    of.audience,
                    of.expiration_seconds
                ]),
            ),
            Self::RuntimeClass(name) => ("runtimeclass-", json!([name])),
            Self::Services => ("services-", json!([])),
        };
        let digest = Sha256::digest(identity.to_string());
        format!("{kind}{}", hex::encode(digest))
    }
}

/// A pod as it is kept: with the status its worker told last, which may be newer than the API server's.
pub(super) fn record(pod: &Pod, status: &PodStatus) -> Pod {
    let mut record = pod.clone();
    record.metadata.managed_fields = None;
    record.status = Some(status.clone());
    record
}

/// Whether nothing of a pod is to be started any more: what is kept of it is that, and nothing it needed.
pub(super) fn is_over(pod: &Pod, status: Option<&PodStatus>) -> bool {
    pod.metadata.deletion_timestamp.is_some() || is_terminal(status)
}

/// Whether a pod that was kept may be delivered: it is this node's, and no static or mirror pod.
pub(super) fn is_deliverable(pod: &Pod, node: &str, file: &str) -> bool {
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let named = [&pod.metadata.name, &pod.metadata.namespace, &pod.metadata.uid];
    on == Some(node)
        && named
            .into_iter()
            .all(|name| name.as_ref().is_some_and(|name| !name.is_empty()))
        && Item::Pod(pod_object::uid(pod)).file_name() == file
        && !pod_object::is_static(pod)
        && pod_object::mirror_hash(pod).is_none()
}

/// What it takes to start a pod, beside the services.
pub(super) fn needs(pod: &Pod) -> BTreeSet<Item> {
    let (mut objects, tokens) = volume::needs(pod);
    for (_, container) in pod_object::containers(pod) {
        objects.extend(env_references(pod, container));
    }
    let spec = pod.spec.as_ref();
    let pulls = spec.and_then(|spec| spec.image_pull_secrets.as_ref());
    let pulls = pulls.into_iter().flatten();
    objects.extend(pulls.map(|secret| ObjectRef::secret(pod_object::namespace(pod), &secret.name)));
    let class = spec.and_then(|spec| spec.runtime_class_name.clone());
    let class = class.filter(|name| !name.is_empty()).map(Item::RuntimeClass);
    let objects = objects.into_iter().map(Item::Object);
    objects
        .chain(tokens.into_iter().map(Item::Token))
        .chain(class)
        .collect()
}

/// The services that the environments of pods in these namespaces tell of.
pub(super) fn services(
    mut all: Vec<Arc<Service>>,
    namespaces: &BTreeSet<&str>,
    master_namespace: &str,
) -> Vec<Arc<Service>> {
    all.retain(|service| {
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        namespace == master_namespace || namespaces.contains(namespace)
    });
    all.sort_by(|a, b| {
        let named = |service: &Service| (service.metadata.namespace.clone(), service.metadata.name.clone());
        named(a).cmp(&named(b))
    });
    all
}

/// A service without what environments do not tell of it.
pub(super) fn reduced(service: &Service) -> Service {
    let mut reduced = Service::default();
    reduced.metadata.name.clone_from(&service.metadata.name);
    reduced.metadata.namespace.clone_from(&service.metadata.namespace);
    reduced.spec.clone_from(&service.spec);
    reduced
}

/// The exit codes of regular containers that ended for good, as a kept status tells. A runtime that lost them would have them run again.
pub(crate) fn ended_for_good(pod: &Pod) -> BTreeMap<String, i32> {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    let ended = statuses.into_iter().flatten().filter_map(|status| {
        let end = status.state.as_ref()?.terminated.as_ref()?;
        let container = pod_object::regulars(pod).iter().find(|c| c.name == status.name)?;
        let again = pod_object::restarts(pod, pod_object::Kind::Regular, container, end.exit_code);
        (!again).then(|| (status.name.clone(), end.exit_code))
    });
    ended.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn pod(spec: Value, status: Value) -> Pod {
        let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec, "status": status});
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn every_reference_is_needed_once() {
        let spec = json!({"nodeName": "n", "runtimeClassName": "gvisor", "imagePullSecrets": [{"name": "login"}],
            "volumes": [
                {"name": "s", "secret": {"secretName": "files", "optional": true}},
                {"name": "unmounted", "secret": {"secretName": "nobody"}},
                {"name": "p", "projected": {"sources": [{"configMap": {"name": "conf"}},
                    {"serviceAccountToken": {"path": "t"}}]}}],
            "initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": "conf"}}]}],
            "containers": [{"name": "c", "volumeMounts": [{"name": "s", "mountPath": "/s"}, {"name": "p", "mountPath": "/p"}],
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "env", "key": "a"}}}]}]});
        let pod = pod(spec, json!({}));
        let needs = needs(&pod);
        let objects: Vec<ObjectRef> = needs
            .iter()
            .filter_map(|item| match item {
                Item::Object(of) => Some(of.clone()),
                _ => None,
            })
            .collect();
        let secret = |name| ObjectRef::secret("ns", name);
        let wanted = [
            ObjectRef::config_map("ns", "conf"),
            secret("env"),
            secret("files"),
            secret("login"),
        ];
        assert_eq!(objects, wanted);
        assert!(needs.contains(&Item::RuntimeClass("gvisor".to_owned())));
        let token = needs.iter().find_map(|item| match item {
            Item::Token(of) => Some(of),
            _ => None,
        });
        assert_eq!(
            token.map(|of| (of.pod_uid.as_str(), of.service_account.as_str())),
            Some(("u", "default"))
        );
        let names: BTreeSet<String> = needs.iter().map(Item::file_name).collect();
        assert_eq!(names.len(), needs.len(), "each has a file of its own");
    }

    #[test]
    fn names_of_files_hold_nothing_of_what_names_the_item() {
        let uid = PodUid::from("../../etc/shadow");
        let name = Item::Pod(uid).file_name();
        assert!(
            name.starts_with(POD_PREFIX) && !name.contains('/') && name.len() < 100,
            "{name}"
        );
        let one = Item::Object(ObjectRef::secret("a", "b\",\"c")).file_name();
        assert_ne!(one, Item::Object(ObjectRef::secret("a\",\"b", "c")).file_name());
        assert_ne!(one, Item::Object(ObjectRef::config_map("a", "b\",\"c")).file_name());
    }

    #[test]
    fn only_this_nodes_pods_of_the_api_server_are_delivered() {
        let file = Item::Pod(PodUid::from("u")).file_name();
        let own = pod(json!({"nodeName": "n", "containers": []}), json!({}));
        assert!(is_deliverable(&own, "n", &file));
        assert!(!is_deliverable(&own, "m", &file), "another node's");
        assert!(!is_deliverable(&own, "n", "pod-x"), "another pod's file");
        let mut of_file = own.clone();
        let annotations = [(pod_object::annotation::SOURCE.to_owned(), "file".to_owned())];
        of_file.metadata.annotations = Some(annotations.into());
        assert!(!is_deliverable(&of_file, "n", &file));
    }

    #[test]
    fn what_ended_for_good_is_told_by_policy_and_exit_code() {
        let ended = |policy: &str| {
            let state = |code| json!({"terminated": {"exitCode": code}});
            let status = |name, state| json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
            let statuses = json!([
                status("a", state(0)),
                status("b", state(1)),
                status("c", json!({"running": {}}))
            ]);
            let containers = json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]);
            let spec = json!({"restartPolicy": policy, "containers": containers});
            ended_for_good(&pod(spec, json!({"containerStatuses": statuses})))
        };
        assert_eq!(ended("Always"), BTreeMap::new());
        assert_eq!(ended("OnFailure"), BTreeMap::from([("a".to_owned(), 0)]));
        assert_eq!(
            ended("Never"),
            BTreeMap::from([("a".to_owned(), 0), ("b".to_owned(), 1)])
        );
    }

    #[test]
    fn a_pod_that_ends_or_has_ended_is_over() {
        let mut kept = pod(json!({"containers": []}), json!({"phase": "Running"}));
        assert!(!is_over(&kept, kept.status.as_ref()));
        for phase in ["Succeeded", "Failed"] {
            let status = PodStatus {
                phase: Some(phase.to_owned()),
                ..PodStatus::default()
            };
            assert!(is_over(&kept, Some(&status)), "{phase}");
            assert_eq!(record(&kept, &status).status, Some(status));
        }
        let then = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(crate::pod::testing::at(5));
        kept.metadata.deletion_timestamp = Some(then);
        assert!(is_over(&kept, kept.status.as_ref()));
    }
}
