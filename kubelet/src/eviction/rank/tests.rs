//! Who goes before whom.

use super::*;
use crate::pod::spec::testing::pod;
use proptest::prelude::*;

fn one(uid: &str, priority: i32, requests: &str) -> Pod {
    let spec =
        format!(r#"{{"priority":{priority},"containers":[{{"name":"c","resources":{{"requests":{requests}}}}}]}}"#);
    let mut pod = pod(&spec);
    pod.metadata.uid = Some(uid.to_owned());
    pod
}

fn memory(bytes: u64) -> Option<PodUse> {
    Some(PodUse {
        memory: Some(bytes),
        ..PodUse::default()
    })
}

fn ordered(signal: Signal, disks: Disks, pods: &[(Pod, Option<PodUse>)]) -> Vec<String> {
    let mut list: Vec<Candidate<'_>> = pods
        .iter()
        .map(|(pod, used)| Candidate {
            pod,
            used: used.clone(),
        })
        .collect();
    order(&mut list, signal, disks);
    list.iter()
        .filter_map(|candidate| candidate.pod.metadata.uid.clone())
        .collect()
}

#[test]
fn memory_goes_by_requests_then_priority_then_excess() {
    let asked = r#"{"memory":"1000"}"#;
    let pods = [
        (one("within", -5, asked), memory(1000)),
        (one("over-important", 5, asked), memory(9000)),
        (one("over-a-little", 0, asked), memory(1001)),
        (one("over-much", 0, "{}"), memory(5000)),
        (one("unknown", 9, asked), None),
        (one("within-little", -5, asked), memory(1)),
    ];
    let expected = [
        "unknown",
        "over-much",
        "over-a-little",
        "over-important",
        "within",
        "within-little",
    ];
    for signal in [Signal::MemoryAvailable, Signal::AllocatableMemoryAvailable] {
        assert_eq!(ordered(signal, Disks::default(), &pods), expected);
    }
}

#[test]
fn process_ids_go_by_priority_then_count() {
    let with = |count| {
        Some(PodUse {
            processes: Some(count),
            ..PodUse::default()
        })
    };
    let pods = [
        (one("few", 0, "{}"), with(3)),
        (one("important", 1, "{}"), with(3000)),
        (one("many", 0, "{}"), with(30)),
        (one("unknown", 0, "{}"), None),
    ];
    let order = ordered(Signal::PidAvailable, Disks::default(), &pods);
    assert_eq!(order, ["unknown", "many", "few", "important"]);
}

#[test]
fn disk_counts_what_is_on_the_file_system_that_runs_short() {
    let tree = |bytes, inodes| TreeUsage {
        bytes,
        inodes,
        ..TreeUsage::default()
    };
    let used = |layer, logs, volumes| {
        let container = ContainerUse {
            layer: Some((layer, 1)),
            logs: Some(tree(logs, 2)),
            ..ContainerUse::default()
        };
        Some(PodUse {
            containers: [("c".to_owned(), container)].into(),
            volumes: tree(volumes, 5),
            ..PodUse::default()
        })
    };
    let pods = [
        (one("writer", 0, "{}"), used(900, 0, 0)),
        (one("logger", 0, "{}"), used(0, 500, 300)),
        (one("asked", 0, r#"{"ephemeral-storage":"9000"}"#), used(950, 500, 500)),
    ];
    let (one_disk, apart) = (Disks::default(), |layers_apart| Disks {
        images_apart: true,
        layers_apart,
    });
    let (node, image, layers) = (
        Signal::NodeFsAvailable,
        Signal::ImageFsAvailable,
        Signal::ContainerFsAvailable,
    );
    let first = |signal, disks| ordered(signal, disks, &pods)[0].clone();
    assert_eq!(ordered(node, one_disk, &pods), ["writer", "logger", "asked"]);
    assert_eq!(first(image, one_disk), "writer", "it is the same disk");
    assert_eq!(first(node, apart(false)), "logger");
    assert_eq!(first(image, apart(false)), "writer");
    assert_eq!(first(layers, apart(false)), "writer");
    assert_eq!(first(node, apart(true)), "writer");
    assert_eq!(first(layers, apart(true)), "writer");
    let inodes = ordered(Signal::NodeFsInodesFree, one_disk, &pods);
    assert_eq!(inodes, ["asked", "logger", "writer"], "all use the same: by name");
}

fn on_volumes(bytes: u64, incomplete: bool, uncountable: bool, before: u64) -> Option<PodUse> {
    let tree = |bytes, incomplete, uncountable| TreeUsage {
        bytes,
        inodes: bytes,
        incomplete,
        uncountable,
    };
    Some(PodUse {
        volumes: tree(bytes, incomplete, uncountable),
        before: tree(before, false, false),
        ..PodUse::default()
    })
}

#[test]
fn of_pods_whose_files_are_not_all_counted_what_is_known_counts_and_only_where_files_do() {
    let asked = r#"{"ephemeral-storage":"1000"}"#;
    let pods = [
        (one("known", 0, "{}"), on_volumes(900, false, false, 0)),
        // A disk that was too busy.
        (one("cut", 0, "{}"), on_volumes(1, true, false, 0)),
        (one("cut-late", 0, "{}"), on_volumes(950, true, false, 2)),
        (one("cut-early", 0, "{}"), on_volumes(1, true, false, 925)),
        (one("asked", 0, asked), on_volumes(999, true, false, 0)),
        // What was counted before is of no account where all is counted now.
        (one("less-now", 0, "{}"), on_volumes(2, false, false, 5000)),
        // Files nobody can count.
        (one("deep", 0, "{}"), on_volumes(1, true, true, 0)),
        (one("deeper", 0, "{}"), on_volumes(2, true, true, 0)),
        (one("whole", 0, "{}"), on_volumes(u64::MAX, false, false, 0)),
    ];
    let one_disk = Disks::default();
    let expected = [
        "deeper",
        "deep",
        "whole",
        "cut-late",
        "cut-early",
        "known",
        "less-now",
        "cut",
        "asked",
    ];
    assert_eq!(ordered(Signal::NodeFsAvailable, one_disk, &pods), expected);
    let apart = Disks {
        images_apart: true,
        layers_apart: false,
    };
    let order = ordered(Signal::ImageFsAvailable, apart, &pods);
    let mut by_name = expected;
    by_name[..8].sort_unstable();
    assert_eq!(
        order, by_name,
        "all use the same: by name, and who asked for some is the last"
    );
    assert!(is_of_layers(Signal::ImageFsAvailable, apart) && !is_of_layers(Signal::NodeFsAvailable, apart));
    assert!(!is_of_layers(Signal::ImageFsAvailable, one_disk));
}

proptest! {
    /// A count that did not come to its end puts nobody before a pod of which more is known; one that never can puts the pod before all others.
    #[test]
    fn who_goes_for_a_disk_has_most_for_certain(
        list in proptest::collection::vec((0u64..9, any::<bool>(), proptest::bool::weighted(0.1), 0u64..9), 0..12),
        inodes in any::<bool>(),
    ) {
        let pods: Vec<(Pod, Option<PodUse>)> = list.iter().enumerate().map(|(number, (bytes, cut, never, before))| {
            (one(&format!("p{number:02}"), 0, "{}"), on_volumes(*bytes, *cut || *never, *never, *before))
        }).collect();
        let known = |uid: &String| {
            let (bytes, cut, never, before) = list[uid[1..].parse::<usize>().expect("a number")];
            (never, if cut || never { bytes.max(before) } else { bytes })
        };
        let signal = if inodes { Signal::NodeFsInodesFree } else { Signal::NodeFsAvailable };
        let order: Vec<(bool, u64)> = ordered(signal, Disks::default(), &pods).iter().map(known).collect();
        prop_assert!(order.is_sorted_by(|first, next| first >= next), "{order:?}");
    }
}

fn some_pod() -> impl Strategy<Value = (i32, u64, Option<u64>, u8)> {
    (-2i32..3, 0u64..4, proptest::option::of(0u64..6), 0u8..8)
}

proptest! {
    /// The order is the same whatever order the pods are given in, and what must not be evicted is never chosen.
    #[test]
    fn the_order_is_total_and_nobody_protected_goes(list in proptest::collection::vec(some_pod(), 0..12), turn in 0usize..12, which in 0usize..9) {
        let pods: Vec<(Pod, Option<PodUse>)> = list.iter().enumerate().map(|(number, (priority, request, used, kind))| {
            let mut pod = one(&format!("p{number:02}"), *priority, &format!(r#"{{"memory":"{request}"}}"#));
            match kind {
                0 => { pod.metadata.annotations = Some([(pod_object::annotation::SOURCE.to_owned(), "file".to_owned())].into()); }
                1 => { pod.metadata.annotations = Some([(pod_object::annotation::MIRROR.to_owned(), "x".to_owned())].into()); }
                2 => if let Some(spec) = pod.spec.as_mut() { spec.priority = Some(2_000_000_000) },
                _ => {}
            }
            let used = used.map(|used| PodUse { memory: Some(used), processes: Some(used), volumes: TreeUsage { bytes: used, inodes: used, ..TreeUsage::default() }, ..PodUse::default() });
            (pod, used)
        }).collect();
        let signal = Signal::ALL[which];
        let mut turned = pods.clone();
        if !turned.is_empty() {
            let by = turn % turned.len();
            turned.rotate_left(by);
        }
        prop_assert_eq!(ordered(signal, Disks::default(), &pods), ordered(signal, Disks::default(), &turned));
        let mut candidates: Vec<Candidate<'_>> = pods.iter().map(|(pod, used)| Candidate { pod, used: used.clone() }).collect();
        let chosen = choose(&mut candidates, signal, Disks::default()).map(|candidate| candidate.pod);
        let may = list.iter().any(|(.., kind)| *kind > 2);
        prop_assert_eq!(chosen.is_some(), may);
        if let Some(pod) = chosen {
            prop_assert!(!pod_object::is_critical(pod));
        }
    }
}
