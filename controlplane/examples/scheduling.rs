//! What the scheduler alone costs, without an API server: CPU time of a cycle in upstream's workloads (`hack/bench scheduler` has them through
//! the API), and the memory it holds per node and pod, objects included. `cargo run --release -p controlplane --example scheduling -- 5000`

use controlplane::held::{Node, Pod};
use controlplane::scheduler::cluster::Cluster;
use controlplane::scheduler::cycle::{Request, Search};
use controlplane::scheduler::plugin::steps::Told;
use controlplane::scheduler::pod::PodInfo;
use controlplane::scheduler::profile::Profile;
use serde_json::{Value, json};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What this process has in memory, in bytes.
fn resident() -> Outcome<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    Ok(kilobytes.ok_or("no RssAnon")? * 1024)
}

/// Time this thread has had on a CPU: others on the machine do not count.
fn cpu() -> Outcome<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split_whitespace().next().ok_or("no schedstat")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

/// A node as a kubelet tells of itself, with a few images.
fn node(n: usize) -> Outcome<Node> {
    let name = format!("node-{n}");
    let amounts =
        json!({"cpu": "4", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi", "hugepages-2Mi": "0"});
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "KubeletHasSufficientMemory", "message": "kubelet has sufficient memory available",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let image = |i: usize| json!({"names": [format!("registry.k8s.io/image-{i}@sha256:{i:064x}"), format!("registry.k8s.io/image-{i}:v1")], "sizeBytes": 50_000_000});
    let info = json!({"machineID": format!("{n:032x}"), "systemUUID": format!("{n:032x}"), "bootID": format!("{n:032x}"),
        "kernelVersion": "6.1.0", "osImage": "Debian GNU/Linux 12", "containerRuntimeVersion": "containerd://2.1.0",
        "kubeletVersion": "v1.36.0", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64"});
    let value = json!({
        "metadata": {"name": name, "uid": format!("{n:036x}"), "resourceVersion": n.to_string(), "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": format!("zone-{}", n % 3)}},
        "spec": {"podCIDR": "10.1.2.0/24", "podCIDRs": ["10.1.2.0/24"]},
        "status": {"capacity": amounts, "allocatable": amounts, "nodeInfo": info,
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}],
            "conditions": [condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
                condition("PIDPressure", "False"), condition("Ready", "True")],
            "images": (0..5).map(image).collect::<Vec<_>>()},
    });
    Ok(serde_json::from_value(value)?)
}

/// A pod as the API server has it, with its node if it has one.
fn pod(n: usize, color: &str, cpu: &str, spec: &Value) -> Outcome<Arc<PodInfo>> {
    let amounts = json!({"cpu": cpu, "memory": "500Mi"});
    let seconds =
        |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    let mut value = json!({
        "metadata": {"name": format!("pod-{n}"), "namespace": "sched", "uid": format!("{n:036x}"), "resourceVersion": n.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"color": color}},
        "spec": {
            "containers": [{"name": "pause", "image": "registry.k8s.io/pause:3.10", "imagePullPolicy": "IfNotPresent",
                "ports": [{"containerPort": 80, "protocol": "TCP"}], "resources": {"requests": amounts, "limits": amounts},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "volumeMounts": [{"name": "token", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]}],
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority", "priority": 0,
            "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {}, "serviceAccount": "default",
            "serviceAccountName": "default", "terminationGracePeriodSeconds": 30,
            "tolerations": [seconds("node.kubernetes.io/not-ready"), seconds("node.kubernetes.io/unreachable")],
            "volumes": [{"name": "token", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}}]},
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    });
    if let (Some(all), Some(more)) = (value["spec"].as_object_mut(), spec.as_object()) {
        all.extend(more.clone());
    }
    Ok(Arc::new(PodInfo::new(Arc::new(serde_json::from_value::<Pod>(value)?))))
}

/// Cycles for as many pods as are measured; a pod that finds no node has its victims go at once, and gets theirs.
fn place(cluster: &mut Cluster, search: &mut Search, pods: &[Arc<PodInfo>]) -> Outcome<Duration> {
    let profile = Profile::default();
    let began = cpu()?;
    for pod in pods {
        let request = Request {
            pod,
            profile: &profile,
            owned: None,
            budgets: &Vec::new,
            lap: &|_| (),
            told: Told::default(),
        };
        let node = match search.schedule(cluster, request) {
            Ok(node) => node,
            Err(unplaced) => {
                let best = unplaced.candidates.first().ok_or_else(|| unplaced.error.message())?;
                for victim in &best.victims {
                    cluster.remove_pod(&victim.uid);
                }
                best.node.clone()
            }
        };
        cluster.place(Arc::clone(pod), &node);
    }
    Ok(cpu()?.saturating_sub(began))
}

/// Kinds of pods, as `(name, color, cpu, spec)`.
fn kinds() -> [(&'static str, &'static str, &'static str, Value); 8] {
    let required = |key: &str, color: &str| {
        json!({"requiredDuringSchedulingIgnoredDuringExecution":
            [{"topologyKey": key, "labelSelector": {"matchLabels": {"color": color}}}]})
    };
    let preferred = |color: &str| {
        json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm":
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"color": color}}}}]})
    };
    let spread = |otherwise: &str| {
        json!({"topologySpreadConstraints": [{"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": otherwise, "labelSelector": {"matchLabels": {"color": "blue"}}}]})
    };
    let (zone, host) = ("topology.kubernetes.io/zone", "kubernetes.io/hostname");
    [
        ("plain", "none", "100m", json!({})),
        (
            "affinity",
            "blue",
            "100m",
            json!({"affinity": {"podAffinity": required(zone, "blue")}}),
        ),
        (
            "anti-affinity",
            "green",
            "100m",
            json!({"affinity": {"podAntiAffinity": required(host, "green")}}),
        ),
        (
            "preferred-affinity",
            "red",
            "100m",
            json!({"affinity": {"podAffinity": preferred("red")}}),
        ),
        (
            "preferred-anti-affinity",
            "yellow",
            "100m",
            json!({"affinity": {"podAntiAffinity": preferred("yellow")}}),
        ),
        ("spread", "blue", "100m", spread("DoNotSchedule")),
        ("preferred-spread", "blue", "100m", spread("ScheduleAnyway")),
        ("preemption", "none", "3000m", json!({"priority": 10})),
    ]
}

fn main() -> Outcome<()> {
    let nodes: usize = std::env::args().nth(1).map_or(Ok(5_000), |words| words.parse())?;
    let before = resident()?;
    let objects: Vec<Arc<Node>> = (0..nodes).map(|n| node(n).map(Arc::new)).collect::<Result<_, _>>()?;
    let held = resident()?;
    let fresh = || {
        let mut cluster = Cluster::default();
        objects.iter().for_each(|node| drop(cluster.set_node(node)));
        cluster
    };
    let began = cpu()?;
    let mut first = fresh();
    println!(
        "{nodes} nodes taken in: {:.1} ms",
        cpu()?.saturating_sub(began).as_secs_f64() * 1000.0
    );
    let with = resident()?;
    let per = |bytes: usize, count: usize| bytes as f64 / 1024.0 / count as f64;
    println!(
        "memory of a node: {:.1} KB object, {:.1} KB beside it",
        per(held - before, nodes),
        per(with - held, nodes)
    );
    for (name, color, cpu, spec) in kinds() {
        let before = resident()?;
        let (ahead, measured) = match name {
            "preemption" => (nodes * 4, nodes / 5),
            "anti-affinity" => (nodes / 5, 2 * nodes / 5),
            _ => (nodes, nodes),
        };
        let (kind, request, own) = match name {
            "preemption" => ("low", "900m", json!({})),
            _ => (color, cpu, spec.clone()),
        };
        let already: Vec<_> = (0..ahead)
            .map(|n| pod(n, kind, request, &own))
            .collect::<Result<_, _>>()?;
        let pods: Vec<_> = (ahead..ahead + measured)
            .map(|n| pod(n, color, cpu, &spec))
            .collect::<Result<_, _>>()?;
        let held = resident()?;
        let mut cluster = if name == "plain" {
            std::mem::take(&mut first)
        } else {
            fresh()
        };
        let mut search = Search::new(1);
        place(&mut cluster, &mut search, &already)?;
        let took = place(&mut cluster, &mut search, &pods)?;
        let cycle = took.as_secs_f64() / measured as f64;
        println!(
            "{name:<24} {:>9.3} ms a cycle, {:>8.0} cycles a second",
            cycle * 1000.0,
            1.0 / cycle
        );
        if name == "plain" {
            let count = ahead + measured;
            let (object, more) = (per(held - before, count), per(resident()?.saturating_sub(held), count));
            println!("memory of a pod: {object:.1} KB object and what is known of it, {more:.1} KB beside it");
        }
    }
    Ok(())
}
