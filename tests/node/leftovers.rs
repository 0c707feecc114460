//! What pods, and a whole cluster, must not leave behind.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::cluster::Cluster;
use crate::command::run;
use crate::wait;

/// Nothing of any pod is left: no object, container, task, mount, link, network namespace, cgroup, directory or address.
pub(crate) fn of_pods(cluster: &Cluster) -> anyhow::Result<()> {
    wait::until(60, "nothing is left of any pod", || {
        none(
            "pods",
            lines(&cluster.kubectl(&["get", "pods", "-A", "--no-headers", "--ignore-not-found"])?),
        )?;
        none("containers", cluster.containers()?)?;
        none("tasks", lines(&cluster.ctr(&["tasks", "list", "--quiet"])?))?;
        none(
            "mounts",
            mounts(&[&cluster.path("kubelet/root/pods"), &cluster.path("containerd/state")])?,
        )?;
        none("links", links("veth")?)?;
        none("cgroups", cgroups(cluster, &|name| name.starts_with("pod"))?)?;
        none("pod directories", entries(&cluster.path("kubelet/root/pods"))?)?;
        none("addresses", addresses(cluster)?)?;
        Ok(())
    })
}

/// Nothing of the whole cluster is left.
pub(crate) fn of_cluster(cluster: &Cluster) -> anyhow::Result<()> {
    none("processes", processes(cluster.data())?)?;
    none("mounts", mounts(&[cluster.data()])?)?;
    none("cgroups", cgroups(cluster, &|_| true)?)?;
    let links: Vec<_> = links("")?
        .into_iter()
        .filter(|link| link != "lo" && !link.starts_with("uplink"))
        .collect();
    none("links", links)?;
    none("nftables rules", lines(&run("nft", &["list", "ruleset"])?))?;
    // How the machine's switches stood is noted while a cluster is there, and by then they stand so again.
    let namespace = std::os::unix::fs::MetadataExt::ino(&fs::metadata("/proc/thread-self/ns/net")?);
    let noted = PathBuf::from(format!("/run/skiff-switches-{namespace}"));
    ensure!(!noted.exists(), "{} is left", noted.display());
    ensure!(!cluster.data().exists(), "the data directory is left");
    Ok(())
}

fn none(what: &str, left: Vec<String>) -> anyhow::Result<()> {
    ensure!(left.is_empty(), "{} {what} left: {}", left.len(), left.join(", "));
    Ok(())
}

fn lines(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(str::to_owned)
        .collect()
}

/// Mount points at or below one of the directories.
pub(crate) fn mounts(below: &[&Path]) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string("/proc/self/mountinfo")?;
    let points = text.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(points
        .filter(|point| below.iter().any(|path| Path::new(point).starts_with(path)))
        .map(str::to_owned)
        .collect())
}

/// Links whose name begins with `prefix`, in this network namespace.
fn links(prefix: &str) -> anyhow::Result<Vec<String>> {
    let text = run("ip", &["-o", "link", "show"])?;
    let names = text.lines().filter_map(|line| line.split(": ").nth(1));
    let names = names.map(|name| name.split('@').next().unwrap_or(name).to_owned());
    Ok(names.filter(|name| name.starts_with(prefix)).collect())
}

/// Cgroups of this cluster, in every hierarchy, whose directory's name is wanted.
fn cgroups(cluster: &Cluster, wanted: &dyn Fn(&str) -> bool) -> anyhow::Result<Vec<String>> {
    let mounts = fs::read_to_string("/proc/mounts")?;
    let roots = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (_, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
        kind.starts_with("cgroup")
            .then(|| PathBuf::from(format!("{point}{}", cluster.cgroup())))
    });
    let mut found = Vec::new();
    for root in roots.filter(|root| root.exists()) {
        directories(&root, &mut |path| {
            if wanted(&path.file_name().unwrap_or_default().to_string_lossy()) {
                found.push(path.display().to_string());
            }
        });
    }
    Ok(found)
}

/// Visits a directory and those in it; one that vanishes meanwhile is not there.
fn directories(path: &Path, visit: &mut dyn FnMut(&Path)) {
    visit(path);
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            directories(&entry.path(), visit);
        }
    }
}

fn entries(path: &Path) -> anyhow::Result<Vec<String>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(path).with_context(|| path.display().to_string())?;
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

/// Addresses that are still reserved, in the directory of each network this node's configuration names.
fn addresses(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let mut reserved = Vec::new();
    for file in entries(&cluster.path("cni/net.d"))? {
        let text = fs::read_to_string(cluster.path("cni/net.d").join(&file))?;
        let list: serde_json::Value = serde_json::from_str(&text).with_context(|| file.clone())?;
        let name = list["name"].as_str().unwrap_or_default();
        let directory = list["plugins"][0]["ipam"]["dataDir"]
            .as_str()
            .unwrap_or("/var/lib/cni/networks");
        let names = entries(&Path::new(directory).join(name))?;
        let ours = |name: &String| name.parse::<IpAddr>().is_ok() && cluster.has_address(name);
        reserved.extend(names.into_iter().filter(ours));
    }
    Ok(reserved)
}

/// Processes with an argument inside the data directory.
fn processes(data: &Path) -> anyhow::Result<Vec<String>> {
    let prefix = format!("{}/", data.display());
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(line) = fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(&prefix) {
            found.push(format!("{} {line}", entry.file_name().to_string_lossy()));
        }
    }
    Ok(found)
}
