//! Mirror pods: what the API server shows of this node's static pods.
//!
//! Owns the creation and deletion of mirror pods, never their status ([`crate::api_status`] does) and never a container: a
//! mirror that is deleted comes back, and nothing happens to the pod it shows. [`plan`] is pure.

use crate::id::{FullName, PodUid};
use crate::parts::Parts;
use crate::pod_object::{self, annotation};
use crate::source::Pods;
use client::ordered::CollectOrdered;
use client::{AsTree, Backoff};
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The deadline of one write.
const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// The first and the longest wait before what could not be done is tried again.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// A write that is due.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A static pod has no mirror.
    Create(Arc<Pod>),
    /// A mirror shows no static pod, or another one than it should.
    Delete(Arc<Pod>),
}

/// What is due, and whether to look again without being told to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The writes.
    pub writes: Vec<Write>,
    /// A pod of the same name is still ending.
    pub waits: bool,
}

/// Compares static pods with mirrors. `ending` names static pods that are no longer desired and not yet gone: their mirrors stay
/// until they are.
pub fn plan(pods: &Pods, ending: &BTreeSet<FullName>) -> Plan {
    let mut plan = Plan::default();
    let mut shown = BTreeSet::new();
    for pod in pods.desired.values().filter(|pod| pod_object::is_static(pod)) {
        let name = pod_object::full_name(pod);
        if ending.contains(&name) {
            plan.waits = true;
        } else {
            match pods.mirrors.get(&name) {
                Some(mirror) if shows(mirror, pod) => {}
                Some(mirror) => plan.writes.push(Write::Delete(mirror.clone())),
                None => plan.writes.push(Write::Create(pod.clone())),
            }
        }
        shown.insert(name);
    }
    for (name, mirror) in pods.mirrors.iter().filter(|(name, _)| !shown.contains(name)) {
        if ending.contains(name) {
            plan.waits = true;
        } else if pods.complete {
            plan.writes.push(Write::Delete(mirror.clone()));
        }
    }
    plan
}

/// Whether the mirror is that of this very static pod and is going to stay.
fn shows(mirror: &Pod, pod: &Pod) -> bool {
    pod_object::mirror_hash(mirror) == pod.metadata.uid.as_deref() && mirror.metadata.deletion_timestamp.is_none()
}

/// The object to create for a static pod on a node.
pub fn object(pod: &Pod, node: &Node) -> Pod {
    let mut mirror = pod.clone();
    let hash = mirror.metadata.uid.take().unwrap_or_default();
    let annotations = mirror.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::MIRROR.to_owned(), hash);
    mirror.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.metadata.name.clone().unwrap_or_default(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    mirror.status = Some(PodStatus::default());
    mirror
}

/// Keeps the mirrors.
pub struct MirrorPods {
    /// The kubelet's parts: what still runs or ends, and the node's name.
    pub parts: Arc<Parts>,
    /// The API server.
    pub client: kube::Client,
    /// What is desired and mirrored.
    pub pods: watch::Receiver<Pods>,
}

impl MirrorPods {
    /// Keeps mirrors as static pods are until shut down.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX, self.parts.seed);
        loop {
            let pods = self.pods.borrow_and_update().clone();
            let plan = plan(&pods, &self.ending(&pods));
            let mut failed = false;
            for write in &plan.writes {
                let written = tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return,
                    written = tokio::time::timeout(CALL_DEADLINE, self.write(write)) => written,
                };
                failed |= !matches!(written, Ok(Ok(())));
                if let Ok(Err(error)) = written {
                    tracing::warn!(%error, "a mirror pod was not written, trying again");
                }
            }
            let wait = match failed {
                true => backoff.fail(),
                false => {
                    backoff.reset();
                    RETRY_FIRST
                }
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Ok(()) = self.pods.changed() => {}
                () = tokio::time::sleep(wait), if failed || plan.waits => {}
            }
        }
    }

    /// Static pods that still have a worker though they are no longer desired.
    fn ending(&self, pods: &Pods) -> BTreeSet<FullName> {
        let undesired = |uid: &PodUid| !pods.desired.contains_key(uid);
        let snapshots = self.parts.pods.list();
        let ending = snapshots.iter().map(|snapshot| &snapshot.pod);
        ending
            .filter(|pod| pod_object::is_static(pod) && undesired(&pod_object::uid(pod)))
            .map(|pod| pod_object::full_name(pod))
            .collect_ordered()
    }

    async fn write(&self, write: &Write) -> kube::Result<()> {
        match write {
            Write::Create(pod) => self.create(pod).await,
            Write::Delete(mirror) => self.delete(mirror).await,
        }
    }

    async fn create(&self, pod: &Pod) -> kube::Result<()> {
        let nodes: Api<AsTree<Node>> = Api::all(self.client.clone());
        let node = nodes.get(&self.parts.context.node_name).await?;
        if node.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let mirror = AsTree(object(pod, &node));
        let api: Api<AsTree<Pod>> = Api::namespaced(self.client.clone(), pod_object::namespace(pod));
        match api.create(&PostParams::default(), &mirror).await {
            Ok(_) => {
                tracing::info!(pod = pod_object::name(pod), "mirror pod created");
                Ok(())
            }
            // Perhaps our own, of which the watch has not told yet.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let there = api.get(pod_object::name(pod)).await?;
                match pod_object::mirror_hash(&there) == pod_object::mirror_hash(&mirror) {
                    true => Ok(()),
                    false => Err(kube::Error::Api(status)),
                }
            }
            Err(error) => Err(error),
        }
    }

    async fn delete(&self, mirror: &Pod) -> kube::Result<()> {
        let api: Api<AsTree<Pod>> = Api::namespaced(self.client.clone(), pod_object::namespace(mirror));
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: mirror.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match api.delete(pod_object::name(mirror), &params).await {
            Ok(_) => {
                tracing::info!(pod = pod_object::name(mirror), "mirror pod deleted");
                Ok(())
            }
            // Gone, or another one has its name by now.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{at, pod};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
    use std::collections::BTreeMap;

    fn annotated(name: &str, uid: &str, pairs: &[(&str, &str)]) -> Arc<Pod> {
        let mut pod = pod(name).build();
        pod.metadata.uid = Some(uid.into());
        let pairs = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        pod.metadata.annotations = Some(pairs.collect());
        Arc::new(pod)
    }

    fn fixed(name: &str, uid: &str) -> Arc<Pod> {
        annotated(name, uid, &[(annotation::SOURCE, "file"), (annotation::HASH, uid)])
    }

    fn mirror(name: &str, hash: &str) -> Arc<Pod> {
        annotated(
            name,
            "mirror",
            &[(annotation::SOURCE, "file"), (annotation::MIRROR, hash)],
        )
    }

    fn planned(statics: &[Arc<Pod>], mirrors: &[Arc<Pod>], ending: &[&str], complete: bool) -> (Vec<String>, bool) {
        let by_uid: BTreeMap<_, _> = statics.iter().map(|p| (pod_object::uid(p), p.clone())).collect();
        let by_name: BTreeMap<_, _> = mirrors.iter().map(|p| (pod_object::full_name(p), p.clone())).collect();
        let pods = Pods {
            desired: Arc::new(by_uid),
            mirrors: Arc::new(by_name),
            complete,
            ..Pods::default()
        };
        let name = |name: &&str| FullName {
            namespace: "ns".into(),
            name: (*name).to_owned(),
        };
        let plan = plan(&pods, &ending.iter().map(name).collect());
        let tell = |write: &Write| match write {
            Write::Create(pod) => format!("create {}", pod_object::name(pod)),
            Write::Delete(pod) => format!("delete {}", pod_object::name(pod)),
        };
        (plan.writes.iter().map(tell).collect(), plan.waits)
    }

    #[test]
    fn mirrors_follow_static_pods() {
        let mut deleted = (*mirror("a", "1")).clone();
        deleted.metadata.deletion_timestamp = Some(Time(at(0)));
        let ordinary = annotated("o", "o", &[]);
        let (none, a, m): (Vec<Arc<Pod>>, _, _) = (vec![], vec![fixed("a", "1")], vec![mirror("a", "1")]);
        for (what, statics, mirrors, ending, complete, expected, waits) in [
            (
                "an ordinary pod has none",
                vec![ordinary],
                none.clone(),
                vec![],
                true,
                vec![],
                false,
            ),
            (
                "created",
                a.clone(),
                none.clone(),
                vec![],
                false,
                vec!["create a"],
                false,
            ),
            ("there", a.clone(), m.clone(), vec![], true, vec![], false),
            (
                "of another pod",
                vec![fixed("a", "2")],
                m.clone(),
                vec![],
                false,
                vec!["delete a"],
                false,
            ),
            (
                "being deleted",
                a.clone(),
                vec![Arc::new(deleted)],
                vec![],
                true,
                vec!["delete a"],
                false,
            ),
            (
                "orphaned",
                none.clone(),
                m.clone(),
                vec![],
                true,
                vec!["delete a"],
                false,
            ),
            (
                "perhaps orphaned",
                none.clone(),
                m.clone(),
                vec![],
                false,
                vec![],
                false,
            ),
            ("still ending", none, m.clone(), vec!["a"], true, vec![], true),
            (
                "its predecessor is ending",
                vec![fixed("a", "2")],
                m,
                vec!["a"],
                true,
                vec![],
                true,
            ),
        ] {
            let (writes, again) = planned(&statics, &mirrors, &ending, complete);
            assert_eq!(
                (writes, again),
                (expected.iter().map(ToString::to_string).collect(), waits),
                "{what}"
            );
        }
    }

    #[test]
    fn a_mirror_names_its_pod_and_its_node() {
        let node = Node {
            metadata: ObjectMeta {
                name: Some("n".into()),
                uid: Some("node-uid".into()),
                ..ObjectMeta::default()
            },
            ..Node::default()
        };
        let mirror = object(&fixed("a", "1"), &node);
        assert_eq!(
            (pod_object::mirror_hash(&mirror), mirror.metadata.uid.clone()),
            (Some("1"), None)
        );
        let owner = &mirror.metadata.owner_references.as_ref().expect("an owner")[0];
        assert_eq!(
            (owner.kind.as_str(), owner.uid.as_str(), owner.controller),
            ("Node", "node-uid", Some(true))
        );
    }
}
