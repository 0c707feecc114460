use super::*;
use crate::pod::spec::testing::pod;

fn given(cpu: &str) -> PodResources {
    let spec = format!(r#"{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}]}}"#);
    PodResources::of(&pod(&spec))
}

#[tokio::test]
async fn what_is_put_is_there_for_the_next_kubelet() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("allocated_pods_state");
    let first = Checkpoint::open(path.clone());
    let (a, b) = (PodUid::from("a"), PodUid::from("b"));
    let (one, two) = futures::future::join(first.put(&a, given("1")), first.put(&b, given("2"))).await;
    one.and(two).expect("written");
    let second = Checkpoint::open(path.clone());
    assert_eq!((second.get(&a), second.get(&b)), (Some(given("1")), Some(given("2"))));
    second.remove(&a).await.expect("written");
    assert_eq!(Checkpoint::open(path.clone()).get(&a), None);
    second.retain(|_| false).await.expect("written");
    assert_eq!(Checkpoint::open(path).get(&b), None);
}

#[tokio::test]
async fn the_form_is_upstreams() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("allocated_pods_state");
    let checkpoint = Checkpoint::open(path.clone());
    checkpoint.put(&PodUid::from("u"), given("1")).await.expect("written");
    let text = fs::read_to_string(path).expect("it is there");
    let sealed: Sealed = serde_json::from_str(&text).expect("a checkpoint");
    assert_eq!(
        sealed.data,
        r#"{"entries":{"u":{"ContainerResources":{"c":{"requests":{"cpu":"1"}}},"PodLevelResources":null}}}"#
    );
    assert_eq!(sealed.checksum, checksum(&sealed.data));
}

#[tokio::test]
async fn a_file_of_no_use_is_put_aside() {
    for text in ["", "{}", r#"{"data":"{\"entries\":{}}","checksum":1}"#] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("actuated_pods_state");
        fs::write(&path, text).expect("written");
        let checkpoint = Checkpoint::open(path.clone());
        assert_eq!(checkpoint.get(&PodUid::from("u")), None, "{text}");
        let aside = fs::read_to_string(path.with_extension("unreadable")).expect("it is aside");
        assert_eq!(aside, text);
        checkpoint.put(&PodUid::from("u"), given("1")).await.expect("written");
        assert_eq!(Checkpoint::open(path).get(&PodUid::from("u")), Some(given("1")));
    }
}

/// What the disk does not promise to keep is not given: nothing that is written to /dev/null can be synced.
#[tokio::test]
async fn a_text_that_cannot_be_synced_takes_nobodys_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("allocated_pods_state");
    let checkpoint = Checkpoint::open(path.clone());
    checkpoint.put(&PodUid::from("u"), given("1")).await.expect("written");
    let beside = path.with_extension("tmp");
    std::os::unix::fs::symlink("/dev/null", &beside).expect("a link");
    let refused = checkpoint.put(&PodUid::from("u"), given("2")).await;
    assert!(matches!(refused, Err(CheckpointError::Write { .. })), "{refused:?}");
    assert_eq!(Checkpoint::open(path.clone()).get(&PodUid::from("u")), Some(given("1")));
    fs::remove_file(beside).expect("removed");
    checkpoint.put(&PodUid::from("u"), given("2")).await.expect("written");
    assert_eq!(Checkpoint::open(path).get(&PodUid::from("u")), Some(given("2")));
}
