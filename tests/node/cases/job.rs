//! Jobs and CronJobs, as a person drives them.

use anyhow::ensure;

use crate::cluster::Cluster;
use crate::wait;

const INDEXED: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: indexed}
spec:
  completions: 3
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: c, image: busybox, command: [sh, -c, 'echo "index $JOB_COMPLETION_INDEX of $(hostname)"']}
"#;

const FAILING: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: failing}
spec:
  backoffLimit: 1
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: c, image: busybox, command: [sh, -c, 'exit 3']}
"#;

/// `kubectl create job`, an indexed one that goes by itself, one that fails, a CronJob and a Job made of it by hand.
pub(crate) fn jobs(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.kubectl(&["create", "job", "hello", "--image=busybox", "--", "echo", "hello"])?;
    cluster.kubectl(&["wait", "--for=condition=complete", "--timeout=60s", "job/hello"])?;
    let said = cluster.kubectl(&["logs", "job/hello"])?;
    ensure!(said.trim() == "hello", "{said}");
    let table = cluster.kubectl(&["get", "job", "hello", "--no-headers"])?;
    let words: Vec<&str> = table.split_whitespace().collect();
    ensure!(words[1..3] == ["Complete", "1/1"], "{table}");
    let held = cluster.get(&["pods", "-l", "job-name=hello"], "{.items[*].metadata.finalizers}")?;
    ensure!(held.is_empty(), "held by {held}");

    cluster.apply(INDEXED)?;
    cluster.kubectl(&["wait", "--for=condition=complete", "--timeout=60s", "job/indexed"])?;
    let done = cluster.get(&["job", "indexed"], "{.status.completedIndexes} {.status.succeeded}")?;
    ensure!(done == "0-2 3", "{done}");
    let label = "job-name=indexed,batch.kubernetes.io/job-completion-index=2";
    let said = cluster.kubectl(&["logs", "-l", label])?;
    ensure!(said.trim() == "index 2 of indexed-2", "{said}");
    // Only now: it is looked at first, however long that takes.
    let short = r#"{"spec":{"ttlSecondsAfterFinished":1}}"#;
    cluster.kubectl(&["patch", "job", "indexed", "--type=merge", "-p", short])?;
    wait::until(60, "it goes with its pods when its time has come", || {
        let left = cluster.kubectl(&[
            "get",
            "jobs,pods",
            "-l",
            "job-name=indexed",
            "--no-headers",
            "--ignore-not-found",
        ])?;
        ensure!(left.trim().is_empty(), "{left}");
        Ok(())
    })?;

    cluster.apply(FAILING)?;
    cluster.kubectl(&["wait", "--for=condition=failed", "--timeout=90s", "job/failing"])?;
    let path = r#"{.status.failed} {.status.conditions[?(@.type=="Failed")].reason}"#;
    let failed = cluster.get(&["job", "failing"], path)?;
    ensure!(failed == "2 BackoffLimitExceeded", "{failed}");

    cluster.kubectl(&[
        "create",
        "cronjob",
        "tick",
        "--image=busybox",
        "--schedule=* * * * *",
        "--",
        "echo",
        "tick",
    ])?;
    cluster.kubectl(&["create", "job", "tock", "--from=cronjob/tick"])?;
    cluster.kubectl(&["wait", "--for=condition=complete", "--timeout=60s", "job/tock"])?;
    wait::until(130, "the minute's Job has run", || {
        let last = cluster.get(
            &["cronjob", "tick"],
            "{.status.lastScheduleTime} {.status.lastSuccessfulTime}",
        )?;
        ensure!(last.split_whitespace().count() == 2, "{last:?}");
        let names = cluster.get(&["jobs"], "{.items[*].metadata.name}")?;
        ensure!(
            names.split_whitespace().any(|name| name.starts_with("tick-")),
            "{names}"
        );
        Ok(())
    })?;

    cluster.kubectl(&["delete", "cronjob/tick", "job/hello", "job/failing"])?;
    wait::until(60, "nothing is left", || {
        let left = cluster.kubectl(&["get", "jobs,pods", "--no-headers", "--ignore-not-found"])?;
        ensure!(left.trim().is_empty(), "{left}");
        Ok(())
    })
}
