//! The node's pages of metrics against upstream's list, without pods and with some.

use anyhow::ensure;
use tests::exposition::{Expected, compare, contract, expected, uncovered};

use crate::cases::pod::delete;
use crate::cluster::{Cluster, NODE};
use crate::wait;

const LIST: &str = include_str!("../../metrics.tsv");
const PAGES: [&str; 4] = ["/metrics", "/metrics/probes", "/metrics/resource", "/metrics/slis"];
/// Names a kubelet contract whose section 13 the list is to cover.
const CONTRACT: &str = "SKIFF_KUBELET_CONTRACT";

fn page(cluster: &Cluster, path: &str) -> anyhow::Result<String> {
    cluster.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy{path}")])
}

/// Everything that is wrong with the node's pages; prints what was found.
fn judge(cluster: &Cluster, list: &[Expected], busy: bool) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for path in PAGES {
        let report = compare(list, path, &page(cluster, path)?, busy);
        println!(
            "--- {path} of {} node: {report}",
            if busy { "a busy" } else { "an idle" }
        );
        findings.extend(report.findings);
    }
    Ok(findings)
}

const PODS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: measured}
data: {colour: blue}
---
apiVersion: v1
kind: Pod
metadata: {name: measured}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: map, configMap: {name: measured}}, {name: scratch, emptyDir: {}}]
  containers:
  - name: web
    image: nginx
    readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}
    resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 100m, memory: 64Mi}}
    resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]
    volumeMounts: [{name: map, mountPath: /map}, {name: scratch, mountPath: /scratch}]
---
apiVersion: v1
kind: Pod
metadata: {name: failing}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: busybox, command: [sh, -c, exit 7], imagePullPolicy: IfNotPresent}]
"#;

/// What is upstream's is there under its name, type, labels and buckets, and nothing else is.
pub(crate) fn metrics(cluster: &Cluster) -> anyhow::Result<()> {
    let list = expected(LIST);
    if let Some(path) = std::env::var_os(CONTRACT) {
        let lacking = uncovered(&contract(&std::fs::read_to_string(path)?), &list);
        ensure!(lacking.is_empty(), "the list lacks what the contract has: {lacking:?}");
    }
    // Of requests to itself the node tells once one has ended.
    page(cluster, "/healthz")?;
    wait::until(60, "pages of an idle node", || {
        let findings = judge(cluster, &list, false)?;
        ensure!(findings.is_empty(), "{}", findings.join("\n"));
        Ok(())
    })?;

    cluster.apply(PODS)?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", "pod/measured"])?;
    wait::until(60, "the end of the other pod", || {
        let phase = cluster.get(&["pod", "failing"], "{.status.phase}")?;
        ensure!(phase == "Failed", "it is {phase}");
        Ok(())
    })?;
    let limits = r#"{"spec":{"containers":[{"name":"web","resources":{"limits":{"cpu":"200m"}}}]}}"#;
    cluster.kubectl(&["patch", "pod", "measured", "--subresource", "resize", "-p", limits])?;
    page(cluster, "/healthz")?;
    wait::until(60, "pages of a busy node", || {
        let findings = judge(cluster, &list, true)?;
        ensure!(findings.is_empty(), "{}", findings.join("\n"));
        let text = page(cluster, "/metrics")?;
        for line in [
            r#"kubelet_terminated_containers_total{container_type="container",exit_code="7",reason="Error"} 1"#,
            r#"kubelet_container_requested_resizes_total{resource="cpu",requirement="limits",operation="increase"} 1"#,
            r#"kubelet_pod_resize_duration_milliseconds_count{success="true"} 1"#,
        ] {
            ensure!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        Ok(())
    })?;
    let text = page(cluster, "/metrics/cadvisor")?;
    for id in ["/", "/kubepods", "/kubepods/burstable", "/kubepods/besteffort"] {
        let id = format!(
            "container_memory_working_set_bytes{{container=\"\",id=\"{}\"",
            cluster_path(cluster, id)
        );
        ensure!(text.contains(&id), "{id} in {text}");
    }
    delete(cluster, "measured")?;
    delete(cluster, "failing")?;
    cluster.kubectl(&["delete", "configmap", "measured"]).map(drop)
}

/// A cgroup of the cluster's pods, which are in one of the tests' own.
fn cluster_path(cluster: &Cluster, path: &str) -> String {
    match path {
        "/" => path.to_owned(),
        path => format!("{}{path}", cluster.cgroup().trim_end_matches('/')),
    }
}
