//! Jobs and CronJobs.

use super::*;

/// A Job as it stands once it was prepared.
fn job(patch: Value) -> Value {
    let mut job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    crate::patch::merge_patch_tree(&mut job, &patch);
    let rules = strategy("batch", "v1", "Job");
    rules.default(&mut job);
    let now = "2026-01-01T00:00:00Z".parse().expect("a moment");
    rules.prepare_create(&mut job, &PrepareContext { uid: "u", now });
    job
}

#[test]
fn job_policies() {
    let rules = strategy("batch", "v1", "Job");
    let failure = |rule: Value| json!({"podFailurePolicy": {"rules": [rule]}});
    let codes = |codes: Value| failure(json!({"action": "FailJob", "onExitCodes": codes}));
    let success =
        |rule: Value| json!({"completionMode": "Indexed", "completions": 5, "successPolicy": {"rules": [rule]}});
    let path = "spec.podFailurePolicy.rules[0]";
    let won = "spec.successPolicy.rules[0]";
    let table: &[(Value, &[&str])] = &[
        (json!({}), &[]),
        (
            codes(json!({"operator": "In", "values": [1, 2], "containerName": "c"})),
            &[],
        ),
        (success(json!({"succeededIndexes": "0,2-4", "succeededCount": 4})), &[]),
        (
            json!({"completionMode": "Indexed", "completions": null, "parallelism": 1}),
            &["spec.completions: Required value: when completion mode is Indexed"],
        ),
        (
            json!({"maxFailedIndexes": 1}),
            &[
                "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
                "spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode",
            ],
        ),
        (
            json!({"completionMode": "Indexed", "completions": 1, "backoffLimitPerIndex": 1, "maxFailedIndexes": 2}),
            &["spec.maxFailedIndexes: Invalid value: 2: must be less than or equal to completions"],
        ),
        (
            json!({"completionMode": "Indexed", "completions": 100_001, "backoffLimitPerIndex": 1, "parallelism": 10_001}),
            &[
                "spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 when completions are above \
                 100000 and used with backoff limit per index",
                "spec.maxFailedIndexes: Required value: must be specified when completions is above 100000",
            ],
        ),
        (
            failure(json!({"action": "X"})),
            &[
                "{path}.action: Unsupported value: \"X\": supported values: \"Count\", \"FailIndex\", \"FailJob\", \
                 \"Ignore\"",
                "{path}: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
            ],
        ),
        (
            failure(json!({"action": "FailIndex", "onPodConditions": [{"type": "a", "status": "Odd"}]})),
            &[
                "{path}.action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set",
                "{path}.onPodConditions[0].status: Unsupported value: \"Odd\": supported values: \"False\", \"True\", \
                 \"Unknown\"",
            ],
        ),
        (
            codes(json!({"operator": "In", "values": [3, 0, 3], "containerName": "x"})),
            &[
                "{path}.onExitCodes.containerName: Invalid value: \"x\": must be one of the container or initContainer \
                 names in the pod template",
                "{path}.onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
                "{path}.onExitCodes.values[2]: Duplicate value: 3",
                "{path}.onExitCodes.values: Invalid value: [3,0,3]: must be ordered",
            ],
        ),
        (
            codes(json!({"values": []})),
            &[
                "{path}.onExitCodes.operator: Required value: valid values: [\"In\" \"NotIn\"]",
                "{path}.onExitCodes.values: Invalid value: []: at least one value is required",
            ],
        ),
        (
            json!({"podReplacementPolicy": "X"}),
            &[
                "spec.podReplacementPolicy: Unsupported value: \"X\": supported values: \"Failed\", \"TerminatingOrFailed\"",
            ],
        ),
        (
            json!({"managedBy": "bad"}),
            &["spec.managedBy: Invalid value: \"bad\": must be a domain-prefixed path (such as \"acme.io/foo\")"],
        ),
        (
            json!({"successPolicy": {"rules": []}}),
            &["spec.successPolicy: Invalid value: {\"rules\":[]}: requires indexed completion mode"],
        ),
        (
            success(json!({})),
            &["{won}: Required value: at least one of succeededCount or succeededIndexes must be specified"],
        ),
        (
            success(json!({"succeededIndexes": "0-x"})),
            &[
                "{won}.succeededIndexes: Invalid value: \"0-x\": error parsing succeededIndexes: cannot convert string to \
               integer for index: \"x\"",
            ],
        ),
        (
            success(json!({"succeededIndexes": "0-5"})),
            &["{won}.succeededIndexes: Invalid value: \"0-5\": error parsing succeededIndexes: too large index: \"5\""],
        ),
        (
            success(json!({"succeededIndexes": "1,0"})),
            &[
                "{won}.succeededIndexes: Invalid value: \"1,0\": error parsing succeededIndexes: non-increasing order, \
               previous: 1, current: 0",
            ],
        ),
        (
            success(json!({"succeededIndexes": "0-2", "succeededCount": 4})),
            &[
                "{won}.succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of indexes in the \
               specified succeededIndexes field)",
            ],
        ),
    ];
    for (patch, want) in table {
        let want: Vec<String> = want
            .iter()
            .map(|line| line.replace("{path}", path).replace("{won}", won))
            .collect();
        assert_eq!(lines(rules.validate(&job(json!({"spec": patch})))), want, "{patch}");
    }
}

#[test]
fn jobs_select_what_was_made_for_them() {
    let rules = strategy("batch", "v1", "Job");
    let own = job(json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}}));
    assert_eq!(
        lines(rules.validate(&own)),
        [
            "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\",\"batch.kubernetes.io/controller-uid\":\"u\"}}: \
             `selector` not auto-generated"
                .to_owned(),
            format!(
                "spec.template.metadata.labels: Invalid value: {}: `selector` does not match template `labels`",
                own["spec"]["template"]["metadata"]["labels"]
            ),
        ]
    );
    let manual = job(json!({"spec": {"manualSelector": true}}));
    assert_eq!(lines(rules.validate(&manual)), ["spec.selector: Required value"]);
    let long = "a".repeat(62);
    let indexed = job(json!({"metadata": {"name": long}, "spec": {"completionMode": "Indexed", "completions": 1}}));
    assert_eq!(
        lines(rules.validate(&indexed)),
        [format!(
            "metadata.name: Invalid value: \"{long}\": will not able to create pod with invalid DNS label: {long}-0"
        )]
    );
    let mut failed = job(json!({}));
    failed["status"] = json!({"failed": -1});
    assert_eq!(
        lines(rules.validate_update(&failed, &job(json!({})), "status")),
        [
            "status.failed: Invalid value: -1: must be greater than or equal to 0",
            "status.failed: Invalid value: -1: cannot decrease the failed counter"
        ]
    );
}

#[test]
fn cron_jobs() {
    let rules = strategy("batch", "v1", "CronJob");
    let base = json!({"spec": {"schedule": "@daily", "timeZone": "Etc/UTC", "jobTemplate": {"spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}});
    let selected = "spec.jobTemplate.spec.selector: Invalid value: {}: `selector` will be auto-generated";
    rows(
        rules,
        &base,
        &[
            (
                json!({"spec": {"jobTemplate": {"spec": {"selector": {}}}}}),
                &[selected],
            ),
            (
                json!({"spec": {"jobTemplate": {"spec": {"manualSelector": true}}}}),
                &[
                    "spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: \"nil\", \"false\"",
                ],
            ),
            (
                json!({"spec": {"timeZone": "a b"}}),
                &["spec.timeZone: Invalid value: \"a b\": unknown time zone a b"],
            ),
            (
                json!({"spec": {"timeZone": "LOCAL"}}),
                &[
                    "spec.timeZone: Invalid value: \"LOCAL\": timeZone must be an explicit time zone as defined in \
                   https://www.iana.org/time-zones",
                ],
            ),
        ],
    );
}
