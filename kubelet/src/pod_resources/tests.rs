//! The API as a client on the node sees it.

use super::*;
use crate::device::testing::{Sample, device};
use crate::id::PodUid;
use crate::parts::testing::{context, dependencies};
use crate::pinning::topology::testing::SMALL;
use crate::pinning::{CpuRules, Pinning, Rules};
use crate::pod::view::Life;
use crate::runtime::fake::FakeRuntime;
use crate::runtime::observed::ObservedPod;
use client::TokioClock;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use proto::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use proto::pod_resources_v1alpha1::pod_resources_lister_client as older;
use serde_json::json;
use tonic::Code;
use tonic::transport::{Channel, Endpoint, Uri};

const R: &str = "example.com/dev";

struct Node {
    parts: Arc<Parts>,
    _directory: tempfile::TempDir,
}

/// A pod of an init container, a sidecar and a regular container, each with a device, the last with two CPUs.
fn pod(name: &str) -> Pod {
    let container = |name: &str, cpu: &str, policy: Option<&str>| {
        let list = json!({R: "1", "cpu": cpu, "memory": "1Mi"});
        json!({"name": name, "restartPolicy": policy, "resources": {"limits": list, "requests": list}})
    };
    let pod = json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {
        "initContainers": [container("i", "100m", None), container("s", "100m", Some("Always"))],
        "containers": [container("c", "2", None)]}});
    serde_json::from_value(pod).expect("a pod")
}

impl Node {
    /// A node whose plugin has three devices, one of them ill.
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("temp dir");
        let clock = Arc::new(TokioClock::starting_at(crate::pod::testing::at(0)));
        let mut node = context();
        node.root_dir = directory.path().to_owned();
        let rules = Rules {
            cpu: Some(CpuRules {
                options: Default::default(),
                reserved_milli: 1000,
            }),
            ..Rules::default()
        };
        let machine = || Ok(SMALL.topology());
        let given = crate::parts::Dependencies {
            pinning: Pinning::open(directory.path(), &rules, 0, machine).expect("opens"),
            ..dependencies(
                directory.path(),
                node,
                Arc::new(FakeRuntime::new(clock.clone(), 0)),
                clock,
            )
        };
        let (parts, _sink, _) = Parts::new(given);
        let list = vec![
            device("a", true, &[0]),
            device("b", true, &[0, 1]),
            device("x", false, &[]),
        ];
        Sample::new(list).register(&parts.devices, R).await;
        Self {
            parts,
            _directory: directory,
        }
    }

    /// Lets a pod in and publishes it.
    async fn run(&self, name: &str, ended: bool) {
        let pod = pod(name);
        let (devices, pinning) = (&self.parts.devices, &self.parts.pinning);
        let mut draft = devices.draft(&pod, pinning.numas());
        let metrics = &self.parts.metrics.pinning;
        let share = pinning.place(&pod, &mut [&mut draft], metrics).expect("room");
        pinning.commit(&PodUid::from(name), share, metrics);
        devices.give(&draft.plan().expect("a plan")).await.expect("given");
        let snapshot = PodSnapshot {
            pod: Arc::new(pod),
            status: Arc::default(),
            observed: Arc::new(ObservedPod::empty(PodUid::from(name))),
            active: true,
            ended,
            life: Life::default(),
        };
        self.parts.pods.publish(PodUid::from(name), snapshot);
    }

    async fn client(&self) -> Channel {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(socket::converse(theirs, handler(self.parts.clone())));
        let mut ours = Some(TokioIo::new(ours));
        let connector = tower::service_fn(move |_: Uri| {
            let ours = ours.take();
            async move { ours.ok_or_else(|| io::Error::other("closed")) }
        });
        let endpoint = Endpoint::from_static("http://localhost");
        endpoint.connect_with_connector(connector).await.expect("connects")
    }
}

/// Devices as `resource id@node`.
fn told(devices: &[v1::ContainerDevices]) -> Vec<String> {
    let of = devices.iter().map(|device| {
        let nodes = device.topology.iter().flat_map(|of| &of.nodes);
        let nodes: Vec<String> = nodes.map(|node| node.id.to_string()).collect();
        format!("{}@{}", device.device_ids.join(","), nodes.join(","))
    });
    of.collect()
}

#[tokio::test(start_paused = true)]
async fn what_pods_have_is_told() {
    let node = Node::new().await;
    node.run("p", false).await;
    let mut client = PodResourcesListerClient::new(node.client().await);
    let list = client
        .list(v1::ListPodResourcesRequest {})
        .await
        .expect("lists")
        .into_inner();
    let [pod] = list.pod_resources.as_slice() else {
        panic!("{list:?}")
    };
    assert_eq!((pod.name.as_str(), pod.namespace.as_str()), ("p", "ns"));
    let names: Vec<&str> = pod.containers.iter().map(|container| container.name.as_str()).collect();
    assert_eq!(names, ["s", "c"], "sidecars too, init containers not");
    // What the init container leaves is the sidecar's, who keeps it.
    assert_eq!(told(&pod.containers[0].devices), ["a@0"]);
    assert_eq!(told(&pod.containers[1].devices), ["b@0", "b@1"]);
    assert_eq!(pod.containers[0].cpu_ids, Vec::<i64>::new());
    assert_eq!(pod.containers[1].cpu_ids.len(), 2);
    let get = |name: &str| v1::GetPodResourcesRequest {
        pod_name: name.to_owned(),
        pod_namespace: "ns".to_owned(),
    };
    let one = client.get(get("p")).await.expect("there").into_inner();
    assert_eq!(one.pod_resources.as_ref(), Some(pod));
    let none = client.get(get("q")).await.expect_err("not there");
    assert_eq!(
        (none.code(), none.message()),
        (Code::Unknown, "pod q in namespace ns not found")
    );
    let all = client
        .get_allocatable_resources(v1::AllocatableResourcesRequest {})
        .await;
    let all = all.expect("told").into_inner();
    assert_eq!(told(&all.devices), ["a@0", "b@0", "b@1"], "given or not, but healthy");
    assert_eq!(all.cpu_ids, [1, 2, 3, 4, 5, 6, 7], "all but the reserved one");
    let mut first = older::PodResourcesListerClient::new(node.client().await);
    let list = first
        .list(v1alpha1::ListPodResourcesRequest {})
        .await
        .expect("lists")
        .into_inner();
    assert_eq!(list.pod_resources[0].containers.len(), 1, "regular ones alone");
    assert_eq!(list.pod_resources[0].containers[0].devices[0].device_ids, ["b"]);
    let text = node.parts.metrics.text(&node.parts.pods);
    for line in [
        r#"kubelet_pod_resources_endpoint_requests_total{server_api_version="v1"} 4"#,
        r#"kubelet_pod_resources_endpoint_requests_total{server_api_version="v1alpha1"} 1"#,
        r#"kubelet_pod_resources_endpoint_requests_get{server_api_version="v1"} 2"#,
        r#"kubelet_pod_resources_endpoint_errors_get{server_api_version="v1"} 1"#,
        r#"kubelet_pod_resources_endpoint_requests_get_allocatable{server_api_version="v1"} 1"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_ended_is_not_told() {
    let node = Node::new().await;
    node.run("p", true).await;
    let mut client = PodResourcesListerClient::new(node.client().await);
    let list = client
        .list(v1::ListPodResourcesRequest {})
        .await
        .expect("lists")
        .into_inner();
    assert!(list.pod_resources.is_empty());
}

#[tokio::test(start_paused = true)]
async fn it_is_called_so_often_and_no_oftener() {
    let node = Node::new().await;
    let lister = Lister {
        metrics: node.parts.metrics.pod_resources.clone(),
        parts: node.parts.clone(),
        bucket: Mutex::new(Bucket::new(RATE)),
    };
    let calls: Vec<bool> = (0..12).map(|_| lister.enter().is_ok()).collect();
    assert_eq!(calls.iter().filter(|passed| **passed).count(), 10);
    let refused = lister.enter().expect_err("refused");
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::ResourceExhausted, "rejected by rate limit")
    );
    tokio::time::advance(Duration::from_millis(50)).await;
    let calls: Vec<bool> = (0..12).map(|_| lister.enter().is_ok()).collect();
    assert_eq!(calls.iter().filter(|passed| **passed).count(), 5);
}
