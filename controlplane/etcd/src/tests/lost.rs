//! Requests and answers that are lost on the way: a socket in front of a member that eats them.

use super::*;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Eats {
    Nothing,
    Requests,
    Answers,
}

/// In front of a member; connections of which something was eaten end once nothing is eaten any more.
struct Lossy {
    eats: watch::Sender<Eats>,
    /// All that was eaten.
    eaten: watch::Receiver<Vec<u8>>,
}

impl Lossy {
    fn between(path: &Path, member: &Path) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let (eats, (eaten, told)) = (watch::Sender::new(Eats::Nothing), watch::channel(Vec::new()));
        let (member, eating) = (member.to_owned(), eats.subscribe());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = UnixStream::connect(&member).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let (asked, answered) = ((eating.clone(), Eats::Requests), (eating.clone(), Eats::Answers));
                let eaten = eaten.clone();
                tokio::spawn(async move {
                    // The end of either is the end of both.
                    tokio::select! {
                        biased;
                        () = pass(from_client, to_server, asked, &eaten) => {}
                        () = pass(from_server, to_client, answered, &eaten) => {}
                    }
                });
            }
        });
        Self { eats, eaten: told }
    }

    /// Eats from now on.
    fn begin(&self, what: Eats) {
        self.eats.send_replace(what);
    }

    /// Until a request about the key has been eaten: there are other frames, too.
    async fn has_eaten(&mut self, key: &str) {
        let is_it = |eaten: &Vec<u8>| eaten.windows(key.len()).any(|part| part == key.as_bytes());
        let eaten = tokio::time::timeout(LONG, self.eaten.wait_for(is_it)).await;
        eaten.expect("something to eat").unwrap();
    }
}

async fn pass(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    (mut eating, what): (watch::Receiver<Eats>, Eats),
    eaten: &watch::Sender<Vec<u8>>,
) {
    let mut buffer = vec![0; 64 << 10];
    let mut is_spoiled = false;
    loop {
        let read = tokio::select! {
            biased;
            // What follows would be read as something else.
            _ = eating.wait_for(|eats| *eats == Eats::Nothing), if is_spoiled => return,
            read = from.read(&mut buffer) => read,
        };
        let Ok(count @ 1..) = read else { return };
        if *eating.borrow() == what {
            is_spoiled = true;
            eaten.send_modify(|eaten| eaten.extend_from_slice(&buffer[..count]));
        } else if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// A store that asks through such a socket, and one that asks the member itself.
async fn lossy(cluster: &Cluster, directory: &Path) -> (Lossy, Arc<Etcd>, Arc<Etcd>) {
    let path = directory.join("lossy");
    let member = cluster.urls()[0].trim_start_matches("unix://").to_owned();
    let direct = open(cluster).await;
    let socket = Lossy::between(&path, Path::new(&member));
    let options = Options {
        servers: vec![format!("unix://{}", path.display())],
        ..cluster.options()
    };
    let through = Arc::new(Etcd::open(options).await.unwrap());
    (socket, through, direct)
}

fn put(etcd: &Arc<Etcd>, key: &'static str, expect: Expect) -> tokio::task::JoinHandle<Result<u64, StoreError>> {
    let etcd = Arc::clone(etcd);
    tokio::spawn(async move { etcd.put(key, Bytes::from_static(b"ours"), expect).await })
}

async fn answer(put: tokio::task::JoinHandle<Result<u64, StoreError>>) -> Result<u64, StoreError> {
    tokio::time::timeout(LONG, put).await.expect("an answer").unwrap()
}

/// Until the key is there.
async fn there(etcd: &Etcd, key: &str) -> u64 {
    let looking = async {
        loop {
            if let Some(record) = etcd.get(key).await.unwrap() {
                return record.modified;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, looking).await.expect("it is done")
}

#[tokio::test]
async fn a_creation_whose_answer_is_lost_is_looked_for_and_never_repeated() {
    let (cluster, directory) = (Cluster::start(1), tempfile::tempdir().unwrap());
    let (mut socket, through, direct) = lossy(&cluster, directory.path()).await;
    // Done, and its answer lost: it is found.
    socket.begin(Eats::Answers);
    let putting = put(&through, "/registry/l/a", Expect::Absent);
    let made = there(&direct, "/registry/l/a").await;
    socket.begin(Eats::Nothing);
    assert_eq!(answer(putting).await.unwrap(), made);
    // Lost itself: nobody knows, since it may be on its way for as long as a network keeps it. It is not asked for again.
    socket.begin(Eats::Requests);
    let putting = put(&through, "/registry/l/b", Expect::Absent);
    socket.has_eaten("/registry/l/b").await;
    socket.begin(Eats::Nothing);
    let told = answer(putting).await;
    assert!(
        matches!(&told, Err(StoreError::OutcomeUnknown(why)) if why.contains("not there")),
        "{told:?}"
    );
    assert_eq!(direct.get("/registry/l/b").await.unwrap(), None);
    // The same, and somebody else was faster: once theirs has gone ours could still be done.
    socket.begin(Eats::Requests);
    let putting = put(&through, "/registry/l/c", Expect::Absent);
    socket.has_eaten("/registry/l/c").await;
    let theirs = direct
        .put("/registry/l/c", Bytes::from_static(b"theirs"), Expect::Absent)
        .await
        .unwrap();
    socket.begin(Eats::Nothing);
    let told = answer(putting).await;
    assert!(
        matches!(&told, Err(StoreError::OutcomeUnknown(why)) if why.contains("another's")),
        "{told:?}"
    );
    let kept = direct.get("/registry/l/c").await.unwrap().unwrap();
    assert_eq!((kept.modified, &*kept.value), (theirs, &b"theirs"[..]));
}

/// What is written over a revision can be done once only: it is repeated, and who lost is told so for certain.
#[tokio::test]
async fn a_write_over_a_revision_is_repeated() {
    let (cluster, directory) = (Cluster::start(1), tempfile::tempdir().unwrap());
    let (mut socket, through, direct) = lossy(&cluster, directory.path()).await;
    let made = direct.put("/registry/l/a", Bytes::new(), Expect::Absent).await.unwrap();
    socket.begin(Eats::Requests);
    let putting = put(&through, "/registry/l/a", Expect::At(made));
    socket.has_eaten("/registry/l/a").await;
    socket.begin(Eats::Nothing);
    let ours = answer(putting).await.unwrap();
    assert_eq!(ours, made + 1);
    let made = direct.put("/registry/l/b", Bytes::new(), Expect::Absent).await.unwrap();
    socket.begin(Eats::Requests);
    let putting = put(&through, "/registry/l/b", Expect::At(made));
    socket.has_eaten("/registry/l/b").await;
    let theirs = direct
        .put("/registry/l/b", Bytes::from_static(b"theirs"), Expect::At(made))
        .await
        .unwrap();
    socket.begin(Eats::Nothing);
    let told = answer(putting).await;
    assert!(
        matches!(&told, Err(StoreError::Conflict { current: Some(current), .. }) if current.modified == theirs),
        "{told:?}"
    );
}

/// The objects are moved away meanwhile. While nobody knows whether a write was done, it is not told as refused.
#[tokio::test]
async fn a_write_whose_answer_is_lost_is_unknown_while_a_mark_is_there() {
    let (cluster, directory) = (Cluster::start(1), tempfile::tempdir().unwrap());
    let (mut socket, through, direct) = lossy(&cluster, directory.path()).await;
    let made = direct.put("/registry/l/b", Bytes::new(), Expect::Absent).await.unwrap();
    let mut side = crate::moving::Side::open(&cluster.options()).await.unwrap();
    for (key, expect, why) in [
        ("/registry/l/a", Expect::Absent, "not there"),
        ("/registry/l/b", Expect::At(made), "mark"),
    ] {
        socket.begin(Eats::Requests);
        let putting = put(&through, key, expect);
        socket.has_eaten(key).await;
        let held = side.hold("1", "they move").await.unwrap();
        socket.begin(Eats::Nothing);
        let told = answer(putting).await;
        assert!(
            matches!(&told, Err(StoreError::OutcomeUnknown(text)) if text.contains(why)),
            "{told:?}"
        );
        let sure = direct.put(key, Bytes::new(), expect).await;
        assert!(matches!(&sure, Err(StoreError::ReadOnly(_))), "{sure:?}");
        crate::moving::Side::release(held).await.unwrap();
    }
}
