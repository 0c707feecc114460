//! What a Job's policies make of a failed pod, and of the indexes that succeeded. Pure.

use super::indexes::Indexes;
use crate::held::Pod;
use k8s_openapi::api::batch::v1::{
    PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule, SuccessPolicy,
};
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition};
use kube::ResourceExt;

/// What comes of a pod's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It counts towards the limits.
    Count,
    /// It does not count.
    Ignore,
    /// It counts, and its index has failed.
    FailIndex,
    /// It counts, and the Job has failed, with this message.
    FailJob(String),
}

impl Outcome {
    /// Whether the failure counts.
    pub fn counts(&self) -> bool {
        *self != Outcome::Ignore
    }
}

/// The first rule that fits a failed pod decides; without one the failure counts.
pub fn outcome(policy: Option<&PodFailurePolicy>, pod: &Pod) -> Outcome {
    matched(policy, pod).unwrap_or(Outcome::Count)
}

/// What the first rule says that fits a failed pod, if any does.
pub fn matched(policy: Option<&PodFailurePolicy>, pod: &Pod) -> Option<Outcome> {
    let rules = policy.into_iter().flat_map(|policy| &policy.rules).enumerate();
    rules.filter_map(|(index, rule)| judge(rule, index, pod)).next()
}

fn judge(rule: &PodFailurePolicyRule, index: usize, pod: &Pod) -> Option<Outcome> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let action = &rule.action;
    let told = if let Some(wanted) = &rule.on_exit_codes {
        let (container, code) = exited(pod, wanted)?;
        format!("Container {container} for pod {namespace}/{name} failed with exit code {code}")
    } else {
        let condition = condition(pod, rule.on_pod_conditions.as_deref()?)?;
        format!("Pod {namespace}/{name} has condition {}", condition.type_)
    };
    match action.as_str() {
        "Ignore" => Some(Outcome::Ignore),
        "FailIndex" => Some(Outcome::FailIndex),
        "Count" => Some(Outcome::Count),
        "FailJob" => Some(Outcome::FailJob(format!(
            "{told} matching {action} rule at index {index}"
        ))),
        _ => None,
    }
}

/// The first container that ended with a code the rule asks for; init containers come last.
fn exited<'a>(pod: &'a Pod, wanted: &PodFailurePolicyOnExitCodesRequirement) -> Option<(&'a str, i32)> {
    let status = pod.status.as_ref()?;
    let all = [&status.container_statuses, &status.init_container_statuses];
    let fits = |container: &ContainerStatus| {
        let code = exit_code(container)?;
        let named = wanted
            .container_name
            .as_ref()
            .is_none_or(|name| *name == container.name);
        let listed = wanted.values.contains(&code);
        let asked = match wanted.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        };
        (named && code != 0 && asked).then_some(code)
    };
    let mut containers = all.into_iter().flatten().flatten();
    containers.find_map(|container| Some((container.name.as_str(), fits(container)?)))
}

fn exit_code(container: &ContainerStatus) -> Option<i32> {
    Some(container.state.as_ref()?.terminated.as_ref()?.exit_code)
}

fn condition<'a>(pod: &'a Pod, patterns: &[PodFailurePolicyOnPodConditionsPattern]) -> Option<&'a PodCondition> {
    let conditions = pod
        .status
        .iter()
        .filter_map(|status| status.conditions.as_ref())
        .flatten();
    let fits = |condition: &PodCondition| {
        patterns.iter().any(|pattern| {
            pattern.type_ == condition.type_ && pattern.status.as_deref().unwrap_or("True") == condition.status
        })
    };
    conditions.into_iter().find(|condition| fits(condition))
}

/// The message of the first rule that the succeeded indexes satisfy.
pub fn success(policy: Option<&SuccessPolicy>, succeeded: &Indexes, completions: u32) -> Option<String> {
    if succeeded.total() == 0 {
        return None;
    }
    let reached = |count: Option<i32>, have: u32| count.is_some_and(|count| i64::from(have) >= i64::from(count));
    let rules = policy.into_iter().flat_map(|policy| &policy.rules).enumerate();
    let mut met = rules.filter(|(_, rule)| match &rule.succeeded_indexes {
        Some(text) => {
            let wanted = Indexes::parse(text, completions);
            let have = wanted.common(succeeded);
            wanted.total() > 0 && (have == wanted.total() || reached(rule.succeeded_count, have))
        }
        None => reached(rule.succeeded_count, succeeded.total()),
    });
    met.next().map(|(index, _)| format!("Matched rules at index {index}"))
}
