//! What is asked of the host at start.

use super::BootError;
use crate::cgroup::limits::hugepage_cgroup_name;
use crate::config::Config;
use crate::host::addresses::{self, HostIps};
use crate::host::machine::{self, Machine, Roots};
use crate::host::project::KernelQuotas;
use crate::image::node_logins::NodeLogins;
use crate::image::provider;
use crate::node::{Facts, allocatable, max_pods};
use crate::user_namespace::{IdPool, PoolError, parse_subordinate};
use crate::volume::Projects;
use client::ordered::CollectOrdered;
use futures::FutureExt;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use proto::api::quantity::{Format, Quantity};
use proto::api::resources::ResourceList;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Whether the unified hierarchy is all there is.
pub(super) fn is_cgroup_v2(mount: &str) -> bool {
    Path::new(mount).join("cgroup.controllers").exists()
}

/// A seed no two starts share.
pub(super) fn seed() -> u64 {
    rand::random()
}

/// Where the node's own registry logins are looked for.
pub(super) fn registry_logins(root_dir: &Path) -> NodeLogins {
    let working_dir = std::env::current_dir().ok();
    let home = std::env::var_os("HOME")
        .filter(|home| !home.is_empty())
        .map(PathBuf::from);
    NodeLogins::new(root_dir, working_dir.as_deref(), home.as_deref())
}

/// Which volumes the file system counts itself: by the kernel's project quotas, if the gate is on.
pub(super) fn projects(config: &Config) -> Projects {
    match config.pods.fs_quotas {
        true => Projects::new(Arc::new(KernelQuotas), &Roots::default().etc),
        false => Projects::default(),
    }
}

fn hugepages(roots: &Roots) -> BTreeMap<String, i64> {
    let mut out = BTreeMap::new();
    let entries = fs::read_dir(roots.sys.join("kernel/mm/hugepages"))
        .into_iter()
        .flatten()
        .flatten();
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let kib: Option<i64> = name
            .strip_prefix("hugepages-")
            .and_then(|n| n.strip_suffix("kB")?.parse().ok());
        let count: Option<i64> = fs::read_to_string(entry.path().join("nr_hugepages"))
            .ok()
            .and_then(|t| t.trim().parse().ok());
        if let (Some(kib), Some(count)) = (kib, count) {
            let size = Quantity::from_units(kib * 1024, Format::BinarySi).to_string();
            out.insert(size, count * kib * 1024);
        }
    }
    out
}

/// An amount of bytes, which is never negative.
pub(super) fn bytes(amount: i64) -> u64 {
    u64::try_from(amount).unwrap_or(0)
}

/// The machine's huge pages, in bytes by size.
pub(super) fn huge_pages(facts: &Facts) -> BTreeMap<String, u64> {
    let sizes = facts.hugepages.iter();
    sizes
        .map(|(size, amount)| (size.clone(), bytes(*amount)))
        .collect_ordered()
}

/// The sizes of huge pages the machine has, as cgroups name them.
pub(super) fn huge_page_sizes(facts: &Facts) -> Vec<String> {
    let sizes = facts.hugepages.keys();
    sizes.filter_map(|size| hugepage_cgroup_name(size)).collect()
}

/// This machine, as its node object will describe it.
pub(super) fn facts(config: &Config, roots: &Roots) -> Facts {
    let name = config.node.name.clone().unwrap_or_else(machine::host_name);
    // The disk is that of the nearest directory that exists: the root directory may not have been made yet.
    let mut existing = config.paths.root_dir.as_path();
    while !existing.exists() {
        existing = existing.parent().unwrap_or(Path::new("/"));
    }
    Facts {
        host_name: name.clone(),
        name,
        ips: match config.node.ips.as_slice() {
            [] => vec![machine::default_address(config.node.prefers_v6)],
            given => given.to_vec(),
        },
        machine: Machine::read(roots),
        disk: machine::disk(existing),
        hugepages: hugepages(roots),
        port: config.server.port,
    }
}

/// The plugins that give logins.
pub(super) fn credential_providers(config: &Config) -> Result<provider::Setup, BootError> {
    let Some(found) = &config.runtime.credential_providers else {
        return Ok(provider::Setup::default());
    };
    let read = provider::Setup::read(&found.config, &found.directory, found.tokens);
    read.map_err(BootError::CredentialProviders)
}

/// What pods are admitted to.
pub(super) fn admissible(config: &Config, facts: &Facts) -> ResourceList {
    let left = allocatable(config, facts);
    let mut list = ResourceList::from([
        ("cpu".to_owned(), Quantity::from_milli(left.cpu_milli)),
        ("memory".to_owned(), Quantity::from_units(left.memory, Format::BinarySi)),
        (
            "ephemeral-storage".to_owned(),
            Quantity::from_units(left.ephemeral_storage, Format::DecimalSi),
        ),
        (
            "pods".to_owned(),
            Quantity::from_units(max_pods(config, &facts.machine), Format::DecimalSi),
        ),
    ]);
    for (size, amount) in &facts.hugepages {
        list.insert(
            format!("hugepages-{size}"),
            Quantity::from_units(*amount, Format::BinarySi),
        );
    }
    list
}

/// Whether the kernel enforces AppArmor profiles.
pub(super) fn has_apparmor(roots: &Roots) -> bool {
    let switch = roots.sys.join("module/apparmor/parameters/enabled");
    roots.sys.join("kernel/security/apparmor").exists()
        && fs::read_to_string(switch).is_ok_and(|text| text.starts_with('Y'))
}

/// Whether the kernel keeps processes and files apart by SELinux labels.
pub(super) fn has_selinux(roots: &Roots) -> bool {
    roots.sys.join("fs/selinux/enforce").exists()
}

/// The ids pods with users of their own may have: what is set aside for user `kubelet` (`/etc/subuid` and `/etc/subgid`, equal), else
/// all above the node's own.
pub(super) fn ids(roots: &Roots, per_pod: u32, pods_max: i64) -> Result<IdPool, PoolError> {
    let told = |file: &str| match fs::read_to_string(roots.etc.join(file)) {
        // Whoever has none there has none; what cannot be read may be other users'.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PoolError::Read(format!("{file}: {error}"))),
        Ok(text) => parse_subordinate(&text),
    };
    let (users, groups) = (told("subuid")?, told("subgid")?);
    match users {
        _ if users != groups => Err(PoolError::Mismatch),
        Some((first, count)) => IdPool::subordinate(first, count, per_pod, pods_max),
        None => Ok(IdPool::all(per_pod)),
    }
}

/// Makes the kernel spare this process; where that is not allowed the node works all the same.
pub(super) fn protect_from_oom(score: i64) {
    if let Err(error) = fs::write("/proc/self/oom_score_adj", score.to_string()) {
        tracing::debug!(score, %error, "own oom_score_adj not set");
    }
}

/// Raises (or lowers) how many files this process may have open. Where more than the hard limit is not allowed it is that one.
pub(super) fn allow_open_files(files: u64) {
    let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, files, files) else {
        return;
    };
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or_default();
    let least = files.min(hard);
    match setrlimit(Resource::RLIMIT_NOFILE, least, hard) {
        Ok(()) if least == files => {}
        _ => tracing::warn!(files, hard, %error, "maxOpenFiles not set"),
    }
}

/// The node's addresses: the configured ones, or the one found, which is followed from now on.
pub(super) fn ips(config: &Config, facts: &Facts, tasks: &mut JoinSet<()>, stop: &CancellationToken) -> HostIps {
    if !config.node.ips.is_empty() {
        return HostIps::fixed(facts.ips.clone());
    }
    let (sender, ips) = HostIps::following(facts.ips.clone());
    let every = config.node.status_update;
    let prefers_v6 = config.node.prefers_v6;
    let find = move || machine::route_address(prefers_v6);
    tasks.spawn(addresses::follow(sender, find, every, stop.clone()).boxed());
    ips
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, KubeletConfiguration, resolve};
    use crate::host::machine::Disk;

    #[test]
    fn ids_of_pods_are_those_set_aside_or_all_above_the_nodes() {
        let dir = tempfile::tempdir().expect("temp dir");
        let roots = Roots {
            etc: dir.path().to_owned(),
            ..Roots::default()
        };
        let ids = || ids(&roots, 65_536, 2);
        let write = |file: &str, text: &str| fs::write(dir.path().join(file), text).expect("written");
        assert_eq!(ids(), Ok(IdPool::default()));
        write("subuid", "kubelet:65536:131072\n");
        assert_eq!(ids(), Err(PoolError::Mismatch));
        write("subgid", "kubelet:65536:131072\n");
        assert_eq!(ids().map(|pool| (pool.first, pool.count)), Ok((65_536, 131_072)));
    }

    #[test]
    fn the_machine_is_told_in_others_terms() {
        let facts = Facts {
            name: "n".into(),
            host_name: "n".into(),
            ips: Vec::new(),
            machine: Machine {
                cpus: 4,
                ..Machine::default()
            },
            disk: Disk::default(),
            hugepages: BTreeMap::from([("2Mi".to_owned(), 0)]),
            port: 10250,
        };
        assert_eq!(huge_page_sizes(&facts), ["2MB"]);
        let slots = |per_core| {
            let written = KubeletConfiguration {
                max_pods: Some(30),
                pods_per_core: Some(per_core),
                ..KubeletConfiguration::default()
            };
            let config = resolve(&written, &Flags::default(), true).expect("sound");
            admissible(&config, &facts)["pods"].value()
        };
        assert_eq!((slots(0), slots(5), slots(10)), (30, 20, 30));
    }
}
