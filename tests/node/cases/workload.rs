//! Deployments, as a person drives them.

use std::time::Instant;

use anyhow::{Context, ensure};

use crate::cluster::{Cluster, NODE};
use crate::command::{Background, succeed};
use crate::wait;

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: nginx
        image: nginx:latest
        ports: [{containerPort: 80}]
        readinessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 1}
"#;

/// `hack/up` again: nothing is restarted.
pub(crate) fn up_twice(cluster: &Cluster) -> anyhow::Result<()> {
    let pids = || ["kubelet", "controlplane", "containerd"].map(|component| cluster.pid(component).ok());
    let before = pids();
    ensure!(before.iter().all(Option::is_some), "{before:?}");
    cluster.up()?;
    ensure!(before == pids(), "restarted: {before:?}, then {:?}", pids());
    Ok(())
}

/// The runtime is the one asked for: `SKIFF_CONTAINERD`'s or the machine's own.
pub(crate) fn runtime_version(cluster: &Cluster) -> anyhow::Result<()> {
    let program = std::env::var_os("SKIFF_CONTAINERD").map_or_else(
        || "containerd".into(),
        |directory| std::path::Path::new(&directory).join("containerd"),
    );
    let mut command = std::process::Command::new(program);
    command.arg("--version");
    // "containerd PACKAGE VERSION REVISION"
    let words = succeed(command, None)?;
    let version = words.split_whitespace().nth(2).context("a version")?.to_owned();
    let reported = cluster.get(&["node", NODE], "{.status.nodeInfo.containerRuntimeVersion}")?;
    ensure!(
        reported == format!("containerd://{version}"),
        "the node says {reported}"
    );
    println!("runtime: {reported}");
    Ok(())
}

/// `kubectl create deployment`: three pods, each answers on its address; the time is printed.
pub(crate) fn deployment_answers(cluster: &Cluster) -> anyhow::Result<()> {
    let begin = Instant::now();
    cluster.kubectl(&["create", "deployment", "nginx", "--image=nginx", "--replicas=3"])?;
    cluster.kubectl(&["wait", "--for=condition=Available", "--timeout=60s", "deployment/nginx"])?;
    println!(
        "create deployment to Available, three pods: {} ms",
        begin.elapsed().as_millis()
    );
    for address in addresses(cluster, "app=nginx", 3)? {
        let page = cluster.page(&address)?;
        ensure!(page.contains("Welcome to nginx"), "{address} answers {page}");
    }
    let table = cluster.kubectl(&["get", "deployment", "nginx", "--no-headers"])?;
    ensure!(table.split_whitespace().nth(1) == Some("3/3"), "{table}");
    delete(cluster, "nginx", "app=nginx")
}

/// `kubectl apply -f` while `kubectl get -w` looks on.
pub(crate) fn apply_and_watch(cluster: &Cluster) -> anyhow::Result<()> {
    let watch = Background::start(cluster.kubectl_command(&["get", "pods", "-w"]))?;
    cluster.apply(DEPLOYMENT)?;
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"])?;
    wait::until(60, "get -w shows three pods becoming ready", || {
        let output = watch.output()?;
        let ready = |line: &&str| line.starts_with("web-") && line.contains("1/1") && line.contains("Running");
        ensure!(output.lines().filter(ready).count() >= 3, "{output}");
        Ok(())
    })?;
    let again = cluster.apply(DEPLOYMENT)?;
    ensure!(again.contains("deployment.apps/web unchanged"), "{again}");
    delete(cluster, "web", "app=web")?;
    wait::until(60, "get -w has shown the end", || {
        let output = watch.output()?;
        ensure!(output.contains("Terminating"), "{output}");
        Ok(())
    })
}

/// Three replicas, five, two.
pub(crate) fn scale(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.apply(DEPLOYMENT)?;
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"])?;
    for replicas in [5, 2] {
        cluster.kubectl(&["scale", "deployment/web", &format!("--replicas={replicas}")])?;
        addresses(cluster, "app=web", replicas)?;
        cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"])?;
    }
    delete(cluster, "web", "app=web")
}

/// `kubectl set image`: every pod gives the second image's page, and never fewer than allowed were available.
pub(crate) fn rolling_update(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.apply(DEPLOYMENT)?;
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"])?;
    cluster.kubectl(&["set", "image", "deployment/web", "nginx=nginx:1.22-alt"])?;
    // maxUnavailable is 25 % of three, rounded down: none.
    wait::until(90, "the update is complete", || {
        let status = cluster.get(
            &["deployment/web"],
            "{.status.observedGeneration} {.metadata.generation} {.status.updatedReplicas} {.status.replicas} {.status.availableReplicas}",
        )?;
        let numbers: Vec<u64> = status
            .split(' ')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .context(status.clone())?;
        ensure!(numbers.len() == 5, "{status}");
        if numbers[4] < 3 {
            panic!("{} pods are available during the update, not 3", numbers[4]);
        }
        ensure!(numbers[0] == numbers[1] && numbers[2..] == [3, 3, 3], "{status}");
        Ok(())
    })?;
    for address in addresses(cluster, "app=web", 3)? {
        let page = cluster.page(&address)?;
        ensure!(page.contains("alternative page"), "{address} answers {page}");
    }
    let sets = cluster.get(&["replicasets", "-l", "app=web"], "{.items[*].spec.replicas}")?;
    let mut sets: Vec<_> = sets.split(' ').collect();
    sets.sort_unstable();
    ensure!(sets == ["0", "3"], "{sets:?}");
    cluster.kubectl(&["rollout", "undo", "deployment/web"])?;
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"])?;
    for address in addresses(cluster, "app=web", 3)? {
        let page = cluster.page(&address)?;
        ensure!(
            !page.contains("alternative page"),
            "after undo {address} answers {page}"
        );
    }
    delete(cluster, "web", "app=web")
}

/// The addresses of the pods a label selects, once exactly `count` are there and all are ready.
pub(crate) fn addresses(cluster: &Cluster, label: &str, count: usize) -> anyhow::Result<Vec<String>> {
    wait::until(60, "the pods are there, ready and have addresses", || {
        let path = r#"{range .items[*]}{.status.podIP} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}"#;
        let text = cluster.get(&["pods", "-l", label], path)?;
        let pods: Vec<_> = text.lines().filter_map(|line| line.split_once(' ')).collect();
        ensure!(
            pods.len() == count && text.lines().count() == count,
            "want {count} pods: {text:?}"
        );
        ensure!(
            pods.iter()
                .all(|(address, ready)| !address.is_empty() && *ready == "True"),
            "{text:?}"
        );
        let mut addresses: Vec<_> = pods.iter().map(|(address, _)| (*address).to_owned()).collect();
        addresses.sort();
        addresses.dedup();
        ensure!(addresses.len() == count, "an address twice: {text:?}");
        Ok(addresses)
    })
}

/// Deletes a deployment and waits until its replica sets and pods are gone too.
pub(crate) fn delete(cluster: &Cluster, name: &str, label: &str) -> anyhow::Result<()> {
    cluster.kubectl(&["delete", "deployment", name])?;
    wait::until(60, "replica sets and pods are gone", || {
        let left = cluster.kubectl(&[
            "get",
            "replicasets,pods",
            "-l",
            label,
            "--no-headers",
            "--ignore-not-found",
        ])?;
        ensure!(left.trim().is_empty(), "{left}");
        Ok(())
    })
}
