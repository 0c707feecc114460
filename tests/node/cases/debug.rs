//! `kubectl debug`: an ephemeral container beside a running one.

use anyhow::ensure;

use crate::cases::pod::{delete, run_and_wait};
use crate::cluster::Cluster;
use crate::command::succeed;
use crate::wait;

const DEBUGGED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: debugged}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sleep, "123456"]
"#;

/// What the container looks at: the processes of its target, of which the first is the target's own.
const LOOK: &str = "read line; tr \"\\0\" \" \" < /proc/1/cmdline; echo; echo got $line; tty";

/// A terminal in the target's process namespace; then its log and its status, which stay, and the pod, which never noticed.
pub(crate) fn debug(cluster: &Cluster) -> anyhow::Result<()> {
    run_and_wait(cluster, "debugged", DEBUGGED)?;
    let session = format!(
        "kubectl debug -it debugged -c look --target=c --image=busybox --image-pull-policy=IfNotPresent \
         --profile=general -- sh -c '{LOOK}'"
    );
    let mut command = std::process::Command::new("script");
    command.env("KUBECONFIG", cluster.path("controlplane/admin.kubeconfig"));
    command.args(["--quiet", "--return", "--command", &session, "/dev/null"]);
    let output = succeed(command, Some(b"hello\n"))?;
    ensure!(output.contains("got hello"), "{output}");
    let code = "{.status.ephemeralContainerStatuses[0].state.terminated.exitCode}";
    wait::until(60, "the end is told", || {
        let code = cluster.get(&["pod", "debugged"], code)?;
        ensure!(code == "0", "{code:?}");
        Ok(())
    })?;
    let log = cluster.kubectl(&["logs", "debugged", "-c", "look"])?;
    ensure!(log.contains("sleep 123456") && log.contains("/dev/"), "{log}");
    let facts = "{.metadata.generation} {.status.observedGeneration} {.status.phase} \
                 {.status.containerStatuses[0].restartCount} {.status.ephemeralContainerStatuses[0].name}";
    let facts = cluster.get(&["pod", "debugged"], facts)?;
    ensure!(facts == "2 2 Running 0 look", "{facts}");
    delete(cluster, "debugged")
}
