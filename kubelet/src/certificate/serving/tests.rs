//! Made once, read again when changed, kept when the change is broken.

use super::*;
use std::os::unix::fs::PermissionsExt;

fn self_signed(dir: &Path) -> Serving {
    let ips = ["192.0.2.1".parse().expect("address")];
    Serving::self_signed(dir, "node-a", &ips, None).expect("made")
}

#[test]
fn made_once_and_kept() {
    let dir = tempfile::tempdir().expect("temp dir");
    let pki = dir.path().join("pki");
    self_signed(&pki).config().expect("usable");
    let first = fs::read(pki.join("kubelet.crt")).expect("there");
    self_signed(&pki);
    assert_eq!(fs::read(pki.join("kubelet.crt")).expect("there"), first);
    let mode = fs::metadata(pki.join("kubelet.key"))
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn bad_files_are_named() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("x.crt");
    fs::write(&path, "nonsense").expect("file");
    let none = dir.path().join("none");
    self_signed(dir.path());
    let (cert, key) = (dir.path().join("kubelet.crt"), dir.path().join("kubelet.key"));
    for mut serving in [
        Serving::files(&path, &path, None),
        Serving::files(&none, &path, None),
        Serving::files(&cert, &path, None),
        Serving::files(&cert, &key, Some(&path)),
    ] {
        let text = serving.config().expect_err("refused").to_string();
        assert!(text.contains(&dir.path().display().to_string()), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn changed_files_are_read_again_and_broken_ones_are_not_used() {
    let (dir, other) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
    let mut serving = self_signed(dir.path());
    self_signed(other.path());
    let (tls, mut reader) = watch::channel(serving.config().expect("usable"));
    let stop = CancellationToken::new();
    tokio::spawn(serving.follow(tls, stop.clone()));
    let turn = LOOK_EVERY * 3;
    tokio::time::sleep(turn).await;
    assert!(!reader.has_changed().expect("open"), "nothing changed");
    for name in ["kubelet.key", "kubelet.crt"] {
        fs::rename(other.path().join(name), dir.path().join(name)).expect("moved");
    }
    tokio::time::timeout(turn, reader.changed())
        .await
        .expect("in time")
        .expect("read again");
    fs::write(dir.path().join("kubelet.crt"), "torn").expect("written");
    tokio::time::sleep(turn).await;
    assert!(!reader.has_changed().expect("open"), "the broken file is not used");
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_new_authority_of_clients_is_taken_and_a_broken_one_is_not() {
    let (dir, other) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
    self_signed(dir.path());
    self_signed(other.path());
    let file = |name: &str| dir.path().join(name);
    let authority = file("clients.crt");
    fs::copy(file("kubelet.crt"), &authority).expect("copied");
    let mut serving = Serving::files(&file("kubelet.crt"), &file("kubelet.key"), Some(&authority));
    let (tls, mut reader) = watch::channel(serving.config().expect("usable"));
    let stop = CancellationToken::new();
    tokio::spawn(serving.follow(tls, stop.clone()));
    let turn = LOOK_EVERY * 3;
    fs::write(&authority, "torn").expect("written");
    tokio::time::sleep(turn).await;
    assert!(!reader.has_changed().expect("open"), "the broken file is not used");
    fs::copy(other.path().join("kubelet.crt"), &authority).expect("copied");
    tokio::time::timeout(turn, reader.changed())
        .await
        .expect("in time")
        .expect("read again");
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn an_issued_certificate_is_used_when_it_comes() {
    let key = KeyPair::generate().expect("key");
    let cert = CertificateParams::new(vec![])
        .expect("params")
        .self_signed(&key)
        .expect("signed");
    let pair = Pair::parse(cert.pem() + &key.serialize_pem()).expect("a pair");
    let (issue, current) = watch::channel(None);
    let mut serving = Serving::issued(current, None);
    let (tls, mut reader) = watch::channel(serving.config().expect("usable without one"));
    let stop = CancellationToken::new();
    tokio::spawn(serving.follow(tls, stop.clone()));
    issue.send_replace(Some(Arc::new(pair)));
    tokio::time::timeout(LOOK_EVERY, reader.changed())
        .await
        .expect("in time")
        .expect("used");
    stop.cancel();
}
