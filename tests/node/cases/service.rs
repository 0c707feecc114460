//! Services as their users see them: by name, by address, by port of the node; and who may not reach a pod.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};

use crate::cases::pod;
use crate::cases::workload::{addresses, delete};
use crate::cluster::Cluster;
use crate::command::succeed;
use crate::wait;

/// Answers each request with the name of the pod.
const NAMED: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: named}
spec:
  replicas: 3
  selector: {matchLabels: {app: named}}
  template:
    metadata: {labels: {app: named}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: c
        image: busybox
        imagePullPolicy: IfNotPresent
        command: [sh, -c, "mkdir /www && hostname > /www/index.html && exec httpd -f -p 8080 -h /www"]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: named}
spec:
  type: NodePort
  selector: {app: named}
  ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30080}]
---
apiVersion: v1
kind: Service
metadata: {name: sticky}
spec:
  selector: {app: named}
  sessionAffinity: ClientIP
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: headless}
spec:
  clusterIP: None
  selector: {app: named}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: elsewhere}
spec: {type: ExternalName, externalName: named.default.svc.cluster.local}
"#;

/// Who asks.
pub(crate) const CLIENT: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: client, labels: {role: client}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "100000"]}
"#;

/// What a pod's `wget` gets.
pub(crate) fn fetch(cluster: &Cluster, from: &str, url: &str) -> anyhow::Result<String> {
    let page = cluster.kubectl(&["exec", from, "--", "wget", "-T", "5", "-qO-", url])?;
    Ok(page.trim().to_owned())
}

/// Everybody who answers there is one of `wanted`, and all of them do.
pub(crate) fn answered_by(cluster: &Cluster, url: &str, wanted: &BTreeSet<String>) -> anyhow::Result<()> {
    let mut seen = BTreeSet::new();
    wait::until(30, "every endpoint answers", || {
        let name = fetch(cluster, "client", url)?;
        // What is no endpoint must never answer: that is no reason to wait.
        assert!(wanted.contains(&name), "{url}: {name:?} answers, not one of {wanted:?}");
        seen.insert(name);
        ensure!(seen == *wanted, "{url}: {seen:?} of {wanted:?}");
        Ok(())
    })
}

fn pods(cluster: &Cluster) -> anyhow::Result<BTreeSet<String>> {
    let names = cluster.get(&["pods", "-l", "app=named"], "{.items[*].metadata.name}")?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

fn cluster_ip(cluster: &Cluster, service: &str) -> anyhow::Result<String> {
    cluster.get(&["service", service], "{.spec.clusterIP}")
}

fn begin(cluster: &Cluster) -> anyhow::Result<BTreeSet<String>> {
    cluster.apply(NAMED)?;
    pod::run_and_wait(cluster, "client", CLIENT)?;
    let wait = ["rollout", "status", "deployment/named", "--timeout=60s"];
    cluster.kubectl(&wait)?;
    pods(cluster)
}

fn end(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.kubectl(&["delete", "service", "named", "sticky", "headless", "elsewhere"])?;
    pod::delete(cluster, "client")?;
    delete(cluster, "named", "app=named")
}

/// By name, by address and by port of the node every endpoint answers, from pods and from the node; who stays with one endpoint
/// stays; nobody is led to what is gone.
pub(crate) fn services(cluster: &Cluster) -> anyhow::Result<()> {
    let names = begin(cluster)?;
    ensure!(names.len() == 3, "{names:?}");
    let address = cluster_ip(cluster, "named")?;
    let node = cluster.get(&["pod", "client"], "{.status.hostIP}")?;
    for url in [
        "http://named",
        "http://named.default.svc.cluster.local",
        "http://elsewhere",
        &format!("http://{address}"),
        &format!("http://{node}:30080"),
    ] {
        answered_by(cluster, url, &names).with_context(|| url.to_owned())?;
    }
    ensure!(names.contains(cluster.page(&address)?.trim()), "the node itself");
    // Which of a name's addresses is tried first is the client's choice.
    let headless = fetch(cluster, "client", "http://headless:8080")?;
    ensure!(names.contains(&headless), "{headless:?}");
    let first = fetch(cluster, "client", "http://sticky")?;
    for _ in 0..10 {
        let next = fetch(cluster, "client", "http://sticky")?;
        ensure!(next == first, "{first}, then {next}");
    }
    cluster.kubectl(&["scale", "deployment/named", "--replicas=1"])?;
    let left = wait::until(60, "one pod is left", || {
        let left = pods(cluster)?;
        ensure!(left.len() == 1, "{left:?}");
        Ok(left)
    })?;
    wait::until(30, "the others are not asked any more", || {
        let seen: Vec<_> = (0..6)
            .map(|_| fetch(cluster, "client", "http://named"))
            .collect::<anyhow::Result<_>>()?;
        ensure!(seen.iter().all(|name| left.contains(name)), "{seen:?}");
        Ok(())
    })?;
    cluster.kubectl(&["scale", "deployment/named", "--replicas=0"])?;
    wait::until(60, "nobody is there", || {
        let arguments = ["exec", "client", "--", "wget", "-T", "5", "-qO-", "http://named"];
        let error = cluster.kubectl_fails(&arguments, None)?;
        ensure!(error.contains("Connection refused"), "{error}");
        Ok(())
    })?;
    end(cluster)
}

/// What the node's resolver says of names.
pub(crate) fn names(cluster: &Cluster) -> anyhow::Result<()> {
    begin(cluster)?;
    let lookup = |arguments: &[&str]| {
        let mut words = vec!["exec", "client", "--", "nslookup"];
        words.extend_from_slice(arguments);
        cluster.kubectl(&words)
    };
    let own = cluster_ip(cluster, "kubernetes")?;
    // By its whole name: this image's nslookup tries no search domains, its wget does.
    let answer = wait::until(30, "the name is known", || {
        lookup(&["kubernetes.default.svc.cluster.local"])
    })?;
    ensure!(answer.contains(&own), "{answer}");
    let endpoints = addresses(cluster, "app=named", 3)?;
    let headless = lookup(&["headless.default.svc.cluster.local"])?;
    for endpoint in &endpoints {
        ensure!(headless.contains(endpoint), "{endpoint}: {headless}");
    }
    let ports = lookup(&["-type=srv", "_http._tcp.headless.default.svc.cluster.local"])?;
    ensure!(ports.matches("8080").count() >= 3, "{ports}");
    let reverse = lookup(&[&cluster_ip(cluster, "named")?])?;
    ensure!(reverse.contains("named.default.svc.cluster.local"), "{reverse}");
    let unknown = cluster.kubectl_fails(
        &["exec", "client", "--", "nslookup", "nobody.default.svc.cluster.local"],
        None,
    )?;
    ensure!(unknown.contains("command terminated"), "{unknown}");
    end(cluster)
}

const DENY: &str = r#"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny}
spec: {podSelector: {matchLabels: {app: named}}, policyTypes: [Ingress]}
"#;

const ALLOW: &str = r#"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: allow}
spec:
  podSelector: {matchLabels: {app: named}}
  ingress: [{from: [{podSelector: {matchLabels: {role: friend}}}], ports: [{port: 8080}]}]
"#;

/// Denied, then allowed by label; the node's probes pass all the time.
pub(crate) fn policies(cluster: &Cluster) -> anyhow::Result<()> {
    let names = begin(cluster)?;
    answered_by(cluster, "http://named", &names)?;
    let refused = |what: &str| {
        wait::until(30, what, || {
            let arguments = ["exec", "client", "--", "wget", "-T", "2", "-qO-", "http://named"];
            let error = cluster.kubectl_fails(&arguments, None)?;
            ensure!(error.contains("timed out"), "{error}");
            Ok(())
        })
    };
    cluster.apply(DENY)?;
    refused("nobody is let in")?;
    cluster.apply(ALLOW)?;
    refused("only friends are let in")?;
    cluster.kubectl(&["label", "pod", "client", "role=friend", "--overwrite"])?;
    wait::until(30, "friends are let in", || {
        fetch(cluster, "client", "http://named").map(drop)
    })?;
    answered_by(cluster, "http://named", &names)?;
    let ready = cluster.get(&["deployment", "named"], "{.status.readyReplicas}")?;
    ensure!(ready == "3", "{ready:?} ready: probes are the node's");
    cluster.kubectl(&["label", "pod", "client", "role=client", "--overwrite"])?;
    refused("friends that are none any more")?;
    cluster.kubectl(&["delete", "networkpolicy", "deny", "allow"])?;
    wait::until(30, "everybody is let in", || {
        fetch(cluster, "client", "http://named").map(drop)
    })?;
    end(cluster)
}
/// A server on each node, and who asks from the first.
const EVERYWHERE: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: everywhere}
spec:
  selector: {matchLabels: {app: everywhere}}
  template:
    metadata: {labels: {app: everywhere}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: c
        image: busybox
        imagePullPolicy: IfNotPresent
        command: [sh, -c, "mkdir /www && hostname > /www/index.html && exec httpd -f -p 8080 -h /www"]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: everywhere}
spec:
  selector: {app: everywhere}
  ports: [{port: 80, targetPort: 8080}]
"#;

pub(crate) fn nodes(cluster: &Cluster, wanted: usize) -> anyhow::Result<Vec<String>> {
    let path = "{range .items[*]}{.metadata.name}={.status.conditions[?(@.type==\"Ready\")].status} {end}";
    let text = cluster.get(&["nodes"], path)?;
    let ready: Vec<String> = text
        .split_whitespace()
        .filter_map(|node| node.strip_suffix("=True").map(str::to_owned))
        .collect();
    ensure!(ready.len() == wanted, "{text}");
    Ok(ready)
}

/// A second node comes: pods of both answer by one name, from either node; policies hold across them; the node is drained and goes.
pub(crate) fn several_nodes(cluster: &Cluster) -> anyhow::Result<()> {
    let mut up = cluster.hack("up");
    up.args(["--nodes", "2"]);
    succeed(up, None)?;
    let both = wait::until(60, "two nodes are ready", || nodes(cluster, 2))?;
    cluster.apply(EVERYWHERE)?;
    cluster.kubectl(&["rollout", "status", "daemonset/everywhere", "--timeout=60s"])?;
    let path = "{.items[*].metadata.name}";
    let names: BTreeSet<String> = cluster
        .get(&["pods", "-l", "app=everywhere"], path)?
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    ensure!(names.len() == 2, "{names:?}");
    for node in &both {
        let client = CLIENT.replace("spec:", &format!("spec:\n  nodeName: {node}"));
        pod::run_and_wait(cluster, "client", &client)?;
        answered_by(cluster, "http://everywhere", &names).with_context(|| format!("from {node}"))?;
        pod::delete(cluster, "client")?;
    }
    let second = both
        .iter()
        .find(|name| name.ends_with("-2"))
        .context("the second node")?;
    cluster.kubectl(&["drain", second, "--ignore-daemonsets", "--timeout=60s"])?;
    cluster.kubectl(&["delete", "daemonset,service", "everywhere", "--ignore-not-found"])?;
    wait::until(60, "the pods are gone", || {
        let left = cluster.get(&["pods"], path)?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })?;
    let mut up = cluster.hack("up");
    up.args(["--nodes", "1"]);
    succeed(up, None)?;
    wait::until(60, "one node is left", || nodes(cluster, 1)).map(drop)
}
