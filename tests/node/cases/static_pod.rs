//! Static pods: files in a directory, shown by mirror pods, and a kubelet that has nothing but them.

use std::fs;

use anyhow::{Context, ensure};

use crate::cluster::{Cluster, NODE};
use crate::command::{Background, run};
use crate::{leftovers, wait};

/// The manifest of a server with that image.
fn manifest(image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: fixed\n  labels: {{app: fixed}}\nspec:\n  \
         terminationGracePeriodSeconds: 2\n  containers:\n  - name: web\n    image: {image}\n    imagePullPolicy: IfNotPresent\n"
    )
}

fn mirror() -> String {
    format!("fixed-{NODE}")
}

/// Puts the manifest where the kubelet looks, at once.
fn place(cluster: &Cluster, image: &str) -> anyhow::Result<()> {
    let directory = cluster.path("kubelet/manifests");
    fs::create_dir_all(&directory)?;
    let hidden = directory.join(".fixed.yaml");
    fs::write(&hidden, manifest(image))?;
    fs::rename(hidden, directory.join("fixed.yaml")).context("placing the manifest")
}

fn remove(cluster: &Cluster) -> anyhow::Result<()> {
    fs::remove_file(cluster.path("kubelet/manifests/fixed.yaml")).context("removing the manifest")
}

/// Waits until the mirror is ready and not the one of that UID; returns its UID, its container and the pod's address.
fn ready(cluster: &Cluster, other_than: &str) -> anyhow::Result<(String, String, String)> {
    wait::until(60, "the mirror pod is ready", || {
        let path = r#"{.metadata.uid} {.status.containerStatuses[0].containerID} {.status.podIP} {.status.conditions[?(@.type=="Ready")].status}"#;
        let text = cluster.get(&["pod", &mirror()], path)?;
        let words: Vec<&str> = text.split(' ').collect();
        let [uid, container, address, "True"] = words[..] else {
            anyhow::bail!("{text}");
        };
        ensure!(uid != other_than, "the mirror is still {uid}");
        Ok((uid.to_owned(), container.to_owned(), address.to_owned()))
    })
}

/// A file becomes a pod with a mirror; logs and exec go by the mirror's name; the mirror may be deleted; edits replace the pod.
pub(crate) fn static_pod(cluster: &Cluster) -> anyhow::Result<()> {
    leftovers::of_pods(cluster)?;
    place(cluster, "nginx:1.22")?;
    let (uid, container, address) = ready(cluster, "")?;
    let page = cluster.page(&address)?;
    ensure!(page.contains("Welcome to nginx"), "no page");
    cluster.kubectl(&["logs", &mirror()])?;
    ensure!(cluster.kubectl(&["exec", &mirror(), "--", "echo", "inside"])? == "inside\n");

    cluster.kubectl(&["delete", "pod", &mirror(), "--wait=false"])?;
    let (second, same, _) = ready(cluster, &uid)?;
    ensure!(container == same, "deleting the mirror restarted the container");

    // Broken for a while: nothing happens to the pod.
    let path = cluster.path("kubelet/manifests/fixed.yaml");
    fs::write(&path, "apiVersion: v1\nkind: Po")?;
    place(cluster, "nginx:1.22-alt")?;
    let (_, replaced, address) = ready(cluster, &second)?;
    ensure!(container != replaced, "the edit did not replace the container");
    ensure!(cluster.page(&address)? != page, "the old page");

    cluster.kill("kubelet")?;
    cluster.up()?;
    let (_, kept, _) = ready(cluster, "")?;
    ensure!(kept == replaced, "a new kubelet restarted the container");

    remove(cluster)?;
    wait::until(60, "the mirror is gone", || {
        let left = cluster.kubectl(&["get", "pod", &mirror(), "--ignore-not-found", "--no-headers"])?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })?;
    leftovers::of_pods(cluster)
}

/// A kubelet without a kubeconfig: static pods run, its servers answer.
pub(crate) fn standalone(cluster: &Cluster) -> anyhow::Result<()> {
    leftovers::of_pods(cluster)?;
    cluster.kill("kubelet")?;
    let written = fs::read_to_string(cluster.path("kubelet/config.yaml"))?;
    let (head, _) = written
        .split_once("authentication:")
        .context("the config's authentication")?;
    let config = cluster.path("kubelet/standalone.yaml");
    let auth =
        "authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n";
    fs::write(&config, format!("{head}{auth}"))?;
    let mut command = cluster.binary("kubelet");
    command
        .arg("--config")
        .arg(&config)
        .args(["--hostname-override", NODE])
        .arg("--root-dir")
        .arg(cluster.path("kubelet/root"))
        .arg("--cert-dir")
        .arg(cluster.path("kubelet/pki"));
    let kubelet = Background::start(command)?;
    let outcome = standalone_pod(cluster).map_err(|error| {
        let log = kubelet.output().unwrap_or_default();
        error.context(format!("the kubelet says\n{log}"))
    });
    drop(kubelet);
    fs::remove_file(config)?;
    let _ = fs::remove_file(cluster.path("kubelet/manifests/fixed.yaml"));
    cluster.up()?;
    outcome?;
    leftovers::of_pods(cluster)
}

fn standalone_pod(cluster: &Cluster) -> anyhow::Result<()> {
    let get = |url: &str| run("curl", &["-fsSk", "--max-time", "5", url]);
    wait::until(60, "the health port answers", || {
        ensure!(get("http://127.0.0.1:10248/healthz")? == "ok");
        Ok(())
    })?;
    place(cluster, "nginx:1.22")?;
    let address = wait::until(60, "the pod runs", || {
        let pods = get("https://127.0.0.1:10250/pods")?;
        let (_, rest) = pods.split_once(r#""podIP":""#).with_context(|| pods.clone())?;
        ensure!(pods.contains(r#""phase":"Running""#), "{pods}");
        Ok(rest.split('"').next().unwrap_or_default().to_owned())
    })?;
    ensure!(cluster.page(&address)?.contains("Welcome to nginx"), "no page");
    get(&format!(
        "https://127.0.0.1:10250/containerLogs/default/{}/web",
        mirror()
    ))?;
    remove(cluster)?;
    wait::until(60, "no container is left", || {
        let left = cluster.containers()?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
}
