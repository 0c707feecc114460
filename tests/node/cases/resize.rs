//! In-place resize: `kubectl patch --subresource resize` changes the cgroups of what runs.

use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};

use crate::cases::pod::{delete, run_and_wait};
use crate::cluster::Cluster;
use crate::wait;

const RESIZED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: resized}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sleep, "123457"]
    resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 100m, memory: 32Mi}}
    resizePolicy:
    - {resourceName: cpu, restartPolicy: NotRequired}
    - {resourceName: memory, restartPolicy: NotRequired}
  - name: restarts
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sleep, "123458"]
    resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 100m, memory: 32Mi}}
    resizePolicy:
    - {resourceName: memory, restartPolicy: RestartContainer}
"#;

/// Up and down without a restart, in the files of the container and of the pod; with a restart where the policy says so; and
/// what no node has is refused.
pub(crate) fn resize(cluster: &Cluster) -> anyhow::Result<()> {
    run_and_wait(cluster, "resized", RESIZED)?;
    let container = cgroups_of("123457")?;
    ensure!(container.limits()? == (10_000, 32 << 20), "{:?}", container.limits()?);
    for (cpu, memory, own, of_pod) in [
        ("200m", "64Mi", (20_000, 64 << 20), (30_000, 96 << 20)),
        ("50m", "16Mi", (5_000, 16 << 20), (15_000, 48 << 20)),
    ] {
        patch(cluster, "c", cpu, memory)?;
        wait::until(60, "the files say so", || {
            ensure!(container.limits()? == own, "{:?}", container.limits()?);
            ensure!(
                container.parent().limits()? == of_pod,
                "{:?}",
                container.parent().limits()?
            );
            Ok(())
        })?;
        told(cluster, "c", cpu, memory, "0")?;
    }
    patch(cluster, "restarts", "100m", "48Mi")?;
    told(cluster, "restarts", "100m", "48Mi", "1")?;
    wait::until(60, "the new process has it", || {
        let limits = cgroups_of("123458")?.limits()?;
        ensure!(limits == (10_000, 48 << 20), "{limits:?}");
        Ok(())
    })?;
    told(cluster, "c", "50m", "16Mi", "0")?;
    let refused = patch(cluster, "c", "5000", "16Mi")
        .err()
        .map(|error| format!("{error:#}"));
    let why = "Node didn't have enough allocatable resources: cpu, requested: 5000100";
    ensure!(refused.as_deref().is_some_and(|text| text.contains(why)), "{refused:?}");
    delete(cluster, "resized")
}

fn patch(cluster: &Cluster, container: &str, cpu: &str, memory: &str) -> anyhow::Result<()> {
    let list = format!(r#"{{"cpu":"{cpu}","memory":"{memory}"}}"#);
    let patch = format!(
        r#"{{"spec":{{"containers":[{{"name":"{container}","resources":{{"requests":{list},"limits":{list}}}}}]}}}}"#
    );
    let args = ["patch", "pod", "resized", "--subresource", "resize", "--patch", &patch];
    cluster.kubectl(&args).map(|_| ())
}

/// Waits until the status tells these resources, how often the container restarted, and that nothing is under way.
fn told(cluster: &Cluster, container: &str, cpu: &str, memory: &str, restarts: &str) -> anyhow::Result<()> {
    let of = format!("{{.status.containerStatuses[?(@.name==\"{container}\")]");
    let query = format!(
        "{of}.resources.limits.cpu}} {of}.resources.limits.memory}} {of}.allocatedResources.cpu}} {of}.restartCount}} \
         {of}.ready}} {{.status.conditions[?(@.type==\"PodResizeInProgress\")].status}}"
    );
    let wanted = format!("{cpu} {memory} {cpu} {restarts} true ");
    wait::until(60, "the status says so", || {
        let facts = cluster.get(&["pod", "resized"], &query)?;
        ensure!(facts.trim_end() == wanted.trim_end(), "{facts:?}, not {wanted:?}");
        Ok(())
    })
}

/// One cgroup: its directories in the CPU and memory hierarchies, which are one in a unified tree.
struct Cgroup {
    cpu: PathBuf,
    memory: PathBuf,
}

impl Cgroup {
    fn parent(&self) -> Self {
        let up = |path: &Path| path.parent().map_or_else(PathBuf::new, Path::to_owned);
        Self {
            cpu: up(&self.cpu),
            memory: up(&self.memory),
        }
    }

    /// CPU quota in microseconds for each 100 ms, and memory in bytes.
    fn limits(&self) -> anyhow::Result<(i64, i64)> {
        let read = |path: &Path, names: [&str; 2]| -> anyhow::Result<i64> {
            let text = names.iter().find_map(|name| fs::read_to_string(path.join(name)).ok());
            let text = text.with_context(|| format!("no limit in {}", path.display()))?;
            let first = text.split_whitespace().next().unwrap_or_default();
            first.parse().with_context(|| format!("{text:?}"))
        };
        Ok((
            read(&self.cpu, ["cpu.cfs_quota_us", "cpu.max"])?,
            read(&self.memory, ["memory.limit_in_bytes", "memory.max"])?,
        ))
    }
}

/// The cgroup of the process that sleeps for so many seconds.
fn cgroups_of(seconds: &str) -> anyhow::Result<Cgroup> {
    let processes = fs::read_dir("/proc")?.flatten().map(|entry| entry.path());
    let sleeps = |path: &PathBuf| {
        fs::read(path.join("cmdline")).is_ok_and(|line| line == format!("sleep\0{seconds}\0").into_bytes())
    };
    let process = processes.into_iter().find(sleeps).context("nothing sleeps that long")?;
    let text = fs::read_to_string(process.join("cgroup"))?;
    let path = |controller: &str| {
        let mut lines = text.lines().filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            rest.split_once(':')
        });
        let own = lines
            .clone()
            .find(|(names, _)| names.split(',').any(|name| name == controller));
        let mount = Path::new("/sys/fs/cgroup");
        match own {
            Some((_, path)) => Ok(mount.join(controller).join(path.trim_start_matches('/'))),
            None => {
                let unified = lines.find(|(names, _)| names.is_empty());
                let (_, path) = unified.context("no cgroup")?;
                Ok::<_, anyhow::Error>(mount.join(path.trim_start_matches('/')))
            }
        }
    };
    Ok(Cgroup {
        cpu: path("cpu")?,
        memory: path("memory")?,
    })
}
