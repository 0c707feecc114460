//! A member that answers late: it is left for others, and what it tells, too.

use super::*;
use std::path::{Path, PathBuf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// Longer than any answer takes that is not late.
const LATE: Duration = Duration::from_millis(1500);

/// A socket in front of a member, whose answers come late once it is told so.
fn in_front_of(member: PathBuf, path: &Path, is_late: watch::Receiver<bool>) {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            // It may not have begun yet; who asks comes again.
            let Ok(server) = UnixStream::connect(&member).await else {
                continue;
            };
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            let is_late = is_late.clone();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
                    if *is_late.borrow() {
                        tokio::time::sleep(LATE).await;
                    }
                    if to_client.write_all(&buffer[..count]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
}

#[tokio::test]
async fn a_member_that_answers_late_is_left_for_one_that_does_not() {
    let (cluster, directory) = (Cluster::start(3), tempfile::tempdir().unwrap());
    let (late, is_late) = watch::channel(false);
    let urls = cluster.urls();
    let path = directory.path().join("late");
    in_front_of(PathBuf::from(urls[0].trim_start_matches("unix://")), &path, is_late);
    let asking = |servers: Vec<String>| Options {
        servers,
        ..cluster.options()
    };
    let first = format!("unix://{}", path.display());
    // All members have begun: none is left for that.
    for url in [&first, &urls[1], &urls[2]] {
        Etcd::open(asking(vec![url.clone()])).await.unwrap();
    }
    let etcd = Etcd::open(asking(vec![first, urls[1].clone(), urls[2].clone()]))
        .await
        .unwrap();
    let base = etcd.current_revision().await.unwrap();
    let mut steps = etcd.follow(base).await.unwrap();
    late.send_replace(true);
    // The first that waits for it; whoever comes next asks another.
    etcd.put("/registry/a", Bytes::new(), Expect::Absent).await.unwrap();
    let newest = etcd.put("/registry/b", Bytes::new(), Expect::Absent).await.unwrap();
    let told = loop {
        match next(&mut steps).await {
            Ok(step) if step.revision < newest => {}
            told => break told,
        }
    };
    assert!(
        matches!(&told, Err(StoreError::Unavailable(why)) if why.contains("it answers late, and another does not")),
        "{told:?}"
    );
    let mut steps = etcd.follow(base).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(next(&mut steps).await.unwrap().changes);
    }
    assert_eq!(seen.last().unwrap().revision, newest, "elsewhere all of it is told");
}
