//! Real etcd members, each in a network namespace of its own: one bridge between them, another to their clients.
//!
//! Owns the processes and the links, which are set down and up. Works only in the namespaces of [`crate::isolation`]; never decides
//! what breaks when.

mod admin;

use crate::isolation;
use crate::weather::{self, Weather};
use anyhow::{Context, bail, ensure};
use etcd::{Deadlines, Options, TlsFiles};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// How many there are.
pub const COUNT: usize = 3;
/// A member's end of a link, by the bridge it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// To those who ask it.
    Clients = 1,
    /// To the other members.
    Peers = 2,
}

/// Certificate, key and CA of all members, in PEM files which etcd reads anew for each connection.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Verifies both sides.
    pub ca: PathBuf,
    /// The members' certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// What clients show.
    pub client: TlsFiles,
    /// What root shows.
    pub root: TlsFiles,
}

/// See the module.
pub struct Members {
    directory: PathBuf,
    children: Vec<Option<Child>>,
    /// Whether it joins a cluster that is there.
    joins: Vec<bool>,
    /// By how many seconds its clocks, but that of the day, are ahead.
    ahead: Vec<u64>,
    tls: Option<Tls>,
    /// Between members and clients, and between members.
    weather: [Arc<Weather>; 2],
}

impl Members {
    /// The links, and a member at each that has never been there before.
    ///
    /// # Errors
    /// Outside of the namespaces; without etcd (Debian's package `etcd-server`) or iproute2.
    pub fn start(tls: Option<Tls>) -> anyhow::Result<Self> {
        let directory = isolation::directory().context("only in namespaces of one's own")?;
        let mut members = Self {
            directory,
            children: (0..COUNT).map(|_| None).collect(),
            joins: vec![false; COUNT],
            ahead: vec![0; COUNT],
            tls,
            weather: Default::default(),
        };
        ip("link set lo up")?;
        for side in [Side::Peers, Side::Clients] {
            let bridge = side.bridge();
            ip(&format!("link add {bridge} type bridge"))?;
            ip(&format!("link set {bridge} up"))?;
        }
        ip(&format!(
            "address add 10.77.{}.254/24 dev {}",
            Side::Clients as u8,
            Side::Clients.bridge()
        ))?;
        for member in 0..COUNT {
            members.connect(member)?;
        }
        for (side, port) in [(Side::Clients, 2379), (Side::Peers, 2380)] {
            for member in 0..COUNT {
                let (door, address) = (side.door(member), side.address(member));
                ip(&format!("address add {door}/24 dev {}", side.bridge()))?;
                let at = |address: &str| format!("{address}:{port}").parse().context("an address");
                weather::carry(
                    at(&door)?,
                    at(&address)?,
                    Arc::clone(members.weather(side)),
                    member as u64,
                )?;
            }
        }
        (0..COUNT).try_for_each(|member| members.revive(member))?;
        Ok(members)
    }

    /// What lies between a side of all members and those who connect to it; with certificates, which know addresses, nothing of clients.
    pub fn weather(&self, side: Side) -> &Arc<Weather> {
        &self.weather[side as usize - 1]
    }

    fn connect(&self, member: usize) -> anyhow::Result<()> {
        let namespace = namespace(member);
        ip(&format!("netns add {namespace}"))?;
        ip(&format!("-n {namespace} link set lo up"))?;
        for side in [Side::Peers, Side::Clients] {
            let (bridge, link) = (side.bridge(), side.link(member));
            ip(&format!(
                "link add {link} type veth peer name {bridge} netns {namespace}"
            ))?;
            ip(&format!("link set {link} master {bridge} up"))?;
            ip(&format!(
                "-n {namespace} address add {}/24 dev {bridge}",
                side.address(member)
            ))?;
            ip(&format!("-n {namespace} link set {bridge} up"))?;
        }
        Ok(())
    }

    /// Starts a member that is not running, over the data it has.
    ///
    /// # Errors
    /// etcd cannot be started.
    pub fn revive(&mut self, member: usize) -> anyhow::Result<()> {
        let log = self.directory.join(format!("log{member}"));
        let log: File = OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace(member)]);
        if self.ahead[member] > 0 {
            let ahead = self.ahead[member].to_string();
            command.args([
                "unshare",
                "--time",
                "--fork",
                "--kill-child",
                "--monotonic",
                &ahead,
                "--boottime",
                &ahead,
            ]);
        }
        let state = if self.joins[member] { "existing" } else { "new" };
        let (peer, client) = (peer_url(member), self.url(member));
        let listens = format!("http://{}:2380", Side::Peers.address(member));
        command
            .args(["setpriv", "--pdeathsig", "KILL"])
            .arg(etcd::binary())
            .args(["--unsafe-no-fsync", "--name", &namespace(member)])
            .arg("--data-dir")
            .arg(self.data(member))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &listens, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &all(), "--initial-cluster-state", state]);
        if let Some(tls) = &self.tls {
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(&tls.ca);
            command
                .arg("--cert-file")
                .arg(&tls.certificate)
                .arg("--key-file")
                .arg(&tls.key);
        }
        let (out, errors) = (log.try_clone()?, log);
        // Whatever it is started by gets its signals, too.
        command.process_group(0);
        let child = command.stdin(Stdio::null()).stdout(out).stderr(errors).spawn();
        self.children[member] = Some(child.context("ip (Debian's iproute2)")?);
        Ok(())
    }

    fn data(&self, member: usize) -> PathBuf {
        self.directory.join(format!("data{member}"))
    }

    /// Where certificates may be put.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// kill -9; it has ended then.
    pub fn kill(&mut self, member: usize) {
        if let Some(mut child) = self.children[member].take() {
            let group = Pid::from_raw(child.id().cast_signed());
            // They may have ended already.
            let _ = killpg(group, Signal::SIGKILL);
            let _ = child.wait();
            // What it had started is this process's child then, which is the first one here.
            let any = Pid::from_raw(-group.as_raw());
            while waitpid(any, None).is_ok() {}
        }
    }

    /// Whether all that were started still run.
    ///
    /// # Errors
    /// One has ended by itself; with the end of what it said.
    pub fn check(&mut self) -> anyhow::Result<()> {
        for (member, child) in self.children.iter_mut().enumerate() {
            if let Some(status) = child.as_mut().map(Child::try_wait).transpose()?.flatten() {
                let log = std::fs::read_to_string(self.directory.join(format!("log{member}")))?;
                let from = log.floor_char_boundary(log.len().saturating_sub(2000));
                bail!("member {member} has ended by itself: {status}: {}", &log[from..]);
            }
        }
        Ok(())
    }

    /// The process of a member that runs.
    ///
    /// # Errors
    /// It does not.
    pub fn process(&self, member: usize) -> anyhow::Result<u32> {
        let child = self.children[member].as_ref().context("a member that runs")?;
        Ok(child.id())
    }

    /// Until what was started as this member has clocks of its own.
    ///
    /// # Errors
    /// Not for a minute.
    pub fn has_clocks_of_its_own(&self, member: usize) -> anyhow::Result<()> {
        let child = self.process(member)?;
        let ours = std::fs::read_link("/proc/self/ns/time")?;
        let differs = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/time")).is_ok_and(|theirs| theirs != ours);
        patiently(|| {
            let children = std::fs::read_to_string(format!("/proc/{child}/task/{child}/children"))?;
            let is_there = children.split_whitespace().any(differs);
            is_there.then_some(()).context("a member's clocks are everybody's")
        })
    }

    /// Stops the member where it stands, or lets it go on.
    ///
    /// # Errors
    /// It does not run.
    pub fn freeze(&self, member: usize, is_frozen: bool) -> anyhow::Result<()> {
        let signal = if is_frozen { Signal::SIGSTOP } else { Signal::SIGCONT };
        Ok(killpg(Pid::from_raw(self.process(member)?.cast_signed()), signal)?)
    }

    /// Kills a member and starts it with clocks that are so far ahead of the others'; 0 takes that back.
    ///
    /// # Errors
    /// etcd cannot be started.
    pub fn skew(&mut self, member: usize, seconds: u64) -> anyhow::Result<()> {
        self.kill(member);
        self.ahead[member] = seconds;
        self.revive(member)
    }

    /// Sets a member's link down or up.
    ///
    /// # Errors
    /// `ip`'s.
    pub fn link(&self, side: Side, member: usize, is_up: bool) -> anyhow::Result<()> {
        let state = if is_up { "up" } else { "down" };
        ip(&format!("link set {} {state}", side.link(member)))
    }

    /// kill -9, its data are gone, and it is no member any more; then it joins as a new one.
    ///
    /// # Errors
    /// The others do not agree in time.
    pub fn replace(&mut self, member: usize) -> anyhow::Result<()> {
        self.kill(member);
        std::fs::remove_dir_all(self.data(member))?;
        self.readmit(member)?;
        self.joins[member] = true;
        self.revive(member)
    }

    /// Keeps what all members have, at one moment at which none runs.
    ///
    /// # Errors
    /// Their data cannot be copied, or etcd not be started.
    pub fn save(&mut self) -> anyhow::Result<()> {
        (0..COUNT).for_each(|member| self.kill(member));
        for member in 0..COUNT {
            copy(&self.data(member), &self.saved(member))?;
            self.revive(member)?;
        }
        Ok(())
    }

    /// kill -9 of all; they come back with what [`Members::save`] kept.
    ///
    /// # Errors
    /// As [`Members::save`].
    pub fn restore(&mut self) -> anyhow::Result<()> {
        (0..COUNT).for_each(|member| self.kill(member));
        for member in 0..COUNT {
            copy(&self.saved(member), &self.data(member))?;
            self.revive(member)?;
        }
        Ok(())
    }

    /// kill -9 of all, and a cluster that has never been there before.
    ///
    /// # Errors
    /// As [`Members::save`].
    pub fn begin_anew(&mut self) -> anyhow::Result<()> {
        (0..COUNT).for_each(|member| self.kill(member));
        (self.joins, self.ahead) = (vec![false; COUNT], vec![0; COUNT]);
        for member in 0..COUNT {
            std::fs::remove_dir_all(self.data(member))?;
            self.revive(member)?;
        }
        Ok(())
    }

    /// A snapshot of what a member has.
    ///
    /// # Errors
    /// etcdctl's (Debian's etcd-client).
    pub fn snapshot(&self, member: usize) -> anyhow::Result<PathBuf> {
        let file = self.directory.join("snapshot");
        if file.exists() {
            std::fs::remove_file(&file)?;
        }
        let url = self.url(member);
        etcdctl(&[
            OsStr::new("--endpoints"),
            url.as_ref(),
            "snapshot".as_ref(),
            "save".as_ref(),
            file.as_ref(),
        ])?;
        Ok(file)
    }

    /// kill -9 of all; one comes back with a snapshot, and the others with what they had.
    ///
    /// # Errors
    /// As [`Members::snapshot`].
    pub fn restore_alone(&mut self, member: usize, snapshot: &Path) -> anyhow::Result<()> {
        // A leader that remembers what the one had does not let it come back.
        (0..COUNT).for_each(|member| self.kill(member));
        let data = self.data(member);
        std::fs::remove_dir_all(&data)?;
        let (name, all, peer) = (namespace(member), all(), peer_url(member));
        let named = [
            ("--name", &name),
            ("--initial-cluster", &all),
            ("--initial-advertise-peer-urls", &peer),
        ];
        let mut arguments: Vec<&OsStr> = vec!["snapshot".as_ref(), "restore".as_ref(), snapshot.as_ref()];
        arguments.extend(
            named
                .iter()
                .flat_map(|(name, value)| [OsStr::new(name), OsStr::new(value)]),
        );
        arguments.extend([OsStr::new("--data-dir"), data.as_ref()]);
        etcdctl(&arguments)?;
        (0..COUNT).try_for_each(|member| self.revive(member))
    }

    fn saved(&self, member: usize) -> PathBuf {
        self.directory.join(format!("saved{member}"))
    }

    /// A member's URL for clients.
    pub fn url(&self, member: usize) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}:2379", Side::Clients.address(member))
    }

    /// A member's URL for stores: through [`Members::weather`], if nothing speaks against it.
    fn door(&self, member: usize) -> String {
        match self.tls {
            Some(_) => self.url(member),
            None => format!("http://{}:2379", Side::Clients.door(member)),
        }
    }

    /// What a store on this cluster is told, which asks `first` before the others; nobody compacts.
    pub fn options(&self, first: usize) -> Options {
        Options {
            servers: (0..COUNT).map(|number| self.door((first + number) % COUNT)).collect(),
            tls: self
                .tls
                .as_ref()
                .map_or_else(TlsFiles::default, |tls| tls.client.clone()),
            prefix: "/registry".to_owned(),
            compaction_interval: None,
            // A round is to see the end of what cannot be answered.
            deadlines: Deadlines {
                attempt: Duration::from_secs(2),
                request: Duration::from_secs(5),
                start: Duration::from_secs(120),
                stall: Duration::from_secs(2),
            },
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        (0..COUNT).for_each(|member| self.kill(member));
    }
}

impl Side {
    fn bridge(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Peers => "peers",
        }
    }

    fn link(self, member: usize) -> String {
        format!("{}{member}", self.bridge())
    }

    /// Where what is for a member on this side passes this process.
    fn door(self, member: usize) -> String {
        format!("10.77.{}.{}", self as u8, member + 101)
    }

    /// A member's address on this side.
    pub fn address(self, member: usize) -> String {
        format!("10.77.{}.{}", self as u8, member + 1)
    }
}

fn namespace(member: usize) -> String {
    format!("m{member}")
}

/// Where other members find one.
fn peer_url(member: usize) -> String {
    format!("http://{}:2380", Side::Peers.door(member))
}

/// All members, as each is told of them.
fn all() -> String {
    let all = (0..COUNT).map(|peer| format!("{}={}", namespace(peer), peer_url(peer)));
    all.collect::<Vec<_>>().join(",")
}

fn etcdctl(arguments: &[&OsStr]) -> anyhow::Result<()> {
    let output = Command::new("etcdctl").env("ETCDCTL_API", "3").args(arguments).output();
    let output = output.context("etcdctl (Debian's etcd-client)")?;
    ensure!(
        output.status.success(),
        "etcdctl {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Makes a directory what another is.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    if to.exists() {
        std::fs::remove_dir_all(to)?;
    }
    let status = Command::new("cp").arg("-a").args([from, to]).status();
    let status = status.context("cp (Debian's coreutils)")?;
    ensure!(status.success(), "{} is not copied to {}", from.display(), to.display());
    Ok(())
}

/// iproute2's `ip`.
fn ip(arguments: &str) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.context("ip (Debian's iproute2)")?;
    ensure!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Tries until it succeeds or has failed for a minute.
fn patiently<T>(mut what: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let begin = std::time::Instant::now();
    loop {
        match what() {
            Ok(done) => return Ok(done),
            Err(error) if begin.elapsed() > Duration::from_secs(60) => bail!("for a minute: {error:#}"),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}
