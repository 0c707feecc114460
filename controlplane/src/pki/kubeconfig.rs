//! Kubeconfig files with client certificates inside.

use super::authority::{Authority, Subject, usable};
use super::{PkiError, files};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::jiff::Timestamp;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A kubeconfig for `user` with a certificate issued now.
///
/// # Errors
/// The key or certificate could not be made.
pub fn issue(
    authority: &Authority,
    user: &str,
    groups: &[String],
    server: &str,
    now: Timestamp,
) -> Result<String, PkiError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|source| PkiError::Issue {
        what: format!("a key for {user}"),
        source,
    })?;
    let cert_pem = authority.issue(&Subject::client(user, groups), &key, now)?;
    Ok(render(
        authority.cert_pem(),
        server,
        user,
        &cert_pem,
        &key.serialize_pem(),
    ))
}

/// The text of a kubeconfig. It is JSON, which every YAML reader reads; no field can be misquoted.
fn render(ca_pem: &str, server: &str, user: &str, cert_pem: &str, key_pem: &str) -> String {
    let encode = |text: &str| STANDARD.encode(text);
    let context = format!("{user}@kubernetes");
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "kubernetes", "cluster": {"server": server, "certificate-authority-data": encode(ca_pem)}}],
        "users": [{"name": user, "user": {
            "client-certificate-data": encode(cert_pem), "client-key-data": encode(key_pem),
        }}],
        "contexts": [{"name": context, "context": {"cluster": "kubernetes", "user": user}}],
        "current-context": context,
        "preferences": {},
    });
    let mut text = serde_json::to_string_pretty(&config).unwrap_or_default();
    text.push('\n');
    text
}

const ADMIN: &str = "kubernetes-admin";

/// `admin.kubeconfig` in the data directory: made if missing, made again when its certificate is not good any more or the server moved.
///
/// # Errors
/// Names the file.
pub fn ensure_admin(data_dir: &Path, authority: &Authority, server: &str, now: Timestamp) -> Result<PathBuf, PkiError> {
    let path = data_dir.join("admin.kubeconfig");
    let groups = ["system:masters".to_owned()];
    if let Some(text) = files::read_if_there(&path)?
        && admin_is_good(&text, authority, &Subject::client(ADMIN, &groups), server, now)
    {
        return Ok(path);
    }
    let text = issue(authority, ADMIN, &groups, server, now)?;
    files::write(&path, text.as_bytes(), 0o600)?;
    Ok(path)
}

fn admin_is_good(text: &str, authority: &Authority, subject: &Subject, server: &str, now: Timestamp) -> bool {
    let Ok(config) = serde_json::from_str::<Value>(text) else {
        return false;
    };
    let pem = |field: &str| {
        let data = config["users"][0]["user"][field].as_str()?;
        String::from_utf8(STANDARD.decode(data).ok()?).ok()
    };
    let (Some(cert), Some(key)) = (pem("client-certificate-data"), pem("client-key-data")) else {
        return false;
    };
    let Ok(key) = KeyPair::from_pem(&key) else { return false };
    config["clusters"][0]["cluster"]["server"] == server && usable(&cert, authority, &key, subject, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_admin_file_follows_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let authority = Authority::ensure(dir.path(), now).unwrap();
        let path = ensure_admin(dir.path(), &authority, "https://127.0.0.1:6443", now).unwrap();
        let first = std::fs::read_to_string(&path).unwrap();
        ensure_admin(dir.path(), &authority, "https://127.0.0.1:6443", now).unwrap();
        assert_eq!(first, std::fs::read_to_string(&path).unwrap());
        ensure_admin(dir.path(), &authority, "https://127.0.0.1:7443", now).unwrap();
        let moved: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(moved["clusters"][0]["cluster"]["server"], "https://127.0.0.1:7443");
    }
}
