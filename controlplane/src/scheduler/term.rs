//! One term of a pod's affinity or anti-affinity to other pods. Pure.
//!
//! `matchLabelKeys` and `mismatchLabelKeys` are requirements of the selector by the time a pod is stored: the API server makes
//! them such, as upstream's does.

use super::pod::PodInfo;
use crate::held::Pod;
use k8s_openapi::api::core::v1::{PodAffinityTerm, WeightedPodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use proto::api::selector::Selector;
use std::collections::BTreeMap;
use std::sync::Arc;

type Labels = BTreeMap<String, String>;

/// What a term is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TermUse {
    /// Required affinity.
    Attract,
    /// Required anti-affinity.
    Repel,
    /// Preferred, by its weight; anti-affinity has a negative one.
    Prefer(i64),
}

/// Whom the term is about, and what near means.
#[derive(Clone, Debug)]
pub struct AffinityTerm {
    /// What equal terms have in common; other terms have another one.
    pub identity: Arc<str>,
    /// What it is for.
    pub used: TermUse,
    /// Label of nodes whose value tells what is near.
    pub topology_key: String,
    namespaces: Vec<String>,
    namespace_selector: Selector,
    selector: Selector,
}

impl AffinityTerm {
    fn new(term: &PodAffinityTerm, own_namespace: &str, used: TermUse) -> Self {
        let mut namespaces = term.namespaces.clone().unwrap_or_default();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.push(own_namespace.to_owned());
        }
        namespaces.sort();
        // A selector that cannot be read may select anybody: who repels keeps all away, who is drawn finds nobody.
        let unreadable = || match used {
            TermUse::Repel => Selector::everything(),
            TermUse::Attract | TermUse::Prefer(_) => Selector::nothing(),
        };
        let read =
            |selector: Option<&LabelSelector>| Selector::from_optional(selector).unwrap_or_else(|_| unreadable());
        let mut term = Self {
            identity: Arc::from(""),
            used,
            topology_key: term.topology_key.clone(),
            namespaces,
            namespace_selector: read(term.namespace_selector.as_ref()),
            selector: read(term.label_selector.as_ref()),
        };
        term.identity = format!("{term:?}").into();
        term
    }

    /// Whether pods of a namespace (with these labels) can be meant at all.
    pub fn is_about_namespace(&self, name: &str, labels: &Labels) -> bool {
        self.namespaces.iter().any(|namespace| namespace == name) || self.namespace_selector.matches(labels)
    }

    /// Whether labels of namespaces say which of them are meant.
    pub fn selects_namespaces(&self) -> bool {
        self.namespace_selector != Selector::nothing()
    }

    /// Whether pods with these labels are meant, in a namespace that is.
    pub fn is_about_labels(&self, labels: &Labels) -> bool {
        self.selector.matches(labels)
    }

    /// Whether the term is about the pod, whose namespace has these labels.
    pub fn is_about(&self, pod: &PodInfo, namespace_labels: &Labels) -> bool {
        self.is_about_namespace(&pod.key.namespace, namespace_labels) && self.is_about_labels(&pod.kin.labels)
    }
}

/// All terms of a pod.
#[derive(Clone, Debug, Default)]
pub struct PodTerms {
    /// Required affinity.
    pub attract: Vec<Arc<AffinityTerm>>,
    /// Required anti-affinity.
    pub repel: Vec<Arc<AffinityTerm>>,
    /// Preferred, of both kinds.
    pub prefer: Vec<Arc<AffinityTerm>>,
}

impl PodTerms {
    /// Reads them.
    pub fn new(pod: &Pod) -> Self {
        let Some(affinity) = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()) else {
            return Self::default();
        };
        let namespace = pod.namespace().unwrap_or_default();
        let required = |terms: Option<&Vec<PodAffinityTerm>>, used: TermUse| -> Vec<Arc<AffinityTerm>> {
            let terms = terms.into_iter().flatten();
            terms
                .map(|term| Arc::new(AffinityTerm::new(term, &namespace, used)))
                .collect()
        };
        let preferred = |terms: Option<&Vec<WeightedPodAffinityTerm>>, sign: i64| -> Vec<Arc<AffinityTerm>> {
            let terms = terms.into_iter().flatten().filter(|term| term.weight != 0);
            let used = |term: &WeightedPodAffinityTerm| TermUse::Prefer(sign * i64::from(term.weight));
            terms
                .map(|term| Arc::new(AffinityTerm::new(&term.pod_affinity_term, &namespace, used(term))))
                .collect()
        };
        let (near, apart) = (affinity.pod_affinity.as_ref(), affinity.pod_anti_affinity.as_ref());
        let mut prefer = preferred(
            near.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()),
            1,
        );
        prefer.extend(preferred(
            apart.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()),
            -1,
        ));
        Self {
            attract: required(
                near.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()),
                TermUse::Attract,
            ),
            repel: required(
                apart.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()),
                TermUse::Repel,
            ),
            prefer,
        }
    }

    /// Every term.
    pub fn all(&self) -> impl Iterator<Item = &Arc<AffinityTerm>> {
        self.attract.iter().chain(&self.repel).chain(&self.prefer)
    }
}

#[cfg(test)]
mod tests;
