//! The CNI configuration this node writes from its podCIDR.
//!
//! Owns one file, [`FILE_NAME`]. Never touches a directory in which somebody else configures the network. [`install`] puts
//! the plugins in place, [`collect`] frees what vanished sandboxes left.

mod bridge;
pub mod collect;
pub mod install;

use client::ordered::Arrange;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// The file's name in the configuration directory.
pub const FILE_NAME: &str = "10-skiff.conflist";
const NETWORK_NAME: &str = "skiff";
const CNI_VERSION: &str = "1.0.0";
const PROBE_DEADLINE: Duration = Duration::from_secs(5);

/// Why the configuration was not written.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The directory could not be read or made.
    #[error("CNI configuration directory {path}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file could not be written.
    #[error("write CNI configuration {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The plugins could not be installed.
    #[error("install CNI plugins: {path}")]
    Install {
        /// The file or directory in the way.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What became of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Written, or already as it should be.
    Ours,
    /// Somebody else's configuration is there and stays in force.
    Foreign(PathBuf),
}

/// What a network of several nodes changes in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Whether each pod's rules masquerade what leaves its own range. Off where rules for the node do it for what leaves the
    /// cluster: between nodes a pod's address must stay.
    pub masquerade: bool,
    /// MTU of pods' interfaces in bytes, smaller than the host's where packets travel inside others; 0 is the kernel's choice.
    pub mtu: u32,
}

impl Default for Shape {
    /// A node by itself.
    fn default() -> Self {
        Self {
            masquerade: true,
            mtu: 0,
        }
    }
}

/// The configuration list of a network on this bridge over these ranges; `portmap` adds host ports to the chain. Pure.
pub fn conflist(bridge: &str, pod_cidrs: &[String], portmap: bool, shape: Shape) -> Value {
    let ranges: Vec<Value> = pod_cidrs.iter().map(|cidr| json!([{ "subnet": cidr }])).collect();
    let routes: Vec<Value> = pod_cidrs
        .iter()
        .map(|cidr| json!({ "dst": if cidr.contains(':') { "::/0" } else { "0.0.0.0/0" } }))
        .collect();
    let mut first = json!({
        "type": "bridge",
        "bridge": bridge,
        "isGateway": true,
        "ipMasq": shape.masquerade,
        // By netlink: no iptables program is started for each pod, and garbage collection finds the rules.
        "ipMasqBackend": "nftables",
        "hairpinMode": true,
        "ipam": { "type": "host-local", "ranges": ranges, "routes": routes },
    });
    if shape.mtu != 0 {
        first["mtu"] = json!(shape.mtu);
    }
    let mut plugins = vec![first];
    if portmap {
        plugins.push(json!({ "type": "portmap", "capabilities": { "portMappings": true } }));
    }
    json!({ "cniVersion": CNI_VERSION, "name": NETWORK_NAME, "plugins": plugins })
}

/// The first configuration in the directory that is not ours.
fn foreign(dir: &Path) -> io::Result<Option<PathBuf>> {
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let is_config = path
            .extension()
            .is_some_and(|e| e == "conf" || e == "conflist" || e == "json");
        if is_config && path.file_name().is_some_and(|name| name != FILE_NAME) {
            found.push(path);
        }
    }
    found.arrange();
    Ok(found.into_iter().next())
}

/// Whether a plugin is there and answers VERSION; one that is only a name must not break every pod.
async fn answers(plugin: &Path) -> bool {
    if !plugin.exists() {
        return false;
    }
    let run = tokio::process::Command::new(plugin)
        .env_clear()
        .env("CNI_COMMAND", "VERSION")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(PROBE_DEADLINE, run).await {
        Ok(Ok(output)) => output.status.success() && serde_json::from_slice::<Value>(&output.stdout).is_ok(),
        _ => false,
    }
}

/// Writes the configuration for these ranges unless another one is there. The file appears whole or not at all. Pods that run
/// keep what they were made with.
pub async fn ensure(
    conf_dir: &Path,
    bin_dir: &Path,
    pod_cidrs: &[String],
    shape: Shape,
) -> Result<Outcome, NetworkError> {
    ensure_beside(&bridge::present(), conf_dir, bin_dir, pod_cidrs, shape).await
}

/// Does so on a host whose interfaces have these addresses.
async fn ensure_beside(
    interfaces: &BTreeMap<String, Vec<bridge::Net>>,
    conf_dir: &Path,
    bin_dir: &Path,
    pod_cidrs: &[String],
    shape: Shape,
) -> Result<Outcome, NetworkError> {
    let directory = |source| NetworkError::Directory {
        path: conf_dir.to_owned(),
        source,
    };
    fs::create_dir_all(conf_dir).map_err(directory)?;
    if let Some(path) = foreign(conf_dir).map_err(directory)? {
        return Ok(Outcome::Foreign(path));
    }
    let portmap = answers(&bin_dir.join("portmap")).await;
    let ranges: Vec<bridge::Net> = pod_cidrs.iter().filter_map(|cidr| bridge::parse(cidr)).collect();
    let mut list = conflist(&bridge::choose(interfaces, &ranges), pod_cidrs, portmap, shape);
    let path = conf_dir.join(FILE_NAME);
    let have = fs::read_to_string(&path).unwrap_or_default();
    bridge::remember(&mut list, &serde_json::from_str(&have).unwrap_or_default());
    let text = format!("{list:#}\n");
    if have == text {
        return Ok(Outcome::Ours);
    }
    // A name runtimes do not read as a configuration.
    let new = conf_dir.join(format!(".{FILE_NAME}.new"));
    let write = |source| NetworkError::Write {
        path: path.clone(),
        source,
    };
    let mut file = fs::File::create(&new).map_err(write)?;
    io::Write::write_all(&mut file, text.as_bytes()).map_err(write)?;
    file.sync_all().map_err(write)?;
    fs::rename(&new, &path).map_err(write)?;
    Ok(Outcome::Ours)
}

/// The plugin our own configuration needs first, if it is not where the runtime looks for it.
pub fn missing_plugin(conf_dir: &Path, bin_dir: &Path) -> Option<PathBuf> {
    let plugin = bin_dir.join("bridge");
    (conf_dir.join(FILE_NAME).exists() && !plugin.exists()).then_some(plugin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn both_families_get_a_range_and_a_route() {
        let list = conflist(
            "cni0",
            &["10.1.0.0/24".into(), "fd00::/64".into()],
            true,
            Shape::default(),
        );
        assert_eq!(
            list["plugins"][0]["ipam"]["ranges"],
            json!([[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]])
        );
        assert_eq!(
            list["plugins"][0]["ipam"]["routes"],
            json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}])
        );
        assert_eq!(list["plugins"][1]["capabilities"]["portMappings"], true);
        assert_eq!(
            conflist("cni0", &["10.1.0.0/24".into()], false, Shape::default())["plugins"]
                .as_array()
                .map(Vec::len),
            Some(1)
        );
        assert_eq!(list["plugins"][0]["ipMasq"], true);
        assert_eq!(list["plugins"][0].get("mtu"), None);
        let shape = Shape {
            masquerade: false,
            mtu: 1450,
        };
        let list = conflist("cni0", &["10.1.0.0/24".into()], false, shape);
        assert_eq!(list["plugins"][0]["ipMasq"], false);
        assert_eq!(list["plugins"][0]["mtu"], 1450);
    }

    #[tokio::test]
    async fn written_once_rewritten_on_change_and_never_beside_another() {
        let dir = tempfile::tempdir().expect("temp dir");
        let conf = dir.path().join("net.d");
        let bin = dir.path().join("bin");
        let ranges = |cidr: &str| vec![cidr.to_owned()];
        assert_eq!(
            ensure(&conf, &bin, &ranges("10.1.0.0/24"), Shape::default())
                .await
                .expect("written"),
            Outcome::Ours
        );
        assert_eq!(missing_plugin(&conf, &bin), Some(bin.join("bridge")));
        let path = conf.join(FILE_NAME);
        let first = fs::read_to_string(&path).expect("file");
        assert!(!first.contains("portmap"));
        ensure(&conf, &bin, &ranges("10.2.0.0/24"), Shape::default())
            .await
            .expect("written");
        assert!(fs::read_to_string(&path).expect("file").contains("10.2.0.0/24"));
        assert_eq!(fs::read_dir(&conf).expect("dir").count(), 1);

        let other = conf.join("05-other.conf");
        fs::write(&other, "{}").expect("file");
        assert_eq!(
            ensure(&conf, &bin, &ranges("10.3.0.0/24"), Shape::default())
                .await
                .expect("left"),
            Outcome::Foreign(other)
        );
        assert!(fs::read_to_string(&path).expect("file").contains("10.2.0.0/24"));
    }

    #[tokio::test]
    async fn another_range_gets_another_bridge_as_long_as_the_old_one_has_its_gateway() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (conf, bin) = (dir.path().join("net.d"), dir.path().join("bin"));
        let mut interfaces = BTreeMap::new();
        for (cidr, bridge) in [
            ("10.1.0.0/24", "cni0"),
            ("10.1.0.0/24", "cni0"),
            ("10.2.0.0/24", "cni1"),
            ("10.1.0.0/24", "cni0"),
        ] {
            let outcome = ensure_beside(&interfaces, &conf, &bin, &[cidr.to_owned()], Shape::default()).await;
            assert_eq!(outcome.expect("written"), Outcome::Ours);
            let text = fs::read_to_string(conf.join(FILE_NAME)).expect("file");
            let list: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(list["plugins"][0]["bridge"], bridge, "{cidr}");
            // A pod was started there.
            let gateway = format!("{}1/24", cidr.trim_end_matches("0/24"));
            interfaces.insert(bridge.to_owned(), vec![bridge::parse(&gateway).expect("a network")]);
        }
    }

    #[tokio::test]
    async fn a_plugin_counts_only_when_it_answers() {
        let dir = tempfile::tempdir().expect("temp dir");
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).expect("file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
            path
        };
        assert!(answers(&put("good", "#!/bin/sh\necho '{\"cniVersion\":\"1.0.0\"}'\n")).await);
        assert!(!answers(&put("bad", "#!/bin/sh\nexit 1\n")).await);
        assert!(!answers(&dir.path().join("none")).await);
    }
}
