//! `kubectl port-forward`, `cp` and `edit`, against a pod that runs.

use crate::cases::pod::{delete, run_and_wait};
use crate::cluster::{Cluster, Wire};
use crate::command::{Background, run, succeed};
use crate::wait;
use anyhow::{Context, ensure};
use std::fs;

/// A server and a shell beside it.
const SERVER: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: server, annotations: {colour: red}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: nginx
    image: nginx
  - name: shell
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sleep, "100000"]
"#;

/// The local port that kubectl says it listens on.
fn local_port(output: &str) -> Option<u16> {
    let line = output
        .lines()
        .find(|line| line.starts_with("Forwarding from 127.0.0.1:"))?;
    let port = line.strip_prefix("Forwarding from 127.0.0.1:")?;
    port.split(' ').next()?.parse().ok()
}

/// A session to one port of the pod, and the local port it listens on.
fn forward(cluster: &Cluster, wire: Wire, port: &str) -> anyhow::Result<(Background, u16)> {
    let session = Background::start(cluster.kubectl_over(wire, &["port-forward", "pod/server", port]))?;
    let local = wait::until(60, "kubectl listens", || {
        let output = session.output()?;
        local_port(&output).with_context(|| output.clone())
    })?;
    Ok((session, local))
}

/// `kubectl port-forward`: several requests, one after the other and at once; a port nobody listens on is told.
pub(crate) fn port_forward(cluster: &Cluster) -> anyhow::Result<()> {
    run_and_wait(cluster, "server", SERVER)?;
    for wire in Wire::ALL {
        let before = cluster.requests_over(wire, "portForward")?;
        forward_over(cluster, wire).with_context(|| format!("over {wire:?}"))?;
        let after = cluster.requests_over(wire, "portForward")?;
        ensure!(after > before, "{wire:?} was not spoken");
    }
    delete(cluster, "server")
}

fn forward_over(cluster: &Cluster, wire: Wire) -> anyhow::Result<()> {
    let (mut session, port) = forward(cluster, wire, ":80")?;
    let url = format!("http://127.0.0.1:{port}/");
    for _ in 0..5 {
        let text = run("curl", &["-fsS", "--max-time", "10", &url])?;
        ensure!(text.contains("nginx"), "{text}");
    }
    let many = run(
        "curl",
        &["-fsS", "--max-time", "10", "--parallel", &url, &url, &url, &url],
    )?;
    ensure!(many.matches("<title>").count() == 4, "{many}");
    ensure!(!session.ended()?, "{}", session.output()?);
    drop(session);
    let (session, port) = forward(cluster, wire, ":81")?;
    let url = format!("http://127.0.0.1:{port}/");
    ensure!(
        run("curl", &["-fsS", "--max-time", "10", &url]).is_err(),
        "nobody listens on port 81"
    );
    wait::until(60, "the reason is told", || {
        let output = session.output()?;
        ensure!(output.contains("an error occurred forwarding"), "{output}");
        Ok(())
    })
}

/// `kubectl cp` both ways: a file, a directory with a link, and bytes that no text has.
pub(crate) fn copy(cluster: &Cluster) -> anyhow::Result<()> {
    run_and_wait(cluster, "server", SERVER)?;
    let here = tempfile::tempdir()?;
    let tree = here.path().join("tree");
    fs::create_dir_all(tree.join("deep/er"))?;
    let bytes: Vec<u8> = (0u32..1_000_000)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect();
    fs::write(tree.join("deep/er/bytes"), &bytes)?;
    fs::write(tree.join("empty"), "")?;
    let source = tree.display().to_string();
    cluster.kubectl(&["cp", &source, "server:/tmp/tree", "-c", "shell"])?;
    let sum = [
        "exec",
        "server",
        "-c",
        "shell",
        "--",
        "sha256sum",
        "/tmp/tree/deep/er/bytes",
    ];
    let there = cluster.kubectl(&sum)?;
    let own = succeed(std::process::Command::new("sha256sum"), Some(&bytes))?;
    ensure!(
        there.split(' ').next() == own.split(' ').next(),
        "there {there}, here {own}"
    );
    let back = here.path().join("back");
    cluster.kubectl(&["cp", "-c", "shell", "server:/tmp/tree", &back.display().to_string()])?;
    ensure!(
        fs::read(back.join("deep/er/bytes"))? == bytes,
        "the bytes came back changed"
    );
    ensure!(
        fs::read(back.join("empty"))?.is_empty(),
        "the empty file came back filled"
    );
    // Whether kubectl itself says so depends on what it sees first, the archive's end or tar's: only what it leaves does not.
    let absent = here.path().join("absent");
    let path = absent.display().to_string();
    cluster
        .kubectl_command(&["cp", "-c", "shell", "server:/no/such/file", &path])
        .output()?;
    ensure!(!absent.exists(), "something was copied");
    delete(cluster, "server")
}

/// `kubectl edit` with a script for an editor: the change arrives, and a mistake is told and changes nothing.
pub(crate) fn edit(cluster: &Cluster) -> anyhow::Result<()> {
    run_and_wait(cluster, "server", SERVER)?;
    let with_editor = |editor: &str| {
        let mut command = cluster.kubectl_command(&["edit", "pod", "server"]);
        command.env("KUBE_EDITOR", editor);
        command
    };
    let output = succeed(with_editor("sed -i s/red/green/"), None)?;
    ensure!(output.contains("pod/server edited"), "{output}");
    let colour = || cluster.get(&["pod", "server"], "{.metadata.annotations.colour}");
    ensure!(colour()? == "green", "{}", colour()?);
    succeed(with_editor("true"), None)?;
    // The name of a container is not a pod's to change; an editor that gives up ends the edit.
    let refused = crate::command::fail(
        with_editor("sed -i -e s/green/blue/ -e s/terminationMessagePolicy:/nonsense:/"),
        None,
    )?;
    ensure!(!refused.is_empty(), "the refusal says nothing");
    ensure!(colour()? == "green", "{}", colour()?);
    delete(cluster, "server")
}
