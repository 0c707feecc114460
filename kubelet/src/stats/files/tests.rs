use super::*;
use futures::FutureExt;
use std::fs;

fn uids(names: &[&str]) -> BTreeSet<PodUid> {
    names.iter().map(|name| PodUid::from(*name)).collect()
}

fn paths(dir: &Path) -> Paths {
    Paths {
        volumes: vec![("scratch".to_owned(), dir.to_owned(), true)],
        ..Paths::default()
    }
}

/// On a paused clock: no time passes while threads work, however long they take.
#[tokio::test(start_paused = true)]
async fn files_are_counted_once_and_again_after_a_while() {
    let dir = tempfile::tempdir().expect("temp dir");
    fs::write(dir.path().join("a"), "x").expect("file");
    let files = Files::default();
    let now = Timestamp::UNIX_EPOCH;
    let inodes = async |pods: &[&str]| {
        let told = files.counted(now, &uids(pods), |_| Some(paths(dir.path()))).await;
        let of = |(uid, files): (PodUid, Arc<PodFiles>)| (uid.to_string(), files.volumes[0].1.usage.inodes);
        told.into_iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(inodes(&["a"]).await, [("a".to_owned(), 2)]);
    fs::write(dir.path().join("b"), "x").expect("file");
    assert_eq!(inodes(&["a", "b"]).await, [("a".to_owned(), 2), ("b".to_owned(), 3)]);
    tokio::time::advance(KEPT).await;
    assert_eq!(inodes(&["a"]).await, [("a".to_owned(), 3)]);
    assert_eq!(files.known().len(), 1, "who is gone is forgotten");
}

#[tokio::test(start_paused = true)]
async fn what_hangs_is_absent_and_holds_up_nobody() {
    let dir = tempfile::tempdir().expect("temp dir");
    let files = Files::default();
    let (go_on, hangs) = std::sync::mpsc::channel::<()>();
    // An earlier count that never ends.
    let hung = files.work.run("hung", move || hangs.recv().is_ok());
    let passing = async {
        tokio::task::yield_now().await;
        tokio::time::advance(COUNT + END + Duration::from_secs(1)).await;
    };
    let (hung, ()) = futures::future::join(hung, passing).await;
    assert_eq!(hung, Err(WorkError::Overdue));
    let one = uids(&["hung"]);
    let counting = files.counted(Timestamp::UNIX_EPOCH, &one, |_| Some(paths(dir.path())));
    let passing = async {
        for _ in 0..4 {
            tokio::task::yield_now().await;
            tokio::time::advance(COUNT + END + Duration::from_secs(1)).await;
        }
    };
    let (told, ()) = futures::future::join(counting, passing).await;
    assert!(told.is_empty());
    let kept = files
        .known()
        .get(&PodUid::from("hung"))
        .map(|kept| kept.files.is_none());
    assert_eq!(kept, Some(true), "it is not begun again at once");
    drop(go_on);
}

#[test]
fn a_count_that_is_given_up_is_incomplete() {
    let dir = tempfile::tempdir().expect("temp dir");
    let counted = |given_up| paths(dir.path()).count(Timestamp::UNIX_EPOCH, &AtomicBool::new(given_up));
    let usage = |files: PodFiles| files.volumes[0].1;
    assert!(!usage(counted(false)).usage.incomplete && usage(counted(false)).disk.capacity > 0);
    assert!(usage(counted(true)).usage.incomplete);
}

#[tokio::test(start_paused = true)]
async fn who_asks_while_others_count_is_told_what_was_known() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (files, now) = (Files::default(), Timestamp::UNIX_EPOCH);
    let ask = async |pods: &[&str]| files.counted(now, &uids(pods), |_| Some(paths(dir.path()))).await.len();
    assert_eq!(ask(&["a"]).await, 1);
    tokio::time::advance(KEPT).await;
    // Somebody counts, for long.
    let turn = files.turn.lock().await;
    assert_eq!(ask(&["a"]).now_or_never(), Some(1), "at once");
    let (new, ()) = futures::future::join(ask(&["a", "b"]), async {
        tokio::task::yield_now().await;
        drop(turn);
    })
    .await;
    assert_eq!(new, 2, "of a new pod nothing was known: it is waited for");
}
