//! Rows of Jobs, CronJobs, autoscalers and disruption budgets. Pure.

use jiff::Timestamp;
use serde_json::Value;

use super::apps::template;
use super::format::{age, containers, count, human_duration, moment, name, or, selector, since, title_bool};
use super::{AGE, NAME, Printer, column, integer, wide};
use crate::resource::field::{at, flag, int, list, text};

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "Job" => JOB,
        "CronJob" => CRON_JOB,
        "HorizontalPodAutoscaler" => AUTOSCALER,
        "PodDisruptionBudget" => BUDGET,
        _ => return None,
    })
}

const JOB: Printer = Printer {
    columns: &[
        NAME,
        column("Status"),
        column("Completions"),
        column("Duration"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: |job, now| {
        let mut cells = vec![
            name(job),
            Value::from(job_status(job)),
            Value::from(completions(job)),
            Value::from(duration(job, now)),
            age(job, now),
        ];
        cells.extend(template(job));
        cells
    },
};

fn job_status(job: &Value) -> &'static str {
    let has = |kind: &str| {
        list(job, &["status", "conditions"])
            .iter()
            .any(|condition| text(condition, &["type"]) == kind && text(condition, &["status"]) == "True")
    };
    if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if !at(job, &["metadata", "deletionTimestamp"]).is_null() {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn completions(job: &Value) -> String {
    let done = int(job, &["status", "succeeded"]).unwrap_or(0);
    if let Some(wanted) = int(job, &["spec", "completions"]) {
        return format!("{done}/{wanted}");
    }
    match int(job, &["spec", "parallelism"]).unwrap_or(0) {
        parallelism if parallelism > 1 => format!("{done}/1 of {parallelism}"),
        _ => format!("{done}/1"),
    }
}

fn duration(job: &Value, now: Timestamp) -> String {
    let Some(start) = moment(at(job, &["status", "startTime"])) else {
        return String::new();
    };
    let end = moment(at(job, &["status", "completionTime"])).unwrap_or(now);
    human_duration(end.duration_since(start).as_secs())
}

const CRON_JOB: Printer = Printer {
    columns: &[
        NAME,
        column("Schedule"),
        column("Timezone"),
        column("Suspend"),
        integer("Active"),
        column("Last Schedule"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: |job, now| {
        let last = at(job, &["status", "lastScheduleTime"]);
        let inner = at(job, &["spec", "jobTemplate", "spec"]);
        let [names, images] = containers(at(inner, &["template", "spec"]));
        vec![
            name(job),
            Value::from(text(job, &["spec", "schedule"])),
            or(text(job, &["spec", "timeZone"]), "<none>"),
            title_bool(flag(job, &["spec", "suspend"])),
            Value::from(list(job, &["status", "active"]).len()),
            Value::from(if last.is_null() {
                "<none>".to_owned()
            } else {
                since(last, now)
            }),
            age(job, now),
            names,
            images,
            selector(at(inner, &["selector"])),
        ]
    },
};

const AUTOSCALER: Printer = Printer {
    columns: &[
        NAME,
        column("Reference"),
        column("Targets"),
        column("MinPods"),
        integer("MaxPods"),
        integer("Replicas"),
        AGE,
    ],
    cells: |scaler, now| {
        let target = at(scaler, &["spec", "scaleTargetRef"]);
        let min = int(scaler, &["spec", "minReplicas"]);
        vec![
            name(scaler),
            Value::from(format!("{}/{}", text(target, &["kind"]), text(target, &["name"]))),
            Value::from(targets(scaler)),
            Value::from(min.map_or("<unset>".to_owned(), |min| min.to_string())),
            count(scaler, &["spec", "maxReplicas"]),
            count(scaler, &["status", "currentReplicas"]),
            age(scaler, now),
        ]
    },
};

/// `cpu: 10%/80%`, one per metric, the first two shown.
fn targets(scaler: &Value) -> String {
    let metrics = list(scaler, &["spec", "metrics"]);
    let current = list(scaler, &["status", "currentMetrics"]);
    let mut texts: Vec<String> = metrics
        .iter()
        .enumerate()
        .map(|(i, metric)| target(metric, current.get(i)))
        .collect();
    if texts.is_empty() {
        return "<none>".to_owned();
    }
    let more = texts.len().saturating_sub(2);
    texts.truncate(2);
    let shown = texts.join(", ");
    if more > 0 {
        format!("{shown} + {more} more...")
    } else {
        shown
    }
}

fn target(metric: &Value, current: Option<&Value>) -> String {
    let key = match text(metric, &["type"]) {
        "Pods" => "pods",
        "Object" => "object",
        "External" => "external",
        "ContainerResource" => "containerResource",
        "Resource" => "resource",
        _ => return "<unknown type>".to_owned(),
    };
    let wanted = at(metric, &[key, "target"]);
    let found = current.map_or(&Value::Null, |current| at(current, &[key, "current"]));
    let side = |value: &Value| {
        if let Some(percent) = int(value, &["averageUtilization"]) {
            return Some(format!("{percent}%"));
        }
        ["averageValue", "value"]
            .iter()
            .map(|key| text(value, &[key]))
            .find(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let unknown = || "<unknown>".to_owned();
    let pair = format!(
        "{}/{}",
        side(found).unwrap_or_else(unknown),
        side(wanted).unwrap_or_else(unknown)
    );
    match text(metric, &[key, "name"]) {
        "" => pair,
        name => format!("{name}: {pair}"),
    }
}

const BUDGET: Printer = Printer {
    columns: &[
        NAME,
        column("Min Available"),
        column("Max Unavailable"),
        integer("Allowed Disruptions"),
        AGE,
    ],
    cells: |budget, now| {
        let bound = |key: &str| match at(budget, &["spec", key]) {
            Value::Null => Value::from("N/A"),
            Value::String(text) => Value::from(text.as_str()),
            number => Value::from(number.to_string()),
        };
        vec![
            name(budget),
            bound("minAvailable"),
            bound("maxUnavailable"),
            count(budget, &["status", "disruptionsAllowed"]),
            age(budget, now),
        ]
    },
};
