//! How long it takes to give 500 pods what they have alone, one after another, on 2 x 64 cores with SMT, by all managers together (CPUs,
//! memory and huge pages, devices): as two NUMA nodes, and as eight with every pod aligned on one. Decisions alone: no file is written,
//! no plugin asked. `cargo run --release -p kubelet --example admission`

use k8s_openapi::api::core::v1::Pod;
use kubelet::admission::decide::Rejection;
use kubelet::device::choice::Wanted;
use kubelet::device::draft::Draft;
use kubelet::device::state::{Claim, Device, Options as PluginOptions, State};
use kubelet::metrics::Metrics;
use kubelet::pinning::cpu::options::Options;
use kubelet::pinning::hint::Policy;
use kubelet::pinning::memory::reserve::Reservation;
use kubelet::pinning::topology::{NodeMemory, Place, Topology};
use kubelet::pinning::{CpuRules, Pinning, Rules, TopologyRules};
use kubelet::pod_object;
use proto::api::quantity::{Format, Quantity};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const CORES: u32 = 128;
const PODS: usize = 500;
const DEVICES: u32 = 512;
const DEVICE: &str = "example.com/device";
const GIB: i64 = 1 << 30;
/// Memory kept from pods on each NUMA node, GiB.
const KEPT: i64 = 1;

fn machine(numas: u32) -> Topology {
    let place = |core: u32| Place {
        numa: core / (CORES / numas),
        socket: core / (CORES / 2),
        core,
        cache: core / 8,
    };
    let threads = (0..2).flat_map(|thread| (0..CORES).map(move |core| (thread * CORES + core, core)));
    let memory = || NodeMemory {
        total: (1024 << 30) / u64::from(numas),
        huge_pages: BTreeMap::from([("2Mi".to_owned(), (256 << 30) / u64::from(numas))]),
    };
    Topology {
        memory: (0..numas).map(|numa| (numa, memory())).collect(),
        ..Topology::new(threads.map(|(cpu, core)| (cpu, place(core))))
    }
}

fn rules(numas: u32, policy: Policy) -> Rules {
    let reservation = |node| Reservation {
        node,
        limits: BTreeMap::from([("memory".to_owned(), Quantity::from_units(KEPT * GIB, Format::BinarySi))]),
    };
    Rules {
        cpu: Some(CpuRules {
            options: Options::default(),
            reserved_milli: 4000,
        }),
        memory: Some((0..numas).map(reservation).collect()),
        topology: TopologyRules {
            policy,
            ..TopologyRules::default()
        },
        ..Rules::default()
    }
}

/// The devices of one plugin, evenly among the NUMA nodes.
fn devices(numas: u32) -> State {
    let device = |number: u32| Device {
        healthy: true,
        placed: true,
        nodes: vec![i64::from(number % numas)],
    };
    let mut state = State::default();
    state.connect(DEVICE, 1, PluginOptions::default());
    let all = (0..DEVICES).map(|number| (format!("device-{number}"), device(number)));
    state.list(DEVICE, 1, all.collect());
    state
}

fn pod(number: usize) -> serde_json::Result<Pod> {
    let resources = json!({"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "64Mi", DEVICE: "1"});
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "n", "uid": number.to_string()},
        "spec": {"containers": [{"name": "c", "resources": {"requests": resources, "limits": resources}}]},
    }))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let metrics = Metrics::new("n");
    for (numas, policy) in [(2, Policy::None), (8, Policy::SingleNumaNode)] {
        let directory = std::env::temp_dir().join(format!("skiff-admission-{}-{numas}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let kept = KEPT * GIB * i64::from(numas);
        let pinning = Pinning::open(&directory, &rules(numas, policy), kept, || Ok(machine(numas)));
        std::fs::remove_dir_all(&directory)?;
        let (pinning, mut state) = (pinning?, devices(numas));
        let pods = (0..PODS).map(pod).collect::<Result<Vec<_>, _>>()?;
        let (mut took, mut longest) = (Duration::ZERO, Duration::ZERO);
        for (number, pod) in pods.iter().enumerate() {
            let began = Instant::now();
            admit(pod, &pinning, &mut state, &metrics)?;
            let own = began.elapsed();
            (took, longest) = (took + own, longest.max(own));
            // Every second one ends at once: there is room for all.
            let stays = |uid: &str| number % 2 == 1 || uid != number.to_string();
            pinning.retain(stays, &metrics.pinning);
            state.retain(stays);
        }
        let held = state.pods().iter().count();
        println!(
            "{numas} NUMA nodes: {PODS} pods in {took:?}, the longest {longest:?}; {held} hold CPUs, memory and a device"
        );
    }
    Ok(())
}

/// As a pod's worker does for a new pod.
fn admit(pod: &Pod, pinning: &Pinning, state: &mut State, metrics: &Metrics) -> Result<(), Box<dyn std::error::Error>> {
    let mut draft = Draft::new(pod, state, pinning.numas());
    let refused = |rejection: Rejection| rejection.message;
    let share = pinning
        .place(pod, &mut [&mut draft], &metrics.pinning)
        .map_err(refused)?;
    let uid = pod_object::uid(pod);
    pinning.commit(&uid, share, &metrics.pinning);
    let plan = draft.plan().ok_or("a pod with a device has a plan")?;
    let near = plan.near.get("c").copied();
    let claim = Claim {
        pod: uid.as_str(),
        container: "c",
        wanted: Wanted {
            resource: DEVICE,
            count: 1,
            reuse: &BTreeSet::new(),
            near,
        },
    };
    state.reserve(claim, &BTreeSet::new())?;
    state.answered(uid.as_str(), "c", DEVICE, Vec::new());
    Ok(())
}
