use super::super::NodeMemory;
use super::super::testing::{ALL, BIG, DIVIDED, SMALL, TWO};
use super::*;
use std::collections::BTreeMap;

fn recorded(shape: super::super::testing::Shape) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("temp dir");
    shape.record(dir.path());
    dir
}

#[test]
fn what_a_kernel_shows_is_read_back() {
    for shape in ALL {
        let dir = recorded(shape);
        assert_eq!(read(dir.path()).expect("a topology"), shape.topology(), "{shape:?}");
    }
    let told = |t: &Topology| {
        (
            t.all.len(),
            t.sockets.len(),
            t.numas.len(),
            t.caches.len(),
            t.cpus_per_core(),
        )
    };
    assert_eq!(told(&BIG.topology()), (256, 2, 2, 16, 2));
    assert_eq!(told(&DIVIDED.topology()), (256, 2, 8, 16, 2));
}

#[test]
fn what_is_offline_or_not_told_is_left_out() {
    let dir = recorded(TWO);
    let put =
        |path: &str, text: &str| fs::write(dir.path().join("devices/system/cpu").join(path), text).expect("write");
    put("online", "0-4,6-10\n");
    put("cpu0/topology/physical_package_id", "-1\n");
    fs::remove_file(dir.path().join("devices/system/cpu/cpu3/cache/index3/id")).expect("a file");
    let read = read(dir.path()).expect("a topology");
    assert_eq!(read.all.to_string(), "0-4,6-10");
    let core = |cpu| {
        let core = read.cores.iter().find(|core| core.cpus.contains(cpu));
        core.expect("a core").cpus.to_string()
    };
    assert_eq!((core(0).as_str(), core(10).as_str()), ("0,6", "4,10"));
    assert!(read.sockets[0].cpus.contains(0), "a negative socket is the first");
    let of_three = read.caches.iter().find(|cache| cache.cpus.contains(3));
    assert_eq!(of_three.expect("a cache").id, 3, "named by the lowest CPU that has it");
}

#[test]
fn without_numa_there_is_one_node_and_without_cpus_there_is_nothing() {
    let dir = recorded(TWO);
    fs::remove_dir_all(dir.path().join("devices/system/node")).expect("a directory");
    let topology = read(dir.path()).expect("a topology");
    assert_eq!((topology.numas.len(), topology.numas[0].id), (1, 0));
    assert!(topology.memory.is_empty());
    let online = dir.path().join("devices/system/cpu/online");
    fs::write(&online, "\n").expect("write");
    assert!(matches!(read(dir.path()), Err(TopologyError::None)));
    fs::write(&online, "all\n").expect("write");
    assert!(matches!(read(dir.path()), Err(TopologyError::Form { .. })));
    fs::remove_file(online).expect("a file");
    assert!(matches!(read(dir.path()), Err(TopologyError::Read { .. })));
}

#[test]
fn every_node_tells_its_memory_whether_or_not_it_has_cpus() {
    let dir = recorded(TWO);
    let nodes = dir.path().join("devices/system/node");
    let put = |path: &str, text: &str| {
        let path = nodes.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("write");
    };
    // Memory without CPUs, and CPUs without memory.
    put("node5/cpulist", "\n");
    put(
        "node5/meminfo",
        "Node 5 MemTotal:       2048 kB\nNode 5 MemFree: 1 kB\n",
    );
    put("node1/meminfo", "Node 1 MemTotal:       0 kB\n");
    fs::remove_dir_all(nodes.join("node1/hugepages")).expect("a directory");
    let found = read(dir.path()).expect("a topology");
    assert_eq!(found.memory[&0], super::super::testing::memory());
    assert_eq!(found.memory[&1], NodeMemory::default());
    assert_eq!(
        (found.memory[&5].total, found.memory[&5].huge_pages.len()),
        (2 << 20, 0)
    );
    assert_eq!(found.numa_ids().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(found.all_numas().into_iter().collect::<Vec<_>>(), [0, 1, 5]);
    assert_eq!(found.clone().or_memory(7, || panic!("it is told")), found);
    for (path, text) in [
        ("node1/meminfo", "Node 1 MemTotal: much kB\n"),
        ("node1/meminfo", ""),
        ("node0/hugepages/hugepages-2048kB/nr_hugepages", "-1\n"),
    ] {
        let dir = recorded(TWO);
        fs::write(dir.path().join("devices/system/node").join(path), text).expect("write");
        let why = read(dir.path()).expect_err("no amount").to_string();
        assert!(why.contains(path), "{why}");
    }
    let alone = Topology::new(SMALL.places()).or_memory(7, BTreeMap::new);
    assert_eq!(alone.memory[&0].total, 7);
}
