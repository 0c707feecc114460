//! One simulated node: a scripted runtime and directories that survive, and a kubelet that can be killed.

use super::view;
use crate::checker::RuntimeView;
use crate::workload::{CRASHER, SERVERS, WORKER};
use client::Clock;
use kubelet::admission::description::Describer;
use kubelet::cgroup::{CgroupDriver, CgroupNaming};
use kubelet::config;
use kubelet::downward::NodeAllocatable;
use kubelet::host::FakeMounter;
use kubelet::host::addresses::HostIps;
use kubelet::host::machine::{Disk, Machine};
use kubelet::kubelet::Kubelet;
use kubelet::node::{Facts, NodeReporter, own_description};
use kubelet::parts::testing::dependencies;
use kubelet::parts::{Dependencies, Settings};
use kubelet::pod::spec::NodeContext;
use kubelet::runtime::fake::{Behaviour, FakeRuntime, Faults, Run};
use proto::api::quantity::{Format, Quantity};
use proto::api::resources::ResourceList;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const MEMORY: i64 = 4 << 30;
/// Pods a node takes.
const PODS_MAX: i64 = 24;

pub struct Node {
    pub name: String,
    pub runtime: FakeRuntime,
    clock: Arc<dyn Clock>,
    seed: u64,
    cpus: u32,
    dir: tempfile::TempDir,
    mounter: Arc<FakeMounter>,
    tasks: JoinSet<()>,
    shutdown: CancellationToken,
}

impl Node {
    pub fn new(name: &str, seed: u64, clock: Arc<dyn Clock>) -> Self {
        let runtime = FakeRuntime::new(clock.clone(), seed);
        let mut rng = StdRng::seed_from_u64(seed);
        for image in SERVERS.iter().chain([&CRASHER, &WORKER]) {
            // Some images have to be pulled.
            if rng.random_bool(0.5) {
                runtime.add_image(image)
            } else {
                runtime.add_remote_image(image)
            }
        }
        let cpus = [2, 4][rng.random_range(0..2)];
        script(&runtime);
        runtime.set_faults(Faults {
            drop_event: 0.05,
            duplicate_event: 0.1,
            delay_event: 0.1,
            event_delay_max: Duration::from_secs(5),
            fail_call: 0.02,
            lose_reply: 0.02,
        });
        for (call, most) in [
            ("RunPodSandbox", 400),
            ("StartContainer", 200),
            ("StopPodSandbox", 300),
            ("PullImage", 3000),
        ] {
            runtime.set_latency(call, Duration::from_millis(rng.random_range(0..most)));
        }
        Self {
            name: name.to_owned(),
            runtime,
            clock,
            seed,
            cpus,
            dir: super::scratch(),
            mounter: Arc::default(),
            tasks: JoinSet::new(),
            shutdown: CancellationToken::new(),
        }
    }

    /// Starts a kubelet on what is there.
    pub fn start(&mut self, client: kube::Client) {
        let (config, facts) = (config(&self.name, self.dir.path()), facts(&self.name, self.cpus));
        let described = Describer::new(own_description(&config.node, &facts));
        let kubelet = self.kubelet(client.clone(), described);
        let reporter = NodeReporter::new(kubelet.parts(), client, Arc::new(config), facts);
        self.shutdown = CancellationToken::new();
        let stop = self.shutdown.clone();
        self.tasks
            .spawn(async move { kubelet.run(stop).await.expect("a kubelet starts") });
        self.tasks.spawn(reporter.run(self.shutdown.clone()));
    }

    fn kubelet(&self, client: kube::Client, described: Describer) -> Kubelet {
        let context = context(&self.name, self.cpus, self.dir.path());
        let runtime = Arc::new(self.runtime.clone());
        Kubelet::new(Dependencies {
            client: Some(client),
            mounter: self.mounter.clone(),
            seed: self.seed,
            described,
            settings: Settings {
                allocatable: allocatable(self.cpus),
                // Of two nodes in three: what they keep must not change what comes of their pods.
                autonomy: self.seed.is_multiple_of(2),
                ..Settings::default()
            },
            ..dependencies(self.dir.path(), context, runtime, self.clock.clone())
        })
    }

    /// Ends the kubelet at once; containers go on.
    pub async fn kill(&mut self) {
        self.shutdown.cancel();
        self.tasks.shutdown().await;
    }

    /// Ends the runtime's faults.
    pub fn heal(&self) {
        self.runtime.set_faults(Faults::default());
    }

    /// The files of a volume as a pod has them.
    pub fn volume_file(&self, uid: &str, kind: &str, volume: &str, file: &str) -> Option<String> {
        let pods = self.dir.path().join("kubelet/pods");
        let path = pods
            .join(uid)
            .join("volumes")
            .join(format!("kubernetes.io~{kind}"))
            .join(volume)
            .join(file);
        std::fs::read_to_string(path).ok()
    }

    pub fn view(&self) -> RuntimeView {
        view(&self.runtime)
    }

    /// Directories of pods that are not among the known ones and whose sandboxes are all gone.
    pub fn leftovers(&self, known: &BTreeSet<String>) -> Vec<String> {
        let held: Vec<String> = self.view().sandboxes.into_iter().map(|sandbox| sandbox.uid).collect();
        let pods = self.dir.path().join("kubelet/pods");
        let names = std::fs::read_dir(pods).into_iter().flatten().flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let left = names.filter(|uid| !held.contains(uid) && !known.contains(uid));
        left.map(|uid| format!("directory of pod {uid} is left on {}", self.name))
            .collect()
    }
}

/// What containers of each image do.
fn script(runtime: &FakeRuntime) {
    let after = |seconds, exit_code| Run::For {
        duration: Duration::from_secs(seconds),
        exit_code,
    };
    runtime.script_image(
        "stubborn:v1",
        Behaviour {
            stops_after: Some(Duration::from_secs(4)),
            ..Behaviour::default()
        },
    );
    runtime.script_image(
        CRASHER,
        Behaviour {
            run: after(3, 1),
            ..Behaviour::obedient()
        },
    );
    runtime.script_image(
        WORKER,
        Behaviour {
            run: after(2, 0),
            ..Behaviour::obedient()
        },
    );
}

/// What pods can be admitted to: what the node says it has.
fn allocatable(cpus: u32) -> ResourceList {
    ResourceList::from([
        ("cpu".to_owned(), Quantity::from_milli(i64::from(cpus) * 1000)),
        ("memory".to_owned(), Quantity::from_units(MEMORY, Format::BinarySi)),
        ("pods".to_owned(), Quantity::from_units(PODS_MAX, Format::DecimalSi)),
    ])
}

fn config(name: &str, dir: &Path) -> config::Config {
    let words = [
        "--root-dir",
        &dir.join("kubelet").display().to_string(),
        "--hostname-override",
        name,
    ]
    .map(str::to_owned);
    let limits = ["--max-pods".to_owned(), PODS_MAX.to_string()];
    let own = [("--cni-conf-dir", "cni"), ("--cert-dir", "pki")];
    let own = own
        .iter()
        .flat_map(|(flag, sub)| [(*flag).to_owned(), dir.join(sub).display().to_string()]);
    let flags =
        config::parse_flags(words.into_iter().chain(limits).chain(own)).unwrap_or_else(|_| panic!("valid flags"));
    config::load(&flags).expect("a valid configuration")
}

fn facts(name: &str, cpus: u32) -> Facts {
    Facts {
        name: name.to_owned(),
        host_name: name.to_owned(),
        ips: vec!["192.0.2.10".parse().expect("an address")],
        machine: Machine {
            cpus: i64::from(cpus),
            memory: MEMORY,
            boot_id: "boot".into(),
            ..Machine::default()
        },
        disk: Disk {
            capacity: 100 << 30,
            ..Disk::default()
        },
        hugepages: Default::default(),
        port: 10250,
    }
}

fn context(name: &str, cpus: u32, dir: &Path) -> NodeContext {
    NodeContext {
        node_name: name.to_owned(),
        host_ips: HostIps::fixed(vec!["192.0.2.10".parse().expect("an address")]),
        root_dir: dir.join("kubelet"),
        pod_logs_dir: dir.join("logs"),
        cluster_domain: "cluster.local".into(),
        cluster_dns: vec!["10.96.0.10".into()],
        resolv_conf: None,
        hosts_path: "/dev/null".into(),
        allocatable: NodeAllocatable {
            cpu_milli: i64::from(cpus) * 1000,
            memory: MEMORY,
            ephemeral_storage: 100 << 30,
        },
        memory_capacity: MEMORY,
        cgroups: CgroupNaming {
            driver: CgroupDriver::Cgroupfs,
            root: "/".into(),
            per_qos: false,
        },
        cgroup_v2: false,
        huge_page_sizes: Vec::new(),
        cpu_cfs_quota: true,
        cpu_cfs_period_us: 100_000,
        seccomp_default: false,
        single_process_oom_kill: true,
        memory_qos: None,
        swap: Default::default(),
        master_service_namespace: "default".into(),
        stop_signals: true,
        selinux: false,
        thermal_paths: Vec::new(),
    }
}
