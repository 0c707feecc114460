//! Which kubeconfigs serve, and what a bootstrap writes.

use super::*;
use std::os::unix::fs::PermissionsExt;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A certificate for the year 2027 and its key.
fn pair() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.not_before = rcgen::date_time_ymd(2027, 1, 1);
    params.not_after = rcgen::date_time_ymd(2028, 1, 1);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

const IN_2026: i64 = 1_790_000_000;
const IN_2027: i64 = 1_800_000_000;
const IN_2029: i64 = 1_870_000_000;

fn kubeconfig(dir: &Path, user: &str) -> PathBuf {
    let path = dir.join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:1'}}}}]\nusers: [{{name: u, user: {user}}}]\n"
    );
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_clock_behind_a_certificates_start_is_told_with_both_times() {
    let (cert, key) = pair();
    let pair = Pair::parse(format!("{cert}{key}")).unwrap();
    let told = too_early(&pair, at(IN_2026)).unwrap();
    assert!(told.contains("2027-01-01T00:00:00Z"), "{told}");
    assert!(told.contains(&at(IN_2026).to_string()), "{told}");
    assert_eq!(too_early(&pair, at(IN_2027)), None);
    // It is used all the same, and nothing is asked for in its place.
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("both.pem"), format!("{cert}{key}")).unwrap();
    let path = kubeconfig(dir.path(), "{client-certificate: both.pem, client-key: both.pem}");
    assert_eq!(usable(&path, at(IN_2026)), Ok(()));
    let store = Store::client(&dir.path().join("pki"));
    let first = first_pair(&path, &store, at(IN_2026)).unwrap();
    assert_eq!(first.map(|first| first.not_before), Some(pair.not_before));
}

#[test]
fn a_kubeconfig_serves_while_its_certificate_does() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = pair();
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let inline = format!(
        "{{client-certificate-data: {}, client-key-data: {}}}",
        encode(&cert),
        encode(&key)
    );
    fs::write(dir.path().join("both.pem"), format!("{cert}{key}")).unwrap();
    let table = [
        (inline.clone(), IN_2027, ""),
        (inline, IN_2029, "expired"),
        (
            "{client-certificate: both.pem, client-key: both.pem}".to_owned(),
            IN_2027,
            "",
        ),
        (
            "{client-certificate: none.pem, client-key: none.pem}".to_owned(),
            IN_2027,
            "none.pem",
        ),
        ("{token: x}".to_owned(), IN_2027, "no client certificate"),
    ];
    for (user, now, part) in table {
        let path = kubeconfig(dir.path(), &user);
        let found = usable(&path, at(now)).err().unwrap_or_default();
        assert!(
            found.contains(part) && found.is_empty() == part.is_empty(),
            "{user}: {found}"
        );
    }
    assert!(usable(&dir.path().join("nothing"), at(IN_2027)).is_err());
    fs::write(dir.path().join("kubeconfig"), "{").unwrap();
    assert!(usable(&dir.path().join("kubeconfig"), at(IN_2027)).is_err());
}

#[test]
fn what_a_bootstrap_writes_points_at_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::client(&dir.path().join("pki"));
    let bootstrap = kubeconfig(dir.path(), "{token: abcdef.0123456789abcdef}");
    let written = dir.path().join("etc/kubelet.conf");
    write_kubeconfig(&bootstrap, &written, &store).unwrap();
    assert_eq!(fs::metadata(&written).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&written).unwrap();
    assert!(!text.contains("abcdef"), "the token stays where it was: {text}");
    // Not there yet: it is still to be bootstrapped, but rotation can begin with nothing.
    assert!(usable(&written, at(IN_2027)).is_err());
    assert_eq!(first_pair(&written, &store, at(IN_2027)).unwrap(), None);
    let (cert, key) = pair();
    let kept = store.update(&cert, &key, at(IN_2027)).unwrap();
    assert_eq!(usable(&written, at(IN_2027)), Ok(()));
    assert_eq!(first_pair(&written, &store, at(IN_2027)).unwrap(), Some(kept.clone()));
    // Before its start it is used all the same: the clock may be what is wrong.
    assert_eq!(first_pair(&written, &store, at(IN_2026)).unwrap(), Some(kept));
    assert_eq!(first_pair(&written, &store, at(IN_2029)).unwrap(), None);
}

#[test]
fn a_bootstrap_key_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pki").join(KEY_FILE);
    let first = cached_key(&path).unwrap().serialize_pem();
    assert_eq!(cached_key(&path).unwrap().serialize_pem(), first);
    fs::write(&path, "torn").unwrap();
    assert_ne!(cached_key(&path).unwrap().serialize_pem(), first);
}
