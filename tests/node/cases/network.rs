//! The pods' network: plugins in place, and nothing held for sandboxes that are no more.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};

use crate::cases::crash::node_ready;
use crate::cases::pod::{self, run_and_wait};
use crate::cases::workload::{addresses, delete};
use crate::cluster::{Cluster, NODE};
use crate::command::run;
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

/// The node's range, as it is configured.
fn range(cluster: &Cluster) -> anyhow::Result<String> {
    let text = fs::read_to_string(cluster.path("cni/net.d/10-skiff.conflist"))?;
    let list: serde_json::Value = serde_json::from_str(&text)?;
    let subnet = list["plugins"][0]["ipam"]["ranges"][0][0]["subnet"].as_str();
    Ok(subnet.context("a range")?.to_owned())
}

/// The node's object is deleted and made again with another range, under a kubelet that sees both at once.
fn change_range(cluster: &Cluster, range_wanted: &str) -> anyhow::Result<()> {
    let kubelet = nix::unistd::Pid::from_raw(cluster.pid("kubelet")?);
    nix::sys::signal::kill(kubelet, nix::sys::signal::Signal::SIGSTOP)?;
    let node = format!(
        r#"{{"apiVersion": "v1", "kind": "Node", "metadata": {{"name": "{NODE}"}},
             "spec": {{"podCIDR": "{range_wanted}", "podCIDRs": ["{range_wanted}"]}}}}"#
    );
    let changed = cluster
        .kubectl(&["delete", "node", NODE])
        .and_then(|_| cluster.apply(&node));
    nix::sys::signal::kill(kubelet, nix::sys::signal::Signal::SIGCONT)?;
    changed?;
    wait::until(60, "the range is configured", || {
        let now = range(cluster)?;
        ensure!(now == range_wanted, "{now}");
        Ok(())
    })?;
    wait::until(60, "the node is labelled again", || {
        let label = cluster.get(&["node", NODE], r"{.metadata.labels.kubernetes\.io/os}")?;
        ensure!(label == "linux", "{label:?}");
        Ok(())
    })?;
    node_ready(cluster, "True")
}

/// Waits until nobody holds an address.
fn free(address: &str) -> anyhow::Result<()> {
    let held = Path::new("/var/lib/cni/networks/skiff").join(address);
    wait::until(30, "the address is free", || {
        ensure!(!held.exists(), "{address} is held");
        Ok(())
    })
}

/// Another podCIDR: old pods keep their addresses and stay reachable, new ones are in the new range, and both reach each other.
pub(crate) fn range_changed(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.kubectl(&["create", "deployment", "old", "--image=nginx", "--replicas=1"])?;
    let old = addresses(cluster, "app=old", 1)?;
    let client = r#"
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "100000"]}
"#;
    run_and_wait(cluster, "client", client)?;
    let first = range(cluster)?;
    let network = first.rsplitn(3, '.').nth(2).context("an IPv4 range")?;
    let second = format!("{network}.77.0/24");
    ensure!(first != second, "{first}");
    let kubelet = cluster.pid("kubelet")?;
    change_range(cluster, &second)?;
    cluster.kubectl(&["create", "deployment", "new", "--image=nginx", "--replicas=1"])?;
    let new = addresses(cluster, "app=new", 1)?;
    ensure!(new[0].starts_with(second.trim_end_matches("0/24")), "{new:?}");
    ensure!(addresses(cluster, "app=old", 1)? == old, "the old pod moved");
    for address in old.iter().chain(&new) {
        cluster.page(address)?;
        let url = format!("http://{address}/");
        let page = cluster.kubectl(&["exec", "client", "--", "wget", "-qO-", &url])?;
        ensure!(page.contains("Welcome to nginx"), "{address}: {page}");
    }
    let counts = cluster.get(&["pods"], "{.items[*].status.containerStatuses[*].restartCount}")?;
    ensure!(counts == "0 0 0", "{counts}");
    delete(cluster, "old", "app=old")?;
    pod::delete(cluster, "client")?;
    free(&old[0])?;
    change_range(cluster, &first)?;
    cluster.page(&new[0])?;
    delete(cluster, "new", "app=new")?;
    free(&new[0])?;
    ensure!(cluster.pid("kubelet")? == kubelet, "the kubelet was restarted");
    Ok(())
}

/// Another address of the machine: the node shows it soon, and pods that are there or on its network do not mind.
pub(crate) fn address_changed(cluster: &Cluster) -> anyhow::Result<()> {
    let shown = |wanted: &str| {
        wait::until(60, "the node's address", || {
            let path = r#"{.status.addresses[?(@.type=="InternalIP")].address}"#;
            let address = cluster.get(&["node", NODE], path)?;
            ensure!(address == wanted, "{address}, not {wanted}");
            let path = "{.status.hostIP} {.status.podIP}";
            let ips = cluster.get(&["pod", "on-host"], path)?;
            ensure!(ips == format!("{wanted} {wanted}"), "{ips}");
            Ok(())
        })
    };
    let manifest = r#"
apiVersion: v1
kind: Pod
metadata: {name: on-host}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "100000"]}
"#;
    run_and_wait(cluster, "on-host", manifest)?;
    let first = cluster.get(&["pod", "on-host"], "{.status.hostIP}")?;
    let second = "192.0.2.77";
    ensure!(first != second, "{first}");
    let ip = |line: &str| run("ip", &line.split(' ').collect::<Vec<_>>());
    ip(&format!("address add {second}/24 dev uplink"))?;
    // What leaves from here leaves from the second address.
    let leaves_from = |address: &str| {
        ip(&format!(
            "route replace 192.0.2.0/24 dev uplink proto kernel scope link src {address}"
        ))
    };
    leaves_from(second)?;
    let moved = shown(second);
    leaves_from(&first)?;
    ip(&format!("address delete {second}/24 dev uplink"))?;
    moved?;
    shown(&first)?;
    let count = cluster.get(&["pod", "on-host"], "{.status.containerStatuses[0].restartCount}")?;
    ensure!(count == "0", "restarted {count} times");
    pod::delete(cluster, "on-host")
}
