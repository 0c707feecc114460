//! Looks at everything at once, and shares the look with everybody who asks within a second.

use super::diskstats::{self, DiskIo};
use super::files::Files;
use super::logs::Logs;
use super::node::{self, Node};
use super::numbers::Numbers;
use super::opened::{Kept, Opened};
use super::rate::{Rates, Sample};
use super::reading::{Depth, Reader, Trees, device_name};
use super::shared::Shared;
use super::{leaf, process};
use crate::cgroup::CgroupNaming;
use crate::host::FileWork;
use crate::host::machine::{self, Disk, Roots};
use crate::host::traffic::{self, Traffic};
use crate::parts::Parts;
use crate::pod::view::PodSnapshot;
use crate::runtime::ContainerUsage;
use crate::runtime::observed::{ContainerState, ObservedContainer};
use client::ordered::{Arrange, CollectOrdered};
use jiff::{SignedDuration, Timestamp};
use nix::sys::socket::{self as sys, AddressFamily, SockFlag, SockType, UnixAddr, getsockopt, sockopt};
use proto::api::qos::QosClass;
use proto::cri as pb;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long the kernel and the runtime are waited for.
const DEADLINE: Duration = Duration::from_secs(10);

/// A cgroup that is there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Its path below the trees' roots.
    pub id: String,
    /// What it uses.
    pub numbers: Numbers,
    /// CPU time, nanoseconds a second; nothing at a first look.
    pub rate: Option<u64>,
    /// When it was made, or who is in it began; of those that belong to no pod.
    pub started: Option<Timestamp>,
}

/// A pod that has something running or to release.
#[derive(Clone, Debug)]
pub struct PodLook {
    /// Who it is.
    pub snapshot: Arc<PodSnapshot>,
    /// Its own cgroup.
    pub own: Option<Group>,
    /// Those of its running containers, with their places among what was observed.
    pub containers: Vec<(usize, Group)>,
    /// That of its sandbox; with [`Depth::Everything`] alone.
    pub sandbox: Option<Group>,
    /// Its network's interfaces.
    pub interfaces: Vec<Traffic>,
}

impl PodLook {
    /// The newest containers of their names that run, with their places.
    pub fn running(snapshot: &PodSnapshot) -> impl Iterator<Item = (usize, &ObservedContainer)> {
        let all = snapshot.observed.containers.iter().enumerate();
        all.filter(|(place, container)| {
            let newer = snapshot.observed.containers.iter().take(*place);
            container.state == ContainerState::Running && newer.into_iter().all(|newer| newer.name != container.name)
        })
    }
}

/// Everything at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// When that was.
    pub at: Timestamp,
    /// How much was looked at.
    pub depth: Depth,
    /// The machine, and its CPU time as a rate.
    pub node: Node,
    /// See [`Group::rate`].
    pub node_rate: Option<u64>,
    /// The machine's own interfaces.
    pub interfaces: Vec<Traffic>,
    /// The cgroups of the kubelet, of the runtime, of the system and of all pods, by upstream's names for them.
    pub system: Vec<(&'static str, Group)>,
    /// Those of the pods' classes but the Guaranteed, which is that of all pods; with [`Depth::Everything`] alone.
    pub classes: Vec<Group>,
    /// The pods.
    pub pods: Vec<PodLook>,
    /// Whether the look took too long, and there is nothing.
    pub failed: bool,
}

/// A file system the runtime keeps something on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeDisk {
    /// When its use was counted, nanoseconds since 1970.
    pub at_nanos: i64,
    /// The file system.
    pub disk: Disk,
    /// The device it is on; empty if it is on none.
    pub device: String,
    /// Bytes and inodes the runtime has there.
    pub used: (Option<u64>, Option<u64>),
    /// What the machine did with the device.
    pub io: Option<DiskIo>,
}

/// The disks of the node: its own, that of images, that of containers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disks {
    /// The kubelet's own; what is used of it is not counted.
    pub node: RuntimeDisk,
    /// Images'.
    pub images: Option<RuntimeDisk>,
    /// Containers' layers'.
    pub layers: Option<RuntimeDisk>,
}

/// Looks when somebody asks.
pub struct Sampler {
    roots: Roots,
    trees: Option<Trees>,
    naming: CgroupNaming,
    /// Where the runtime listens: whoever does is it.
    socket: Option<PathBuf>,
    /// The cgroup of the system's own processes, if they have one.
    misc: Option<String>,
    begun: Instant,
    /// The same as others tell time, once somebody asked.
    began: OnceLock<Timestamp>,
    work: FileWork,
    kept: Kept,
    looks: Shared<Look>,
    told: Shared<Option<Vec<ContainerUsage>>>,
    disks: Shared<Disks>,
    rates: Mutex<Rates>,
    /// What pods have on disk.
    pub files: Files,
    /// What of it are containers' logs, for who asks for nothing else.
    pub logs: Logs,
}

impl Sampler {
    /// One for pods' cgroups of these names in these trees. Must be made inside a tokio runtime.
    pub fn new(
        roots: Roots,
        trees: Option<Trees>,
        naming: CgroupNaming,
        socket: Option<PathBuf>,
        misc: Option<String>,
    ) -> Self {
        Self {
            roots,
            trees,
            naming,
            socket,
            misc,
            begun: Instant::now(),
            began: OnceLock::new(),
            work: FileWork::new(DEADLINE),
            kept: Kept::default(),
            looks: Shared::default(),
            told: Shared::default(),
            disks: Shared::default(),
            rates: Mutex::default(),
            files: Files::default(),
            logs: Logs::default(),
        }
    }

    /// A look that has what `depth` asks for, no older than a second.
    pub async fn look(&self, parts: &Parts, depth: Depth) -> Arc<Look> {
        self.looks
            .get(|look| look.depth >= depth && !look.failed, self.anew(parts, depth))
            .await
    }

    async fn anew(&self, parts: &Parts, depth: Depth) -> Look {
        let active: Vec<Arc<PodSnapshot>> = parts.pods.list().into_iter().filter(|pod| pod.active).collect();
        let at = parts.clock.now();
        let now = self.begun.elapsed();
        let began = SignedDuration::try_from(now).and_then(|ran| at.checked_sub(ran));
        let began = *self.began.get_or_init(|| began.unwrap_or(at));
        let job = Job {
            depth,
            began,
            pods: active.clone(),
            trees: self.trees.clone(),
            naming: self.naming.clone(),
            roots: self.roots.clone(),
            socket: self.socket.clone(),
            misc: self.misc.clone(),
        };
        let (kept, begun) = (self.kept.clone(), self.begun);
        // Whoever asked may be gone: nobody else waits for just this look.
        let look = move |given_up: &AtomicBool| kept.look((begun, now), |opened| job.run(at, opened, given_up));
        let looked = self.work.run_for("look", DEADLINE, look).await;
        let mut look = looked.unwrap_or_else(|error| {
            tracing::warn!(%error, "what pods use cannot be read");
            nothing(at, depth)
        });
        self.rate(now, &mut look);
        look
    }

    fn rate(&self, now: Duration, look: &mut Look) {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        rates.begin(now);
        let of = |id: &str, numbers: &Numbers| rates.of(now, id, numbers.cpu.total_nanos?);
        for group in groups(look) {
            group.rate = of(&group.id, &group.numbers);
        }
        look.node_rate = of("", &look.node.numbers);
        rates.end(now, || {
            let cpu = |group: &mut Group| Some((group.id.clone(), group.numbers.cpu.total_nanos?));
            let mut sample: Sample = groups(look).filter_map(cpu).collect_ordered();
            sample.extend(look.node.numbers.cpu.total_nanos.map(|total| (String::new(), total)));
            sample
        });
    }

    /// What the runtime tells of containers, in the order of pods; nothing if it does not, or not in time.
    pub async fn told(&self, parts: &Parts) -> Arc<Option<Vec<ContainerUsage>>> {
        let ask = async {
            let told = tokio::time::timeout(DEADLINE, parts.runtime.list_container_stats()).await;
            let told = told.inspect_err(|_| tracing::warn!("containers' usage not told by the runtime in time"));
            let told = told
                .ok()?
                .inspect_err(|error| tracing::warn!(%error, "containers' usage not told by the runtime"));
            let mut told = told.ok()?;
            told.arrange_by_key(|usage| usage.pod.clone());
            Some(told)
        };
        self.told.get(|_| true, ask).await
    }

    /// The node's disks.
    pub async fn disks(&self, parts: &Parts) -> Arc<Disks> {
        let ask = async {
            let told = tokio::time::timeout(DEADLINE, parts.runtime.image_fs_info()).await;
            let told = told.ok().and_then(Result::ok).unwrap_or_default();
            let (root, roots) = (parts.context.root_dir.clone(), self.roots.clone());
            let look = move || {
                let statistics = std::fs::read_to_string(roots.proc.join("diskstats")).unwrap_or_default();
                let machine = (roots.sys.as_path(), statistics.as_str());
                let first = |list: Vec<pb::FilesystemUsage>| Some(of_runtime(list.into_iter().next()?, machine));
                Disks {
                    node: at_path(&root, machine),
                    images: first(told.image_filesystems),
                    layers: first(told.container_filesystems),
                }
            };
            self.work.run("disks", look).await.unwrap_or_default()
        };
        self.disks.get(|_| true, ask).await
    }
}

/// A path's file system, by `/sys` and the text of `/proc/diskstats`.
fn at_path(path: &Path, (sys, statistics): (&Path, &str)) -> RuntimeDisk {
    let number = std::fs::metadata(path).map(|meta| meta.dev());
    let device = number.map(|number| {
        let part = |part: u64| u32::try_from(part).unwrap_or(u32::MAX);
        let number = (nix::sys::stat::major(number), nix::sys::stat::minor(number));
        device_name(sys, (part(number.0), part(number.1)))
    });
    let device = device.unwrap_or_default();
    RuntimeDisk {
        disk: machine::disk(path),
        io: diskstats::of_device(statistics, &device),
        device,
        ..RuntimeDisk::default()
    }
}

fn of_runtime(told: pb::FilesystemUsage, machine: (&Path, &str)) -> RuntimeDisk {
    let value = |value: Option<pb::UInt64Value>| value.map(|value| value.value);
    let path = told.fs_id.map(|id| PathBuf::from(id.mountpoint));
    RuntimeDisk {
        at_nanos: told.timestamp,
        used: (value(told.used_bytes), value(told.inodes_used)),
        ..path.map(|path| at_path(&path, machine)).unwrap_or_default()
    }
}

fn groups(look: &mut Look) -> impl Iterator<Item = &mut Group> {
    let pods = look.pods.iter_mut().flat_map(|pod| {
        let containers = pod.containers.iter_mut().map(|(_, group)| group);
        pod.own.iter_mut().chain(&mut pod.sandbox).chain(containers)
    });
    let system = look.system.iter_mut().map(|(_, group)| group);
    system.chain(&mut look.classes).chain(pods)
}

fn nothing(at: Timestamp, depth: Depth) -> Look {
    Look {
        at,
        depth,
        node: Node::default(),
        node_rate: None,
        interfaces: Vec::new(),
        system: Vec::new(),
        classes: Vec::new(),
        pods: Vec::new(),
        failed: true,
    }
}

/// One look's work on files.
struct Job {
    depth: Depth,
    /// When the kubelet began.
    began: Timestamp,
    pods: Vec<Arc<PodSnapshot>>,
    trees: Option<Trees>,
    naming: CgroupNaming,
    roots: Roots,
    socket: Option<PathBuf>,
    misc: Option<String>,
}

impl Job {
    /// Looks at everything; at nothing more, which is no look, once it is given up.
    fn run(self, at: Timestamp, opened: &mut Opened, given_up: &AtomicBool) -> Look {
        let node = node::read(&self.roots);
        let mut look = Look {
            node,
            failed: false,
            ..nothing(at, self.depth)
        };
        if self.depth >= Depth::Summary {
            look.interfaces = traffic::read(&self.roots);
        }
        let Some(trees) = &self.trees else {
            let bare = |snapshot: &Arc<PodSnapshot>| self.without_cgroup(snapshot);
            look.pods = self.pods.iter().map(bare).collect();
            return look;
        };
        let mut reader = Reader::new(trees, &self.roots, opened, look.node.swap_total > 0);
        if self.depth >= Depth::Everything {
            look.node.numbers.devices = reader.numbers("/", self.depth).devices;
            let classes = [QosClass::Burstable, QosClass::BestEffort].map(|class| self.naming.qos(class));
            look.classes = classes
                .into_iter()
                .filter_map(|id| self.apart(&mut reader, id))
                .collect();
        }
        look.system = self.system(&mut reader);
        for snapshot in &self.pods {
            if given_up.load(Ordering::Relaxed) {
                return nothing(at, self.depth);
            }
            look.pods.push(self.pod(&mut reader, snapshot));
        }
        look
    }

    fn without_cgroup(&self, snapshot: &Arc<PodSnapshot>) -> PodLook {
        PodLook {
            snapshot: snapshot.clone(),
            own: None,
            containers: Vec::new(),
            sandbox: None,
            interfaces: Vec::new(),
        }
    }

    fn group(&self, reader: &mut Reader<'_>, id: String) -> Option<Group> {
        let numbers = reader.numbers(&id, self.depth);
        let group = Group {
            id,
            numbers,
            ..Group::default()
        };
        group.numbers.is_told().then_some(group)
    }

    /// A group that belongs to no pod.
    fn apart(&self, reader: &mut Reader<'_>, id: String) -> Option<Group> {
        let group = self.group(reader, id)?;
        let started = reader.made(&group.id);
        Some(Group { started, ..group })
    }

    fn system(&self, reader: &mut Reader<'_>) -> Vec<(&'static str, Group)> {
        let unified = self.trees.as_ref().is_some_and(Trees::is_unified);
        let mut at = |file: &str| Some(leaf::of_process(&reader.proc(file)?, unified)?.to_owned());
        let kubelet = at("self/cgroup");
        let runtime = self.socket.as_deref().and_then(listener);
        let runtime = runtime.and_then(|process| at(&format!("{process}/cgroup")));
        let named = [
            ("kubelet", kubelet),
            ("runtime", runtime),
            ("misc", self.misc.clone()),
            ("pods", Some(self.naming.kubepods())),
        ];
        // The root is the machine: what is there has no cgroup of its own.
        let own = named
            .into_iter()
            .filter_map(|(name, id)| Some((name, id.filter(|id| id != "/")?)));
        let mut all: Vec<(&'static str, Group)> = own
            .filter_map(|(name, id)| Some((name, self.apart(reader, id)?)))
            .collect();
        // Its cgroup may be older than the kubelet.
        let kubelet = all.iter_mut().filter(|(name, _)| *name == "kubelet");
        kubelet.for_each(|(_, group)| group.started = Some(self.began));
        all
    }

    fn pod(&self, reader: &mut Reader<'_>, snapshot: &Arc<PodSnapshot>) -> PodLook {
        let mut look = self.without_cgroup(snapshot);
        let path = self.naming.pod_with(&snapshot.pod, &snapshot.status);
        let driver = self.naming.driver;
        look.own = self.group(reader, path.clone());
        if look.own.is_none() {
            return look;
        }
        let mut inside = None;
        for (place, container) in PodLook::running(snapshot) {
            let Some((id, numbers)) = reader.leaf(&path, driver, container.id.as_str(), self.depth) else {
                continue;
            };
            let mut group = Group {
                id,
                numbers,
                ..Group::default()
            };
            if self.depth >= Depth::Summary {
                inside = inside.or(self.count_tasks(reader, &mut group));
            }
            look.containers.push((place, group));
        }
        if self.depth >= Depth::Everything {
            look.sandbox = self.sandbox(reader, snapshot, &path);
            inside = look
                .sandbox
                .as_mut()
                .and_then(|group| self.count_tasks(reader, group))
                .or(inside);
        }
        if self.depth == Depth::Summary {
            inside = inside.or_else(|| self.process_of_sandbox(reader, snapshot, &path));
        }
        // Whatever runs in the pod is in its network.
        let interfaces = inside.and_then(|process| reader.interfaces(process));
        look.interfaces = interfaces.unwrap_or_default();
        look
    }

    fn sandbox(&self, reader: &mut Reader<'_>, snapshot: &PodSnapshot, path: &str) -> Option<Group> {
        let sandbox = snapshot.observed.sandbox().filter(|sandbox| sandbox.ready)?;
        let (id, numbers) = reader.leaf(path, self.naming.driver, sandbox.id.as_str(), self.depth)?;
        Some(Group {
            id,
            numbers,
            ..Group::default()
        })
    }

    /// The sandbox's own process: those of a container may all be in cgroups it made.
    fn process_of_sandbox(&self, reader: &mut Reader<'_>, snapshot: &PodSnapshot, path: &str) -> Option<u32> {
        let sandbox = snapshot.observed.sandbox().filter(|sandbox| sandbox.ready)?;
        let paths = leaf::paths(path, self.naming.driver, sandbox.id.as_str());
        let mut found = paths.filter_map(|path| reader.processes(&path));
        found.find_map(|processes| processes.first().copied())
    }

    /// Counts the group's processes, and with [`Depth::Everything`] what they hold open; one of them, if there are any.
    fn count_tasks(&self, reader: &mut Reader<'_>, group: &mut Group) -> Option<u32> {
        let processes = reader.processes(&group.id)?;
        let tasks = &mut group.numbers.tasks;
        match self.depth >= Depth::Everything {
            true => process::count(&reader.roots().proc, &processes, tasks),
            false => tasks.processes = u64::try_from(processes.len()).ok(),
        }
        processes.first().copied()
    }
}

/// The process that listens there. Nobody is waited for: a runtime that takes no connections, and has a queue of them, is not told.
fn listener(socket: &Path) -> Option<i32> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let connected = sys::socket(AddressFamily::Unix, SockType::Stream, flags, None).ok()?;
    sys::connect(connected.as_raw_fd(), &UnixAddr::new(socket).ok()?).ok()?;
    let pid = getsockopt(&connected, sockopt::PeerCredentials).ok()?.pid();
    (pid > 0).then_some(pid)
}

#[cfg(test)]
mod tests;
