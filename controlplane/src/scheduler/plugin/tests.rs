use super::*;
use crate::held::Pod;
use crate::scheduler::cluster::Cluster;
use crate::scheduler::pod::HostPort;
use crate::scheduler::profile::{Args, FitArgs, Resource, Strategy};
use proptest::prelude::{Strategy as _, any, prop, prop_assert_eq, proptest};
use serde_json::{Value, json};
use std::sync::Arc;

fn info(extra: Value) -> Arc<PodInfo> {
    let mut value = json!({"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": [{"name": "c"}]}});
    json_patch::merge(&mut value, &extra);
    let pod: Pod = serde_json::from_value(value).unwrap();
    Arc::new(PodInfo::new(Arc::new(pod)))
}

fn cluster(allocatable: Value, extra: Value) -> Cluster {
    let mut value = json!({"metadata": {"name": "n"}, "status": {"allocatable": allocatable}});
    json_patch::merge(&mut value, &extra);
    let mut cluster = Cluster::default();
    cluster.set_node(&serde_json::from_value(value).unwrap());
    cluster
}

fn filter(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    let profile = Profile::default();
    let mut filters = profile.filters.iter();
    filters.try_for_each(|plugin| filter_locally(*plugin, &profile, pod, node, &node.room))
}

fn requests(cpu: &str, memory: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}})
}

#[test]
fn fit_lists_every_lack() {
    let cluster = cluster(
        json!({"cpu": "1", "memory": "1Gi", "pods": "0", "nvidia.com/gpu": "1"}),
        json!({}),
    );
    let want = json!({"cpu": "2", "memory": "2Gi", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "2"});
    let pod = info(json!({"spec": {"containers": [{"name": "c", "resources": {"requests": want}}]}}));
    let rejection = filter(&pod, cluster.node("n").unwrap()).unwrap_err();
    let want = [
        "Too many pods",
        "Insufficient cpu",
        "Insufficient memory",
        "Insufficient ephemeral-storage",
        "Insufficient nvidia.com/gpu",
    ];
    assert_eq!(rejection.reasons, want);
    assert!(!rejection.resolvable);
}

#[test]
fn scores_follow_the_formulas() {
    let args = Args::default();
    let mut cluster = cluster(json!({"cpu": "4", "memory": "8Gi", "pods": "110"}), json!({}));
    let pod = info(requests("1", "4Gi"));
    let node = cluster.node("n").unwrap();
    // (75 + 50) / 2, and 50 + (50 + 87 - 100) / 2.
    assert_eq!(node_resources_fit::score(&args.fit, &pod, node), 62);
    assert_eq!(
        node_resources_balanced_allocation::score(&args.balanced, &pod, node),
        68
    );
    let bare = info(json!({}));
    assert!(!node_resources_balanced_allocation::scores(&args.balanced, &bare));
    // 100m of 4 and 200Mi of 8Gi: 97 + 97.
    assert_eq!(node_resources_fit::score(&args.fit, &bare, node), 97);
    let other = Arc::new(PodInfo {
        uid: "other".into(),
        ..PodInfo::clone(&info(requests("4", "1Gi")))
    });
    cluster.place(other, "n");
    assert_eq!(
        node_resources_fit::score(&args.fit, &pod, cluster.node("n").unwrap()),
        18
    );
}

#[test]
fn host_ports_conflict_per_address_and_protocol() {
    let port = |port: i32, protocol: &str, address: &str| {
        json!({"spec": {"containers": [{"name": "c", "ports": [
            {"containerPort": 80, "hostPort": port, "protocol": protocol, "hostIP": address}]}]}})
    };
    let mut cluster = cluster(json!({"cpu": "4", "memory": "8Gi", "pods": "110"}), json!({}));
    let holder = Arc::new(PodInfo {
        uid: "holder".into(),
        ..PodInfo::clone(&info(port(80, "TCP", "10.0.0.1")))
    });
    cluster.place(holder, "n");
    let table = [
        (port(80, "TCP", "10.0.0.1"), false),
        (port(80, "TCP", ""), false),
        (port(80, "TCP", "10.0.0.2"), true),
        (port(80, "UDP", "10.0.0.1"), true),
        (port(81, "TCP", "10.0.0.1"), true),
    ];
    for (extra, want) in table {
        assert_eq!(
            filter(&info(extra.clone()), cluster.node("n").unwrap()).is_ok(),
            want,
            "{extra}"
        );
    }
    cluster.remove_pod("holder");
    assert!(filter(&info(port(80, "TCP", "")), cluster.node("n").unwrap()).is_ok());
}

/// A host port: number, protocol and address of a few.
fn host_port() -> impl proptest::strategy::Strategy<Value = HostPort> {
    let protocols = prop::sample::select(vec!["TCP", "UDP"]);
    let addresses = prop::sample::select(vec!["0.0.0.0", "10.0.0.1", "10.0.0.2", "::", "::1"]);
    (79..82i32, protocols, addresses).prop_map(|(port, protocol, address)| HostPort {
        protocol: protocol.to_owned(),
        port,
        address: address.to_owned(),
    })
}

proptest! {
    /// What is looked for in order is what every pair would say, whoever came and went.
    #[test]
    fn a_host_port_is_taken_where_one_of_the_others_conflicts(
        pods in prop::collection::vec((prop::collection::vec(host_port(), 0..4), any::<bool>()), 0..6),
        wanted in host_port(),
    ) {
        let pods = pods.into_iter().map(|(mut ports, stays)| {
            ports.sort();
            (PodInfo { ports, ..PodInfo::clone(&info(json!({}))) }, stays)
        });
        let pods: Vec<(PodInfo, bool)> = pods.collect();
        let mut room = Room::default();
        pods.iter().for_each(|(pod, _)| room.add(pod));
        pods.iter().filter(|(_, stays)| !stays).for_each(|(pod, _)| room.remove(pod));
        let mut left: Vec<HostPort> = Vec::new();
        pods.iter().filter(|(_, stays)| *stays).for_each(|(pod, _)| left.extend(pod.ports.clone()));
        left.sort();
        prop_assert_eq!(&room.ports, &left);
        let is_any = |port: &HostPort| ["0.0.0.0", "::"].contains(&&*port.address);
        let conflicts = |port: &HostPort| {
            (port.port, &port.protocol) == (wanted.port, &wanted.protocol)
                && (port.address == wanted.address || is_any(port) || is_any(&wanted))
        };
        prop_assert_eq!(wanted.is_taken(&room.ports), left.iter().any(conflicts));
    }
}

#[test]
fn host_ports_of_a_pod_are_in_order() {
    let ports = json!([{"hostPort": 90}, {"hostPort": 80, "protocol": "UDP"}, {"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80}]);
    let ports = json!(
        ports
            .as_array()
            .unwrap()
            .iter()
            .map(|port| {
                let mut port = port.clone();
                port["containerPort"] = json!(80);
                port
            })
            .collect::<Vec<_>>()
    );
    let pod = info(json!({"spec": {"containers": [{"name": "c", "ports": ports}]}}));
    assert_eq!(pod.ports.len(), 4);
    assert!(pod.ports.is_sorted(), "{:?}", pod.ports);
}

#[test]
fn cordoned_nodes_take_tolerating_pods() {
    let cluster = cluster(
        json!({"cpu": "4", "memory": "8Gi", "pods": "110"}),
        json!({"spec": {"unschedulable": true}}),
    );
    let node = cluster.node("n").unwrap();
    assert_eq!(
        filter(&info(json!({})), node).unwrap_err().reasons,
        ["node(s) were unschedulable"]
    );
    let tolerating =
        json!({"spec": {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}});
    assert!(filter(&info(tolerating), node).is_ok());
}

#[test]
fn images_draw_pods_by_size_and_spread() {
    let image = json!({"status": {"images": [{"names": ["nginx:latest"], "sizeBytes": 1_048_576_000}]}});
    let cluster = cluster(json!({"cpu": "4", "memory": "8Gi", "pods": "110"}), image);
    let pod = info(json!({"spec": {"containers": [{"name": "c", "image": "nginx"}]}}));
    let node = cluster.node("n").unwrap();
    let spread = image_locality::spread(&pod, &cluster, 1);
    assert_eq!(image_locality::score(&pod, node, &spread), 100);
    let spread = image_locality::spread(&pod, &cluster, 2);
    assert_eq!(image_locality::score(&pod, node, &spread), 48);
    assert!(image_locality::spread(&info(json!({})), &cluster, 1).is_empty());
}

#[test]
fn normalisation() {
    let run = |scores: Vec<i64>, reverse| {
        let highest = scores.iter().copied().max().unwrap_or(0);
        let each = scores.into_iter().map(|score| normal(score, highest, reverse));
        each.collect::<Vec<_>>()
    };
    assert_eq!(run(vec![0, 1, 3], false), [0, 33, 100]);
    assert_eq!(run(vec![0, 1, 3], true), [100, 67, 0]);
    assert_eq!(run(vec![0, 0], true), [100, 100]);
    assert_eq!(run(vec![0, 0], false), [0, 0]);
}

/// Upstream's worked example: a node of 4 with 3 used, and one of 8 with 3 used, of a resource of its own.
#[test]
fn strategies_of_fit_follow_the_formulas() {
    let scored = |strategy: &Strategy, resources: Vec<(Resource, i64)>, allocatable: Value, want: Value| {
        let args = FitArgs {
            strategy: strategy.clone(),
            resources,
            ..Args::default().fit
        };
        let pod = info(json!({"spec": {"containers": [{"name": "c", "resources": {"requests": want}}]}}));
        node_resources_fit::score(&args, &pod, cluster(allocatable, json!({})).node("n").unwrap())
    };
    let both = || vec![(Resource::Cpu, 1), (Resource::Memory, 1)];
    let node = || json!({"cpu": "4", "memory": "8Gi", "pods": "110", "example.com/gpu": "8"});
    let want = || json!({"cpu": "3", "memory": "2Gi"});
    assert_eq!(scored(&Strategy::LeastAllocated, both(), node(), want()), (25 + 75) / 2);
    assert_eq!(scored(&Strategy::MostAllocated, both(), node(), want()), (75 + 25) / 2);
    let weighted = vec![(Resource::Cpu, 3), (Resource::Memory, 1)];
    assert_eq!(
        scored(&Strategy::MostAllocated, weighted, node(), want()),
        (3 * 75 + 25) / 4
    );
    let gpu = || vec![(Resource::Scalar("example.com/gpu".into()), 3), (Resource::Cpu, 1)];
    let with_gpu = json!({"cpu": "3", "example.com/gpu": "2"});
    assert_eq!(
        scored(&Strategy::LeastAllocated, gpu(), node(), with_gpu),
        (3 * 75 + 25) / 4
    );
    assert_eq!(
        scored(&Strategy::LeastAllocated, gpu(), node(), want()),
        25,
        "not asked for, not scored"
    );
    let ratio = Strategy::RequestedToCapacityRatio(vec![(0, 0), (50, 20), (100, 100)]);
    assert_eq!(scored(&ratio, vec![(Resource::Cpu, 1)], node(), want()), 60);
    assert_eq!(
        scored(&ratio, vec![(Resource::Cpu, 1)], node(), json!({"cpu": "9"})),
        100
    );
    assert_eq!(scored(&ratio, both(), node(), want()), 35, "25 % of memory scores 10");
    let falling = Strategy::RequestedToCapacityRatio(vec![(0, 100), (100, 0)]);
    assert_eq!(scored(&falling, vec![(Resource::Cpu, 1)], node(), want()), 25);
}

#[test]
fn what_the_configuration_ignores_or_adds() {
    let pod =
        info(json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"example.com/foo": "1"}}}]}}));
    let cluster = cluster(json!({"cpu": "4", "pods": "110"}), json!({}));
    let node = cluster.node("n").unwrap();
    let mut args = Args::default();
    assert!(node_resources_fit::filter(&args.fit, &pod, node, &node.room).is_err());
    args.fit.ignored = vec!["example.com/foo".into()];
    assert!(node_resources_fit::filter(&args.fit, &pod, node, &node.room).is_ok());
    args.fit = FitArgs {
        ignored_groups: vec!["example.com".into()],
        ..Args::default().fit
    };
    assert!(node_resources_fit::filter(&args.fit, &pod, node, &node.room).is_ok());
    let added = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]}});
    args.added_affinity = Some(serde_json::from_value(added).unwrap());
    assert!(node_affinity::filters(&args, &pod));
    let refused = node_affinity::filter(&args, &pod, node).unwrap_err();
    assert_eq!(
        refused.reasons,
        ["node(s) didn't match scheduler-enforced node affinity"]
    );
}

#[test]
fn what_a_pod_asks_of_kubelets_its_node_must_declare() {
    let allocatable = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]);
    let restarts = |field: &str| json!({"spec": {field: [{"name": "c", "restartPolicyRules": rules}]}});
    let own_users = json!({"spec": {"hostNetwork": true, "hostUsers": false}});
    let restart = "RestartAllContainersOnContainerExits";
    let users = "UserNamespacesHostNetworkSupport";
    let table = [
        (json!({}), vec![], true),
        (restarts("containers"), vec![], false),
        (
            restarts("initContainers"),
            vec![users, "GuaranteedQoSPodCPUResize"],
            false,
        ),
        (
            restarts("initContainers"),
            vec!["GuaranteedQoSPodCPUResize", restart],
            true,
        ),
        (own_users.clone(), vec![restart], false),
        (own_users, vec![users], true),
        (json!({"spec": {"hostNetwork": true}}), vec![], true),
        (json!({"spec": {"hostUsers": false}}), vec![], true),
    ];
    for (pod, declared, fits) in table {
        let cluster = cluster(allocatable.clone(), json!({"status": {"declaredFeatures": declared}}));
        let found = filter(&info(pod.clone()), cluster.node("n").unwrap());
        let reasons = found.map_err(|rejection| (rejection.reasons, rejection.resolvable));
        let refused = (vec!["node(s) didn't match Pod's required features".into()], false);
        assert_eq!(reasons, if fits { Ok(()) } else { Err(refused) }, "{pod}");
    }
}
