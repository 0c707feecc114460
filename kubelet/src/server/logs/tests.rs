//! Many readers, long files, and clients that take nothing.

use super::*;
use std::fs;
use std::path::Path;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn log(directory: &Path, lines: usize) -> PathBuf {
    let path = directory.join("0.log");
    let line = "2026-11-20T10:00:00Z stdout F a line of a log that says nothing in particular\n";
    fs::write(&path, line.repeat(lines)).expect("written");
    path
}

async fn answered(logs: &Logs, path: PathBuf, options: LogOptions) -> Body {
    let place = logs.place(&PodUid::from("u-1")).expect("a place");
    let reader = Reader::begin(&logs.files, path, options).await.expect("open");
    streamed(reader, place, || true)
}

#[test]
fn readers_are_bounded_in_all_and_of_one_pod() {
    let logs = Logs::default();
    let of = |pod: String| logs.place(&PodUid::from(pod.as_str()));
    let own: Vec<_> = (0..READERS_OF_POD_MAX).map(|_| of("u".into())).collect();
    assert!(own.iter().all(Result::is_ok));
    assert_eq!(of("u".into()).err(), Some("too many readers of this pod's logs\n"));
    let others = READERS_MAX - READERS_OF_POD_MAX;
    let others: Vec<_> = (0..others).map(|pod| of(pod.to_string())).collect();
    assert!(others.iter().all(Result::is_ok));
    assert_eq!(of("other".into()).err(), Some("too many readers of containers' logs\n"));
    drop(own);
    assert!(of("u".into()).is_ok());
}

/// Whoever takes nothing holds a few blocks, for a while.
#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_loses_its_place_and_sees_that_its_log_is_cut() {
    let dir = tempfile::tempdir().expect("temp dir");
    let logs = Logs::default();
    let long = log(dir.path(), 50_000);
    let follow = LogOptions {
        follow: true,
        ..LogOptions::default()
    };
    for options in [LogOptions::default(), follow] {
        let body = answered(&logs, long.clone(), options).await;
        let all = u32::try_from(READERS_MAX).expect("few");
        let free = tokio::time::timeout(DAY, logs.readers.acquire_many(all)).await;
        drop(free.expect("its place is free"));
        let error = body.collect().await.expect_err("it is cut");
        assert_eq!(error.to_string(), "the log is not all there");
    }
    // One that is short enough to be on its way as a whole.
    let short = log(dir.path(), 1);
    let body = answered(&logs, short, LogOptions::default()).await;
    let all = u32::try_from(READERS_MAX).expect("few");
    let free = tokio::time::timeout(DAY, logs.readers.acquire_many(all)).await;
    drop(free.expect("its place is free"));
    let all = body.collect().await.expect("all of it").to_bytes();
    assert_eq!(all, "a line of a log that says nothing in particular\n");
}

/// The last lines of a file that takes hours to read: others are read meanwhile, and it ends with its request.
#[tokio::test]
async fn a_long_search_leaves_others_their_turn_and_ends_with_its_request() {
    let dir = tempfile::tempdir().expect("temp dir");
    let endless = dir.path().join("endless.log");
    let file = fs::File::create(&endless).expect("made");
    file.set_len(1 << 42).expect("sparse");
    let tail = LogOptions {
        tail: Some(999_999_999),
        ..LogOptions::default()
    };
    let files = LogFiles::reading(1);
    let asked = files.clone();
    let search = tokio::spawn(async move { Reader::begin(&asked, endless, tail).await.map(drop) });
    let reader = Reader::begin(&files, log(dir.path(), 1000), LogOptions::default())
        .await
        .expect("open");
    let (chunks, mut received) = mpsc::channel(1);
    let reading = tokio::spawn(reader.stream(chunks, || false));
    let mut bytes = 0;
    while let Some(chunk) = received.recv().await {
        bytes += chunk.len();
    }
    assert!(bytes > 40_000 && reading.await.expect("task").is_ok());
    assert!(!search.is_finished());
    search.abort();
    assert!(search.await.expect_err("ended").is_cancelled());
    files.run(|| Ok(())).await.expect("the only turn is free");
}

#[tokio::test]
async fn many_followers_need_one_inotify_instance() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (logs, path) = (Logs::default(), log(dir.path(), 1));
    let follow = LogOptions {
        follow: true,
        ..LogOptions::default()
    };
    let mut readers = Vec::new();
    // More than the instances of one user.
    for _ in 0..200 {
        readers.push(
            Reader::begin(&logs.files, path.clone(), follow.clone())
                .await
                .expect("open"),
        );
    }
    assert!(readers.iter().all(Reader::is_told_of_changes));
}
