//! Taking a node over from an upstream kubelet and giving it back: containers go on, and what is on disk and in the
//! runtime reads the same to both.
//!
//! The other kubelet is played by this file: directories, labels, annotations and checkpoints as upstream writes them
//! (kubelet contract §2 and §6), spelled out here and not taken from our code.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, ensure};
use proto::cri;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use tonic::transport::{Channel, Endpoint};

use crate::cases::crash::{node_ready, tasks};
use crate::cluster::{Cluster, NODE};
use crate::{leftovers, wait};

/// Checkpoints of an upstream kubelet with the default policies, checksums included, and one that only it reads.
const CHECKPOINTS: &[(&str, &str)] = &[
    (
        "cpu_manager_state",
        r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#,
    ),
    (
        "memory_manager_state",
        r#"{"policyName":"None","machineState":{},"checksum":4236770233}"#,
    ),
    (
        "graceful_node_shutdown_state",
        r#"{"startTime":"2024-01-01T00:00:00Z","endTime":"2024-01-01T00:00:10Z"}"#,
    ),
];

/// The calls another kubelet would make.
struct Other {
    runtime: tokio::runtime::Runtime,
    client: RuntimeServiceClient<Channel>,
}

/// A pod of the API server, as far as the runtime is told of it.
struct Pod {
    name: String,
    uid: String,
    container: String,
}

impl Other {
    fn connect(cluster: &Cluster) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let endpoint = Endpoint::from_shared(format!("unix://{}", cluster.path("run/containerd.sock").display()))?
            .timeout(std::time::Duration::from_secs(30));
        let client = RuntimeServiceClient::new(runtime.block_on(endpoint.connect())?);
        Ok(Self { runtime, client })
    }

    /// The container of this pod as the runtime tells of it.
    fn container_of(&mut self, uid: &str) -> anyhow::Result<cri::Container> {
        let filter = cri::ContainerFilter {
            label_selector: HashMap::from([("io.kubernetes.pod.uid".to_owned(), uid.to_owned())]),
            ..Default::default()
        };
        let request = cri::ListContainersRequest { filter: Some(filter) };
        let mut containers = self
            .runtime
            .block_on(self.client.list_containers(request))?
            .into_inner()
            .containers;
        ensure!(containers.len() == 1, "{} containers of pod {uid}", containers.len());
        containers.pop().context("a container")
    }

    /// RunPodSandbox, CreateContainer, StartContainer: the container's id.
    fn start(&mut self, cluster: &Cluster, pod: &Pod) -> anyhow::Result<String> {
        let sandbox_config = sandbox_config(cluster, pod);
        let run = cri::RunPodSandboxRequest {
            config: Some(sandbox_config.clone()),
            runtime_handler: String::new(),
        };
        let sandbox = self.runtime.block_on(self.client.run_pod_sandbox(run))?.into_inner();
        let create = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.pod_sandbox_id,
            config: Some(container_config(cluster, pod)),
            sandbox_config: Some(sandbox_config),
        };
        let container_id = self
            .runtime
            .block_on(self.client.create_container(create))?
            .into_inner()
            .container_id;
        let start = cri::StartContainerRequest {
            container_id: container_id.clone(),
        };
        self.runtime.block_on(self.client.start_container(start))?;
        Ok(container_id)
    }
}

fn owned<const N: usize>(pairs: [(&str, &str); N]) -> HashMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Contract §2: FNV-32a over Go's print of the bytes of `{"image":...,"name":...}`.
fn container_hash(name: &str, image: &str) -> String {
    let json = format!(r#"{{"image":"{image}","name":"{name}"}}"#);
    let bytes: Vec<String> = json.bytes().map(|byte| byte.to_string()).collect();
    let hash = format!("([]uint8)[{}]", bytes.join(" "))
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
    format!("{hash:x}")
}

fn labels(pod: &Pod) -> HashMap<String, String> {
    owned([
        ("io.kubernetes.pod.name", &pod.name),
        ("io.kubernetes.pod.namespace", "default"),
        ("io.kubernetes.pod.uid", &pod.uid),
    ])
}

fn container_labels(pod: &Pod) -> HashMap<String, String> {
    let mut labels = labels(pod);
    labels.insert("io.kubernetes.container.name".into(), pod.container.clone());
    labels
}

fn container_annotations(pod: &Pod) -> HashMap<String, String> {
    owned([
        ("io.kubernetes.container.hash", &container_hash(&pod.container, "nginx")),
        ("io.kubernetes.container.restartCount", "0"),
        ("io.kubernetes.container.terminationMessagePath", "/dev/termination-log"),
        ("io.kubernetes.container.terminationMessagePolicy", "File"),
        ("io.kubernetes.pod.terminationGracePeriod", "5"),
    ])
}

fn sandbox_config(cluster: &Cluster, pod: &Pod) -> cri::PodSandboxConfig {
    let logs = cluster
        .path("kubelet/pod-logs")
        .join(format!("default_{}_{}", pod.name, pod.uid));
    cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            namespace: "default".into(),
            attempt: 0,
        }),
        hostname: pod.name.clone(),
        log_directory: logs.display().to_string(),
        dns_config: Some(cri::DnsConfig::default()),
        labels: labels(pod),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: format!("{}/kubepods/besteffort/pod{}", cluster.cgroup(), pod.uid),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn container_config(cluster: &Cluster, pod: &Pod) -> cri::ContainerConfig {
    let directory = pod_directory(cluster, &pod.uid);
    let mount = |file: &str, inside: &str| cri::Mount {
        host_path: directory.join(file).display().to_string(),
        container_path: inside.to_owned(),
        ..Default::default()
    };
    cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata {
            name: pod.container.clone(),
            attempt: 0,
        }),
        image: Some(cri::ImageSpec {
            image: "docker.io/library/nginx:latest".into(),
            user_specified_image: "nginx".into(),
            ..Default::default()
        }),
        labels: container_labels(pod),
        annotations: container_annotations(pod),
        log_path: format!("{}/0.log", pod.container),
        mounts: vec![
            mount("volumes/kubernetes.io~empty-dir/data", "/data"),
            mount("etc-hosts", "/etc/hosts"),
            mount(
                &format!("containers/{}/0a1b2c3d", pod.container),
                "/dev/termination-log",
            ),
        ],
        linux: Some(cri::LinuxContainerConfig {
            resources: Some(cri::LinuxContainerResources {
                cpu_shares: 2,
                oom_score_adj: 1000,
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn pod_directory(cluster: &Cluster, uid: &str) -> std::path::PathBuf {
    cluster.path("kubelet/root/pods").join(uid)
}

/// The pod's directory as an upstream kubelet leaves it, with something in its volume.
fn make_directories(cluster: &Cluster, pod: &Pod) -> anyhow::Result<()> {
    let directory = pod_directory(cluster, &pod.uid);
    for inside in [
        "volumes/kubernetes.io~empty-dir/data".to_owned(),
        "plugins/kubernetes.io~empty-dir/data".to_owned(),
        format!("containers/{}", pod.container),
    ] {
        fs::create_dir_all(directory.join(inside))?;
    }
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o750))?;
    let volume = directory.join("volumes/kubernetes.io~empty-dir/data");
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o777))?;
    fs::write(volume.join("kept"), "from before")?;
    fs::write(directory.join("plugins/kubernetes.io~empty-dir/data/ready"), "")?;
    fs::write(
        directory.join("etc-hosts"),
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n",
    )?;
    let log = directory.join(format!("containers/{}/0a1b2c3d", pod.container));
    fs::write(&log, "")?;
    fs::set_permissions(log, fs::Permissions::from_mode(0o666))?;
    let logs = cluster.path("kubelet/pod-logs");
    fs::create_dir_all(
        logs.join(format!("default_{}_{}", pod.name, pod.uid))
            .join(&pod.container),
    )?;
    Ok(())
}

/// A pod bound to the node by hand, since nothing else may look at it.
fn create(cluster: &Cluster, name: &str) -> anyhow::Result<Pod> {
    cluster.apply(&format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}},"spec":{{"nodeName":"{NODE}","terminationGracePeriodSeconds":5,
            "automountServiceAccountToken":false,"volumes":[{{"name":"data","emptyDir":{{}}}}],
            "containers":[{{"name":"web","image":"nginx","imagePullPolicy":"IfNotPresent","volumeMounts":[{{"name":"data","mountPath":"/data"}}]}}]}}}}"#
    ))?;
    Ok(Pod {
        name: name.into(),
        uid: cluster.get(&["pod", name], "{.metadata.uid}")?,
        container: "web".into(),
    })
}

fn ready(cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    wait::until(60, "the pod is Ready", || {
        let status = cluster.get(&["pod", name], r#"{.status.conditions[?(@.type=="Ready")].status}"#)?;
        ensure!(status == "True", "Ready is {status:?}");
        Ok(())
    })
}

/// Names below a directory, without what differs from pod to pod: eight hexadecimal digits.
fn layout(directory: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        for entry in fs::read_dir(&path).with_context(|| path.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_random = name.len() == 8 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            let inside = path
                .strip_prefix(directory)?
                .join(if is_random { "HEX" } else { &name });
            found.push(inside.display().to_string());
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A node an upstream kubelet ran: our kubelet finds its pod running and leaves it so.
pub(crate) fn taken_over(cluster: &Cluster) -> anyhow::Result<()> {
    leftovers::of_pods(cluster)?;
    ensure!(
        container_hash("test_container", "foo/image:v1") == "8e45cbd0",
        "upstream's own example"
    );
    let mut other = Other::connect(cluster)?;
    cluster.kill("kubelet")?;
    let pod = create(cluster, "taken-over")?;
    make_directories(cluster, &pod)?;
    let root = cluster.path("kubelet/root");
    for (name, text) in CHECKPOINTS {
        fs::write(root.join(name), text)?;
    }
    let container = other.start(cluster, &pod)?;
    let before = tasks(cluster)?;
    ensure!(before.len() == 2, "a sandbox and a container, not {before:?}");

    cluster.up()?;
    node_ready(cluster, "True")?;
    ready(cluster, &pod.name)?;
    ensure!(tasks(cluster)? == before, "{before:?}\nthen {:?}", tasks(cluster)?);
    let status = cluster.get(
        &["pod", &pod.name],
        "{.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}",
    )?;
    ensure!(status == format!("containerd://{container} 0"), "{status}");
    let kept = cluster.kubectl(&["exec", &pod.name, "--", "cat", "/data/kept"])?;
    ensure!(kept == "from before", "{kept}");
    for (name, text) in CHECKPOINTS {
        let now = fs::read_to_string(root.join(name)).with_context(|| (*name).to_owned())?;
        ensure!(now == *text, "{name} was {text}, is {now}");
        fs::remove_file(root.join(name))?;
    }
    cluster.kubectl(&["delete", "pod", &pod.name, "--timeout=60s"])?;
    leftovers::of_pods(cluster)
}

/// A pod of ours is in the runtime and on disk what an upstream kubelet would have made of it, so it too would go on.
pub(crate) fn given_back(cluster: &Cluster) -> anyhow::Result<()> {
    let pod = create(cluster, "given-back")?;
    ready(cluster, &pod.name)?;
    let container = Other::connect(cluster)?.container_of(&pod.uid)?;
    ensure!(container.labels == container_labels(&pod), "{:?}", container.labels);
    ensure!(
        container.annotations == container_annotations(&pod),
        "{:?}",
        container.annotations
    );
    let layout = layout(&pod_directory(cluster, &pod.uid))?;
    let expected = [
        "containers",
        "containers/web",
        "containers/web/HEX",
        "etc-hosts",
        "plugins",
        "plugins/kubernetes.io~empty-dir",
        "plugins/kubernetes.io~empty-dir/data",
        "plugins/kubernetes.io~empty-dir/data/ready",
        "volumes",
        "volumes/kubernetes.io~empty-dir",
        "volumes/kubernetes.io~empty-dir/data",
    ];
    ensure!(layout == expected, "{layout:?}");
    cluster.kubectl(&["delete", "pod", &pod.name, "--timeout=60s"])?;
    leftovers::of_pods(cluster)
}
