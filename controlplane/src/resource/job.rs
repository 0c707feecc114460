//! Jobs and CronJobs. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::field::{
    at, copy, default_text, default_to, flag, immutable, int, list, list_mut, object_mut, one_of, set, text,
};
use super::name::dns1123_label;
use super::pod_spec::{defaults, validate};
use super::selector;
use super::template::non_negatives;
use super::{NameRule, PrepareContext, Strategy, reset_status};
use crate::resource::field_error::{FieldError, FieldErrors};

mod policy;
mod schedule;
mod status;

/// The Job kind's strategy.
pub(super) struct Job;

/// The CronJob kind's strategy.
pub(super) struct CronJob;

const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

fn default_job(spec: &mut Value) {
    let parallelism = at(spec, &["parallelism"]).is_null();
    if parallelism && at(spec, &["completions"]).is_null() {
        set(spec, &["completions"], 1);
    }
    default_to(spec, "parallelism", 1);
    let per_index = !at(spec, &["backoffLimitPerIndex"]).is_null();
    default_to(spec, "backoffLimit", if per_index { i64::from(i32::MAX) } else { 6 });
    default_text(spec, "completionMode", "NonIndexed");
    default_to(spec, "suspend", false);
    let failure_policy = !at(spec, &["podFailurePolicy"]).is_null();
    let replacement = if failure_policy {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    default_text(spec, "podReplacementPolicy", replacement);
    default_to(spec, "manualSelector", false);
    for rule in list_mut(spec, &["podFailurePolicy", "rules"]).into_iter().flatten() {
        for pattern in list_mut(rule, &["onPodConditions"]).into_iter().flatten() {
            default_text(pattern, "status", "True");
        }
    }
}

impl Strategy for Job {
    fn default(&self, object: &mut Value) {
        defaults::template_at(object, &["spec", "template"]);
        if let Some(spec) = object.get_mut("spec") {
            default_job(spec);
        }
    }

    fn prepare_create(&self, object: &mut Value, ctx: &PrepareContext<'_>) {
        reset_status(object);
        if flag(object, &["spec", "manualSelector"]) {
            return;
        }
        let name = text(object, &["metadata", "name"]).to_owned();
        if let Some(labels) = object_mut(object, &["spec", "template", "metadata", "labels"]) {
            for key in [CONTROLLER_UID, "controller-uid"] {
                labels.insert(key.to_owned(), json!(ctx.uid));
            }
            for key in [JOB_NAME, "job-name"] {
                labels.insert(key.to_owned(), json!(name));
            }
        }
        if let Some(labels) = object_mut(object, &["spec", "selector", "matchLabels"]) {
            labels.entry(CONTROLLER_UID).or_insert_with(|| json!(ctx.uid));
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = generated_selector(object);
        errors.append(validate_job(object, ""));
        selected(&mut errors, object);
        pod_names(&mut errors, object);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if subresource == "status" {
            return status::validate_update(new, old);
        }
        let mut errors = FieldErrors::of_update(new, old, |job| {
            let mut errors = validate_job(job, "");
            selected(&mut errors, job);
            errors
        });
        for key in [
            "selector",
            "completionMode",
            "podFailurePolicy",
            "backoffLimitPerIndex",
            "managedBy",
            "successPolicy",
        ] {
            immutable(&mut errors, new, old, &["spec", key]);
        }
        completions(&mut errors, new, old);
        template(&mut errors, new, old);
        errors
    }

    fn selectable_fields(&self, object: &Value) -> BTreeMap<&'static str, String> {
        let succeeded = int(object, &["status", "succeeded"]).unwrap_or(0);
        BTreeMap::from([("status.successful", succeeded.to_string())])
    }

    fn field_labels(&self) -> &'static [&'static str] {
        &["status.successful"]
    }

    fn has_generation(&self) -> bool {
        true
    }
}

/// Completions change only for indexed Jobs, together with parallelism.
fn completions(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let path = &["spec", "completions"];
    let indexed = text(new, &["spec", "completionMode"]) == "Indexed";
    if at(new, path) == at(old, path) {
        return;
    }
    if !indexed || at(new, path).is_null() {
        immutable(errors, new, old, path);
    } else if at(new, path) != at(new, &["spec", "parallelism"]) {
        errors.push(FieldError::invalid(
            "spec.completions",
            at(new, path).clone(),
            format!(
                "can only be modified in tandem with {}",
                at(new, &["spec", "parallelism"])
            ),
        ));
    }
}

/// The template is immutable, except for where pods go and what they ask for while suspended and not yet started.
fn template(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let mut neutral = new.clone();
    let suspended = flag(old, &["spec", "suspend"]);
    if suspended && at(old, &["status", "startTime"]).is_null() {
        for path in [
            &["spec", "template", "metadata", "labels"][..],
            &["spec", "template", "metadata", "annotations"],
            &["spec", "template", "spec", "nodeSelector"],
            &["spec", "template", "spec", "affinity"],
            &["spec", "template", "spec", "tolerations"],
            &["spec", "template", "spec", "schedulingGates"],
        ] {
            copy(&mut neutral, old, path);
        }
        for kind in ["containers", "initContainers"] {
            let before = list(old, &["spec", "template", "spec", kind]).to_vec();
            let after = list_mut(&mut neutral, &["spec", "template", "spec", kind]);
            for (container, before) in after.into_iter().flatten().zip(before) {
                copy(container, &before, &["resources"]);
            }
        }
    }
    immutable(errors, &neutral, old, &["spec", "template"]);
}

/// The selector that was made for the Job, and the labels it selects: nothing else may stand there.
fn generated_selector(job: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let chosen = at(job, &["spec", "selector"]);
    if flag(job, &["spec", "manualSelector"]) || chosen.is_null() {
        return errors;
    }
    let (uid, name) = (text(job, &["metadata", "uid"]), text(job, &["metadata", "name"]));
    if uid.is_empty() {
        errors.push(FieldError::required("metadata.uid", ""));
    }
    let mut expected = serde_json::Map::new();
    for (key, value) in [
        ("controller-uid", uid),
        ("job-name", name),
        (CONTROLLER_UID, uid),
        (JOB_NAME, name),
    ] {
        let labels = at(job, &["spec", "template", "metadata", "labels"]);
        let label = at(labels, &[key]).as_str();
        let path = "spec.template.metadata.labels";
        if label.is_none() {
            let why = format!("must be '{value}'");
            errors.push(FieldError::required(format!("{path}[{key}]"), why));
        } else if label != Some(value) {
            let why = format!("must be '{value}'");
            errors.push(FieldError::invalid_value(format!("{path}[{key}]"), labels, why));
        }
        expected.insert(key.to_owned(), json!(value));
    }
    if !selector::matches(chosen, &Value::Object(expected)) {
        let why = "`selector` not auto-generated";
        errors.push(FieldError::invalid_value("spec.selector", chosen, why));
    }
    errors
}

/// A selector that is there, right, and selects the pods made.
fn selected(errors: &mut FieldErrors, job: &Value) {
    let chosen = at(job, &["spec", "selector"]);
    if chosen.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
        return;
    }
    selector::validate(errors, chosen, "spec.selector");
    let labels = at(job, &["spec", "template", "metadata", "labels"]);
    if !selector::matches(chosen, labels) {
        let why = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid_value("spec.template.metadata.labels", labels, why));
    }
}

/// The hostname of the last pod of an indexed Job is its name and index.
fn pod_names(errors: &mut FieldErrors, job: &Value) {
    let name = text(job, &["metadata", "name"]);
    let completions = int(job, &["spec", "completions"]).unwrap_or(0);
    if text(job, &["spec", "completionMode"]) != "Indexed" || completions < 1 {
        return;
    }
    let hostname = format!("{name}-{}", completions - 1);
    if !dns1123_label(&hostname).is_empty() {
        let why = format!("will not able to create pod with invalid DNS label: {hostname}");
        errors.push(FieldError::invalid("metadata.name", name, why));
    }
}

/// Everything wrong with the job spec under `prefix` (empty, or `spec.jobTemplate.` for a CronJob's).
fn validate_job(object: &Value, prefix: &str) -> FieldErrors {
    let mut errors = FieldErrors::default();
    non_negatives(
        &mut errors,
        object,
        &[
            "parallelism",
            "completions",
            "activeDeadlineSeconds",
            "backoffLimit",
            "ttlSecondsAfterFinished",
            "backoffLimitPerIndex",
            "maxFailedIndexes",
        ],
    );
    let spec = at(object, &["spec"]);
    let mode = text(spec, &["completionMode"]);
    one_of(&mut errors, "spec.completionMode", mode, &["NonIndexed", "Indexed"]);
    if mode == "Indexed" {
        if at(spec, &["completions"]).is_null() {
            errors.push(FieldError::required(
                "spec.completions",
                "when completion mode is Indexed",
            ));
        }
        let parallelism = int(spec, &["parallelism"]).unwrap_or(0);
        if parallelism > 100_000 {
            errors.push(FieldError::invalid(
                "spec.parallelism",
                parallelism,
                "must be less than or equal to 100000 when completion mode is Indexed",
            ));
        }
    }
    let policy = text(spec, &["template", "spec", "restartPolicy"]);
    let supported = ["OnFailure", "Never"];
    if policy == "Always" || policy.is_empty() {
        errors.push(FieldError::required(
            "spec.template.spec.restartPolicy",
            "valid values: \"OnFailure\", \"Never\"",
        ));
    } else if !supported.contains(&policy) {
        errors.push(FieldError::not_supported(
            "spec.template.spec.restartPolicy",
            policy,
            &supported,
        ));
    } else if policy != "Never" && !at(spec, &["podFailurePolicy"]).is_null() {
        errors.push(FieldError::invalid(
            "spec.template.spec.restartPolicy",
            policy,
            "only \"Never\" is supported when podFailurePolicy is specified",
        ));
    }
    policy::validate(&mut errors, spec);
    errors.append(validate::template(at(spec, &["template"]), "spec.template"));
    errors.below(prefix)
}

impl Strategy for CronJob {
    fn default(&self, object: &mut Value) {
        defaults::template_at(object, &["spec", "jobTemplate", "spec", "template"]);
        let Some(spec) = object.get_mut("spec") else { return };
        default_text(spec, "concurrencyPolicy", "Allow");
        default_to(spec, "suspend", false);
        default_to(spec, "successfulJobsHistoryLimit", 3);
        default_to(spec, "failedJobsHistoryLimit", 1);
        if let Some(job) = spec.get_mut("jobTemplate").and_then(|job| job.get_mut("spec")) {
            // The Job made from this gets its counts when it is made.
            for pattern in list_mut(job, &["podFailurePolicy", "rules"]).into_iter().flatten() {
                for condition in list_mut(pattern, &["onPodConditions"]).into_iter().flatten() {
                    default_text(condition, "status", "True");
                }
            }
        }
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        reset_status(object);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let spec = at(object, &["spec"]);
        let schedule = text(spec, &["schedule"]);
        if schedule.is_empty() {
            errors.push(FieldError::required("spec.schedule", ""));
        } else if let Err(problem) = schedule::check(schedule) {
            errors.push(FieldError::invalid("spec.schedule", schedule, problem));
        }
        one_of(
            &mut errors,
            "spec.concurrencyPolicy",
            text(spec, &["concurrencyPolicy"]),
            &["Allow", "Forbid", "Replace"],
        );
        non_negatives(
            &mut errors,
            object,
            &[
                "startingDeadlineSeconds",
                "successfulJobsHistoryLimit",
                "failedJobsHistoryLimit",
            ],
        );
        let mut job = at(spec, &["jobTemplate"]).clone();
        if let Some(inner) = job.get_mut("spec") {
            default_job(inner);
        }
        errors.append(validate_job(&job, "spec.jobTemplate."));
        let chosen = at(&job, &["spec", "selector"]);
        if !chosen.is_null() {
            let why = "`selector` will be auto-generated";
            errors.push(FieldError::invalid_value("spec.jobTemplate.spec.selector", chosen, why));
        }
        if flag(&job, &["spec", "manualSelector"]) {
            let path = "spec.jobTemplate.spec.manualSelector";
            errors.push(FieldError::not_supported(path, true, &["nil", "false"]));
        }
        schedule::time_zone(&mut errors, at(spec, &["timeZone"]));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if subresource == "status" {
            FieldErrors::default()
        } else {
            FieldErrors::of_update(new, old, |object| self.validate(object))
        }
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn name_rule(&self) -> NameRule {
        NameRule::CronJob
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_selects_its_own_pods() {
        let mut job = json!({"metadata": {"name": "j", "uid": "u-1"}, "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}}}});
        Job.default(&mut job);
        let ctx = PrepareContext {
            uid: "u-1",
            now: "2026-01-01T00:00:00Z".parse().expect("a moment"),
        };
        Job.prepare_create(&mut job, &ctx);
        assert_eq!(
            job["spec"]["selector"],
            json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}})
        );
        assert_eq!(job["spec"]["template"]["metadata"]["labels"]["job-name"], "j");
        assert_eq!(job["spec"]["completions"], 1);
        assert_eq!(Job.validate(&job), []);
        let mut other = job.clone();
        other["spec"]["template"]["spec"]["containers"][0]["image"] = json!("x");
        assert_eq!(Job.validate_update(&other, &job, "").len(), 1);
        job["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
        assert_eq!(
            Job.validate(&job)[0].to_string(),
            "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""
        );
    }
}
