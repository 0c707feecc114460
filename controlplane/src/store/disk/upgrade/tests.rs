use super::testing::{self, OLD_META, OLD_RECORDS, REVISION, describe};
use super::*;
use crate::store::disk::fault_tests::{Faults, Faulty};
use crate::store::{Record, Store};
use nix::sys::signal::{Signal, kill};
use redb::backends::FileBackend;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Set for the victim: the directory of its store, and the step at which it dies.
const VICTIM: &str = "SKIFF_UPGRADE_VICTIM";
const DIES_AT: &str = "SKIFF_UPGRADE_DIES_AT";
/// So small that the fixture takes several.
const SMALL_STEP_BYTES: usize = 32 << 10;

/// Everything is there, once, as it was, and says what it is.
fn assert_upgraded(revision: Revision, records: &[Record]) {
    assert_eq!(revision, REVISION);
    let old: Vec<testing::Old> = testing::records().collect();
    assert_eq!(records.len(), old.len());
    for (record, old) in records.iter().zip(old) {
        assert_eq!(
            (&*record.key, record.created, record.modified),
            (old.key, old.created, old.modified)
        );
        let of = TypeMeta::of(&record.value).unwrap();
        assert!(!of.kind.is_empty() && !of.api_version.is_empty(), "{}", old.key);
        assert_eq!(
            described(&of, old.value.as_bytes()).unwrap(),
            record.value,
            "{}",
            old.key
        );
    }
}

/// What is in the file, which must be whole, in format 1.
fn assert_old(directory: &Path) {
    let database = Database::open(directory.join(FILE)).unwrap();
    let reading = database.begin_read().unwrap();
    let meta = reading.open_table(OLD_META).unwrap();
    let number = |name: &str| meta.get(name).unwrap().unwrap().value();
    assert_eq!((number("format"), number("revision")), (1, REVISION));
    let table = reading.open_table(OLD_RECORDS).unwrap();
    for old in testing::records() {
        let found = table.get(old.key).unwrap().unwrap();
        assert_eq!(&found.value()[16..], old.value.as_bytes(), "{}", old.key);
    }
}

async fn contents(disk: &Disk) -> (Revision, Vec<Record>) {
    disk.range("").await.unwrap()
}

#[tokio::test]
async fn old_data_are_upgraded_once_with_everything_in_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    testing::write(path);
    let refused = Disk::open(path).err().unwrap();
    assert!(matches!(refused, StoreError::Older { format: 1, .. }), "{refused}");
    assert_old(path);
    let disk = Disk::open_upgrading(path, &mut describe).unwrap();
    let (revision, records) = contents(&disk).await;
    assert_upgraded(revision, &records);
    assert!(disk.remembered().await.is_empty(), "the past is in the form of before");
    let said = |key: &str| {
        let record = records.iter().find(|record| &*record.key == key).unwrap();
        TypeMeta::of(&record.value).unwrap().to_string()
    };
    for (key, expected) in [
        ("/registry/minions/n1", "v1 Node"),
        ("/registry/services/specs/default/web", "v1 Service"),
        ("/registry/services/endpoints/default/web", "v1 Endpoints"),
        ("/registry/controllers/default/old", "v1 ReplicationController"),
        ("/registry/ingress/default/web", "networking.k8s.io/v1 Ingress"),
        ("/registry/events/default/e", "v1 Event"),
        (
            "/registry/horizontalpodautoscalers/default/web",
            "autoscaling/v2 HorizontalPodAutoscaler",
        ),
        ("/registry/zoo.example/lions/default/leo", "zoo.example/v1 Lion"),
    ] {
        assert_eq!(said(key), expected);
    }
    disk.close().await;
    let inode = |name: &str| std::fs::metadata(path.join(name)).map(|found| found.ino()).ok();
    let before = inode(FILE);
    let disk = Disk::open_upgrading(path, &mut |_, _| panic!("there is nothing to upgrade")).unwrap();
    assert_upgraded(revision, &contents(&disk).await.1);
    disk.close().await;
    assert_eq!((inode(FILE), inode(NEXT)), (before, None), "an upgrade happens once");
}

#[tokio::test]
async fn what_nobody_knows_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    testing::write(directory.path());
    let mut but_lions = |key: &str, read: &dyn Fn(&str) -> Option<Vec<u8>>| match key.contains("lions") {
        true => None,
        false => describe(key, read),
    };
    let disk = Disk::open_upgrading(directory.path(), &mut but_lions).unwrap();
    let key = "/registry/zoo.example/lions/default/leo";
    let old = testing::records().find(|old| old.key == key).unwrap();
    let (_, found) = disk.range(key).await.unwrap();
    assert_eq!(found[0].value, old.value.as_bytes());
    disk.close().await;
}

/// The steps of the fixture's upgrade, in order.
fn steps() -> Vec<Step> {
    let directory = tempfile::tempdir().unwrap();
    testing::write(directory.path());
    let mut steps = Vec::new();
    run(directory.path(), &mut |step| steps.push(step)).unwrap();
    steps
}

fn run(path: &Path, reached: &mut dyn FnMut(Step)) -> Result<(), StoreError> {
    let edge = Edge {
        step_bytes: SMALL_STEP_BYTES,
        create: &|file| builder().create(file),
        reached,
    };
    upgrade(&Directory::hold(path).unwrap(), path, &mut describe, edge)
}

#[tokio::test]
async fn kill_9_at_any_step_leaves_the_old_data_or_the_new() {
    if let Some(directory) = std::env::var_os(VICTIM) {
        let dies_at = std::env::var(DIES_AT).unwrap();
        let mut reached = |step: Step| {
            if format!("{step:?}") == dies_at {
                kill(nix::unistd::Pid::this(), Signal::SIGKILL).unwrap();
            }
        };
        run(&PathBuf::from(directory), &mut reached).unwrap();
        panic!("it should be dead");
    }
    let steps = steps();
    assert!(steps.len() > 5, "{steps:?}");
    for step in steps {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        testing::write(path);
        let test = "store::disk::upgrade::tests::kill_9_at_any_step_leaves_the_old_data_or_the_new";
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .env(VICTIM, path)
            .env(DIES_AT, format!("{step:?}"))
            .output()
            .unwrap()
            .status;
        assert!(!status.success() && status.code().is_none(), "{step:?}: {status}");
        assert_eq!(path.join(NEXT).exists(), step != Step::Done);
        if step != Step::Done {
            assert_old(path);
        }
        let disk = Disk::open_upgrading(path, &mut describe).unwrap();
        let (revision, records) = contents(&disk).await;
        assert_upgraded(revision, &records);
        assert!(disk.remembered().await.is_empty());
        disk.close().await;
        assert!(!path.join(NEXT).exists());
    }
}

#[tokio::test]
async fn a_disk_that_is_full_in_the_middle_costs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    testing::write(path);
    let faults = Arc::new(Faults::default());
    let create = |file: &Path| {
        let file = File::options().read(true).write(true).create_new(true).open(file)?;
        let file = FileBackend::new(file)?;
        let faults = Arc::clone(&faults);
        builder().create_with_backend(Faulty { file, faults })
    };
    let mut is_full = |step: Step| {
        if step != Step::Whole {
            faults.write.store(true, Ordering::SeqCst);
        }
    };
    let edge = Edge {
        step_bytes: SMALL_STEP_BYTES,
        create: &create,
        reached: &mut is_full,
    };
    let held = Directory::hold(path).unwrap();
    let refused = upgrade(&held, path, &mut describe, edge).unwrap_err().to_string();
    assert!(
        refused.contains("stays as it was") && refused.contains("No space left"),
        "{refused}"
    );
    assert!(!path.join(NEXT).exists(), "its space is free again");
    drop(held);
    assert_old(path);
    let disk = Disk::open_upgrading(path, &mut describe).unwrap();
    assert_upgraded(REVISION, &contents(&disk).await.1);
    disk.close().await;
}

#[test]
fn an_upgrade_without_room_does_not_begin() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    testing::write(path);
    let mut held = Directory::hold(path).unwrap();
    held.free_space = Box::new(|_| Some(10 << 20));
    let edge = Edge {
        step_bytes: SMALL_STEP_BYTES,
        create: &|_| panic!("it does not begin"),
        reached: &mut |_| {},
    };
    let refused = upgrade(&held, path, &mut describe, edge).unwrap_err().to_string();
    assert!(
        refused.contains("10 MiB are free") && refused.contains("stays as it was"),
        "{refused}"
    );
    assert_old(path);
}
