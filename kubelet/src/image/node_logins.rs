//! The node's own registry logins: `config.json`, else `.dockercfg`, in upstream's search order (kubelet contract §2).
//!
//! Read anew for every pull, so that a changed file counts at once. Never written.

use super::credentials::{Form, Keyring, Origin};
use crate::host::FileWork;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A login file is small; what is larger is not one.
const BYTES_MAX: u64 = 1024 * 1024;
/// How long they are waited for: a home directory may be on a file system that hangs.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// The key of the file work: one look at a time.
const KEY: &str = "registry logins";

/// Where logins are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLogins {
    candidates: Vec<(PathBuf, Form)>,
}

impl NodeLogins {
    /// The search order: the root directory, the working directory, the home directory, the root of the file system; all of
    /// them for `config.json` before any for `.dockercfg`.
    pub fn new(root_dir: &Path, working_dir: Option<&Path>, home: Option<&Path>) -> Self {
        let top = Path::new("/");
        let new_style = [
            Some(root_dir.to_owned()),
            working_dir.map(Path::to_owned),
            home.map(|home| home.join(".docker")),
            Some(top.join(".docker")),
        ];
        let old_style = [Some(root_dir), working_dir, home, Some(top)];
        let config_json = new_style
            .into_iter()
            .flatten()
            .map(|dir| (dir.join("config.json"), Form::ConfigJson));
        let dockercfg = old_style
            .into_iter()
            .flatten()
            .map(|dir| (dir.join(".dockercfg"), Form::Dockercfg));
        Self {
            candidates: config_json.chain(dockercfg).collect(),
        }
    }

    /// Adds the logins of the first file that can be read; one that cannot is told and passed over.
    pub async fn add_to(&self, files: &FileWork, keyring: Keyring) -> Keyring {
        if self.candidates.is_empty() {
            return keyring;
        }
        let (logins, fallback) = (self.clone(), keyring.clone());
        let added = files.run(KEY, move || logins.add_now(keyring)).await;
        added.unwrap_or_else(|error| {
            tracing::warn!(%error, "the node's registry logins are not read");
            fallback
        })
    }

    fn add_now(&self, mut keyring: Keyring) -> Keyring {
        for (path, form) in &self.candidates {
            let Some(text) = read(path) else { continue };
            match keyring.add(*form, &text, &Origin::Node) {
                Ok(()) => break,
                Err(error) => tracing::warn!(path = %path.display(), %error, "registry logins cannot be read"),
            }
        }
        keyring
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > BYTES_MAX {
        return None;
    }
    match std::fs::read(path) {
        Ok(text) => Some(text),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "registry logins cannot be read");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_home_that_hangs_is_done_without() {
        let files = FileWork::new(DEADLINE);
        let (go_on, hangs) = std::sync::mpsc::channel::<()>();
        let hung = files.run(KEY, move || hangs.recv().is_ok());
        let passing = async {
            tokio::task::yield_now().await;
            tokio::time::advance(DEADLINE * 2).await;
        };
        let logins = NodeLogins::new(Path::new("/nowhere"), None, None);
        let looked = async { logins.add_to(&files, Keyring::default()).await.matching("r.io/a").len() };
        assert_eq!(futures::future::join3(hung, looked, passing).await.1, 0);
        go_on.send(()).expect("it hung until now");
    }

    #[tokio::test]
    async fn the_first_file_that_can_be_read_counts() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (root, work, home) = (
            dir.path().join("root"),
            dir.path().join("work"),
            dir.path().join("home"),
        );
        for made in [&root, &work, &home.join(".docker")] {
            std::fs::create_dir_all(made).expect("made");
        }
        let logins = NodeLogins::new(&root, Some(&work), Some(&home));
        let files = FileWork::new(DEADLINE);
        let user = async || {
            let keyring = logins.add_to(&files, Keyring::default()).await;
            keyring
                .matching("r.io/a")
                .first()
                .map(|login| login.auth.username.clone())
        };
        assert_eq!(user().await, None);
        std::fs::write(root.join(".dockercfg"), r#"{"r.io":{"username":"old"}}"#).expect("write");
        assert_eq!(user().await.as_deref(), Some("old"));
        std::fs::write(
            home.join(".docker/config.json"),
            r#"{"auths":{"r.io":{"username":"home"}}}"#,
        )
        .expect("write");
        assert_eq!(user().await.as_deref(), Some("home"));
        std::fs::write(root.join("config.json"), "{").expect("write");
        assert_eq!(user().await.as_deref(), Some("home"), "a broken file is passed over");
        std::fs::write(root.join("config.json"), r#"{"auths":{"r.io":{"username":"root"}}}"#).expect("write");
        assert_eq!(user().await.as_deref(), Some("root"));
    }
}
