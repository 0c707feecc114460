//! Logs and exec, which stream through the API server and the kubelet.

use anyhow::{Context, ensure};

use crate::cases::pod::{delete, run_and_wait};
use crate::cluster::{Cluster, Wire};
use crate::command::{Background, fail, finish, succeed};
use crate::wait;
use std::process::Command;

/// Runs a case over both wires, and makes sure that each was used: kubectl falls back without a word.
fn over_each(
    cluster: &Cluster,
    path: &str,
    case: impl Fn(&dyn Fn(&[&str]) -> Command) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for wire in Wire::ALL {
        let before = cluster.requests_over(wire, path)?;
        case(&|arguments| cluster.kubectl_over(wire, arguments)).with_context(|| format!("over {wire:?}"))?;
        let after = cluster.requests_over(wire, path)?;
        ensure!(after > before, "{wire:?} was not spoken");
    }
    Ok(())
}

/// A pod that writes ten lines to each stream and goes on.
const TALKER: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: talker}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: talk
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sh, -c, 'for i in 0 1 2 3 4 5 6 7 8 9; do echo "line $i"; done; echo "to stderr" >&2; sleep 100000']
  - name: quiet
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sleep, "100000"]
"#;

/// `kubectl logs` and its options.
pub(crate) fn logs(cluster: &Cluster) -> anyhow::Result<()> {
    run_and_wait(cluster, "talker", TALKER)?;
    let all = wait::until(60, "everything is in the log", || {
        let all = cluster.kubectl(&["logs", "talker", "-c", "talk"])?;
        ensure!(all.lines().count() == 11, "{all}");
        Ok(all)
    })?;
    let written: Vec<_> = all
        .lines()
        .filter(|line| line.starts_with("line"))
        .map(str::to_owned)
        .collect();
    let expected: Vec<_> = (0..10).map(|number| format!("line {number}")).collect();
    ensure!(written == expected && all.contains("to stderr"), "{all}");
    let tail = cluster.kubectl(&["logs", "talker", "-c", "talk", "--tail=3"])?;
    ensure!(tail.lines().count() == 3, "{tail}");
    let stamped = cluster.kubectl(&["logs", "talker", "-c", "talk", "--timestamps", "--tail=1"])?;
    ensure!(
        stamped
            .split(' ')
            .next()
            .is_some_and(|stamp| stamp.starts_with("20") && stamp.contains('T')),
        "{stamped}"
    );
    let limited = cluster.kubectl(&["logs", "talker", "-c", "talk", "--limit-bytes=4"])?;
    ensure!(limited.len() == 4, "{limited:?}");
    ensure!(
        cluster.kubectl(&["logs", "talker", "-c", "quiet"])?.is_empty(),
        "the quiet container has a log"
    );
    let unknown = cluster.kubectl_fails(&["logs", "talker", "-c", "nobody"], None)?;
    ensure!(
        unknown.contains("container nobody is not valid for pod talker"),
        "{unknown}"
    );
    delete(cluster, "talker")
}

/// `kubectl logs -f`: lines come while they are written, and the end of the container ends it.
pub(crate) fn logs_follow(cluster: &Cluster) -> anyhow::Result<()> {
    run_and_wait(
        cluster,
        "ticker",
        r#"
apiVersion: v1
kind: Pod
metadata: {name: ticker}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  volumes: [{name: d, emptyDir: {}}]
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    volumeMounts: [{name: d, mountPath: /d}]
    command: [sh, -c, 'i=0; while [ ! -e /d/end ]; do echo "tick $i"; i=$((i+1)); sleep 0.2; done; echo last']
"#,
    )?;
    let mut follow = Background::start(cluster.kubectl_command(&["logs", "-f", "ticker"]))?;
    let ticks =
        |follow: &Background| anyhow::Ok(follow.output()?.lines().filter(|line| line.starts_with("tick")).count());
    let first = wait::until(60, "lines are followed", || {
        let count = ticks(&follow)?;
        ensure!(count >= 3, "{count} lines");
        Ok(count)
    })?;
    wait::until(60, "more lines come", || {
        let count = ticks(&follow)?;
        ensure!(count >= first + 5, "{count} lines");
        Ok(())
    })?;
    cluster.kubectl(&["exec", "ticker", "--", "touch", "/d/end"])?;
    wait::until(60, "the end of the container ends the following", || {
        ensure!(follow.ended()?, "kubectl logs -f still runs");
        Ok(())
    })?;
    let output = follow.output()?;
    let lines: Vec<_> = output.lines().collect();
    let expected: Vec<_> = (0..lines.len() - 1)
        .map(|number| format!("tick {number}"))
        .chain(["last".to_owned()])
        .collect();
    ensure!(lines == expected, "lines lost or doubled: {output}");
    delete(cluster, "ticker")
}

/// `kubectl exec`: output, error output, exit code, and a command that is not there.
pub(crate) fn exec(cluster: &Cluster) -> anyhow::Result<()> {
    run_and_wait(cluster, "talker", TALKER)?;
    over_each(cluster, "exec", exec_over)?;
    delete(cluster, "talker")
}

fn exec_over(kubectl: &dyn Fn(&[&str]) -> Command) -> anyhow::Result<()> {
    let name = succeed(kubectl(&["exec", "talker", "-c", "quiet", "--", "hostname"]), None)?;
    ensure!(name.trim() == "talker", "{name}");
    let arguments = [
        "exec",
        "talker",
        "-c",
        "quiet",
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; exit 7",
    ];
    let (_, output) = finish(kubectl(&arguments), None)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(output.status.code() == Some(7), "{}", output.status);
    ensure!(text(&output.stdout) == "out\n", "{}", text(&output.stdout));
    ensure!(text(&output.stderr).starts_with("err\n"), "{}", text(&output.stderr));
    let absent = fail(
        kubectl(&["exec", "talker", "-c", "quiet", "--", "/no/such/program"]),
        None,
    )?;
    ensure!(absent.contains("/no/such/program"), "{absent}");
    let much = succeed(
        kubectl(&["exec", "talker", "-c", "quiet", "--", "sh", "-c", "seq 200000"]),
        None,
    )?;
    ensure!(
        much.lines().count() == 200_000 && much.ends_with("200000\n"),
        "{} lines came",
        much.lines().count()
    );
    Ok(())
}

/// `kubectl exec -i < file`: every byte arrives, and the end of the file is seen.
pub(crate) fn exec_input(cluster: &Cluster) -> anyhow::Result<()> {
    run_and_wait(cluster, "talker", TALKER)?;
    over_each(cluster, "exec", exec_input_over)?;
    delete(cluster, "talker")
}

fn exec_input_over(kubectl: &dyn Fn(&[&str]) -> Command) -> anyhow::Result<()> {
    let bytes: Vec<u8> = (0u32..3_000_000)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let command = kubectl(&["exec", "-i", "talker", "-c", "quiet", "--", "sha256sum"]);
    let there = succeed(command, Some(&bytes))?;
    let here = succeed(std::process::Command::new("sha256sum"), Some(&bytes))?;
    ensure!(there == here, "in the container {there}, here {here}");
    // Not all of it is read: the command's end ends the session. No more than a pipe holds: the shim of containerd 1.6
    // keeps the reading end of the command's input open, and with more than that it waits for ever, whoever is the kubelet.
    let command = kubectl(&["exec", "-i", "talker", "-c", "quiet", "--", "head", "-c", "5"]);
    let head = succeed(command, Some("hello".repeat(10_000).as_bytes()))?;
    ensure!(head == "hello", "{head:?}");
    let command = kubectl(&[
        "exec",
        "-i",
        "talker",
        "-c",
        "quiet",
        "--",
        "sh",
        "-c",
        "cat >/dev/null; exit 3",
    ]);
    fail(command, Some(b"input"))?;
    Ok(())
}

/// `kubectl exec -it` under a terminal.
pub(crate) fn exec_terminal(cluster: &Cluster) -> anyhow::Result<()> {
    run_and_wait(cluster, "talker", TALKER)?;
    // The size comes after the session has begun: the command waits for it.
    let wait = "for i in $(seq 100); do stty size 2>/dev/null | grep -q 33 && break; sleep 0.1; done";
    let inside = format!("tty; {wait}; stty size; echo typed: $(head -n 1)");
    let session = format!("kubectl exec -it talker -c quiet -- sh -c '{inside}'");
    let mut command = std::process::Command::new("script");
    command.env("KUBECONFIG", cluster.path("controlplane/admin.kubeconfig"));
    command.args([
        "--quiet",
        "--return",
        "--command",
        &format!("stty rows 33 cols 77; {session}"),
        "/dev/null",
    ]);
    let output = succeed(command, Some(b"hello\n"))?;
    ensure!(output.contains("/dev/pts/"), "{output}");
    ensure!(
        output.contains("33 77"),
        "the terminal's size does not arrive: {output}"
    );
    ensure!(output.contains("typed: hello"), "{output}");
    delete(cluster, "talker")
}
