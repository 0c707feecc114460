//! Collection over a whole kubelet with a scripted runtime.

use super::*;
use crate::collect::images::Space;
use crate::id::PodUid;
use crate::image::records::Records;
use crate::image::{Images, Rules as ImageRules};
use crate::kubelet::testing::{Alive, Bench};
use crate::pod::testing::{container, pod};
use crate::runtime::ImageInfo;
use crate::runtime::Runtime;
use crate::runtime::fake::{Behaviour, FakeRuntime, Mishap, Run};
use crate::source::Pods;
use client::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use tonic::Code;

const GIB: u64 = 1 << 30;

fn named(image: &str) -> Container {
    Container {
        image_pull_policy: Some("IfNotPresent".into()),
        image: Some(image.into()),
        ..container("c")
    }
}

fn of_image(name: &str, image: &str, policy: &str) -> Pod {
    let mut pod = pod(name).with(named(image)).policy(policy).build();
    pod.spec.as_mut().expect("spec").node_name = Some("node-a".into());
    pod
}

/// A collector beside the kubelet's own, as eviction has one.
fn collector(bench: &Bench, alive: &Alive, rules: Rules) -> Collector {
    let records = Records::new(&bench.root_dir(), bench.clock.clone());
    let images = Images::new(&alive.parts, records, ImageRules::default());
    let desired = Pods {
        complete: true,
        ..Pods::default()
    };
    let (_, desired) = watch::channel(desired);
    Collector::new(alive.parts.clone(), images, rules, measure(&bench.runtime), desired)
}

/// A disk of 100 GiB, of which images have what they are large, each beside a layer of 10 GiB that all share.
fn measure(runtime: &FakeRuntime) -> Measure {
    let runtime = runtime.clone();
    Arc::new(move |_: &Path| {
        let images = runtime.images();
        let shared = if images.is_empty() { 0 } else { 10 * GIB };
        let own: u64 = images.iter().map(|image| image.size.saturating_sub(10 * GIB)).sum();
        let capacity = 100 * GIB;
        Space {
            capacity: i64::try_from(capacity).expect("small"),
            available: i64::try_from(capacity.saturating_sub(shared + own)).expect("small"),
        }
    })
}

fn image(name: &str, gib: u64) -> ImageInfo {
    ImageInfo {
        id: format!("sha256:{name}"),
        repo_tags: vec![format!("docker.io/library/{name}:latest")],
        size: gib * GIB,
        ..ImageInfo::default()
    }
}

fn left(bench: &Bench) -> Vec<String> {
    let mut names: Vec<String> = bench.runtime.images().into_iter().map(|image| image.id).collect();
    names.sort();
    names
}

fn phase(bench: &Bench, pod: &str) -> String {
    bench
        .api
        .status(pod)
        .and_then(|status| status.phase)
        .unwrap_or_default()
}

fn is_released(alive: &Alive, pod: &str) -> bool {
    let snapshot = alive.pods.by_uid(&PodUid::from(pod));
    snapshot.is_some_and(|snapshot| snapshot.ended && !snapshot.active)
}

fn ends_after_a_second() -> Behaviour {
    Behaviour {
        run: Run::For {
            duration: Duration::from_secs(1),
            exit_code: 0,
        },
        ..Behaviour::obedient()
    }
}

#[tokio::test(start_paused = true)]
async fn eviction_gets_the_containers_of_pods_that_have_ended_and_what_runs_goes_on() {
    let bench = Bench::new();
    bench.runtime.add_image("job:latest");
    bench.runtime.script_image("job:latest", ends_after_a_second());
    let alive = bench.start();
    bench.api.create(&of_image("web", "img:latest", "Always"));
    bench.api.create(&of_image("job", "job:latest", "Never"));
    bench
        .until("over", |b| {
            phase(b, "job") == "Succeeded" && b.running("web") == 1 && is_released(&alive, "job")
        })
        .await;
    let collector = collector(&bench, &alive, Rules::default());
    let before = bench.api.status("job");
    assert_eq!(bench.runtime.counts(), (2, 2));
    assert_eq!(
        collector.delete_all_unused_containers().await.expect("removed"),
        2,
        "a container and its sandbox"
    );
    assert_eq!((bench.runtime.counts(), bench.running("web")), ((1, 1), 1));
    assert_eq!(collector.delete_all_unused_containers().await.expect("nothing left"), 0);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(bench.api.status("job"), before, "what it was is told still");
    assert_eq!(bench.runtime.counts(), (1, 1), "and it does not run again");
    bench.api.delete("job", 0, bench.clock.now());
    bench.until("gone", |b| !b.api.has("job")).await;
    alive.kill().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_removed_is_named() {
    let bench = Bench::new();
    bench.runtime.add_image("job:latest");
    bench.runtime.script_image("job:latest", ends_after_a_second());
    let alive = bench.start();
    bench.api.create(&of_image("job", "job:latest", "Never"));
    bench.until("over", |_| is_released(&alive, "job")).await;
    for _ in 0..100 {
        let error = RuntimeError::new("RemoveContainer", Code::Unknown, "device or resource busy");
        bench.runtime.next("RemoveContainer", Mishap::Fail(error));
    }
    let collector = collector(&bench, &alive, Rules::default());
    let error = collector.delete_all_unused_containers().await.expect_err("it stays");
    let id = &bench.runtime.containers()[0].id;
    let sandbox = &bench.runtime.sandboxes()[0].id;
    let expected = format!("2 dead containers and sandboxes could not be removed: {id}, {sandbox}");
    assert_eq!(error.to_string(), expected);
    alive.kill().await;
}

#[tokio::test(start_paused = true)]
async fn limits_over_the_node_are_kept_by_the_workers() {
    let mut bench = Bench::new();
    bench.collect.containers.total = Some(1);
    bench.runtime.add_image("job:latest");
    bench.runtime.script_image("job:latest", ends_after_a_second());
    let alive = bench.start();
    for name in ["a", "b", "d"] {
        bench.api.create(&of_image(name, "job:latest", "Never"));
        bench.until("over", |_| is_released(&alive, name)).await;
    }
    bench.until("few", |b| b.runtime.counts().1 == 1).await;
    let stays = &bench.runtime.containers()[0];
    assert_eq!(stays.pod, PodUid::from("d"), "the newest");
    alive.kill().await;
}

fn marks(high_percent: i64, low_percent: i64) -> Rules {
    Rules {
        images: images::Rules {
            high_percent,
            low_percent,
            ..images::Rules::default()
        },
        ..Rules::default()
    }
}

/// A node with four images of 30 GiB, one of which is used, and a small one.
async fn with_images() -> (Bench, Alive) {
    let bench = Bench::new();
    for name in ["a", "b", "d", "web"] {
        bench.runtime.add_image_info(image(name, 30));
    }
    bench.runtime.set_image_file_system("/images");
    let alive = bench.start();
    bench
        .api
        .create(&of_image("web", "docker.io/library/web:latest", "Always"));
    bench.until("runs", |b| b.running("web") == 1).await;
    (bench, alive)
}

#[tokio::test(start_paused = true)]
async fn images_go_down_to_the_low_mark_as_the_disk_tells_it() {
    let (bench, alive) = with_images().await;
    // 10 shared and four times 20: 90 of 100. By their sizes one would do; two have to go, after the one that frees nothing.
    let collector = collector(&bench, &alive, marks(80, 60));
    collector.images.collect(Duration::ZERO).await.expect("enough");
    assert_eq!(left(&bench), ["sha256:d", "sha256:web"]);
    assert!(alive.tells("kubelet_image_garbage_collected_total{reason=\"space\"} 3"));
    collector.images.collect(Duration::ZERO).await.expect("nothing to do");
    let freed = collector.delete_unused_images().await.expect("freed");
    let bytes = i64::try_from(20 * GIB).expect("small");
    assert_eq!(freed, Freed { images: 1, bytes });
    assert_eq!((left(&bench), bench.running("web")), (vec!["sha256:web".to_owned()], 1));
    alive.kill().await;
}

#[tokio::test(start_paused = true)]
async fn it_is_told_why_too_little_became_free() {
    let (bench, alive) = with_images().await;
    let mut rules = marks(20, 10);
    rules.sandbox_image = Some("a".into());
    let collector = collector(&bench, &alive, rules);
    collector.images.detect().await.expect("noted");
    bench.runtime.add_image_info(image("young", 30));
    let error = collector.images.collect(Duration::ZERO).await.expect_err("too little");
    assert_eq!(left(&bench), ["sha256:a", "sha256:web", "sha256:young"]);
    let expected = "Insufficient free disk space on the node's image filesystem (100% of 100.0 GiB used). Failed to free sufficient \
        space by deleting unused images (freed 32212254720 bytes). Investigate disk usage, as it could be used by active images, logs, \
        volumes, or other data. Images that stay: 1 in use, 1 pinned, 1 younger than imageMinimumGCAge, 0 that could not be removed.";
    assert_eq!(error.to_string(), expected);
    let told = |b: &Bench| {
        b.api
            .events()
            .iter()
            .any(|(reason, text)| reason == "FreeDiskSpaceFailed" && text == expected)
    };
    bench.until("told", told).await;
    let failing = || RuntimeError::new("RemoveImage", Code::Unknown, "read-only file system");
    bench.runtime.next("RemoveImage", Mishap::Fail(failing()));
    tokio::time::sleep(Duration::from_secs(121)).await;
    let error = collector.delete_unused_images().await.expect_err("one stays");
    assert!(
        error
            .to_string()
            .ends_with("with errors in image deletion: rpc error: code = Unknown desc = read-only file system")
    );
    assert_eq!(left(&bench).len(), 3, "it is tried again");
    collector.delete_unused_images().await.expect("now");
    assert_eq!(left(&bench), ["sha256:a", "sha256:web"]);
    alive.kill().await;
}

#[tokio::test(start_paused = true)]
async fn what_became_free_is_told_though_what_is_used_cannot_be_told_any_more() {
    let (bench, alive) = with_images().await;
    let collector = collector(&bench, &alive, Rules::default());
    let images = Images::new(
        &alive.parts,
        Records::new(&bench.root_dir(), bench.clock.clone()),
        ImageRules::default(),
    );
    let (by_size, runtime) = (measure(&bench.runtime), bench.runtime.clone());
    let first = AtomicI64::new(0);
    // The first removal that frees something is the last before the runtime fails.
    let measure: Measure = Arc::new(move |path: &Path| {
        let space = by_size(path);
        let before = first.fetch_max(space.available, Ordering::Relaxed);
        if before > 0 && space.available > before {
            let failing = RuntimeError::new("ListContainers", Code::Unavailable, "containerd restarts");
            runtime.next("ListContainers", Mishap::Fail(failing));
        }
        space
    });
    let breaking = ImageCollector::new(alive.parts.clone(), images, images::Rules::default(), None, measure);
    let error = breaking.delete_unused().await.expect_err("it is not all");
    let PassError::Removal { freed, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*freed, i64::try_from(20 * GIB).expect("small"));
    assert!(error.to_string().ends_with("containerd restarts"), "{error}");
    collector.delete_unused_images().await.expect("the others");
    assert_eq!(left(&bench), ["sha256:web"]);
    alive.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_file_system_that_is_not_there_is_told_and_a_first_failure_is_no_news() {
    let bench = Bench::new();
    bench.runtime.set_image_file_system("/nowhere/at/all");
    let alive = bench.start();
    let events = |reason: &str| bench.api.events().iter().filter(|(found, _)| found == reason).count();
    let text = "invalid capacity 0 on image filesystem";
    let has = |b: &Bench, reason: &str| b.api.events().iter().any(|(r, message)| r == reason && message == text);
    bench.until("told", |b| has(b, "InvalidDiskCapacity")).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(events("ImageGCFailed"), 0);
    bench.until("failed again", |b| has(b, "ImageGCFailed")).await;
    alive.kill().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_known_of_an_image_goes_with_it() {
    let bench = Bench::new();
    bench.runtime.add_remote_image("far:latest");
    let alive = bench.start();
    bench.api.create(&of_image("p", "far:latest", "Always"));
    bench.until("runs", |b| b.running("p") == 1).await;
    let records = || std::fs::read_dir(bench.root_dir().join("image_manager/pulled")).map_or(0, Iterator::count);
    assert_eq!(records(), 1);
    let collector = collector(&bench, &alive, Rules::default());
    bench.api.delete("p", 0, bench.clock.now());
    bench
        .until("gone", |b| !b.api.has("p") && b.runtime.counts() == (0, 0))
        .await;
    // Records tell whole seconds.
    tokio::time::sleep(Duration::from_secs(2)).await;
    collector.images.detect().await.expect("noted");
    assert_eq!(collector.delete_unused_images().await.expect("removed").images, 2);
    assert_eq!((left(&bench).len(), records()), (0, 0));
    alive.kill().await;
}

#[tokio::test(start_paused = true)]
async fn what_nobody_used_for_long_goes_by_itself() {
    let mut bench = Bench::new();
    bench.collect.images.oldest = Some(SignedDuration::from_secs(1_000));
    for name in ["a", "web"] {
        bench.runtime.add_image_info(image(name, 1));
    }
    let alive = bench.start();
    bench
        .api
        .create(&of_image("web", "docker.io/library/web:latest", "Always"));
    tokio::time::sleep(Duration::from_secs(990)).await;
    assert_eq!(left(&bench).len(), 3);
    bench.until("gone", |b| left(b) == ["sha256:web"]).await;
    assert!(alive.tells("kubelet_image_garbage_collected_total{reason=\"age\"} 2"));
    alive.kill().await;
}

#[tokio::test(start_paused = true)]
async fn eviction_may_have_images_removed_once_the_pods_are_known_and_had_a_minute() {
    let bench = Bench::new();
    let alive = bench.start();
    let records = Records::new(&bench.root_dir(), bench.clock.clone());
    let images = Images::new(&alive.parts, records, ImageRules::default());
    let (known, desired) = watch::channel(Pods::default());
    let measure = measure(&bench.runtime);
    let collector = Collector::new(alive.parts.clone(), images, Rules::default(), measure, desired);
    tokio::time::sleep(IMAGES_FIRST).await;
    assert!(!collector.may_delete_images(), "a source is silent");
    known.send_modify(|pods| pods.complete = true);
    assert!(collector.may_delete_images());
    let late = self::collector(&bench, &alive, Rules::default());
    assert!(!late.may_delete_images(), "pods may have come a moment ago");
    alive.kill().await;
}

/// A clock that is set.
#[derive(Default)]
struct Set(AtomicI64);

impl Clock for Set {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::Relaxed)).expect("in range")
    }
}

#[tokio::test(start_paused = true)]
async fn images_age_by_the_time_that_passes_whatever_the_clock_is_set_to() {
    let mut bench = Bench::new();
    let clock = Arc::new(Set(AtomicI64::new(1_700_000_000)));
    bench.clock = clock.clone();
    let alive = bench.start();
    let collector = collector(&bench, &alive, Rules::default());
    collector.images.detect().await.expect("noted");
    bench.runtime.add_image_info(image("late", 30));
    collector.images.detect().await.expect("noted");
    clock.0.fetch_add(40_000_000, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(119)).await;
    collector.delete_unused_images().await.expect("removed");
    assert_eq!(left(&bench), ["sha256:late"], "it is two minutes old, not a year");
    clock.0.fetch_sub(80_000_000, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    collector.delete_unused_images().await.expect("removed");
    assert_eq!(left(&bench).len(), 0, "it was found before");
    bench.runtime.add_image_info(image("late", 30));
    collector.delete_unused_images().await.expect("removed");
    assert_eq!(left(&bench), ["sha256:late"], "what was removed and is back is another");
    alive.kill().await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_others_removed_and_a_pod_pulled_again_is_young() {
    let bench = Bench::new();
    bench.runtime.add_remote_image("far:latest");
    let alive = bench.start();
    let records = Records::new(&bench.root_dir(), bench.clock.clone());
    let images = Images::new(&alive.parts, records, ImageRules::default());
    let mut rules = Rules::default();
    rules.images.youngest = SignedDuration::from_mins(10);
    let (_known, desired) = watch::channel(Pods::default());
    let measure = measure(&bench.runtime);
    let collector = Collector::new(alive.parts.clone(), images.clone(), rules, measure, desired);
    let (pod, far) = (of_image("p", "far:latest", "Never"), named("far:latest"));
    let found = images.ensure(&pod, &far, None).await.expect("pulled");
    collector.images.detect().await.expect("noted");
    tokio::time::sleep(Duration::from_secs(601)).await;
    bench.runtime.remove_image(&found.id).await.expect("by others");
    let again = images.ensure(&pod, &far, None).await.expect("pulled");
    assert_eq!(again.id, found.id);
    // It was given to a pod, which is over since; for that it stays no longer.
    tokio::time::sleep(Duration::from_secs(121)).await;
    collector.delete_unused_images().await.expect("removed");
    assert_eq!(left(&bench), std::slice::from_ref(&found.id));
    tokio::time::sleep(Duration::from_secs(480)).await;
    collector.delete_unused_images().await.expect("removed");
    assert_eq!(left(&bench).len(), 0);
    alive.kill().await;
}
