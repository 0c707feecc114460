//! What telling the usage of many pods costs a kubelet: real cgroups with a sleeping process in each container and sandbox, asked for over
//! HTTP by a process of its own, so that what is counted is the kubelet's alone; and what reading the kernel's files by themselves costs.
//! Needs root. `cargo run --release -p kubelet --features test-util --example stats -- 100`

use anyhow::Context;
use client::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet::cgroup::{CgroupSettings, Cgroups};
use kubelet::config::{AuthorizationMode, Handlers, ServerConfig, ServingTls};
use kubelet::host::machine::Roots;
use kubelet::id::PodUid;
use kubelet::parts::Parts;
use kubelet::parts::testing::{context, dependencies};
use kubelet::pinning::Unbounded;
use kubelet::pod::view::{Life, PodSnapshot};
use kubelet::runtime::fake::FakeRuntime;
use kubelet::runtime::observed::{ContainerState, ObservedContainer, ObservedPod, ObservedSandbox};
use kubelet::server::{Auth, Certificates, Server, ServerSettings, bind, serve_read_only};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde_json::json;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const MOUNT: &str = "/sys/fs/cgroup";
const ROOT: &str = "/skiff-stats-bench";
const ROUNDS: u32 = 10;
const APART: Duration = Duration::from_millis(2_100);
/// The first argument of the process that asks.
const CLIENT: &str = "client";
const PAGES: [&str; 4] = [
    "/stats/summary",
    "/stats/summary?only_cpu_and_memory=true",
    "/metrics/resource",
    "/metrics/cadvisor",
];

struct Wall;

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// The pods' cgroups below each tree that has them.
fn trees(path: &str) -> Vec<PathBuf> {
    let mount = Path::new(MOUNT);
    let each = fs::read_dir(mount)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let roots = each
        .chain([mount.to_owned()])
        .map(|root| root.join(path.trim_start_matches('/')));
    roots.filter(|path| path.is_dir()).collect()
}

/// A cgroup below the pod's, in which somebody sleeps.
fn occupy(pod: &str, id: &str) -> anyhow::Result<Child> {
    let child = Command::new("sleep").arg("1000").spawn()?;
    for tree in trees(pod) {
        let cgroup = tree.join(id);
        fs::create_dir_all(&cgroup)?;
        // Of version 1 nobody is let in where there is no CPU and no memory.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let (from, to) = (tree.join(file), cgroup.join(file));
            if from.exists() && to.exists() {
                fs::write(to, fs::read_to_string(from)?.trim())?;
            }
        }
        fs::write(cgroup.join("cgroup.procs"), child.id().to_string())?;
    }
    Ok(child)
}

fn pod(uid: &str) -> anyhow::Result<Pod> {
    let spec = json!({"volumes": [{"name": "scratch", "emptyDir": {}}],
        "containers": [{"name": "main", "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}]});
    let pod = json!({"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": spec});
    Ok(serde_json::from_value(pod)?)
}

fn observed(uid: &str) -> ObservedPod {
    let at = Timestamp::UNIX_EPOCH;
    let sandbox = ObservedSandbox {
        id: format!("{uid}-s").as_str().into(),
        pod: uid.into(),
        name: uid.to_owned(),
        namespace: "default".to_owned(),
        attempt: 0,
        ready: true,
        created_at: at,
        ips: Vec::new(),
        host_network: false,
        handler: String::new(),
    };
    let container = ObservedContainer {
        id: format!("{uid}-c").as_str().into(),
        sandbox: None,
        pod: uid.into(),
        name: "main".to_owned(),
        attempt: 0,
        restart_count: 0,
        hash: None,
        state: ContainerState::Running,
        image: "registry.example/image:1".to_owned(),
        image_ref: String::new(),
        created_at: at,
        started_at: Some(at),
        finished_at: None,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        log_path: String::new(),
        termination_file: None,
        termination_policy: "File".to_owned(),
        pre_stop: String::new(),
        ports: String::new(),
        stop_signal: None,
        user: None,
    };
    ObservedPod {
        uid: uid.into(),
        sandboxes: vec![sandbox],
        containers: vec![container],
    }
}

fn server(parts: Arc<Parts>) -> Arc<Server> {
    let config = ServerConfig {
        enabled: true,
        address: [127, 0, 0, 1].into(),
        port: 0,
        read_only_port: None,
        healthz: None,
        tls_files: None,
        tls: ServingTls::default(),
        handlers: Handlers::default(),
        tls_bootstrap: false,
        client_ca: None,
        anonymous: false,
        token_webhook: None,
        authorization: AuthorizationMode::AlwaysAllow,
        stream_idle: Duration::from_secs(60),
    };
    let settings = ServerSettings {
        handlers: Handlers::default(),
        stream_idle: Duration::from_secs(60),
        configuration: json!({}),
        roots: Roots::default(),
        certificates: Certificates::default(),
        level: Default::default(),
        flags: Default::default(),
        gates: Default::default(),
    };
    Server::new(parts, Auth::new(&config, None, "node-a"), settings)
}

/// Who asks, in a process of its own.
struct Client {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Client {
    fn start(address: SocketAddr) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([CLIENT, &address.to_string()]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (to, from) = (process.stdin.take(), process.stdout.take());
        Ok(Self {
            process,
            to: to.context("no pipe to the client")?,
            from: BufReader::new(from.context("no pipe from the client")?),
        })
    }

    /// Has a page asked for; its length. Waits by blocking this thread, which costs nothing and serves nobody.
    fn get(&mut self, path: &str) -> anyhow::Result<usize> {
        writeln!(self.to, "{path}")?;
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        line.trim().parse().context(path.to_owned())
    }

    fn end(self) -> anyhow::Result<()> {
        let Self { mut process, to, .. } = self;
        drop(to);
        process.wait()?;
        Ok(())
    }
}

/// Asks for each page that a line names, on a connection of its own, and tells its length.
fn ask(address: &str) -> anyhow::Result<()> {
    for path in std::io::stdin().lines() {
        let path = path?;
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        anyhow::ensure!(answer.starts_with(b"HTTP/1.1 200"), "{path} is not answered");
        println!("{}", answer.len());
    }
    Ok(())
}

/// CPU time of this process, milliseconds. That of one thread alone the kernel tells only as it was at its last tick.
fn cpu_ms() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(micros as f64 / 1e3)
}

async fn measure(client: &mut Client) -> anyhow::Result<()> {
    for path in PAGES {
        let first = cpu_ms()?;
        let bytes = client.get(path)?;
        let begun = cpu_ms()?;
        for _ in 0..ROUNDS {
            // A look is shared for a second: each round is to be one of its own.
            tokio::time::sleep(APART).await;
            client.get(path)?;
        }
        let each = (cpu_ms()? - begun) / f64::from(ROUNDS);
        println!(
            "{path}: {each:.2} ms of CPU a request, the first {:.2}; {bytes} bytes",
            begun - first
        );
    }
    Ok(())
}

/// The files a summary needs, read by themselves: what no kubelet can go below. Those of cgroups stay open.
struct Bare {
    kept: Vec<(&'static str, Vec<File>)>,
    anew: Vec<(&'static str, Vec<PathBuf>)>,
}

impl Bare {
    /// Of the pods with these cgroups and of their containers, whose processes are given.
    fn open(pods: &[String], processes: &[u32]) -> anyhow::Result<Self> {
        let container = |(pod, number): (&String, u32)| format!("{pod}/u{number:04}-c");
        let containers: Vec<String> = pods.iter().zip(0..).map(container).collect();
        let unified = Path::new(MOUNT).join("cgroup.controllers").exists();
        let files: &[(&str, &str)] = match unified {
            true => &[
                ("", "cpu.stat"),
                ("", "cpu.pressure"),
                ("", "memory.current"),
                ("", "memory.stat"),
                ("", "memory.max"),
                ("", "memory.pressure"),
                ("", "io.pressure"),
            ],
            false => &[
                ("cpuacct", "cpuacct.usage"),
                ("memory", "memory.usage_in_bytes"),
                ("memory", "memory.stat"),
                ("memory", "memory.limit_in_bytes"),
            ],
        };
        let at = |tree: &str, group: &String, file: &str| {
            let root = Path::new(MOUNT).join(tree);
            root.join(group.trim_start_matches('/')).join(file)
        };
        let of_file = |(tree, file): &(&'static str, &'static str)| {
            let groups = pods.iter().chain(&containers);
            let opened = groups.map(|group| File::open(at(tree, group, file)));
            Ok((*file, opened.collect::<std::io::Result<Vec<File>>>()?))
        };
        let tree = if unified { "" } else { "memory" };
        let lists = containers.iter().map(|group| at(tree, group, "cgroup.procs"));
        let networks = processes.iter().map(|id| format!("/proc/{id}/net/dev").into());
        Ok(Self {
            kept: files.iter().map(of_file).collect::<anyhow::Result<_>>()?,
            anew: vec![("cgroup.procs", lists.collect()), ("net/dev", networks.collect())],
        })
    }

    async fn measure(&self) -> anyhow::Result<()> {
        let mut buffer = vec![0; 16 << 10];
        let mut told: Vec<(&str, f64)> = Vec::new();
        for _ in 0..ROUNDS {
            tokio::time::sleep(APART).await;
            let mut add = |name, begun: f64| {
                let spent = cpu_ms()? - begun;
                match told.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, sum)) => *sum += spent,
                    None => told.push((name, spent)),
                }
                anyhow::Ok(())
            };
            for (name, files) in &self.kept {
                let begun = cpu_ms()?;
                for file in files {
                    file.read_at(&mut buffer, 0)?;
                }
                add(name, begun)?;
            }
            for (name, paths) in &self.anew {
                let begun = cpu_ms()?;
                for path in paths {
                    File::open(path)?.read_at(&mut buffer, 0)?;
                }
                add(name, begun)?;
            }
        }
        let all: f64 = told.iter().map(|(_, spent)| spent).sum();
        println!(
            "the files of a summary by themselves: {:.2} ms of CPU",
            all / f64::from(ROUNDS)
        );
        for (name, spent) in told {
            println!("  {name}: {:.2}", spent / f64::from(ROUNDS));
        }
        Ok(())
    }
}

/// As the kubelet's own: the allocator keeps nothing for threads, and there are two of those.
fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    if let (Some(CLIENT), Some(address)) = (arguments.next().as_deref(), arguments.next()) {
        return ask(&address);
    }
    client::memory::keep_no_caches();
    client::memory::limit_arenas();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(run())
}

async fn run() -> anyhow::Result<()> {
    let count: u32 = std::env::args()
        .nth(1)
        .map_or(Ok(100), |text| text.parse())
        .context("PODS")?;
    let dir = tempfile_dir()?;
    let mut given = dependencies(
        &dir,
        context(),
        Arc::new(FakeRuntime::new(Arc::new(Wall), 0)),
        Arc::new(Wall),
    );
    given.context.root_dir = dir.join("kubelet");
    given.context.pod_logs_dir = dir.join("logs");
    (given.context.cgroups.per_qos, given.context.cgroups.root) = (true, ROOT.to_owned());
    let naming = given.context.cgroups.clone();
    let cgroups = Cgroups::open(MOUNT, "/none", CgroupSettings::with_defaults(naming.clone()))?;
    given.cgroups = cgroups.clone();
    cgroups.setup().await?;
    let (parts, _sink, _) = Parts::new(given);
    let (mut children, mut groups) = (Vec::new(), Vec::new());
    for number in 0..count {
        let uid = format!("u{number:04}");
        let pod = pod(&uid)?;
        cgroups.ensure_pod(&pod, Unbounded::default()).await?;
        let path = naming.pod(&pod);
        children.push(occupy(&path, &format!("{uid}-s"))?);
        children.push(occupy(&path, &format!("{uid}-c"))?);
        groups.push(path);
        let logs = dir.join(format!("logs/default_{uid}_{uid}/main"));
        fs::create_dir_all(&logs)?;
        fs::write(logs.join("0.log"), "one line\n")?;
        for (_, volume) in parts.volumes.directories(&pod) {
            fs::create_dir_all(&volume)?;
        }
        let snapshot = PodSnapshot {
            pod: Arc::new(pod),
            // As the pod's worker has it.
            status: Arc::new(PodStatus {
                qos_class: Some("BestEffort".to_owned()),
                ..PodStatus::default()
            }),
            observed: Arc::new(observed(&uid)),
            active: true,
            ended: false,
            life: Life::default(),
        };
        parts.pods.publish(PodUid::from(uid.as_str()), snapshot);
    }
    let listener = bind([127, 0, 0, 1].into(), 0, "bench").await?;
    let (address, stop) = (listener.local_addr()?, CancellationToken::new());
    let serving = tokio::spawn(serve_read_only(listener, server(parts), stop.clone()));
    println!("{count} pods of one container each:");
    // Of each pod the sandbox's process and the container's.
    let processes: Vec<u32> = children.chunks(2).map(|of_pod| of_pod[1].id()).collect();
    let measured = async {
        let mut client = Client::start(address)?;
        measure(&mut client).await?;
        client.end()?;
        Bare::open(&groups, &processes)?.measure().await
    };
    let measured = measured.await;
    stop.cancel();
    serving.await?;
    for child in &mut children {
        child.kill()?;
        child.wait()?;
    }
    for number in 0..count {
        cgroups
            .release_pod(&PodUid::from(format!("u{number:04}").as_str()))
            .await?;
    }
    for path in ["/kubepods/burstable", "/kubepods/besteffort", "/kubepods", ""] {
        trees(&format!("{ROOT}{path}")).iter().try_for_each(fs::remove_dir)?;
    }
    fs::remove_dir_all(&dir)?;
    measured
}

fn tempfile_dir() -> anyhow::Result<PathBuf> {
    let dir = std::env::temp_dir().join(format!("skiff-stats-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    Ok(dir)
}
