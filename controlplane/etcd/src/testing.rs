//! A cluster of real etcd members for tests: over sockets in a directory of its own, so that no two ever meet.
//!
//! Members end with the cluster, and with the thread that started them whatever happens to the test.

use crate::connect;
use crate::options::{Deadlines, Options, TlsFiles};
use proto::etcd::StatusRequest;
use proto::etcd::maintenance_client::MaintenanceClient;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The etcd that tests run: that of the directory `SKIFF_ETCD` names, or the one of the path.
pub fn binary() -> PathBuf {
    std::env::var_os("SKIFF_ETCD").map_or_else(|| PathBuf::from("etcd"), |place| PathBuf::from(place).join("etcd"))
}

/// See the module.
pub struct Cluster {
    directory: tempfile::TempDir,
    members: Vec<Option<Child>>,
    arguments: Vec<String>,
}

impl Cluster {
    /// So many members that have never been there before.
    ///
    /// # Panics
    /// If etcd is not installed (Debian's package `etcd-server`).
    pub fn start(count: usize) -> Self {
        Self::start_with(count, &[])
    }

    /// As [`Cluster::start`], with more arguments for each.
    ///
    /// # Panics
    /// As [`Cluster::start`].
    pub fn start_with(count: usize, arguments: &[&str]) -> Self {
        let mut cluster = Self {
            directory: tempfile::tempdir().unwrap(),
            members: (0..count).map(|_| None).collect(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        };
        (0..count).for_each(|member| cluster.revive(member));
        cluster
    }

    /// Where members keep their sockets, data and logs.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Starts a member that is not running, over the data it has.
    ///
    /// # Panics
    /// If etcd is not installed.
    pub fn revive(&mut self, member: usize) {
        let all: Vec<String> = (0..self.members.len())
            .map(|peer| format!("m{peer}={}", socket(peer, 2)))
            .collect();
        let log = self.path().join(format!("log{member}"));
        let log: File = OpenOptions::new().create(true).append(true).open(log).unwrap();
        let (client, peer) = (socket(member, 1), socket(member, 2));
        for left in [&client, &peer] {
            // What kill -9 leaves; most often nothing.
            let _ = std::fs::remove_file(self.path().join(left.trim_start_matches("unix://")));
        }
        let spawned = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(binary())
            .arg("--unsafe-no-fsync")
            .args(["--name", &format!("m{member}"), "--data-dir", &format!("data{member}")])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"])
            // Slower than etcd's own: on a busy machine nobody else is to be elected by chance.
            .args(["--heartbeat-interval", "250", "--election-timeout", "2500"])
            .args(&self.arguments)
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        let is_found = binary().is_file()
            || std::env::var_os("PATH")
                .is_some_and(|path| std::env::split_paths(&path).any(|place| place.join("etcd").is_file()));
        assert!(is_found, "etcd is not installed: it is in Debian's package etcd-server");
        self.members[member] = Some(spawned.expect("setpriv (Debian's util-linux) can be started"));
    }

    /// kill -9.
    pub fn kill(&mut self, member: usize) {
        if let Some(mut child) = self.members[member].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// kill -9, and its data are gone.
    pub fn wipe(&mut self, member: usize) {
        self.kill(member);
        std::fs::remove_dir_all(self.path().join(format!("data{member}"))).unwrap();
    }

    /// The URLs of all members.
    pub fn urls(&self) -> Vec<String> {
        (0..self.members.len()).map(|member| self.url(member)).collect()
    }

    fn url(&self, member: usize) -> String {
        format!("unix://{}", self.socket_path(member).display())
    }

    fn socket_path(&self, member: usize) -> PathBuf {
        self.path().join(socket(member, 1).trim_start_matches("unix://"))
    }

    /// What a store on this cluster is told; nobody compacts.
    pub fn options(&self) -> Options {
        Options {
            servers: self.urls(),
            tls: TlsFiles::default(),
            prefix: "/registry".to_owned(),
            compaction_interval: None,
            // Busy machines start them late.
            deadlines: Deadlines {
                start: Duration::from_secs(120),
                ..Deadlines::default()
            },
        }
    }

    /// The member that leads, once one does.
    pub async fn leader(&self) -> usize {
        loop {
            for member in (0..self.members.len()).filter(|member| self.members[*member].is_some()) {
                if self.leads(member).await {
                    return member;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn leads(&self, member: usize) -> bool {
        let address = crate::address::Address::Unix(self.socket_path(member));
        let channel = connect::channel(&address, &TlsFiles::default(), &connect::Connections::default()).unwrap();
        let mut client = MaintenanceClient::new(channel);
        let Ok(status) = client.status(StatusRequest {}).await else {
            return false;
        };
        let status = status.into_inner();
        status.header.is_some_and(|header| header.member_id == status.leader)
    }
}

/// The name of a member's socket: for clients (1) or its peers (2). etcd takes no paths, only names that look like ports.
fn socket(member: usize, side: usize) -> String {
    format!("unix://localhost:{}{side}", member + 1)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|member| self.kill(member));
    }
}
