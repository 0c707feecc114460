use super::*;
use crate::store::disk::{Disk, FILE};
use crate::store::{Expect, Store};
use bytes::Bytes;

fn shadow(length: u64) -> (tempfile::NamedTempFile, Shadow) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![7; length as usize]).unwrap();
    let shadow = Shadow::over(File::open(file.path()).unwrap(), length);
    (file, shadow)
}

fn read(shadow: &Shadow, offset: u64, length: usize) -> Vec<u8> {
    let mut out = vec![9; length];
    shadow.read(offset, &mut out).unwrap();
    out
}

#[test]
fn what_is_written_stands_beside_the_file() {
    let length = 3 * PAGE + 10;
    let (file, shadow) = shadow(length);
    assert_eq!(shadow.len().unwrap(), length);
    shadow.write(PAGE - 1, &[1, 2]).unwrap();
    assert_eq!(read(&shadow, PAGE - 2, 4), [7, 1, 2, 7]);
    assert!(shadow.read(length, &mut [0]).is_err());
    // What it is grown by is new, also where the file has something.
    shadow.set_len(PAGE + 2).unwrap();
    shadow.set_len(4 * PAGE).unwrap();
    assert_eq!(read(&shadow, PAGE - 1, 4), [1, 2, 7, 0]);
    assert_eq!(read(&shadow, 3 * PAGE - 1, 2), [0, 0]);
    shadow.write(3 * PAGE, &[5]).unwrap();
    assert_eq!(read(&shadow, 3 * PAGE - 1, 3), [0, 5, 0]);
    shadow.set_len(3 * PAGE).unwrap();
    shadow.set_len(4 * PAGE).unwrap();
    assert_eq!(read(&shadow, 3 * PAGE, 1), [0]);
    assert_eq!(std::fs::read(file.path()).unwrap(), vec![7; length as usize]);
}

#[tokio::test]
async fn a_file_is_looked_at_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(FILE);
    check(&file).unwrap();
    std::fs::write(&file, "").unwrap();
    check(&file).unwrap();
    let disk = Disk::open(directory.path()).unwrap();
    let text = b"what is written here is found";
    disk.put("/registry/a", Bytes::from_static(text), Expect::Absent)
        .await
        .unwrap();
    // Of a process that has died: verified by whoever opens it.
    let open = std::fs::read(&file).unwrap();
    disk.close().await;
    let closed = std::fs::read(&file).unwrap();
    for bytes in [&open, &closed] {
        std::fs::write(&file, bytes).unwrap();
        check(&file).unwrap();
        assert!(std::fs::read(&file).unwrap() == *bytes);
    }
    // One bit of the value, wherever it is.
    let mut damaged = closed;
    let places: Vec<usize> = (0..damaged.len())
        .filter(|at| damaged[*at..].starts_with(text))
        .collect();
    assert!(!places.is_empty());
    for place in places {
        damaged[place] ^= 1;
    }
    std::fs::write(&file, &damaged).unwrap();
    for _ in 0..2 {
        let told = check(&file).unwrap_err().to_string();
        assert!(
            told.contains(&file.display().to_string()) && told.contains("controlplane restore"),
            "{told}"
        );
        assert!(Disk::open(directory.path()).is_err());
    }
    assert!(crate::store::disk::snapshot::Snapshots::of_closed(directory.path()).is_err());
    assert!(std::fs::read(&file).unwrap() == damaged);
}

async fn closed(directory: &Path) -> std::path::PathBuf {
    let disk = Disk::open(directory).unwrap();
    disk.put("/registry/a", Bytes::from_static(b"a"), Expect::Absent)
        .await
        .unwrap();
    disk.close().await;
    directory.join(FILE)
}

#[tokio::test]
async fn a_file_whose_beginning_is_damaged_is_refused_with_what_helps() {
    let directory = tempfile::tempdir().unwrap();
    let file = closed(directory.path()).await;
    let good = std::fs::read(&file).unwrap();
    for at in 0..9 {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        let told = Disk::open(directory.path()).err().unwrap().to_string();
        assert!(told.contains("controlplane restore"), "{told}");
    }
}

/// A process that dies as it makes a store leaves none: redb makes the file long first.
#[tokio::test]
async fn a_store_that_was_never_made_to_the_end_is_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let next = directory.path().join(super::super::upgrade::NEXT);
    std::fs::write(&next, vec![0; 1 << 20]).unwrap();
    // Of a version that made it in its place.
    std::fs::write(directory.path().join(FILE), "").unwrap();
    let file = closed(directory.path()).await;
    assert!(!next.exists());
    assert_eq!(check(&file).unwrap(), Found::Whole);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    // The name that it has is the file's that is written to.
    let disk = Disk::open(directory.path()).unwrap();
    assert_eq!(disk.range("").await.unwrap().1.len(), 1);
    disk.close().await;
}

/// A file that could not be written since the process before last asked: nobody looks at what the kernel shows of it.
#[tokio::test]
async fn what_could_not_be_written_is_not_taken_for_what_is_on_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let file = closed(directory.path()).await;
    settled(&file, Ok(())).unwrap();
    let failed = || Err(io::Error::from_raw_os_error(nix::libc::EIO));
    let told = settled(&file, failed()).unwrap_err().to_string();
    assert!(
        told.contains("state.redb could not be written; the next start reads what the disk has: Input/output error"),
        "{told}"
    );
    let told = settled(&directory.path().join("none"), failed())
        .unwrap_err()
        .to_string();
    assert!(
        told.contains("not read from its disk again before the machine restarts"),
        "{told}"
    );
}
