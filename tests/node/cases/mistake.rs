//! Bad input: a clear error that names the thing, where a person looks, and nothing else is harmed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::cases::pod::{delete, run_and_wait};
use crate::cluster::Cluster;
use crate::command::{fail, run, succeed};
use crate::{leftovers, wait};

/// What was said names the thing.
fn says(said: &str, expected: &str) -> anyhow::Result<()> {
    ensure!(said.contains(expected), "{expected:?} is not in what was said:\n{said}");
    Ok(())
}

fn sleeper(name: &str, image: &str, extra: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {{name: c, image: "{image}"{extra}}}
"#
    )
}

fn busybox(name: &str) -> String {
    sleeper(
        name,
        "busybox",
        r#", imagePullPolicy: IfNotPresent, command: [sleep, "100000"]"#,
    )
}

/// Manifests kubectl or the API server refuses.
pub(crate) fn manifests(cluster: &Cluster) -> anyhow::Result<()> {
    for (manifest, expected) in [
        ("kind: [", "error converting YAML to JSON"),
        (
            &busybox("mistake").replace("containers:", "contaners:"),
            "unknown field \"spec.contaners\"",
        ),
        (&busybox("Mis_take"), "metadata.name: Invalid value: \"Mis_take\""),
        (
            &busybox("mistake").replace("busybox", ""),
            "spec.containers[0].image: Required value",
        ),
        (
            &busybox("mistake").replace("IfNotPresent", "Perhaps"),
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Perhaps\"",
        ),
        (
            &busybox("mistake").replace("name: c,", "name: c, resources: {requests: {cpu: lots}},"),
            "quantities must match the regular expression",
        ),
    ] {
        let said = cluster.kubectl_fails(&["apply", "-f", "-"], Some(manifest.as_bytes()))?;
        says(&said, expected)?;
    }
    says(
        &cluster.kubectl_fails(&["get", "frobs"], None)?,
        "the server doesn't have a resource type \"frobs\"",
    )?;
    says(
        &cluster.kubectl_fails(&["get", "pod", "nobody"], None)?,
        "pods \"nobody\" not found",
    )?;
    says(
        &cluster.kubectl_fails(&["create", "deployment", "web", "--image=nginx", "-n", "nowhere"], None)?,
        "namespaces \"nowhere\" not found",
    )?;
    let left = cluster.kubectl(&["get", "pods", "--no-headers", "--ignore-not-found"])?;
    ensure!(left.is_empty(), "refused, yet there: {left}");
    Ok(())
}

/// An image no registry has: the pod says so and names it; a pod beside it runs.
pub(crate) fn absent_image(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.apply(&sleeper("absent", "no-such-image:1", ""))?;
    run_and_wait(cluster, "beside", &busybox("beside"))?;
    wait::until(90, "the container waits with the reason", || {
        let waiting =
            "{.status.containerStatuses[0].state.waiting.reason} {.status.containerStatuses[0].state.waiting.message}";
        let waiting = cluster.get(&["pod", "absent"], waiting)?;
        ensure!(
            waiting.starts_with("ErrImagePull ") || waiting.starts_with("ImagePullBackOff "),
            "{waiting}"
        );
        says(&waiting, "no-such-image:1")
    })?;
    wait::until(60, "the event", || {
        let events = cluster.kubectl(&["get", "events", "--field-selector", "involvedObject.name=absent"])?;
        says(&events, "Failed to pull image \"no-such-image:1\"")
    })?;
    let phase = cluster.get(&["pod", "absent"], "{.status.phase}")?;
    ensure!(phase == "Pending", "{phase}");
    delete(cluster, "absent")?;
    delete(cluster, "beside")
}

/// An image without entrypoint and command, in a pod without one.
pub(crate) fn image_without_command(cluster: &Cluster) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let [tree, layout, archive] = ["tree", "layout", "archive.tar"].map(|name| scratch.path().join(name));
    fs::create_dir(&tree)?;
    fs::write(tree.join("file"), "")?;
    let mut add = cluster.binary("imagetool");
    add.arg("add").arg("--layout").arg(&layout).arg("--layer").arg(&tree);
    add.args(["--name", "docker.io/library/silent:latest"]);
    succeed(add, None)?;
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&layout).arg("-cf").arg(&archive).arg(".");
    succeed(tar, None)?;
    cluster.ctr(&["images", "import", &archive.display().to_string()])?;
    cluster.apply(&sleeper("silent", "silent", ", imagePullPolicy: Never"))?;
    wait::until(60, "the container waits with the reason", || {
        let waiting =
            "{.status.containerStatuses[0].state.waiting.reason} {.status.containerStatuses[0].state.waiting.message}";
        let waiting = cluster.get(&["pod", "silent"], waiting)?;
        says(&waiting, "CreateContainerError")?;
        says(&waiting, "no command specified")
    })?;
    delete(cluster, "silent")?;
    cluster
        .ctr(&["images", "remove", "docker.io/library/silent:latest"])
        .map(drop)
}

/// More pods than addresses: the last says so, and gets the first address that becomes free.
pub(crate) fn address_range_exhausted(cluster: &Cluster) -> anyhow::Result<()> {
    // The runtime takes a pod's address back by the configuration of the moment, so no pod may be in between.
    leftovers::of_pods(cluster)?;
    let file = cluster.path("cni/net.d/00-small.conflist");
    let reservations = cluster.path("cni/small");
    fs::write(
        &file,
        format!(
            r#"{{"cniVersion": "1.0.0", "name": "small", "plugins": [{{"type": "bridge", "bridge": "small0", "isGateway": true,
               "ipam": {{"type": "host-local", "dataDir": "{}",
                         "ranges": [[{{"subnet": "10.99.0.0/29", "rangeStart": "10.99.0.2", "rangeEnd": "10.99.0.3"}}]]}}}}]}}"#,
            reservations.display()
        ),
    )?;
    reload_network(cluster)?;
    for name in ["first", "second"] {
        run_and_wait(cluster, name, &busybox(name))?;
        let address = cluster.get(&["pod", name], "{.status.podIP}")?;
        ensure!(address.starts_with("10.99.0."), "{name} has {address}");
    }
    cluster.apply(&busybox("third"))?;
    wait::until(60, "the event", || {
        let events = cluster.kubectl(&["get", "events", "--field-selector", "involvedObject.name=third"])?;
        says(&events, "FailedCreatePodSandBox")?;
        says(&events, "no IP addresses available in range set: 10.99.0.2-10.99.0.3")
    })?;
    delete(cluster, "first")?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=100s", "pod/third"])?;
    delete(cluster, "second")?;
    delete(cluster, "third")?;
    leftovers::of_pods(cluster)?;
    fs::remove_file(&file)?;
    reload_network(cluster)?;
    run("ip", &["link", "delete", "small0"]).map(drop)
}

/// The runtime reads its network configuration when it starts.
fn reload_network(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.kill("containerd")?;
    cluster.up()
}

/// A pod that asks for more than the node has.
pub(crate) fn pod_that_fits_nowhere(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.apply(&sleeper("big", "busybox", ", resources: {requests: {cpu: 1000}}"))?;
    wait::until(60, "the condition and the event", || {
        let path = r#"{.status.conditions[?(@.type=="PodScheduled")].reason} {.status.conditions[?(@.type=="PodScheduled")].message}"#;
        let condition = cluster.get(&["pod", "big"], path)?;
        says(&condition, "Unschedulable 0/1 nodes are available: 1 Insufficient cpu.")?;
        let events = cluster.kubectl(&["get", "events", "--field-selector", "involvedObject.name=big"])?;
        says(&events, "FailedScheduling")
    })?;
    delete(cluster, "big")
}

/// The running kubelet's command, to be spoilt in one place.
fn kubelet(cluster: &Cluster, config: &Path, kubeconfig: &Path, root: &Path) -> Command {
    let mut command = cluster.binary("kubelet");
    command
        .arg("--config")
        .arg(config)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--root-dir")
        .arg(root);
    command
        .arg("--cert-dir")
        .arg(root.join("pki"))
        .args(["--hostname-override", "other-node"]);
    command.arg("--cni-conf-dir").arg(root.join("cni"));
    command
}

/// A kubelet that cannot start says why and ends; the running one does not mind.
pub(crate) fn kubelet_refuses(cluster: &Cluster) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let root = scratch.path().join("root");
    let written = fs::read_to_string(cluster.path("kubelet/config.yaml"))?;
    let config = |name: &str, change: &dyn Fn(&str) -> String| -> anyhow::Result<std::path::PathBuf> {
        let path = scratch.path().join(name);
        fs::write(&path, change(&written))?;
        Ok(path)
    };
    let free_ports = |text: &str| {
        text.replace("port: 10250", "port: 10350")
            .replace("healthzPort: 10248", "healthzPort: 10348")
    };
    let good = config("good.yaml", &free_ports)?;
    let kubeconfig = cluster.path("kubelet/kubeconfig");
    let pid = cluster.pid("kubelet")?;

    let mut unknown_flag = kubelet(cluster, &good, &kubeconfig, &root);
    unknown_flag.arg("--no-such-flag");
    says(&fail(unknown_flag, None)?, "no-such-flag")?;

    let unknown_field = config("field.yaml", &|text| format!("{text}noSuchField: 1\n"))?;
    says(
        &fail(kubelet(cluster, &unknown_field, &kubeconfig, &root), None)?,
        "noSuchField",
    )?;

    let absent = scratch.path().join("absent.yaml");
    says(
        &fail(kubelet(cluster, &absent, &kubeconfig, &root), None)?,
        "absent.yaml",
    )?;
    says(
        &fail(
            kubelet(cluster, &good, &scratch.path().join("absent.kubeconfig"), &root),
            None,
        )?,
        "absent.kubeconfig",
    )?;

    let broken = scratch.path().join("broken.kubeconfig");
    fs::write(&broken, "clusters: {")?;
    says(
        &fail(kubelet(cluster, &good, &broken, &root), None)?,
        "broken.kubeconfig",
    )?;

    let socket = cluster.path("run/containerd.sock").display().to_string();
    let no_runtime = config("runtime.yaml", &|text| {
        free_ports(text).replace(&socket, "/nowhere/runtime.sock")
    })?;
    says(
        &fail(kubelet(cluster, &no_runtime, &kubeconfig, &root), None)?,
        "/nowhere/runtime.sock",
    )?;

    let taken = config("port.yaml", &|text| {
        text.replace("healthzPort: 10248", "healthzPort: 10348")
    })?;
    says(&fail(kubelet(cluster, &taken, &kubeconfig, &root), None)?, "10250")?;

    let running = cluster.path("kubelet/root");
    says(
        &fail(kubelet(cluster, &good, &kubeconfig, &running), None)?,
        &running.display().to_string(),
    )?;

    ensure!(cluster.pid("kubelet")? == pid, "the running kubelet was harmed");
    cluster.kubectl(&["delete", "node", "other-node", "--ignore-not-found"])?;
    run_and_wait(cluster, "after", &busybox("after"))?;
    delete(cluster, "after")
}

/// A control plane that cannot start says why and ends; the running one does not mind.
pub(crate) fn controlplane_refuses(cluster: &Cluster) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let pid = cluster.pid("controlplane")?;
    let running = cluster.path("controlplane").display().to_string();
    let fresh = scratch.path().join("fresh").display().to_string();
    for (arguments, expected) in [
        (vec!["--data-dir", &running, "--secure-port", "7443"], running.as_str()),
        (vec!["--data-dir", &fresh, "--secure-port", "6443"], "6443"),
        (
            vec![
                "--data-dir",
                &fresh,
                "--secure-port",
                "7443",
                "--etcd-servers",
                "https://127.0.0.1:2379",
            ],
            "etcd-cafile",
        ),
        (
            vec!["--data-dir", &fresh, "--secure-port", "7443", "--no-such-flag"],
            "no-such-flag",
        ),
        (
            vec![
                "--data-dir",
                &fresh,
                "--secure-port",
                "7443",
                "--cluster-cidr",
                "10.300.0.0/16",
            ],
            "10.300.0.0/16",
        ),
        (
            vec![
                "--data-dir",
                &fresh,
                "--secure-port",
                "7443",
                "--token-auth-file",
                "/nowhere/tokens",
            ],
            "/nowhere/tokens",
        ),
    ] {
        let mut command = cluster.binary("controlplane");
        command.args(["--bind-address", "127.0.0.1"]).args(&arguments);
        let said = fail(command, None).with_context(|| arguments.join(" "))?;
        says(&said, expected).with_context(|| arguments.join(" "))?;
    }
    ensure!(
        cluster.pid("controlplane")? == pid,
        "the running control plane was harmed"
    );
    cluster.kubectl(&["get", "--raw", "/readyz"]).map(drop)
}

/// The CNI plugins are gone: pods wait and say why; when they are back everything goes on by itself.
pub(crate) fn plugins_missing(cluster: &Cluster) -> anyhow::Result<()> {
    let (plugins, aside) = (cluster.path("cni/bin"), cluster.path("cni/bin.aside"));
    fs::rename(&plugins, &aside)?;
    let outcome = cluster
        .kubectl(&["run", "unplugged", "--image=nginx", "--image-pull-policy=IfNotPresent"])
        .and_then(|_| {
            wait::until(60, "an event tells that a plugin is missing", || {
                let events =
                    cluster.kubectl(&["get", "events", "--field-selector", "involvedObject.name=unplugged"])?;
                ensure!(
                    events.contains("FailedCreatePodSandBox") && events.contains("failed to find plugin"),
                    "{events}"
                );
                Ok(())
            })
        });
    fs::rename(&aside, &plugins)?;
    outcome?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/unplugged", "--timeout=60s"])?;
    cluster
        .kubectl(&["delete", "pod", "unplugged", "--timeout=60s"])
        .map(drop)
}

/// A data directory without room: a control plane on it says so.
pub(crate) fn full_disk(cluster: &Cluster) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let small = scratch.path().display().to_string();
    run("mount", &["-t", "tmpfs", "-o", "size=64k", "tmpfs", &small])?;
    let mut command = cluster.binary("controlplane");
    let data = scratch.path().join("data").display().to_string();
    command.args([
        "--bind-address",
        "127.0.0.1",
        "--secure-port",
        "7443",
        "--data-dir",
        &data,
    ]);
    let said = fail(command, None);
    run("umount", &[&small])?;
    let said = said?;
    says(&said, "no space left for")?;
    says(&said, &small)
}
