//! Tables: an object that is right, a change that is not, and exactly what is said of it.

use serde_json::{Value, json};

use super::*;

mod batch;
mod service;

/// The kind of a core or named group, in the version it is stored in.
fn strategy(group: &str, version: &str, kind: &str) -> &'static dyn Strategy {
    &*Registry::built_in()
        .by_gvk(group, version, kind)
        .expect("built in")
        .strategy
}

/// What is said of `base` with `patch` merged in, an error a line as `path: Reason: text`.
fn said(rules: &dyn Strategy, base: &Value, patch: &Value) -> Vec<String> {
    let mut object = base.clone();
    crate::patch::merge_patch_tree(&mut object, patch);
    rules.default(&mut object);
    lines(rules.validate(&object))
}

fn lines(errors: FieldErrors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// Each row is a change and what is said of it; without a change nothing is.
fn rows(rules: &dyn Strategy, base: &Value, rows: &[(Value, &[&str])]) {
    assert!(
        said(rules, base, &json!({})).is_empty(),
        "{:?}",
        said(rules, base, &json!({}))
    );
    for (patch, want) in rows {
        assert_eq!(said(rules, base, patch), *want, "{patch}");
    }
}

#[test]
fn limit_ranges() {
    let rules = strategy("", "v1", "LimitRange");
    let item = |item: Value| json!({"spec": {"limits": [item]}});
    rows(
        rules,
        &item(json!({"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}})),
        &[
            (
                item(json!({"type": "Odd"})),
                &["spec.limits[0].type: Invalid value: \"Odd\": must be a standard limit type or fully qualified"],
            ),
            (
                json!({"spec": {"limits": [{"type": "Pod"}, {"type": "Pod"}]}}),
                &["spec.limits[1].type: Duplicate value: \"Pod\""],
            ),
            (
                item(json!({"type": "Pod", "max": {"cpu": "1"}, "min": {"cpu": "2"}})),
                &["spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1"],
            ),
            (
                item(json!({"type": "Pod", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}})),
                &[
                    "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
                    "spec.limits[0].defaultRequest: Forbidden: may not be specified when `type` is 'Pod'",
                ],
            ),
            (
                item(json!({"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}})),
                &[
                    "spec.limits[0].defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater than default \
               limit value 1",
                ],
            ),
            (
                item(json!({"type": "Container", "default": {"a.b/gpu": "2"}, "defaultRequest": {"a.b/gpu": "1"}})),
                &[
                    "spec.limits[0].defaultRequest[a.b/gpu]: Invalid value: \"1\": default value 2 must equal to defaultRequest \
               value 1 in a.b/gpu",
                ],
            ),
            (
                item(json!({"type": "PersistentVolumeClaim"})),
                &[
                    "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was \
               provided",
                ],
            ),
            (
                item(json!({"type": "Pod", "max": {"pods": "1"}})),
                &["spec.limits[0].max[pods]: Invalid value: \"pods\": must be a standard resource for containers"],
            ),
            (
                item(json!({"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m"}})),
                &["spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1"],
            ),
            (
                item(
                    json!({"type": "Pod", "maxLimitRequestRatio": {"cpu": "3"}, "max": {"cpu": "4"}, "min": {"cpu": "2"}}),
                ),
                &[
                    "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than max/min = 2.000000",
                ],
            ),
        ],
    );
}

#[test]
fn resource_quotas() {
    let rules = strategy("", "v1", "ResourceQuota");
    let spec = |spec: Value| json!({"spec": spec});
    let base = json!({"spec": {"hard": {"pods": "1", "requests.a.b/gpu": "1", "count/jobs.batch": "2"}}});
    rows(
        rules,
        &base,
        &[
            (
                spec(json!({"hard": {"pods": "-1"}})),
                &["spec.hard[pods]: Invalid value: \"-1\": must be greater than or equal to 0"],
            ),
            (
                spec(json!({"hard": {"pods": "1500m"}})),
                &["spec.hard[pods]: Invalid value: \"1500m\": must be an integer"],
            ),
            (
                spec(json!({"hard": {"storage": "1"}})),
                &["spec.hard[storage]: Invalid value: \"storage\": must be a standard resource for quota"],
            ),
            (
                spec(json!({"scopes": ["Odd"]})),
                &["spec.scopes: Invalid value: [\"Odd\"]: unsupported scope"],
            ),
            (
                spec(json!({"scopes": ["Terminating", "NotTerminating"]})),
                &["spec.scopes: Invalid value: [\"Terminating\",\"NotTerminating\"]: conflicting scopes"],
            ),
            (
                spec(json!({"hard": {"configmaps": "1"}, "scopes": ["BestEffort"]})),
                &["spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource"],
            ),
            (
                spec(
                    json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}}),
                ),
                &[
                    "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is \
               'In' or 'NotIn' for scope selector",
                ],
            ),
            (
                spec(
                    json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Odd"}]}}),
                ),
                &[
                    "spec.scopeSelector.matchExpressions.operator: Invalid value: \"Odd\": not a valid selector operator",
                ],
            ),
        ],
    );
    let mut scoped = base.clone();
    scoped["spec"]["scopes"] = json!(["NotBestEffort"]);
    assert_eq!(
        lines(rules.validate_update(&scoped, &base, "")),
        ["spec.scopes: Invalid value: [\"NotBestEffort\"]: field is immutable"]
    );
    let mut counted = base.clone();
    counted["status"] = json!({"used": {"pods": "-1"}});
    assert_eq!(
        lines(rules.validate_update(&counted, &base, "status")),
        ["status.used[pods]: Invalid value: \"-1\": must be greater than or equal to 0"]
    );
}

#[test]
fn controller_revisions() {
    let rules = strategy("apps", "v1", "ControllerRevision");
    let base = json!({"revision": 1, "data": {"a": 1}});
    rows(
        rules,
        &base,
        &[
            (json!({"data": null}), &["data: Required value: data is mandatory"]),
            (
                json!({"revision": -1}),
                &["revision: Invalid value: -1: must be greater than or equal to 0"],
            ),
        ],
    );
    let changed = json!({"revision": 2, "data": {"a": 2}});
    assert_eq!(
        lines(rules.validate_update(&changed, &base, "")),
        ["data: Invalid value: {\"a\":2}: field is immutable"]
    );
}

#[test]
fn autoscalers() {
    let rules = strategy("autoscaling", "v2", "HorizontalPodAutoscaler");
    let base = json!({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3}});
    let metric = |metric: Value| json!({"spec": {"metrics": [metric]}});
    let cpu = |target: Value| json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
    let up = |rules: Value| json!({"spec": {"behavior": {"scaleUp": rules}}});
    let unknown = "spec.metrics[0].type: Unsupported value: \"Bad\": supported values: \"ContainerResource\", \"External\", \
                   \"Object\", \"Pods\", \"Resource\"";
    rows(
        rules,
        &base,
        &[
            (
                json!({"spec": {"scaleTargetRef": {"name": "a/b"}}}),
                &["spec.scaleTargetRef.name: Invalid value: \"a/b\": may not contain '/'"],
            ),
            (metric(json!({"type": "Bad"})), &[unknown, unknown]),
            (
                metric(json!({"type": "Pods"})),
                &["spec.metrics[0].pods: Required value: must populate information for the given metric source"],
            ),
            (
                metric(cpu(json!({"type": "Utilization"}))),
                &[
                    "spec.metrics[0].resource.target.averageUtilization: Required value: must set either a target raw value or a \
               target utilization",
                ],
            ),
            (
                metric(cpu(
                    json!({"type": "Odd", "averageUtilization": 0, "averageValue": "-1"}),
                )),
                &[
                    "spec.metrics[0].resource.target.type: Invalid value: \"Odd\": must be either Utilization, Value, or \
                 AverageValue",
                    "spec.metrics[0].resource.target.averageValue: Invalid value: \"-1\": must be positive",
                    "spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0",
                    "spec.metrics[0].resource.target.averageValue: Forbidden: may not set both a target raw value and a target \
                 utilization",
                ],
            ),
            (
                metric(
                    json!({"type": "Pods", "pods": {"metric": {"name": ""}, "target": {"type": "Value", "value": "1"}},
                "object": null}),
                ),
                &[
                    "spec.metrics[0].pods.metric.name: Required value: must specify a metric name",
                    "spec.metrics[0].pods.target.averageValue: Required value: must specify a positive target averageValue",
                ],
            ),
            (
                metric(json!({"type": "External", "external": {"metric": {"name": "m"},
                "target": {"type": "Value", "value": "1", "averageValue": "1"}}})),
                &[
                    "spec.metrics[0].external.target.value: Forbidden: may not set both a target value for metric and a per-pod \
               target",
                ],
            ),
            (
                metric(json!({"type": "ContainerResource", "containerResource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 1}}, "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 1}}})),
                &["spec.metrics[0].resource: Forbidden: must populate the given metric source only"],
            ),
            (
                up(json!({"policies": []})),
                &["spec.behavior.scaleUp.policies: Required value: must specify at least one Policy"],
            ),
            (
                up(json!({"stabilizationWindowSeconds": 3601, "selectPolicy": "Odd"})),
                &[
                    "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
                    "spec.behavior.scaleUp.selectPolicy: Unsupported value: \"Odd\": supported values: \"Disabled\", \"Max\", \
                 \"Min\"",
                ],
            ),
            (
                up(json!({"policies": [{"type": "Odd", "value": 0, "periodSeconds": 1801}], "tolerance": "-1"})),
                &[
                    "spec.behavior.scaleUp.tolerance: Invalid value: \"-1\": must be greater than or equal to 0",
                    "spec.behavior.scaleUp.policies[0].type: Unsupported value: \"Odd\": supported values: \"Percent\", \"Pods\"",
                    "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
                    "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
                ],
            ),
        ],
    );
    let mut scaled = base.clone();
    scaled["status"] = json!({"desiredReplicas": -1});
    assert_eq!(
        lines(rules.validate_update(&scaled, &base, "status")),
        ["status.desiredReplicas: Invalid value: -1: must be greater than or equal to 0"]
    );
}

#[test]
fn disruption_budgets() {
    let rules = strategy("policy", "v1", "PodDisruptionBudget");
    let base = json!({"spec": {"selector": {}, "minAvailable": 1}});
    rows(
        rules,
        &base,
        &[
            (
                json!({"spec": {"minAvailable": "150%"}}),
                &["spec.minAvailable: Invalid value: \"150%\": must not be greater than 100%"],
            ),
            (
                json!({"spec": {"unhealthyPodEvictionPolicy": "Odd"}}),
                &[
                    "spec.unhealthyPodEvictionPolicy: Unsupported value: \"Odd\": supported values: \"AlwaysAllow\", \
               \"IfHealthyBudget\"",
                ],
            ),
        ],
    );
    let mut counted = base.clone();
    counted["status"] = json!({"expectedPods": -1});
    assert_eq!(
        lines(rules.validate_update(&counted, &base, "status")),
        ["status.expectedPods: Invalid value: -1: must be greater than or equal to 0"]
    );
}
