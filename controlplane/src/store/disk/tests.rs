use super::*;

#[tokio::test]
async fn data_and_revision_survive_a_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::open(directory.path()).unwrap();
    disk.put("/registry/a", Bytes::from_static(b"1"), Expect::Absent)
        .await
        .unwrap();
    let last = disk
        .put("/registry/b", Bytes::from_static(b"2"), Expect::Absent)
        .await
        .unwrap();
    disk.close().await;
    let disk = Disk::open(directory.path()).unwrap();
    let (revision, records) = disk.range("/registry/").await.unwrap();
    assert_eq!(revision, last);
    assert_eq!(records.len(), 2);
    assert_eq!(records[1].value, Bytes::from_static(b"2"));
    assert_eq!(records[1].created, last);
}

#[tokio::test]
async fn a_second_opening_is_refused_and_names_directory_and_holder() {
    let directory = tempfile::tempdir().unwrap();
    let _disk = Disk::open(directory.path()).unwrap();
    let text = Disk::open(directory.path()).err().unwrap().to_string();
    assert!(text.contains(&directory.path().display().to_string()), "{text}");
    assert!(
        text.contains(&format!("in use by process {}", std::process::id())),
        "{text}"
    );
}

#[tokio::test]
async fn a_newer_format_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    Disk::open(directory.path()).unwrap().close().await;
    {
        let database = Database::open(directory.path().join("state.redb")).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction
            .open_table(META)
            .unwrap()
            .insert("format", FORMAT + 1)
            .unwrap();
        transaction.commit().unwrap();
    }
    let text = Disk::open(directory.path()).err().unwrap().to_string();
    assert!(text.contains("has format 2, newer than the 1"), "{text}");
}

#[tokio::test]
async fn concurrent_writes_to_one_key_have_one_winner_each_round() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(Disk::open(directory.path()).unwrap());
    let mut seen = disk.put("/k", Bytes::new(), Expect::Absent).await.unwrap();
    for _ in 0..3 {
        let tries = (0..32).map(|_| {
            let disk = Arc::clone(&disk);
            async move { disk.put("/k", Bytes::new(), Expect::At(seen)).await }
        });
        let outcomes = futures::future::join_all(tries).await;
        let won: Vec<Revision> = outcomes.into_iter().filter_map(Result::ok).collect();
        assert_eq!(won.len(), 1);
        seen = won[0];
    }
}

/// Names the directory to write in, and makes [`what_was_acknowledged_survives_kill_9`] the process that is killed.
const CRASH_DIRECTORY: &str = "SKIFF_CRASH_DIRECTORY";

/// Writes without end and prints each acknowledged revision.
async fn write_until_killed(directory: std::ffi::OsString) {
    let disk = Arc::new(Disk::open(directory).unwrap());
    let start = disk.current_revision().await.unwrap();
    let writers = (0..8).map(|writer| {
        let disk = Arc::clone(&disk);
        async move {
            for number in 0.. {
                let key = format!("/registry/{start}-{writer}-{number:06}");
                let revision = disk
                    .put(&key, Bytes::from(vec![b'x'; 700]), Expect::Absent)
                    .await
                    .unwrap();
                println!("acknowledged {key} {revision}");
            }
        }
    });
    futures::future::join_all(writers).await;
}

#[tokio::test]
async fn what_was_acknowledged_survives_kill_9() {
    // The test is its own victim: it runs itself again in a child, which this variable tells apart.
    if let Some(directory) = std::env::var_os(CRASH_DIRECTORY) {
        write_until_killed(directory).await;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged: Vec<(String, Revision)> = Vec::new();
    for round in 0..4 {
        let mut child = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "store::disk::tests::what_was_acknowledged_survives_kill_9",
                "--nocapture",
            ])
            .env(CRASH_DIRECTORY, directory.path())
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(child.stdout.take().unwrap()));
        let enough = acknowledged.len() + 150 + round * 37;
        while acknowledged.len() < enough {
            let line = lines
                .next_line()
                .await
                .unwrap()
                .expect("the child writes until it is killed");
            // The test harness may have put its own words before the first line.
            let Some((_, told)) = line.split_once("acknowledged ") else {
                continue;
            };
            let (key, revision) = told.split_once(' ').unwrap();
            acknowledged.push((key.to_owned(), revision.parse().unwrap()));
        }
        child.kill().await.unwrap();
        let disk = Disk::open(directory.path()).unwrap();
        let (newest, records) = disk.range("/registry/").await.unwrap();
        for (key, revision) in &acknowledged {
            let found = records.iter().find(|record| *record.key == **key);
            assert_eq!(found.map(|record| record.modified), Some(*revision), "{key}");
            assert!(newest >= *revision);
        }
        assert_eq!(
            newest,
            1 + records.len() as u64,
            "one revision per write, none lost, none invented"
        );
        disk.close().await;
    }
}
