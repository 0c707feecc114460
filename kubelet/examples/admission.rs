//! How long it takes to give CPUs to 500 pods, one after another, on 2 x 64 cores with SMT: as two NUMA nodes, and as eight with every
//! pod aligned on one. `cargo run --release -p kubelet --example admission`

use kubelet::pinning::asking::Asking;
use kubelet::pinning::cpu::options::Options;
use kubelet::pinning::cpu::{Assignments, Static};
use kubelet::pinning::cpu_set::CpuSet;
use kubelet::pinning::hint::{Nodes, NumaMask, Policy, merge};
use kubelet::pinning::topology::{Place, Topology};
use kubelet::pod_object::Kind;
use std::sync::Arc;
use std::time::Instant;

const CORES: u32 = 128;
const PODS: usize = 500;

fn machine(numas: u32) -> Topology {
    let place = |core: u32| Place {
        numa: core / (CORES / numas),
        socket: core / (CORES / 2),
        core,
        cache: core / 8,
    };
    let threads = (0..2).flat_map(|thread| (0..CORES).map(move |core| (thread * CORES + core, core)));
    Topology::new(threads.map(|(cpu, core)| (cpu, place(core))))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (numas, policy) in [(2, Policy::None), (8, Policy::SingleNumaNode)] {
        let nodes = Nodes {
            all: NumaMask::of(0..numas),
            distances: Vec::new(),
        };
        let giver = Static::new(Arc::new(machine(numas)), 4000, &CpuSet::default(), Options::default())?;
        let mut held = Assignments::default();
        giver.check(&mut held)?;
        let began = Instant::now();
        for pod in 0..PODS {
            let asking = Asking {
                container: "c".to_owned(),
                kind: Kind::Regular,
                cpus: 1,
                memory: std::collections::BTreeMap::new(),
            };
            let uid = pod.to_string();
            let mut draft = giver.draft(&held, &uid);
            let near = match policy {
                Policy::None => None,
                policy => merge(policy, &nodes, vec![draft.hints(&asking)]).0.numas,
            };
            draft.give(&asking, near)?;
            held.commit(&uid, draft.given());
            // Every second one ends at once: there is room for all.
            held.retain(|of| pod % 2 == 1 || of != uid);
        }
        let (took, taken) = (began.elapsed(), held.taken().len());
        println!("{numas} NUMA nodes: {PODS} pods in {took:?}, {taken} CPUs taken");
    }
    Ok(())
}
