//! Plugins that are asked for pods, over pipes in memory: the clock is paused.

use super::draft::Plan;
use super::give::DeviceError;
use super::testing::{Sample, device, env, until, well};
use super::*;
use crate::metrics::Metrics;
use crate::pinning::hint::Hint;
use crate::pinning::{align::Giver, asking};
use crate::pod_object;
use proto::cri;
use serde_json::json;
use std::time::Duration;

const R: &str = "example.com/dev";

fn open(directory: &tempfile::TempDir) -> Devices {
    Devices::open(directory.path().to_owned(), Metrics::new("n").devices)
}

fn pod(uid: &str, inits: usize, count: usize) -> Pod {
    let container = |name: &str| json!({"name": name, "resources": {"limits": {R: count.to_string()}}});
    let inits: Vec<_> = (0..inits).map(|index| container(&format!("i{index}"))).collect();
    let pod = json!({"metadata": {"name": uid, "uid": uid}, "spec": {"initContainers": inits, "containers": [container("c")]}});
    serde_json::from_value(pod).expect("a pod")
}

async fn give(devices: &Devices, pod: &Pod) -> Result<(), String> {
    let mut draft = devices.draft(pod, NumaMask::default());
    for asking in asking::of_pod(pod) {
        draft.give(&asking, Hint::default()).map_err(|why| why.message)?;
    }
    let plan = draft.plan().expect("it asks for devices");
    devices.give(&plan).await.map_err(|why| why.to_string())
}

fn plan(devices: &Devices, pod: &Pod) -> Plan {
    let mut draft = devices.draft(pod, NumaMask::default());
    for asking in asking::of_pod(pod) {
        draft.give(&asking, Hint::default()).expect("room");
    }
    draft.plan().expect("it asks for devices")
}

#[tokio::test(start_paused = true)]
async fn what_is_promised_is_nobody_elses_while_its_plugin_is_asked() {
    let directory = tempfile::tempdir().expect("temp dir");
    let devices = open(&directory);
    assert!(devices.is_new(), "nobody was here");
    let plugin = Sample::new(well(&["a"]));
    plugin.register(&devices, R).await;
    // Both are judged before either's plugin is asked.
    let (first, second) = (plan(&devices, &pod("u", 2, 1)), plan(&devices, &pod("v", 0, 1)));
    assert_eq!(devices.promise(&first), Ok(()));
    assert!(devices.promise(&second).is_err(), "it is the first one's");
    assert_eq!(
        devices.give(&first).await,
        Ok(()),
        "one device for all of its containers"
    );
    for container in ["i0", "i1", "c"] {
        assert_eq!(ids(&devices, "u", container), ["a"]);
    }
    devices.retain(|uid| uid == "v");
    assert_eq!(devices.promise(&second), Ok(()));
    assert!(!open(&directory).is_new());
}

async fn start(devices: &Devices, pod: &Pod) -> Result<Vec<String>, DeviceError> {
    let extras = devices.start(&pod_object::uid(pod), pod, "c").await?;
    let mut config = cri::ContainerConfig::default();
    extras.apply(&mut config);
    let told = config
        .envs
        .iter()
        .map(|env| format!("{}={}", env.key, String::from_utf8_lossy(&env.value)));
    Ok(told.collect())
}

fn ids(devices: &Devices, pod: &str, container: &str) -> Vec<String> {
    devices.look(|state| {
        let given = state.pods().get(pod, container, R);
        given.map(|given| given.ids().into_iter().collect()).unwrap_or_default()
    })
}

#[tokio::test(start_paused = true)]
async fn what_is_given_is_on_disk_and_the_next_kubelets() {
    let directory = tempfile::tempdir().expect("temp dir");
    let devices = open(&directory);
    let plugin = Sample::new(well(&["a", "b", "c"])).script(|script| script.answers = vec![env("GPU", "yes")]);
    plugin.register(&devices, R).await;
    let first = pod("u", 1, 2);
    assert_eq!(give(&devices, &first).await, Ok(()));
    assert_eq!(ids(&devices, "u", "i0"), ["a", "b"]);
    assert_eq!(ids(&devices, "u", "c"), ["a", "b"], "what the init container leaves");
    assert_eq!(
        give(&devices, &pod("v", 0, 2)).await,
        Err(
            "Allocate failed due to requested number of devices unavailable for example.com/dev. \
             Requested: 2, Available: 1, which is unexpected"
                .to_owned()
        )
    );
    let next = open(&directory);
    assert_eq!(
        start(&next, &first).await.expect("starts"),
        ["DEVICES=a,b", "GPU=yes"],
        "without its plugin"
    );
    assert_eq!(
        give(&next, &pod("w", 0, 1)).await,
        Err(
            "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices example.com/dev, \
             which is unexpected"
                .to_owned()
        )
    );
    plugin.register(&next, R).await;
    assert_eq!(give(&next, &pod("w", 0, 1)).await, Ok(()));
    assert_eq!(ids(&next, "w", "c"), ["c"], "nobody has another's");
    next.retain(|uid| uid == "w");
    assert_eq!(give(&next, &pod("x", 0, 2)).await, Ok(()));
    assert_eq!(
        plugin.calls(),
        ["allocate a,b", "allocate a,b", "allocate c", "allocate a,b"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_hangs_refuses_or_answers_nothing_harms_one_pod() {
    let directory = tempfile::tempdir().expect("temp dir");
    let devices = open(&directory);
    let plugin = Sample::new(well(&["a"]));
    plugin.register(&devices, R).await;
    let plugin = plugin.script(|script| script.hangs = true);
    assert_eq!(
        give(&devices, &pod("u", 0, 1)).await,
        Err("rpc error: code = DeadlineExceeded desc = Allocate took longer than 120 s".to_owned())
    );
    let plugin = plugin.script(|script| (script.hangs, script.refuses) = (false, Some("on fire".to_owned())));
    assert_eq!(
        give(&devices, &pod("u", 0, 1)).await,
        Err("rpc error: code = Internal desc = on fire".to_owned())
    );
    let plugin = plugin.script(|script| (script.refuses, script.answers) = (None, Vec::new()));
    let nothing = give(&devices, &pod("u", 0, 1)).await.expect_err("refused");
    assert!(
        nothing.starts_with("no containers return in allocation response"),
        "{nothing}"
    );
    let plugin = plugin.script(|script| script.answers = vec![env("X", &"x".repeat(answer::ANSWER_BYTES_MAX))]);
    let long = give(&devices, &pod("u", 0, 1)).await.expect_err("refused");
    assert!(long.starts_with("the allocation response has"), "{long}");
    let _plugin = plugin.script(|script| script.answers = vec![env("X", "x")]);
    assert_eq!(
        give(&devices, &pod("u", 0, 1)).await,
        Ok(()),
        "its device is free again each time"
    );
}

#[tokio::test(start_paused = true)]
async fn a_plugin_prefers_and_is_told_of_starts() {
    let directory = tempfile::tempdir().expect("temp dir");
    let devices = open(&directory);
    let plugin = Sample::new(well(&["a", "b", "c"])).script(|script| {
        script.preferred = Some(vec!["c".to_owned(), "nobody's".to_owned()]);
        script.pre_start = true;
    });
    plugin.register(&devices, R).await;
    let pod = pod("u", 0, 1);
    give(&devices, &pod).await.expect("given");
    start(&devices, &pod).await.expect("starts");
    assert_eq!(plugin.calls(), ["prefer 1 of a,b,c with ", "allocate c", "start c"]);
    let plugin = plugin.script(|script| script.refuses = Some("no".to_owned()));
    let refused = start(&devices, &pod).await.expect_err("refused").to_string();
    assert_eq!(
        refused,
        "device plugin PreStartContainer rpc failed with err: rpc error: code = Internal desc = no"
    );
    assert_eq!(
        give(&devices, &self::pod("v", 0, 1)).await,
        Err(
            "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Internal desc = no".to_owned()
        )
    );
    plugin.dies();
    testing::until(&devices, |devices| devices.capacity().allocatable[R] == 0).await;
    let gone = start(&devices, &pod).await.expect_err("refused").to_string();
    assert_eq!(
        gone,
        "endpoint not found in cache for a registered resource: example.com/dev"
    );
}

#[tokio::test(start_paused = true)]
async fn a_container_that_has_none_yet_gets_its_devices_at_its_start() {
    let directory = tempfile::tempdir().expect("temp dir");
    let devices = open(&directory);
    let pod = pod("u", 0, 1);
    assert!(
        start(&devices, &pod).await.expect("starts").is_empty(),
        "nobody knows the resource"
    );
    let plugin = Sample::new(well(&["a"]));
    plugin.register(&devices, R).await;
    assert_eq!(start(&devices, &pod).await.expect("starts"), ["DEVICES=a"]);
    assert_eq!(start(&devices, &pod).await.expect("starts"), ["DEVICES=a"]);
    assert_eq!(plugin.calls(), ["allocate a"], "once");
}

#[tokio::test(start_paused = true)]
async fn health_is_told_of_what_containers_have() {
    let directory = tempfile::tempdir().expect("temp dir");
    let devices = open(&directory);
    let plugin = Sample::new(vec![device("a", true, &[1]), device("b", true, &[0])]);
    plugin.register(&devices, R).await;
    give(&devices, &pod("u", 0, 2)).await.expect("given");
    let told = |devices: &Devices| -> Vec<(String, String)> {
        let of = devices
            .health("u", "c")
            .into_iter()
            .flat_map(|of| of.resources.unwrap_or_default());
        of.map(|of| (of.resource_id, of.health.unwrap_or_default())).collect()
    };
    let expected = |a: &str| vec![("a".to_owned(), a.to_owned()), ("b".to_owned(), "Healthy".to_owned())];
    assert_eq!(told(&devices), expected("Healthy"));
    plugin.lists(vec![device("a", false, &[1]), device("b", true, &[0])]);
    testing::until(&devices, |devices| told(devices) == expected("Unhealthy")).await;
    assert!(devices.health("u", "other").is_empty());
    let by_node = devices.look(|state| state.pods().get("u", "c", R).map(|given| given.by_node.clone()));
    let one = |id: &str| vec![id.to_owned()];
    assert_eq!(by_node, Some([(0, one("b")), (1, one("a"))].into()));
}

#[tokio::test(start_paused = true)]
async fn nobody_knows_of_devices_whose_plugin_went_for_good() {
    let directory = tempfile::tempdir().expect("temp dir");
    let devices = open(&directory);
    let plugin = Sample::new(well(&["a"]));
    plugin.register(&devices, R).await;
    give(&devices, &pod("u", 0, 1)).await.expect("given");
    let told = |devices: &Devices| {
        let of = devices.health("u", "c").remove(0).resources.unwrap_or_default();
        of[0].health.clone().unwrap_or_default()
    };
    plugin.dies();
    until(&devices, |devices| told(devices) == "Unhealthy").await;
    tokio::time::advance(state::GRACE + Duration::from_secs(1)).await;
    let news = devices.news();
    assert_eq!(devices.capacity().capacity[R], 0);
    assert_eq!(told(&devices), "Unknown", "it is not well again");
    assert!(news.has_changed().expect("open"), "who tells of it hears so");
}

#[test]
fn a_directory_that_cannot_be_read_is_not_new() {
    let directory = tempfile::tempdir().expect("temp dir");
    let of = |path: PathBuf| Devices::open(path, Metrics::new("n").devices).is_new();
    assert!(of(directory.path().join("none")) && of(directory.path().to_owned()));
    let file = directory.path().join("file");
    std::fs::write(&file, "").expect("writes");
    assert!(!of(file));
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_is_written_once_it_can_be_though_nothing_changes() {
    let directory = tempfile::tempdir().expect("temp dir");
    let devices = open(&directory);
    let beside = directory.path().join(checkpoint::FILE).with_extension("tmp");
    std::fs::create_dir(&beside).expect("made");
    Sample::new(well(&["a"])).register(&devices, R).await;
    give(&devices, &pod("u", 0, 1)).await.expect_err("it is not kept");
    assert!(devices.kept().await.is_err(), "nor a moment later");
    std::fs::remove_dir(&beside).expect("removed");
    // The clock goes on by itself while nothing else does.
    let is_kept = || std::fs::read_to_string(directory.path().join(checkpoint::FILE)).is_ok();
    for _ in 0..1000 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if is_kept() && !devices.0.held().retries {
            return;
        }
    }
    panic!("it is never written");
}

#[tokio::test]
async fn a_damaged_file_gives_nobody_anything_and_is_replaced() {
    let directory = tempfile::tempdir().expect("temp dir");
    let path = directory.path().join(checkpoint::FILE);
    std::fs::write(&path, "{").expect("writes");
    let devices = open(&directory);
    assert!(devices.capacity().capacity.is_empty());
    assert!(!devices.is_held(|_| true));
    Sample::new(well(&["a"])).register(&devices, R).await;
    devices.kept().await.expect("kept");
    checkpoint::read(&std::fs::read(&path).expect("reads")).expect("sound");
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_changes_its_mind_all_the_time_is_heard_once_a_second() {
    let directory = tempfile::tempdir().expect("temp dir");
    let devices = open(&directory);
    let plugin = Sample::new(well(&["a"]));
    plugin.register(&devices, R).await;
    let before = *devices.news().borrow();
    for turn in 0..100 {
        plugin.lists(vec![device("a", turn % 2 == 0, &[])]);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let heard = *devices.news().borrow() - before;
    assert!((1..=3).contains(&heard), "two seconds: {heard}");
    plugin.lists(well(&["a", "b", "c"]));
    until(&devices, |devices| devices.capacity().capacity.get(R) == Some(&3)).await;
}

/// Turns of everybody else, until something is so.
async fn soon(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1_000_000 {
        if holds() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("never: {what}");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_waits_is_held_against_all_others_and_is_let_go_of_once_it_is_taken() {
    let directory = tempfile::tempdir().expect("temp dir");
    let devices = open(&directory);
    let plugin = Sample::new(well(&["a"]));
    plugin.register(&devices, R).await;
    let many: Vec<String> = (0..1_000).map(|number| format!("{number:0100}")).collect();
    let many = well(&many.iter().map(String::as_str).collect::<Vec<_>>());
    plugin.lists(many.clone());
    soon("it waits for its second", || devices.unread().taken() > 100_000).await;
    assert_eq!(devices.capacity().capacity[R], 1);
    until(&devices, |devices| devices.capacity().capacity[R] == 1_000).await;
    assert_eq!(devices.unread().taken(), 0);
    // Others have sent so much that there is no room for such a list.
    let mut others = devices.unread().share();
    others.hold(plugin::UNREAD_BYTES_MAX).expect("all of it");
    plugin.lists(well(&["a", "b"]));
    until(&devices, |devices| devices.capacity().capacity[R] == 2).await;
    plugin.lists(many);
    until(&devices, |devices| devices.capacity().allocatable[R] == 0).await;
    assert_eq!(
        devices.capacity().capacity[R],
        2,
        "ill, as those of a plugin that is gone"
    );
    drop(others);
    assert_eq!(devices.unread().taken(), 0);
}
