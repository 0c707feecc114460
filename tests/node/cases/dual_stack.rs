//! A cluster whose nodes, pods and Services have addresses of both families. It is made anew: a cluster keeps the families it was made with.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};

use crate::cases::pod;
use crate::cases::service::{CLIENT, answered_by, fetch, nodes};
use crate::cluster::Cluster;
use crate::command::succeed;
use crate::wait;

/// A server on each node, and Services of one family and of both.
const SERVERS: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: both}
spec:
  selector: {matchLabels: {app: both}}
  template:
    metadata: {labels: {app: both}}
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
metadata: {name: both}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  selector: {app: both}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
---
apiVersion: v1
kind: Service
metadata: {name: six}
spec:
  ipFamilies: [IPv6]
  selector: {app: both}
  ports: [{port: 80, targetPort: 8080}]
"#;

/// Lets in who comes by IPv6, and nobody else.
const SIX_ALONE: &str = r#"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: six-alone}
spec:
  podSelector: {matchLabels: {app: both}}
  ingress: [{from: [{ipBlock: {cidr: "::/0"}}]}]
"#;

/// Runs beside the cluster of the other cases, and leaves nothing, whatever comes of it.
pub(crate) fn two_nodes(other: &Cluster) -> anyhow::Result<()> {
    other.beside(&Cluster::prepare_dual_stack()?, check)
}

fn up(cluster: &Cluster, backend: &str) -> anyhow::Result<()> {
    let mut up = cluster.hack("up");
    up.args(["--nodes", "2"]).env("SKIFF_POD_NETWORK", backend);
    succeed(up, None).map(drop)
}

fn check(cluster: &Cluster) -> anyhow::Result<()> {
    up(cluster, "vxlan")?;
    let both = wait::until(60, "two nodes are ready", || nodes(cluster, 2))?;
    cluster.apply(SERVERS)?;
    cluster.kubectl(&["rollout", "status", "daemonset/both", "--timeout=60s"])?;
    for node in &both {
        let client = CLIENT.replace("spec:", &format!("spec:\n  nodeName: {node}"));
        pod::run_and_wait(cluster, "client", &client)?;
        everything_answers(cluster).with_context(|| format!("from {node}"))?;
        if *node == both[0] {
            by_name(cluster)?;
            policies(cluster)?;
        }
        pod::delete(cluster, "client")?;
    }
    up(cluster, "host-gw")?;
    pod::run_and_wait(cluster, "client", CLIENT)?;
    wait::until(60, "routes take the tunnels' place", || {
        every_pod_answers(cluster).map(drop)
    })
}

/// The words of one of both families each.
fn pair(text: &str) -> anyhow::Result<[String; 2]> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [v4, v6] if !v4.contains(':') && v6.contains(':') => Ok([(*v4).to_owned(), format!("[{v6}]")]),
        _ => anyhow::bail!("not one address of each family: {text:?}"),
    }
}

/// Each server, at each of its addresses; their names.
fn every_pod_answers(cluster: &Cluster) -> anyhow::Result<BTreeSet<String>> {
    let path = "{range .items[*]}{.metadata.name} {.status.podIPs[*].ip}{\"\\n\"}{end}";
    let mut names = BTreeSet::new();
    for line in cluster.get(&["pods", "-l", "app=both"], path)?.lines() {
        let (name, addresses) = line.split_once(' ').context("a name")?;
        for address in pair(addresses)? {
            let answer = fetch(cluster, "client", &format!("http://{address}:8080"))?;
            ensure!(answer == name, "{address}: {answer:?}, not {name}");
        }
        names.insert(name.to_owned());
    }
    ensure!(names.len() == 2, "{names:?}");
    Ok(names)
}

/// Pods, Services and node ports, by either family.
fn everything_answers(cluster: &Cluster) -> anyhow::Result<()> {
    let names = wait::until(60, "every pod answers", || every_pod_answers(cluster))?;
    let addresses = pair(&cluster.get(&["service", "both"], "{.spec.clusterIPs[*]}")?)?;
    for address in &addresses {
        answered_by(cluster, &format!("http://{address}"), &names)?;
    }
    for name in ["both", "six"] {
        answered_by(cluster, &format!("http://{name}"), &names)?;
    }
    let path = "{range .items[*]}{.status.addresses[?(@.type==\"InternalIP\")].address}{\"\\n\"}{end}";
    for node in cluster.get(&["nodes"], path)?.lines() {
        for address in pair(node)? {
            answered_by(cluster, &format!("http://{address}:30080"), &names)?;
        }
    }
    Ok(())
}

/// The name of a Service of both families is that of both addresses.
fn by_name(cluster: &Cluster) -> anyhow::Result<()> {
    let answer = cluster.kubectl(&["exec", "client", "--", "nslookup", "both.default.svc.cluster.local"])?;
    let addresses = cluster.get(&["service", "both"], "{.spec.clusterIPs[*]}")?;
    // Behind the server's own address, and as whole words: one address may begin with another.
    let (_, told) = answer.split_once("Name:").context(answer.clone())?;
    for address in addresses.split_whitespace() {
        ensure!(
            told.split_whitespace().any(|word| word == address),
            "{address}: {answer}"
        );
    }
    Ok(())
}

/// What a policy says of one family holds for that alone.
fn policies(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.apply(SIX_ALONE)?;
    let path = "{range .items[*]}{.status.podIPs[*].ip}{\"\\n\"}{end}";
    for line in cluster.get(&["pods", "-l", "app=both"], path)?.lines() {
        let [v4, v6] = pair(line)?;
        wait::until(30, "IPv4 is held back", || {
            let url = format!("http://{v4}:8080");
            let error = cluster.kubectl_fails(&["exec", "client", "--", "wget", "-T", "2", "-qO-", &url], None)?;
            ensure!(error.contains("timed out"), "{error}");
            Ok(())
        })?;
        fetch(cluster, "client", &format!("http://{v6}:8080"))?;
    }
    cluster.kubectl(&["delete", "networkpolicy", "six-alone"])?;
    wait::until(30, "everybody is let in", || every_pod_answers(cluster).map(drop))
}
