//! One hollow node: what a kubelet is given that believes in a machine of 32 CPUs and a runtime that has every image.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use client::{Clock, SystemClock};
use kubelet::admission::description::Describer;
use kubelet::config;
use kubelet::downward::NodeAllocatable;
use kubelet::host::addresses::HostIps;
use kubelet::host::machine::{Disk, Machine};
use kubelet::kubelet::Kubelet;
use kubelet::node::{Facts, NodeReporter, own_description};
use kubelet::parts::testing::{self, dependencies};
use kubelet::parts::{Dependencies, Settings};
use kubelet::pod::spec::NodeContext;
use kubelet::runtime::fake::FakeRuntime;
use proto::api::quantity::{Format, Quantity};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const CPUS: i64 = 32;
const MEMORY: i64 = 128 << 30;
const DISK: i64 = 500 << 30;
const PODS_MAX: i64 = 110;
/// The image that pods run here.
const IMAGE: &str = "registry.k8s.io/pause:3.10";
/// What a real runtime takes for these, roughly.
const LATENCY: [(&str, Duration); 2] = [
    ("RunPodSandbox", Duration::from_millis(100)),
    ("StartContainer", Duration::from_millis(30)),
];

/// A node that does not run yet.
pub(crate) struct Node {
    /// Its name.
    pub(crate) name: String,
    address: IpAddr,
    dir: PathBuf,
    seed: u64,
}

impl Node {
    pub(crate) fn new(number: u32, work_dir: &Path) -> Self {
        let name = format!("hollow-{number}");
        // Addresses for benchmarks (RFC 2544).
        let address = u32::from(Ipv4Addr::new(198, 18, 0, 1)).wrapping_add(number);
        Self {
            dir: work_dir.join(&name),
            name,
            address: Ipv4Addr::from(address).into(),
            seed: number.into(),
        }
    }

    /// A connection of its own, as this node.
    pub(crate) fn connect(&self, mut config: kube::Config) -> anyhow::Result<kube::Client> {
        config.auth_info.impersonate = Some(format!("system:node:{}", self.name));
        config.auth_info.impersonate_groups = Some(vec!["system:nodes".to_owned(), "system:authenticated".to_owned()]);
        let options = client::connect::Options::new("hollow-node");
        Ok(client::connect::from_config(config, &options)?)
    }

    /// Runs the node until told to stop. Must be called inside a tokio runtime.
    pub(crate) async fn run(self, client: kube::Client, stop: CancellationToken) -> anyhow::Result<()> {
        // What the network's configuration names has to be there; nobody runs it.
        let plugins = self.dir.join("bin");
        std::fs::create_dir_all(&plugins).with_context(|| plugins.display().to_string())?;
        std::fs::write(plugins.join("bridge"), "").context("a plugin")?;
        let (config, facts) = (self.config()?, self.facts());
        let described = Describer::new(own_description(&config.node, &facts));
        let kubelet = self.kubelet(client.clone(), described);
        let reporter = NodeReporter::new(kubelet.parts(), client, Arc::new(config), facts);
        let mut reporting = JoinSet::new();
        reporting.spawn(reporter.run(stop.clone()));
        kubelet.run(stop).await.map_err(|error| anyhow!("{error}"))
    }

    fn kubelet(&self, client: kube::Client, described: Describer) -> Kubelet {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let runtime = FakeRuntime::new(clock.clone(), self.seed);
        runtime.add_image(IMAGE);
        runtime.add_remote_image(IMAGE);
        for (call, latency) in LATENCY {
            runtime.set_latency(call, latency);
        }
        let amount = |value| Quantity::from_units(value, Format::DecimalSi);
        let allocatable = BTreeMap::from([
            ("cpu".to_owned(), amount(CPUS)),
            ("memory".to_owned(), Quantity::from_units(MEMORY, Format::BinarySi)),
            ("pods".to_owned(), amount(PODS_MAX)),
        ]);
        Kubelet::new(Dependencies {
            client: Some(client),
            seed: self.seed,
            described,
            settings: Settings {
                allocatable,
                ..Settings::default()
            },
            ..dependencies(&self.dir, self.context(), Arc::new(runtime), clock)
        })
    }

    fn config(&self) -> anyhow::Result<config::Config> {
        let dir = |sub: &str| self.dir.join(sub).display().to_string();
        let flags = [
            ("--root-dir", dir("kubelet")),
            ("--cert-dir", dir("pki")),
            ("--cni-conf-dir", dir("cni")),
            ("--cni-bin-dir", dir("bin")),
            ("--hostname-override", self.name.clone()),
            ("--max-pods", PODS_MAX.to_string()),
        ];
        let words = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
        let flags = config::parse_flags(words).map_err(|end| anyhow!("{end:?}"))?;
        config::load(&flags).map_err(|errors| anyhow!("{errors}"))
    }

    fn facts(&self) -> Facts {
        Facts {
            name: self.name.clone(),
            host_name: self.name.clone(),
            ips: vec![self.address],
            machine: Machine {
                cpus: CPUS,
                memory: MEMORY,
                boot_id: "boot".into(),
                ..Machine::default()
            },
            disk: Disk {
                capacity: DISK,
                ..Disk::default()
            },
            hugepages: Default::default(),
            port: 10250,
        }
    }

    fn context(&self) -> NodeContext {
        NodeContext {
            node_name: self.name.clone(),
            host_ips: HostIps::fixed(vec![self.address]),
            root_dir: self.dir.join("kubelet"),
            pod_logs_dir: self.dir.join("logs"),
            resolv_conf: None,
            hosts_path: "/dev/null".into(),
            allocatable: NodeAllocatable {
                cpu_milli: CPUS * 1000,
                memory: MEMORY,
                ephemeral_storage: DISK,
            },
            memory_capacity: MEMORY,
            ..testing::context()
        }
    }
}
