//! The pods' network: plugins in place, and nothing held for sandboxes that are no more.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};

use crate::cases::workload::{addresses, delete};
use crate::cluster::Cluster;
use crate::wait;

/// The folder with the node's reservations, and an address of its range that nothing has got to.
fn spare(cluster: &Cluster, last: u8) -> anyhow::Result<PathBuf> {
    let text = fs::read_to_string(cluster.path("cni/net.d/10-skiff.conflist"))?;
    let list: serde_json::Value = serde_json::from_str(&text)?;
    let subnet = list["plugins"][0]["ipam"]["ranges"][0][0]["subnet"].as_str();
    let (network, _) = subnet.and_then(|subnet| subnet.split_once('/')).context("a range")?;
    let (start, _) = network.rsplit_once('.').context("an IPv4 range")?;
    Ok(Path::new("/var/lib/cni/networks/skiff").join(format!("{start}.{last}")))
}

/// An address reserved for a sandbox the runtime does not know, some time ago.
fn reserve(path: &Path, sandbox: &str, age: Duration) -> anyhow::Result<()> {
    fs::write(path, format!("{sandbox}\r\neth0"))?;
    fs::File::options()
        .write(true)
        .open(path)?
        .set_modified(SystemTime::now() - age)?;
    Ok(())
}

/// The kubelet has the plugins free what a vanished sandbox held, and nothing else.
pub(crate) fn vanished_sandboxes(cluster: &Cluster) -> anyhow::Result<()> {
    for plugin in [
        "bridge",
        "firewall",
        "host-local",
        "loopback",
        "portmap",
        "ptp",
        "tuning",
    ] {
        let link = fs::read_link(cluster.path("cni/bin").join(plugin)).with_context(|| plugin.to_owned())?;
        ensure!(link == Path::new("cni-plugins"), "{plugin} is {}", link.display());
    }
    cluster.kubectl(&["create", "deployment", "held", "--image=nginx", "--replicas=1"])?;
    let held = addresses(cluster, "app=held", 1)?;
    let (stale, young) = (spare(cluster, 250)?, spare(cluster, 251)?);
    cluster.kill("kubelet")?;
    reserve(&stale, "0123456789abcdef", Duration::from_secs(3600))?;
    reserve(&young, "fedcba9876543210", Duration::from_secs(60))?;
    cluster.up()?;
    wait::until(60, "the vanished sandbox's address is free", || {
        ensure!(!stale.exists(), "{} is there", stale.display());
        Ok(())
    })?;
    ensure!(young.exists(), "an address of a sandbox that may be starting is freed");
    fs::remove_file(&young)?;
    let folder = stale.parent().context("a folder")?;
    for address in &held {
        ensure!(
            folder.join(address).exists(),
            "a running pod's address {address} is freed"
        );
        cluster.page(address)?;
    }
    delete(cluster, "held", "app=held")
}
