use super::*;
use bytes::Bytes;
use futures::FutureExt;

fn changes(first: Revision, count: u64, bytes: usize) -> Vec<Change> {
    let value = Bytes::from(vec![b' '; bytes]);
    (first..first + count)
        .map(|revision| Change {
            revision,
            key: Arc::from("/a"),
            value: Some(value.clone()),
            created: false,
        })
        .collect()
}

#[tokio::test]
async fn a_follower_misses_nothing_and_a_reader_that_is_as_slow_ends() {
    let feed = Feed::after(1);
    let mut follower = feed.follow(1).unwrap();
    let mut reader = feed.stream("/", 1).unwrap();
    feed.publish(changes(2, 40, 1 << 20));
    let step = follower.next().await.unwrap().unwrap();
    let read: Vec<Revision> = step.changes.iter().map(|change| change.revision).collect();
    assert_eq!((step.revision, read), (41, (2..42).collect()));
    assert!(feed.log().bytes <= LOG_BYTES, "what everybody has read is forgotten");
    assert!(reader.next().await.is_none());
}

#[tokio::test]
async fn a_writer_waits_for_followers_only_and_not_when_the_store_closes() {
    let feed = Feed::after(1);
    let _reader = feed.stream("/", 1).unwrap();
    feed.publish(changes(2, 40, 1 << 20));
    feed.wait_for_space(|| panic!("nobody to wait for"));

    let mut follower = feed.follow(41).unwrap();
    feed.publish(changes(42, 40, 1 << 20));
    feed.wait_for_space(|| true);
    let waiting = {
        let feed = feed.clone();
        tokio::task::spawn_blocking(move || feed.wait_for_space(|| false))
    };
    tokio::pin!(waiting);
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!(follower.next().await.unwrap().unwrap().changes[0].revision, 42);
    waiting.await.unwrap();

    feed.publish(changes(82, 40, 1 << 20));
    drop(follower);
    feed.wait_for_space(|| panic!("nobody is left to wait for"));
}
