//! What is wrong with a Job's next status: any controller may write one (`spec.managedBy`), and readers rely on its steps. Texts are
//! upstream's. Pure.
//!
//! A rule is asked only about what the write changes: what is stored already, or what a change of the spec has made of it, stays in
//! nobody's way.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::policy::intervals;
use crate::resource::field::{at, flag, int, list, non_negative, text};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};

const CONDITIONS: &str = "status.conditions";
const COMPLETED: &str = "status.completedIndexes";
const FAILED: &str = "status.failedIndexes";

/// Conditions that end a Job, or announce its end.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ends {
    complete: bool,
    failed: bool,
    target: bool,
    met: bool,
}

impl Ends {
    fn of(job: &Value) -> Self {
        let conditions = list(job, &["status", "conditions"]);
        let is_true = |kind: &str| {
            let found = conditions.iter().find(|condition| text(condition, &["type"]) == kind);
            found.is_some_and(|condition| text(condition, &["status"]) == "True")
        };
        Self {
            complete: is_true("Complete"),
            failed: is_true("Failed"),
            target: is_true("FailureTarget"),
            met: is_true("SuccessCriteriaMet"),
        }
    }

    fn is_finished(self) -> bool {
        self.complete || self.failed
    }
}

/// One write of a status.
struct Step<'a> {
    new: &'a Value,
    old: &'a Value,
    ends: Ends,
    before: Ends,
    errors: FieldErrors,
}

/// Everything wrong with the step from one status to the next.
pub(super) fn validate_update(new: &Value, old: &Value) -> FieldErrors {
    let mut step = Step {
        new,
        old,
        ends: Ends::of(new),
        before: Ends::of(old),
        errors: FieldErrors::of_update(new, old, numbers),
    };
    step.ends();
    step.finished();
    step.indexes();
    step.criteria();
    step.backwards();
    step.errors
}

/// What is wrong with counts, and with the pods that are not counted yet.
fn numbers(job: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    for key in ["active", "succeeded", "failed", "ready", "terminating"] {
        non_negative(&mut errors, at(job, &["status"]), "status", key);
    }
    let mut seen = BTreeSet::new();
    for key in ["succeeded", "failed"] {
        let uncounted = list(job, &["status", "uncountedTerminatedPods", key]);
        for (i, uid) in uncounted.iter().map(|uid| uid.as_str().unwrap_or_default()).enumerate() {
            let path = format!("status.uncountedTerminatedPods.{key}[{i}]");
            if uid.is_empty() {
                errors.push(FieldError::invalid(path, uid, "must not be empty"));
            } else if !seen.insert(uid) {
                errors.push(FieldError::new(path, FieldErrorKind::Duplicate, json!(uid), ""));
            }
        }
    }
    errors
}

impl Step<'_> {
    fn status(&self, key: &str) -> &Value {
        at(self.new, &["status", key])
    }

    fn number(&self, key: &str) -> i64 {
        int(self.new, &["status", key]).unwrap_or(0)
    }

    fn has_changed(&self, key: &str) -> bool {
        self.status(key) != at(self.old, &["status", key])
    }

    fn number_has_changed(&self, key: &str) -> bool {
        self.number(key) != int(self.old, &["status", key]).unwrap_or(0)
    }

    fn refuse(&mut self, is_wrong: bool, why: &str) {
        if is_wrong {
            self.errors.push(FieldError::invalid_unshown(CONDITIONS, why));
        }
    }

    fn refuse_value(&mut self, is_wrong: bool, key: &str, why: &str) {
        if is_wrong {
            let value = self.status(key).clone();
            self.errors
                .push(FieldError::invalid_value(format!("status.{key}"), &value, why));
        }
    }

    /// Conditions that contradict each other, and the time that goes with them.
    fn ends(&mut self) {
        let (ends, before) = (self.ends, self.before);
        let complete = ends.complete != before.complete;
        let both = (complete || ends.failed != before.failed) && ends.complete && ends.failed;
        self.refuse(both, "cannot set Complete=True and Failed=true conditions");
        let both = (complete || ends.target != before.target) && ends.complete && ends.target;
        self.refuse(both, "cannot set Complete=True and FailureTarget=true conditions");
        let (start, end) = (self.status("startTime").clone(), self.status("completionTime").clone());
        let end_changed = self.has_changed("completionTime");
        if complete || end_changed {
            let why = "cannot set completionTime when there is no Complete=True condition";
            self.refuse_value(!end.is_null() && !ends.complete, "completionTime", why);
            if end.is_null() && ends.complete {
                let why = "completionTime is required for Complete jobs";
                self.errors.push(FieldError::required("status.completionTime", why));
            }
        }
        let time = |value: &Value| value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let is_early = matches!((time(&start), time(&end)), (Some(start), Some(end)) if end < start);
        let is_early = is_early && (end_changed || self.has_changed("startTime"));
        let why = "completionTime cannot be set before startTime";
        self.refuse_value(is_early, "completionTime", why);
        let alone = (ends.failed, ends.target) != (before.failed, before.target) && ends.failed && !ends.target;
        self.refuse(
            alone,
            "cannot set Failed=True condition without the FailureTarget=true condition",
        );
        let alone = (ends.complete, ends.met) != (before.complete, before.met) && ends.complete && !ends.met;
        self.refuse(
            alone,
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        );
    }

    /// What a Job that is over may not have, and must.
    fn finished(&mut self) {
        let is_over = self.ends.is_finished();
        let is_news = is_over != self.before.is_finished();
        let active = is_over && self.number("active") > 0 && (is_news || self.number_has_changed("active"));
        self.refuse_value(active, "active", "active>0 is invalid for finished job");
        // One that ends while it is suspended has none.
        let lacks_start = is_over && self.status("startTime").is_null() && !flag(self.new, &["spec", "suspend"]);
        if lacks_start && (is_news || self.has_changed("startTime")) {
            let why = "startTime is required for finished job";
            self.errors.push(FieldError::required("status.startTime", why));
        }
        let lists =
            ["succeeded", "failed"].map(|key| list(self.new, &["status", "uncountedTerminatedPods", key]).len());
        let uncounted = is_over && lists != [0, 0] && (is_news || self.has_changed("uncountedTerminatedPods"));
        let why = "uncountedTerminatedPods needs to be empty for finished job";
        self.refuse_value(uncounted, "uncountedTerminatedPods", why);
    }

    fn indexes(&mut self) {
        let is_new = ["completedIndexes", "failedIndexes"].map(|key| self.has_changed(key));
        let (completed, failed) = (self.status("completedIndexes"), self.status("failedIndexes"));
        let (completed_text, failed_text) = (completed.as_str().unwrap_or_default(), failed.as_str());
        let per_index = !at(self.new, &["spec", "backoffLimitPerIndex"]).is_null();
        let is_indexed = text(self.new, &["spec", "completionMode"]) == "Indexed";
        let completions = int(self.new, &["spec", "completions"]);
        let read = |text: &str| completions.map(|completions| intervals(text, completions));
        let (done, lost) = (read(completed_text), failed_text.and_then(read));
        let mut found = Vec::new();
        if let (Some(Err(problem)), [true, _]) = (&done, is_new) {
            let why = format!("error parsing completedIndexes: {problem}");
            found.push(FieldError::invalid_value(COMPLETED, completed, why));
        }
        if let (Some(Err(problem)), [_, true], true) = (&lost, is_new, per_index) {
            let why = format!("error parsing failedIndexes: {problem}");
            found.push(FieldError::invalid_value(FAILED, failed, why));
        }
        if is_new[0] && !completed_text.is_empty() && !is_indexed {
            let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
            found.push(FieldError::invalid_value(COMPLETED, completed, why));
        }
        if is_new[1] && !per_index && failed_text.is_some() {
            let why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            found.push(FieldError::invalid_value(FAILED, failed, why));
        }
        if let (Some(Ok(done)), Some(Ok(lost)), true) = (&done, &lost, is_new != [false; 2])
            && let Some(index) = common(done, lost)
        {
            let why = format!("failedIndexes and completedIndexes overlap at index: {index}");
            found.push(FieldError::invalid_value(FAILED, failed, why));
        }
        self.errors.extend(found);
    }

    /// Pods that cannot be, and what announces success.
    fn criteria(&mut self) {
        let (ends, is_news) = (self.ends, self.ends.is_finished() != self.before.is_finished());
        let terminating = ends.is_finished() && self.number("terminating") > 0;
        let terminating = terminating && (is_news || self.number_has_changed("terminating"));
        self.refuse_value(terminating, "terminating", "terminating>0 is invalid for finished job");
        let more = self.number("ready") > self.number("active");
        let more = more && (self.number_has_changed("ready") || self.number_has_changed("active"));
        self.refuse_value(more, "ready", "cannot set more ready pods than active");
        if ends == self.before {
            return;
        }
        let why = "cannot set SuccessCriteriaMet=True and Failed=true conditions";
        self.refuse(ends.met && ends.failed, why);
        let why = "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions";
        self.refuse(ends.met && ends.target, why);
    }

    /// What cannot be taken back.
    fn backwards(&mut self) {
        let (ends, before) = (self.ends, self.before);
        for (kind, was, is) in [
            ("Failed", before.failed, ends.failed),
            ("Complete", before.complete, ends.complete),
            ("FailureTarget", before.target, ends.target),
        ] {
            let why = format!("cannot disable the terminal {kind}=True condition");
            self.refuse(was && !is, &why);
        }
        let less = |key: &str| self.number(key) < int(self.old, &["status", key]).unwrap_or(0);
        let (less_failed, less_succeeded) = (less("failed"), less("succeeded"));
        self.refuse_value(less_failed, "failed", "cannot decrease the failed counter");
        // An indexed Job whose two numbers are one may have got smaller.
        let spec = |key: &str| at(self.new, &["spec", key]);
        let is_elastic =
            text(self.new, &["spec", "completionMode"]) == "Indexed" && spec("completions") == spec("parallelism");
        let why = "cannot decrease the succeeded counter";
        self.refuse_value(less_succeeded && !is_elastic, "succeeded", why);
        let was = |key: &str| !at(self.old, &["status", key]).is_null();
        let moved =
            was("completionTime") && !self.status("completionTime").is_null() && self.has_changed("completionTime");
        let restarted = was("startTime") && self.has_changed("startTime") && !flag(self.new, &["spec", "suspend"]);
        self.refuse_value(moved, "completionTime", "completionTime cannot be mutated");
        if restarted {
            let why = "startTime cannot be removed for unsuspended job";
            self.errors.push(FieldError::required("status.startTime", why));
        }
        self.refuse(
            before.met && !ends.met,
            "cannot disable the SuccessCriteriaMet=True condition",
        );
        let late = before.complete && !before.met && ends.met;
        let why = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        self.refuse(late, why);
    }
}

/// The first index that both have.
fn common(one: &[(i64, i64)], other: &[(i64, i64)]) -> Option<i64> {
    let (mut a, mut b) = (one.iter().peekable(), other.iter().peekable());
    while let (Some(left), Some(right)) = (a.peek(), b.peek()) {
        let (first, last) = (left.0.max(right.0), left.1.min(right.1));
        if first <= last {
            return Some(first);
        }
        if left.1 < right.1 {
            a.next();
        } else {
            b.next();
        }
    }
    None
}

#[cfg(test)]
mod tests;
