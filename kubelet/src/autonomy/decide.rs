//! What is kept: the pods this node took, as they were last told of, and what it takes to start them. Pure.

use crate::id::PodUid;
use crate::objects::{ObjectRef, TokenRequestKey};
use crate::pod::spec::env_references;
use crate::pod::status::is_terminal;
use crate::pod_object;
use crate::volume;
use client::ordered::{Arrange, CollectOrdered};
use k8s_openapi::api::core::v1::{Pod, PodStatus, Service, ServicePort, ServiceSpec};
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
    /// The services of a namespace, as pods' environments tell of them.
    Services(String),
}

/// What the files of pods begin with.
pub(super) const POD_PREFIX: &str = "pod-";
/// What the files of services begin with.
pub(super) const SERVICES_PREFIX: &str = "services-";
/// The bytes all that pods need may take: what is left of the folder is for the pods themselves.
pub(super) const NEEDS_MAX: u64 = 192 << 20;
/// What a file counts for at least: so many, and it is the number of files that is large.
const WEIGHT_MIN: u64 = 16 << 10;

impl Item {
    /// Whose it is; nobody's if it is everybody's.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Object(of) => &of.namespace,
            Self::Token(of) => &of.namespace,
            Self::Services(namespace) => namespace,
            Self::Pod(_) | Self::RuntimeClass(_) => "",
        }
    }

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
            Self::Services(namespace) => (SERVICES_PREFIX, json!([namespace])),
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
        .collect_ordered()
}

/// The services that the environments of pods in these namespaces tell of, by namespace.
pub(super) fn services(all: &[Arc<Service>], namespaces: &BTreeSet<&str>) -> BTreeMap<String, Vec<Arc<Service>>> {
    let mut told: BTreeMap<String, Vec<Arc<Service>>> = namespaces
        .iter()
        .map(|namespace| ((*namespace).to_owned(), Vec::new()))
        .collect_ordered();
    for service in all {
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        if let Some(of_namespace) = told.get_mut(namespace) {
            of_namespace.push(service.clone());
        }
    }
    for of_namespace in told.values_mut() {
        of_namespace.arrange_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    }
    told
}

/// A service without what environments do not tell of it.
pub(super) fn reduced(service: &Service) -> Service {
    let mut reduced = Service::default();
    reduced.metadata.name.clone_from(&service.metadata.name);
    reduced.metadata.namespace.clone_from(&service.metadata.namespace);
    let port = |port: &ServicePort| ServicePort {
        name: port.name.clone(),
        port: port.port,
        protocol: port.protocol.clone(),
        ..ServicePort::default()
    };
    reduced.spec = service.spec.as_ref().map(|spec| ServiceSpec {
        cluster_ip: spec.cluster_ip.clone(),
        ports: spec.ports.as_ref().map(|ports| ports.iter().map(port).collect()),
        ..ServiceSpec::default()
    });
    reduced
}

/// A file that is to be kept, for its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Whose share it is of.
    pub(super) namespace: String,
    /// The file.
    pub(super) name: String,
    /// Its bytes.
    pub(super) weight: u64,
}

/// The files that do not fit. Every namespace has the same share, and what one leaves is the others'; within one, small files go first.
pub(super) fn misfits(wanted: Vec<Wanted>, room: u64) -> BTreeSet<String> {
    let mut by_namespace = BTreeMap::<String, Vec<(u64, String)>>::new();
    for Wanted {
        namespace,
        name,
        weight,
    } in wanted
    {
        let files = by_namespace.entry(namespace).or_default();
        files.push((weight.max(WEIGHT_MIN), name));
    }
    let total = |files: &[(u64, String)]| files.iter().map(|(weight, _)| weight).sum::<u64>();
    let mut modest_first: Vec<Vec<(u64, String)>> = by_namespace.into_values().collect();
    modest_first.arrange_by_key(|files| total(files));
    let (mut room, mut left) = (room, modest_first.len() as u64);
    let mut misfits = BTreeSet::new();
    for mut files in modest_first {
        let mut share = room / left.max(1);
        left -= 1;
        files.arrange();
        for (weight, name) in files {
            if weight <= share {
                share -= weight;
                room -= weight;
            } else {
                misfits.insert(name);
            }
        }
    }
    misfits
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
    ended.collect_ordered()
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
    fn room_is_shared_by_namespace_and_what_one_leaves_is_the_others() {
        const MIB: u64 = 1 << 20;
        let of = |namespace: &str, files: u64, weight: u64| {
            let file = move |number| Wanted {
                namespace: namespace.to_owned(),
                name: format!("{namespace}-{number:05}"),
                weight,
            };
            (0..files).map(file).collect::<Vec<_>>()
        };
        let count = |misfits: &BTreeSet<String>, of: &str| misfits.iter().filter(|name| name.starts_with(of)).count();
        let all = [of("greedy", 250, MIB), of("system", 40, MIB), of("small", 3, 1)].concat();
        let left = misfits(all.clone(), 100 * MIB);
        assert_eq!(count(&left, "system") + count(&left, "small"), 0, "{left:?}");
        assert_eq!(left.len(), 191, "what the others leave is its own");
        assert!(misfits(all, 300 * MIB).is_empty());
        let left = misfits([of("a", 20, MIB), of("b", 30, MIB)].concat(), 20 * MIB);
        assert_eq!((count(&left, "a"), count(&left, "b")), (10, 20));
        let left = misfits(of("many", 20_000, 1), NEEDS_MAX);
        assert_eq!(left.len(), 20_000 - 12_288, "the number of files is bounded, too");
    }

    #[test]
    fn of_services_what_environments_tell_is_kept_by_namespace() {
        let service = |namespace: &str, name: &str| {
            let ports = json!([{"name": "web", "port": 80, "protocol": "UDP", "targetPort": 8080, "nodePort": 30000}]);
            let spec = json!({"clusterIP": "10.0.0.1", "ports": ports, "selector": {"a": "x".repeat(500)}});
            let metadata = json!({"name": name, "namespace": namespace, "annotations": {"a": "b"}});
            let service = json!({"metadata": metadata, "spec": spec});
            Arc::new(serde_json::from_value::<Service>(service).expect("a service"))
        };
        let all = [service("ns", "b"), service("ns", "a"), service("other", "c")];
        let told = services(&all, &BTreeSet::from(["default", "ns"]));
        let names: Vec<_> = told["ns"].iter().map(|service| service.metadata.name.clone()).collect();
        assert_eq!(names, [Some("a".to_owned()), Some("b".to_owned())]);
        assert!(told["default"].is_empty() && told.len() == 2);
        assert_eq!(
            serde_json::to_value(reduced(&all[0])).expect("a tree")["spec"],
            json!({"clusterIP": "10.0.0.1", "ports": [{"name": "web", "port": 80, "protocol": "UDP"}]})
        );
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
