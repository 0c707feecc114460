//! One set of pods out of what every source delivers. Pure.

use super::{Delivered, Pods};
use crate::id::{FullName, PodUid};
use crate::pod_object::{self, annotation};
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A kind of source, by upstream's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A directory or file.
    File,
    /// A URL.
    Http,
    /// The API server.
    Api,
}

impl Origin {
    /// The value of `kubernetes.io/config.source`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Http => "http",
            Self::Api => "api",
        }
    }
}

/// The outcome.
#[derive(Debug, Default)]
pub struct Merged {
    /// The pods.
    pub pods: Pods,
    /// Pods that are left out: an earlier one of their source has their name.
    pub ignored: Vec<(Origin, Arc<Pod>)>,
}

/// Merges deliveries; pods that were kept stand for those the API server has not delivered, and are no delivery. Of two pods of one name in one source, and of two pods of one UID, the first counts; mirror pods are
/// set apart.
pub fn merge(sources: &[(Origin, Delivered)], kept: &[Arc<Pod>]) -> Merged {
    let mut desired: BTreeMap<PodUid, Arc<Pod>> = BTreeMap::new();
    let mut mirrors: BTreeMap<FullName, Arc<Pod>> = BTreeMap::new();
    let mut ignored = Vec::new();
    let mut stand_ins = BTreeSet::new();
    for (origin, delivered) in sources {
        let mut names = BTreeSet::new();
        let stands_in = *origin == Origin::Api && delivered.is_none();
        let kept = kept.iter().filter(|_| stands_in);
        for pod in delivered.iter().flatten().chain(kept) {
            let name = pod_object::full_name(pod);
            if *origin == Origin::Api && pod_object::mirror_hash(pod).is_some() {
                mirrors.insert(name, pod.clone());
                continue;
            }
            let uid = pod_object::uid(pod);
            if desired.contains_key(&uid) || !names.insert(name) {
                ignored.push((*origin, pod.clone()));
                continue;
            }
            let pod = match origin {
                Origin::Api => of_api(pod),
                Origin::File | Origin::Http => pod.clone(),
            };
            if stands_in {
                stand_ins.insert(uid.clone());
            }
            desired.insert(uid, pod);
        }
    }
    let pods = Pods {
        desired: Arc::new(desired),
        mirrors: Arc::new(mirrors),
        complete: sources.iter().all(|(_, delivered)| delivered.is_some()),
        answered: sources
            .iter()
            .any(|(origin, delivered)| *origin == Origin::Api && delivered.is_some()),
        kept: Arc::new(stand_ins),
    };
    Merged { pods, ignored }
}

/// Only this kubelet says where a pod comes from: a pod of the API server that claims to be static does not become so.
fn of_api(pod: &Arc<Pod>) -> Arc<Pod> {
    if !pod_object::is_static(pod) {
        return pod.clone();
    }
    let mut own = (**pod).clone();
    let annotations = own.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::SOURCE.to_owned(), Origin::Api.as_str().to_owned());
    Arc::new(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::pod;

    fn annotated(name: &str, uid: &str, annotations: &[(&str, &str)]) -> Arc<Pod> {
        let mut pod = pod(name).build();
        pod.metadata.uid = Some(uid.into());
        let pairs = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        pod.metadata.annotations = Some(pairs.collect());
        Arc::new(pod)
    }

    fn file(name: &str, uid: &str) -> Arc<Pod> {
        annotated(name, uid, &[(annotation::SOURCE, "file")])
    }

    #[test]
    fn nothing_is_complete_before_every_source_has_delivered() {
        let some = Some(vec![file("a", "1")]);
        for (sources, complete, count) in [
            (vec![], true, 0),
            (vec![(Origin::Api, None)], false, 0),
            (vec![(Origin::File, some.clone()), (Origin::Api, None)], false, 1),
            (vec![(Origin::File, some), (Origin::Api, Some(vec![]))], true, 1),
        ] {
            let merged = merge(&sources, &[]);
            assert_eq!(
                (merged.pods.complete, merged.pods.desired.len()),
                (complete, count),
                "{sources:?}"
            );
        }
    }

    #[test]
    fn mirrors_are_never_desired_and_the_first_of_a_name_counts() {
        let mirror = annotated("a", "m", &[(annotation::SOURCE, "file"), (annotation::MIRROR, "1")]);
        let api = annotated("b", "5", &[]);
        let merged = merge(
            &[
                (Origin::File, Some(vec![file("a", "1"), file("a", "2"), file("c", "1")])),
                (Origin::Http, Some(vec![file("a", "3")])),
                (Origin::Api, Some(vec![mirror.clone(), api])),
            ],
            &[],
        );
        let uids: Vec<_> = merged.pods.desired.keys().map(PodUid::to_string).collect();
        assert_eq!(uids, ["1", "3", "5"]);
        let ignored: Vec<_> = merged
            .ignored
            .iter()
            .map(|(o, p)| (*o, pod_object::uid(p).to_string()))
            .collect();
        assert_eq!(
            ignored,
            [(Origin::File, "2".to_owned()), (Origin::File, "1".to_owned())]
        );
        assert_eq!(merged.pods.mirrors.get(&pod_object::full_name(&mirror)), Some(&mirror));
    }

    #[test]
    fn a_pod_of_the_api_server_cannot_claim_to_be_static() {
        let merged = merge(&[(Origin::Api, Some(vec![file("a", "1")]))], &[]);
        assert!(!pod_object::is_static(&merged.pods.desired[&PodUid::from("1")]));
    }

    #[test]
    fn kept_pods_stand_in_until_the_api_server_delivers_and_are_no_delivery() {
        let kept = [annotated("a", "1", &[]), annotated("s", "2", &[])];
        let statics = (Origin::File, Some(vec![file("s", "2")]));
        let merged = merge(&[statics.clone(), (Origin::Api, None)], &kept).pods;
        assert_eq!(
            (merged.complete, merged.answered, merged.desired.len()),
            (false, false, 2)
        );
        assert_eq!(
            merged.kept.iter().map(PodUid::as_str).collect::<Vec<_>>(),
            ["1"],
            "a static pod is its file's"
        );
        let merged = merge(&[statics.clone(), (Origin::Api, Some(Vec::new()))], &kept).pods;
        assert_eq!(
            (merged.complete, merged.answered, merged.desired.len()),
            (true, true, 1)
        );
        assert!(merged.kept.is_empty());
        let merged = merge(&[statics], &kept).pods;
        assert_eq!(
            (merged.answered, merged.desired.len()),
            (false, 1),
            "without an API server nothing was kept for it"
        );
    }
}
