//! Machines for tests: their shape in a few numbers, with CPUs numbered as Linux numbers them (all first threads of cores, then all
//! second ones).

use super::{NodeMemory, Place, Topology};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A machine's shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) sockets: u32,
    /// Of each socket.
    pub(crate) numas: u32,
    /// Of each NUMA node.
    pub(crate) caches: u32,
    /// Of each cache.
    pub(crate) cores: u32,
    /// Of each core.
    pub(crate) threads: u32,
}

const fn shape(sockets: u32, numas: u32, caches: u32, cores: u32, threads: u32) -> Shape {
    Shape {
        sockets,
        numas,
        caches,
        cores,
        threads,
    }
}

/// One socket of four cores, two threads each: 0 and 4 share a core.
pub(crate) const SMALL: Shape = shape(1, 1, 1, 4, 2);
/// Two sockets of three cores, two threads each: 0-2 and 6-8 are the first socket.
pub(crate) const TWO: Shape = shape(2, 1, 1, 3, 2);
/// 2 x 64 cores with SMT, one NUMA node a socket, eight cores a cache: 256 CPUs.
pub(crate) const BIG: Shape = shape(2, 1, 8, 8, 2);
/// The same with every socket divided into four NUMA nodes.
pub(crate) const DIVIDED: Shape = shape(2, 4, 2, 8, 2);
/// 2 x 40 ARM cores without SMT, two NUMA nodes a socket.
pub(crate) const ARM: Shape = shape(2, 2, 1, 20, 1);
/// One socket of sixteen cores without SMT, four a cache.
pub(crate) const CACHES: Shape = shape(1, 1, 4, 4, 1);

pub(crate) const ALL: [Shape; 6] = [SMALL, TWO, BIG, DIVIDED, ARM, CACHES];

/// What every NUMA node has: 16 GiB, 1 GiB of which are huge pages of 2 MiB.
pub(crate) fn memory() -> NodeMemory {
    NodeMemory {
        total: 16 << 30,
        huge_pages: BTreeMap::from([("1Gi".to_owned(), 0), ("2Mi".to_owned(), 1 << 30)]),
    }
}

impl Shape {
    pub(crate) fn places(self) -> Vec<(u32, Place)> {
        let cores = self.sockets * self.numas * self.caches * self.cores;
        let place = |core| {
            let cache = core / self.cores;
            let numa = cache / self.caches;
            let socket = numa / self.numas;
            Place {
                numa,
                socket,
                core,
                cache,
            }
        };
        let threads = (0..self.threads).flat_map(|thread| (0..cores).map(move |core| (thread * cores + core, core)));
        threads.map(|(cpu, core)| (cpu, place(core))).collect()
    }

    pub(crate) fn topology(self) -> Topology {
        let of_socket = |numa: u32| numa / self.numas;
        let numas = self.sockets * self.numas;
        let far = |from: u32, to: u32| match (from == to, of_socket(from) == of_socket(to)) {
            (true, _) => 10,
            (_, true) => 12,
            _ => 32,
        };
        let all = |from| (0..numas).map(|to| (to, far(from, to))).collect();
        Topology {
            distances: (0..numas).map(|from| (from, all(from))).collect(),
            memory: (0..numas).map(|id| (id, memory())).collect(),
            ..Topology::new(self.places())
        }
    }

    /// Writes what the kernel of such a machine shows.
    pub(crate) fn record(self, sys: &Path) {
        let topology = self.topology();
        let put = |path: String, text: String| {
            let path = sys.join("devices/system").join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(path, text + "\n").expect("a file");
        };
        put("cpu/online".to_owned(), topology.all.to_string());
        for node in &topology.numas {
            put(format!("node/node{}/cpulist", node.id), node.cpus.to_string());
            let far = topology.distances.iter().find(|(from, _)| *from == node.id);
            let far = far.map(|(_, to)| to.iter().map(|(_, far)| far.to_string()).collect::<Vec<_>>());
            put(
                format!("node/node{}/distance", node.id),
                far.unwrap_or_default().join(" "),
            );
        }
        for (id, memory) in &topology.memory {
            let home = format!("node/node{id}");
            let info = format!(
                "Node {id} MemTotal:       {} kB\nNode {id} MemFree: 1 kB",
                memory.total >> 10
            );
            put(format!("{home}/meminfo"), info);
            for (size, page) in [("2Mi", 2048), ("1Gi", 1 << 20)] {
                let pages = memory.huge_pages.get(size).map_or(0, |bytes| bytes / (page << 10));
                let path = format!("{home}/hugepages/hugepages-{page}kB/nr_hugepages");
                put(path, pages.to_string());
            }
        }
        let siblings = |groups: &[super::Group], cpu| {
            let group = groups.iter().find(|group| group.cpus.contains(cpu));
            group.expect("a group").cpus.to_string()
        };
        for (cpu, place) in self.places() {
            let home = format!("cpu/cpu{cpu}");
            put(format!("{home}/topology/physical_package_id"), place.socket.to_string());
            let same_core = siblings(&topology.cores, cpu);
            put(format!("{home}/topology/thread_siblings_list"), same_core.clone());
            for (index, level, id, shared) in [
                (0, "1", place.core, same_core),
                (3, "3", place.cache, siblings(&topology.caches, cpu)),
            ] {
                put(format!("{home}/cache/index{index}/level"), level.to_owned());
                put(format!("{home}/cache/index{index}/id"), id.to_string());
                put(format!("{home}/cache/index{index}/shared_cpu_list"), shared);
            }
        }
    }
}
