//! etcd, one member on this machine, through the control plane's own client: every write a transaction of its own, as the API server's
//! are; those of a batch at once, so that etcd may put them into one commit.

use super::{Engine, State, Write};
use anyhow::{Context, bail};
use bytes::Bytes;
use etcd::{Deadlines, Etcd, Options, TlsFiles};
use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use store::{Expect, Revision, Store};
use tokio::runtime::Runtime;

/// See the module.
pub struct Server {
    store: Arc<Etcd>,
    /// The last write of each key.
    revisions: HashMap<Arc<str>, Revision>,
    runtime: Runtime,
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    pub fn open(directory: &Path) -> anyhow::Result<Self> {
        let directory = directory.canonicalize()?;
        // etcd takes no paths for sockets, only what looks like a port.
        let (client, peer) = ("localhost:11", "localhost:12");
        for left in [client, peer] {
            let _ = std::fs::remove_file(directory.join(left));
        }
        let url = |name: &str| format!("unix://{name}");
        let child = Command::new("setpriv")
            .args([
                "--pdeathsig",
                "KILL",
                "etcd",
                "--data-dir",
                "data",
                "--logger",
                "zap",
                "--log-level",
                "error",
            ])
            .args([
                "--listen-client-urls",
                &url(client),
                "--advertise-client-urls",
                &url(client),
            ])
            .args([
                "--listen-peer-urls",
                &url(peer),
                "--initial-advertise-peer-urls",
                &url(peer),
            ])
            .args(["--initial-cluster", &format!("default={}", url(peer))])
            // What a million updates leave would be kept else; upstream's API server has it compacted, too.
            .args([
                "--auto-compaction-mode",
                "revision",
                "--auto-compaction-retention",
                "10000",
            ])
            .args(["--quota-backend-bytes", "8000000000"])
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("etcd cannot be started (Debian's etcd-server)")?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let options = Options {
            servers: vec![url(&directory.join(client).display().to_string())],
            tls: TlsFiles::default(),
            prefix: "/registry".to_owned(),
            compaction_interval: None,
            deadlines: Deadlines {
                start: Duration::from_secs(60),
                ..Deadlines::default()
            },
        };
        let store = runtime.block_on(Etcd::open(options))?;
        Ok(Self {
            store: Arc::new(store),
            revisions: HashMap::new(),
            runtime,
            child,
        })
    }

    /// Writes keys that differ, all at once.
    fn at_once(&mut self, writes: &[&Write]) -> anyhow::Result<()> {
        let mut tasks = Vec::new();
        for (key, value) in writes.iter().copied() {
            let (store, key, value) = (Arc::clone(&self.store), Arc::clone(key), value.clone());
            let known = self.revisions.get(&key).copied();
            tasks.push(self.runtime.spawn(async move {
                let written = match (value, known) {
                    (Some(value), known) => store
                        .put(&key, value, known.map_or(Expect::Absent, Expect::At))
                        .await
                        .map(Some),
                    (None, Some(known)) => store.delete(&key, known).await.map(|_| None),
                    (None, None) => Ok(None),
                };
                (key, written)
            }));
        }
        for task in tasks {
            let (key, written) = self.runtime.block_on(task)?;
            match written? {
                Some(revision) => self.revisions.insert(key, revision),
                None => self.revisions.remove(&key),
            };
        }
        Ok(())
    }
}

impl Engine for Server {
    fn load(&mut self) -> anyhow::Result<State> {
        let (_, records) = self.runtime.block_on(self.store.range("/registry/"))?;
        self.revisions = records
            .iter()
            .map(|record| (Arc::clone(&record.key), record.modified))
            .collect();
        Ok(records
            .into_iter()
            .map(|record| -> (Arc<str>, Bytes) { (record.key, record.value) })
            .collect())
    }

    fn commit(&mut self, batch: &[Write], _: &State) -> anyhow::Result<()> {
        let mut rest: Vec<&Write> = batch.iter().collect();
        // A key's second write waits for its first.
        while !rest.is_empty() {
            let mut seen = std::collections::HashSet::new();
            let (now, later): (Vec<&Write>, Vec<&Write>) =
                rest.into_iter().partition(|(key, _)| seen.insert(Arc::clone(key)));
            if now.is_empty() {
                bail!("a batch without an end");
            }
            self.at_once(&now)?;
            rest = later;
        }
        Ok(())
    }

    fn process(&self) -> Option<u32> {
        Some(self.child.id())
    }
}
