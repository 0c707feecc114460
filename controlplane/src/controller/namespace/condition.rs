//! What a namespace's conditions say of what is left in it. Pure.
//!
//! Types, reasons and messages are upstream's.

use k8s_openapi::api::core::v1::NamespaceCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use proto::api::condition;
use std::collections::BTreeMap;

/// What is left in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// Objects by `resource.group`.
    pub objects: BTreeMap<String, usize>,
    /// How many objects each finalizer holds.
    pub finalizers: BTreeMap<String, usize>,
    /// What could not be deleted or listed.
    pub errors: Vec<String>,
    /// Why it is not known what else there may be.
    pub undiscovered: Option<String>,
    /// Why the versions of some group are not understood.
    pub unparsed: Option<String>,
    /// Seconds after which what is left should be gone.
    pub estimate_seconds: u64,
}

/// A condition's type, then reason and message of its good state.
type Good = (&'static str, &'static str, &'static str);

const DISCOVERY: Good = (
    "NamespaceDeletionDiscoveryFailure",
    "ResourcesDiscovered",
    "All resources successfully discovered",
);
const VERSIONS: Good = (
    "NamespaceDeletionGroupVersionParsingFailure",
    "ParsedGroupVersions",
    "All legacy kube types successfully parsed",
);
const CONTENT: Good = (
    "NamespaceDeletionContentFailure",
    "ContentDeleted",
    "All content successfully deleted, may be waiting on finalization",
);
const REMAINING: Good = (
    "NamespaceContentRemaining",
    "ContentRemoved",
    "All content successfully removed",
);
const FINALIZERS: Good = (
    "NamespaceFinalizersRemaining",
    "ContentHasNoFinalizers",
    "All content-preserving finalizers finished",
);

impl Remains {
    /// Why the namespace cannot be finished, other than by what is left in it.
    pub fn failure(&self) -> Option<String> {
        let causes = self.undiscovered.iter().chain(&self.unparsed).chain(&self.errors);
        let causes: Vec<&str> = causes.map(String::as_str).collect();
        (!causes.is_empty()).then(|| causes.join(", "))
    }

    /// Reason and message of each condition that is not good.
    fn bad(&self) -> [(Good, Option<(&'static str, String)>); 5] {
        let sorted = |mut texts: Vec<String>| {
            texts.sort();
            texts.join(", ")
        };
        let counted = |counts: &BTreeMap<String, usize>, word: &str| {
            let texts = counts
                .iter()
                .map(|(name, n)| format!("{name} {word} {n} resource instances"));
            (!counts.is_empty()).then(|| sorted(texts.collect()))
        };
        let failed = (!self.errors.is_empty()).then(|| {
            let (count, causes) = (self.errors.len(), sorted(self.errors.clone()));
            format!("Failed to delete all resource types, {count} remaining: {causes}")
        });
        let objects = counted(&self.objects, "has").map(|texts| format!("Some resources are remaining: {texts}"));
        let held = counted(&self.finalizers, "in")
            .map(|texts| format!("Some content in the namespace has finalizers remaining: {texts}"));
        let bad = |reason: &'static str| move |message: String| (reason, message);
        [
            (DISCOVERY, self.undiscovered.clone().map(bad("DiscoveryFailed"))),
            (VERSIONS, self.unparsed.clone().map(bad("GroupVersionParsingFailed"))),
            (CONTENT, failed.map(bad("ContentDeletionFailed"))),
            (REMAINING, objects.map(bad("SomeResourcesRemain"))),
            (FINALIZERS, held.map(bad("SomeFinalizersRemain"))),
        ]
    }
}

/// The conditions that tell what is left.
pub fn conditions(old: Option<Vec<NamespaceCondition>>, remains: &Remains, now: Timestamp) -> Vec<NamespaceCondition> {
    let mut list = old.unwrap_or_default();
    for ((kind, good_reason, good_message), bad) in remains.bad() {
        let status = if bad.is_some() { "True" } else { "False" };
        let (reason, message) = bad.unwrap_or((good_reason, good_message.to_owned()));
        condition::set(
            &mut list,
            NamespaceCondition {
                type_: kind.into(),
                status: status.into(),
                reason: Some(reason.into()),
                message: Some(message),
                last_transition_time: Some(Time(now)),
            },
        );
    }
    list
}
