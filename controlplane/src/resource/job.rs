//! Jobs and CronJobs. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::field::{
    at, copy, default_text, default_to, flag, immutable, int, list, list_mut, object_mut, one_of, set, text,
};
use super::pod_spec::{defaults, validate};
use super::template::non_negatives;
use super::{NameRule, PrepareContext, Strategy, reset_status};
use crate::resource::field_error::{FieldError, FieldErrors};

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
        if at(object, &["spec", "selector"]).is_null() {
            set(
                object,
                &["spec", "selector"],
                json!({"matchLabels": {CONTROLLER_UID: ctx.uid}}),
            );
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        validate_job(object, "")
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if subresource == "status" {
            return FieldErrors::default();
        }
        let mut errors = FieldErrors::of_update(new, old, |job| validate_job(job, ""));
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
    let rules = list(spec, &["podFailurePolicy", "rules"]).len();
    if rules > 20 {
        errors.push(FieldError::new(
            "spec.podFailurePolicy.rules",
            crate::resource::field_error::FieldErrorKind::TooMany,
            json!(rules),
            "must have at most 20 items",
        ));
    }
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
        } else if let Err(problem) = check_schedule(schedule) {
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

/// Whether a text has the form of a schedule: five fields in range, or one of the `@` words.
fn check_schedule(text: &str) -> Result<(), String> {
    if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
        return Err("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    if let Some(word) = text.strip_prefix('@') {
        let every = word.strip_prefix("every ").is_some_and(|rest| !rest.is_empty());
        let known = ["yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly"];
        if every || known.contains(&word) {
            return Ok(());
        }
        return Err(format!("unrecognized descriptor: {text}"));
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != 5 {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        ));
    }
    let months = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ];
    let days = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    let ranges: [(u32, u32, &[&str]); 5] = [
        (0, 59, &[]),
        (0, 23, &[]),
        (1, 31, &[]),
        (1, 12, &months),
        (0, 7, &days),
    ];
    for (field, (low, high, names)) in fields.iter().zip(ranges) {
        for part in field.split(',') {
            check_part(part, low, high, names)?;
        }
    }
    Ok(())
}

fn check_part(part: &str, low: u32, high: u32, names: &[&str]) -> Result<(), String> {
    let (range, step) = match part.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (part, None),
    };
    if let Some(step) = step
        && !step.parse::<u32>().is_ok_and(|step| step > 0)
    {
        return Err(format!("step of range should be a positive number: {part}"));
    }
    if range == "*" || range == "?" {
        return Ok(());
    }
    let bound = |text: &str| {
        let named = names.iter().position(|name| text.eq_ignore_ascii_case(name));
        let number = match named {
            Some(i) => u32::try_from(i).ok().map(|i| i + u32::from(names.len() == 12)),
            None => text.parse().ok(),
        };
        number.ok_or_else(|| format!("failed to parse int from {text}"))
    };
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (bound(first)?, bound(last)?),
        None => (bound(range)?, bound(range)?),
    };
    if first < low || last > high {
        return Err(format!("{part}: outside of the range ({low} to {high})"));
    }
    if first > last {
        return Err(format!(
            "beginning of range ({first}) beyond end of range ({last}): {part}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for (text, good) in [
            ("*/5 * * * *", true),
            ("0 9-17 * jan mon-fri", true),
            ("@daily", true),
            ("@every 1h", true),
            ("@sometimes", false),
            ("* * * *", false),
            ("60 * * * *", false),
            ("5-1 * * * *", false),
            ("*/0 * * * *", false),
            ("TZ=UTC 0 0 * * *", false),
        ] {
            assert_eq!(check_schedule(text).is_ok(), good, "{text}");
        }
    }

    #[test]
    fn a_job_selects_its_own_pods() {
        let mut job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "busybox"}]}}}});
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
