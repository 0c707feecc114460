//! A cluster whose history is not the one that was read before: nobody goes on with it.

use super::*;

async fn is_over(etcd: &Etcd, why: &str) {
    let told = tokio::time::timeout(LONG, etcd.over()).await.expect("it is over");
    assert!(told.contains(why), "{told}");
    let read = etcd.range("").await.unwrap_err();
    let watched = etcd.watch("/registry/", 1).await.err().expect("refused");
    let written = etcd.put("/registry/b", Bytes::new(), Expect::Absent).await.unwrap_err();
    assert!(
        matches!(&written, StoreError::ReadOnly(text) if text.contains(why)),
        "{written:?}"
    );
    for error in [read, watched] {
        assert!(
            matches!(&error, StoreError::Unusable(text) if text.contains(why)),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_member_that_has_lost_its_data_is_not_believed() {
    let mut cluster = Cluster::start(1);
    let options = || Options {
        deadlines: crate::Deadlines {
            request: LONG,
            ..cluster.options().deadlines
        },
        ..cluster.options()
    };
    let (reader, writer) = (
        Etcd::open(options()).await.unwrap(),
        Etcd::open(options()).await.unwrap(),
    );
    for etcd in [&reader, &writer] {
        let key = format!("/registry/a/{}", etcd.current_revision().await.unwrap());
        etcd.put(&key, Bytes::from_static(b"v"), Expect::Absent).await.unwrap();
    }
    let newest = reader.current_revision().await.unwrap();
    cluster.wipe(0);
    cluster.revive(0);
    let read = reader.current_revision().await.unwrap_err();
    let told = format!("etcd answers with revision 1 after it had told of {newest}");
    assert!(
        matches!(&read, StoreError::Unusable(text) if text.contains(&told)),
        "{read:?}"
    );
    is_over(&reader, &told).await;
    // What is written there is nobody's who reads on.
    let written = writer
        .put("/registry/c", Bytes::new(), Expect::Absent)
        .await
        .unwrap_err();
    assert!(matches!(&written, StoreError::Unusable(_)), "{written:?}");
    is_over(&writer, "was restored from a snapshot, or has lost data").await;
    assert!(
        open(&cluster).await.current_revision().await.is_ok(),
        "who comes now sees what is there"
    );
}

#[tokio::test]
async fn a_server_of_another_cluster_is_not_believed() {
    let mut cluster = Cluster::start(1);
    let other = Cluster::start_with(1, &["--initial-cluster-token", "another"]);
    let options = Options {
        servers: [cluster.urls(), other.urls()].concat(),
        ..cluster.options()
    };
    // It is ahead of the first.
    let elsewhere = open(&other).await;
    for number in 0..20 {
        let key = format!("/registry/a/{number}");
        elsewhere.put(&key, Bytes::new(), Expect::Absent).await.unwrap();
    }
    open(&cluster).await;
    let etcd = Etcd::open(options).await.unwrap();
    etcd.put("/registry/a/1", Bytes::new(), Expect::Absent).await.unwrap();
    cluster.kill(0);
    let read = etcd.get("/registry/a/1").await.unwrap_err();
    assert!(
        matches!(&read, StoreError::Unusable(text) if text.contains("are of different clusters of etcd")),
        "{read:?}"
    );
    is_over(&etcd, "are of different clusters of etcd").await;
}
