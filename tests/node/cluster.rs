//! The cluster under test: its own network namespace, data directory, cgroup and ports; commands run against it.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::command::{fail, run, succeed};
use crate::leftovers;

/// What kubectl speaks with containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Since kubectl 1.31.
    WebSocket,
    /// Before that, and whenever a WebSocket is refused.
    Spdy,
}

impl Wire {
    pub(crate) const ALL: [Self; 2] = [Self::WebSocket, Self::Spdy];
}

/// The one node's name.
pub(crate) const NODE: &str = "node-under-test";
/// Where the API server listens inside the namespace.
const API_PORT: &str = "6443";

/// A cluster in a network namespace of its own, which this process has entered.
pub(crate) struct Cluster {
    root: PathBuf,
    target: PathBuf,
    data: PathBuf,
    cgroup: String,
    pod_cidr: String,
    namespace: String,
    /// What `hack/` is told besides.
    settings: Vec<(&'static str, String)>,
    _scratch: tempfile::TempDir,
    /// What keeps the range this run's own.
    _range: fs::File,
}

/// A number from `first` on that no other run on this machine has: ranges of addresses are made of it, and reservations of all
/// clusters of a machine are in one directory. It is this run's for as long as the file is open.
fn own_number(first: u32, count: u32) -> anyhow::Result<(u32, fs::File)> {
    let begin = std::process::id() % count;
    for number in (0..count).map(|step| first + (begin + step) % count) {
        let path = std::env::temp_dir().join(format!("skiff-node-range-{number}.lock"));
        let file = fs::File::create(&path).with_context(|| path.display().to_string())?;
        if file.try_lock().is_ok() {
            return Ok((number, file));
        }
    }
    bail!("{count} other runs have all the ranges from 10.{first}.0.0/16 on")
}

impl Cluster {
    /// Chooses names and makes the network namespace.
    pub(crate) fn prepare() -> anyhow::Result<Self> {
        // 10.99 and 10.96 are of others.
        let (number, range) = own_number(100, 100)?;
        Self::of("", (format!("10.{number}.0.0/16"), range), Vec::new())
    }

    /// A dual-stack cluster, in a network namespace of its own beside the other's.
    pub(crate) fn prepare_dual_stack() -> anyhow::Result<Self> {
        // Not those of other clusters, nor the Services' range.
        let (number, range) = own_number(200, 50)?;
        let settings = vec![
            ("SKIFF_DUAL_STACK", "1".to_owned()),
            ("SKIFF_POD_CIDR6", format!("fd00:10:{number}::/56")),
        ];
        Self::of("-dual", (format!("10.{number}.0.0/16"), range), settings)
    }

    /// A cluster of several control planes over as many members of etcd, in a network namespace of its own beside the other's.
    pub(crate) fn prepare_planes(count: usize) -> anyhow::Result<Self> {
        let (number, range) = own_number(200, 50)?;
        let settings = vec![("SKIFF_CONTROL_PLANES", count.to_string())];
        Self::of("-planes", (format!("10.{number}.0.0/16"), range), settings)
    }

    /// A case of a cluster of its own, beside this one: it is removed, and nothing of it may be left, whatever comes of the case.
    pub(crate) fn beside(&self, own: &Self, check: impl FnOnce(&Self) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let checked = catch_unwind(AssertUnwindSafe(|| {
            own.enter_namespace()?;
            check(own).inspect_err(|_| own.explain())
        }));
        let ended = catch_unwind(AssertUnwindSafe(|| own.down()));
        // The cases that follow run in there.
        self.return_to_namespace()?;
        checked.unwrap_or_else(|panic| resume_unwind(panic))?;
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn of(
        suffix: &str,
        (pod_cidr, range): (String, fs::File),
        settings: Vec<(&'static str, String)>,
    ) -> anyhow::Result<Self> {
        ensure!(nix::unistd::geteuid().is_root(), "real-node tests need root");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("the workspace's directory")?
            .to_owned();
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let namespace = format!("skiff-node-{}{suffix}", std::process::id());
        let scratch = tempfile::Builder::new().prefix("skiff-node-").tempdir()?;
        let cluster = Self {
            data: scratch.path().join("data"),
            cgroup: format!("/{namespace}"),
            pod_cidr,
            settings,
            root,
            target,
            namespace,
            _scratch: scratch,
            _range: range,
        };
        run("ip", &["netns", "add", &cluster.namespace])?;
        Ok(cluster)
    }

    /// Moves this process into the namespace again.
    pub(crate) fn return_to_namespace(&self) -> anyhow::Result<()> {
        let file = fs::File::open(format!("/run/netns/{}", self.namespace))?;
        nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).context("entering the network namespace")
    }

    /// Moves this process into the namespace, and so everything it starts from now on.
    pub(crate) fn enter_namespace(&self) -> anyhow::Result<()> {
        self.return_to_namespace()?;
        // An address and a default route, which a node takes its own address from; nothing is behind them.
        for line in [
            "link set lo up",
            "link add uplink type veth peer name uplink-peer",
            "link set uplink-peer up",
            "address add 192.0.2.2/24 dev uplink",
            "link set uplink up",
            "route add default via 192.0.2.1",
        ] {
            run("ip", &line.split(' ').collect::<Vec<_>>())?;
        }
        // No name can be looked up in here: that is to be known at once, not after a resolver's patience.
        for line in fs::read_to_string("/etc/resolv.conf").unwrap_or_default().lines() {
            let server = line.strip_prefix("nameserver ").map(str::trim).unwrap_or_default();
            if server
                .parse::<std::net::Ipv4Addr>()
                .is_ok_and(|address| !address.is_loopback())
            {
                run("ip", &["route", "add", "unreachable", server])?;
            }
        }
        Ok(())
    }

    /// `hack/up`.
    pub(crate) fn up(&self) -> anyhow::Result<()> {
        succeed(self.hack("up"), None).map(drop)
    }

    /// `hack/down --purge`, after which nothing may be left. The network namespace goes whatever comes of it.
    pub(crate) fn down(&self) -> anyhow::Result<()> {
        let removed = catch_unwind(AssertUnwindSafe(|| {
            let mut command = self.hack("down");
            command.arg("--purge");
            succeed(command, None)?;
            // What has ended the kernel takes away in its own time.
            crate::wait::until(30, "nothing is left of the cluster", || leftovers::of_cluster(self))
        }));
        let deleted = run("ip", &["netns", "delete", &self.namespace]);
        removed.unwrap_or_else(|panic| resume_unwind(panic))?;
        deleted.map(drop)
    }

    /// A command of `hack/`, set to this cluster.
    pub(crate) fn hack(&self, name: &str) -> Command {
        let mut command = Command::new(self.root.join("hack").join(name));
        command
            .env("SKIFF_DATA", &self.data)
            .env("SKIFF_NODE", NODE)
            .env("SKIFF_API_PORT", API_PORT)
            .env("SKIFF_CGROUP", &self.cgroup)
            .env("SKIFF_POD_CIDR", &self.pod_cidr)
            .env("SKIFF_NO_BUILD", "1")
            .env("SKIFF_IMAGES", self.images())
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// Where images are kept for all runs of the tests.
    pub(crate) fn images(&self) -> PathBuf {
        std::env::var_os("SKIFF_IMAGES").map_or_else(|| self.target.join("images"), PathBuf::from)
    }

    /// One of the cluster's binaries.
    pub(crate) fn binary(&self, name: &str) -> Command {
        Command::new(self.data.join("bin").join(name))
    }

    /// The cluster's kubelet as `hack/up` starts it, to be given further flags.
    pub(crate) fn kubelet(&self) -> Command {
        let mut command = self.binary("kubelet");
        for (flag, path) in [
            ("--config", "kubelet/config.yaml"),
            ("--kubeconfig", "kubelet/kubeconfig"),
            ("--root-dir", "kubelet/root"),
            ("--cert-dir", "kubelet/pki"),
            ("--cni-conf-dir", "cni/net.d"),
            ("--cni-bin-dir", "cni/bin"),
        ] {
            command.arg(flag).arg(self.path(path));
        }
        command.args(["--hostname-override", NODE]);
        command
    }

    /// A path in the cluster's data directory.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.data.join(inside)
    }

    /// The data directory.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// The cgroup below which everything of this cluster is, with a leading slash.
    pub(crate) fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// Whether an address is one of this cluster's pods.
    pub(crate) fn has_address(&self, address: &str) -> bool {
        let prefix = self.pod_cidr.trim_end_matches("0.0/16");
        address.starts_with(prefix) || address.starts_with("10.99.0.")
    }

    /// `kubectl`, not started yet.
    pub(crate) fn kubectl_command(&self, arguments: &[&str]) -> Command {
        // Of several control planes there is one way to all of them.
        let to_all = Some(self.path("admin.kubeconfig")).filter(|path| path.exists());
        let kubeconfig = to_all.unwrap_or_else(|| self.path("controlplane/admin.kubeconfig"));
        let mut command = Command::new("kubectl");
        command.env("KUBECONFIG", kubeconfig).args(arguments);
        command
    }

    /// `kubectl` that speaks either WebSocket or SPDY with containers.
    pub(crate) fn kubectl_over(&self, wire: Wire, arguments: &[&str]) -> Command {
        let mut command = self.kubectl_command(arguments);
        let websockets = if wire == Wire::WebSocket { "true" } else { "false" };
        command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets);
        command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets);
        command
    }

    /// How many requests to a path the kubelet has had over a wire.
    pub(crate) fn requests_over(&self, wire: Wire, path: &str) -> anyhow::Result<u64> {
        let metrics = self.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/metrics")])?;
        // A WebSocket begins with a GET, SPDY as clients speak it with a POST.
        let method = if wire == Wire::WebSocket { "GET" } else { "POST" };
        let name = format!("kubelet_http_requests_total{{method=\"{method}\",path=\"{path}\",");
        let counts = metrics.lines().filter(|line| line.starts_with(&name));
        Ok(counts
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum())
    }

    /// `kubectl`, which must succeed; returns its output.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        succeed(self.kubectl_command(arguments), None)
    }

    /// `kubectl`, which must fail; returns what it said.
    pub(crate) fn kubectl_fails(&self, arguments: &[&str], input: Option<&[u8]>) -> anyhow::Result<String> {
        fail(self.kubectl_command(arguments), input)
    }

    /// `kubectl apply -f -` of a manifest.
    pub(crate) fn apply(&self, manifest: &str) -> anyhow::Result<String> {
        succeed(self.kubectl_command(&["apply", "-f", "-"]), Some(manifest.as_bytes()))
    }

    /// `kubectl get ... -o jsonpath=...`.
    pub(crate) fn get(&self, what: &[&str], path: &str) -> anyhow::Result<String> {
        let output = format!("jsonpath={path}");
        let mut arguments = vec!["get"];
        arguments.extend(what);
        arguments.extend(["-o", &output]);
        self.kubectl(&arguments)
    }

    /// `ctr` in the namespace of the cluster's containers.
    pub(crate) fn ctr(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new("ctr");
        command
            .arg("--address")
            .arg(self.path("run/containerd.sock"))
            .args(["--namespace", "k8s.io"])
            .args(arguments);
        succeed(command, None)
    }

    /// Ids of the runtime's containers, sandboxes included.
    pub(crate) fn containers(&self) -> anyhow::Result<Vec<String>> {
        Ok(self
            .ctr(&["containers", "list", "--quiet"])?
            .lines()
            .map(str::to_owned)
            .collect())
    }

    /// The process id in a component's pid file.
    pub(crate) fn pid(&self, component: &str) -> anyhow::Result<i32> {
        let path = self.path(&format!("run/{component}.pid"));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(text.trim().parse()?)
    }

    /// `kill -9` of a component.
    pub(crate) fn kill(&self, component: &str) -> anyhow::Result<()> {
        let pid = nix::unistd::Pid::from_raw(self.pid(component)?);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL)
            .with_context(|| format!("killing {component}"))?;
        crate::wait::until(60, "the killed process is gone", || {
            ensure!(nix::sys::signal::kill(pid, None).is_err(), "{component} is there");
            Ok(())
        })
    }

    /// The page a pod's server gives, once it listens: a container without a readiness probe is ready as soon as it runs.
    pub(crate) fn page(&self, address: &str) -> anyhow::Result<String> {
        let host = if address.contains(':') {
            format!("[{address}]")
        } else {
            address.to_owned()
        };
        let url = format!("http://{host}/");
        crate::wait::until(30, "the server answers", || {
            run("curl", &["-fsS", "--max-time", "5", &url])
        })
    }

    /// Every daemon running, and nothing in the default namespace.
    pub(crate) fn reset(&self) -> anyhow::Result<()> {
        for manifest in fs::read_dir(self.path("kubelet/manifests"))
            .into_iter()
            .flatten()
            .flatten()
        {
            fs::remove_file(manifest.path())?;
        }
        self.up()?;
        let kinds = "deployments,replicasets,pods";
        self.kubectl(&["delete", kinds, "--all", "--timeout=60s", "--ignore-not-found"])?;
        self.kubectl(&["delete", "configmap", "changing", "acknowledged", "--ignore-not-found"])
            .map(drop)
    }

    /// For a person who has to find out why a case failed.
    pub(crate) fn explain(&self) {
        for arguments in [
            &["get", "pods", "-A", "-o", "wide"] as &[&str],
            &["get", "events", "-A"],
        ] {
            let text = self.kubectl(arguments).unwrap_or_else(|error| format!("{error:#}"));
            println!("--- kubectl {}\n{}", arguments.join(" "), last_lines(&text, 30));
        }
        for component in ["kubelet", "controlplane", "containerd"] {
            let text = fs::read_to_string(self.path(&format!("log/{component}.log"))).unwrap_or_default();
            println!("--- the end of {component}.log\n{}", last_lines(&text, 15));
        }
    }

    /// How to reach a cluster that was kept.
    pub(crate) fn describe(&self) -> String {
        format!(
            "nsenter --net=/run/netns/{} env KUBECONFIG={}/controlplane/admin.kubeconfig kubectl get pods -A",
            self.namespace,
            self.data.display()
        )
    }
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
