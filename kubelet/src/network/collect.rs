//! Garbage collection of our network: addresses, rules and devices of sandboxes the runtime no longer knows.
//!
//! Runtimes leave that to others (contract CNI §5): after a missed DEL an address would be held for ever. The plugins are
//! told which attachments are valid: those of every sandbox the runtime lists, those whose address was reserved a short
//! while ago, since a sandbox may have its address before the runtime lists it, and those with an address of none of our
//! ranges, which another node on this machine may have given. Owns nothing; never looks at pods.

use super::bridge::{self, is_in};
use super::{FILE_NAME, NETWORK_NAME};
use crate::id::SandboxId;
use client::ordered::CollectOrdered;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};
use tokio::io::AsyncWriteExt;

/// How long an address is left alone although the runtime does not list its sandbox: longer than starting one may take.
const GRACE: Duration = Duration::from_secs(600);
/// How long one plugin may take.
const CALL_DEADLINE: Duration = Duration::from_secs(60);
/// The first version of the specification with GC.
const GC_VERSION: &str = "1.1.0";
/// The interface runtimes give a sandbox.
const IFNAME: &str = "eth0";
const DEFAULT_DATA_DIR: &str = "/var/lib/cni/networks";

/// Why nothing was collected, or not everything.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// Our configuration cannot be read.
    #[error("read CNI configuration {path}")]
    Configuration {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Our configuration is no JSON.
    #[error("parse CNI configuration {path}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A plugin could not be run.
    #[error("run CNI plugin {plugin}")]
    Run {
        /// Which.
        plugin: String,
        /// Why.
        source: std::io::Error,
    },
    /// A plugin failed.
    #[error("CNI plugin {plugin}: {message}")]
    Plugin {
        /// Which.
        plugin: String,
        /// What it said.
        message: String,
    },
}

/// A reserved address, as the address plugin's file tells.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reservation {
    addr: IpAddr,
    container_id: String,
    ifname: String,
    age: Duration,
}

/// Collects what belongs to none of `sandboxes`. Goes on past a plugin's failure and returns the first.
pub async fn collect(
    conf_dir: &Path,
    bin_dir: &Path,
    sandboxes: &[SandboxId],
    now: SystemTime,
) -> Result<(), CollectError> {
    let path = conf_dir.join(FILE_NAME);
    let text = fs::read(&path).map_err(|source| CollectError::Configuration {
        path: path.clone(),
        source,
    })?;
    let list: Value = serde_json::from_slice(&text).map_err(|source| CollectError::Parse { path, source })?;
    let reservations = data_dirs(&list)
        .iter()
        .flat_map(|dir| read_reservations(&dir.join(NETWORK_NAME), now))
        .collect::<Vec<_>>();
    let valid = valid_attachments(sandboxes, &bridge::ranges(&list), &reservations);
    let mut outcome = Ok(());
    for (plugin, config) in requests(&list, &valid) {
        let file = bin_dir.join(&plugin);
        if file.exists() {
            outcome = outcome.and(call(&file, plugin, &config, bin_dir).await);
        }
    }
    outcome
}

/// Where the plugins of a list keep reservations.
fn data_dirs(list: &Value) -> BTreeSet<PathBuf> {
    let plugins = list["plugins"].as_array().into_iter().flatten();
    plugins
        .filter(|plugin| plugin["ipam"]["type"] == "host-local")
        .map(|plugin| PathBuf::from(plugin["ipam"]["dataDir"].as_str().unwrap_or(DEFAULT_DATA_DIR)))
        .collect_ordered()
}

/// The reservations in a network's folder; what cannot be read is none.
fn read_reservations(folder: &Path, now: SystemTime) -> Vec<Reservation> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries
        .filter_map(|entry| {
            let addr = entry.file_name().to_str()?.parse().ok()?;
            let age = now.duration_since(entry.metadata().ok()?.modified().ok()?);
            let text = fs::read_to_string(entry.path()).ok()?;
            let (container_id, ifname) = text.trim().split_once("\r\n")?;
            Some(Reservation {
                addr,
                container_id: container_id.to_owned(),
                ifname: ifname.to_owned(),
                age: age.unwrap_or_default(),
            })
        })
        .collect()
}

/// The attachments to keep, as pairs of container ID and interface name. Pure.
fn valid_attachments(
    sandboxes: &[SandboxId],
    ranges: &[(IpAddr, u32)],
    reservations: &[Reservation],
) -> BTreeSet<(String, String)> {
    let mut valid: BTreeSet<(String, String)> = sandboxes
        .iter()
        .map(|id| (id.to_string(), IFNAME.to_owned()))
        .collect_ordered();
    let known: BTreeSet<String> = sandboxes.iter().map(ToString::to_string).collect_ordered();
    let is_ours = |addr: &IpAddr| ranges.iter().any(|range| is_in(addr, range));
    let kept = reservations
        .iter()
        .filter(|held| held.age < GRACE || known.contains(&held.container_id) || !is_ours(&held.addr));
    valid.extend(kept.map(|held| (held.container_id.clone(), held.ifname.clone())));
    valid
}

/// What each plugin of a list is told. Pure.
fn requests(list: &Value, valid: &BTreeSet<(String, String)>) -> Vec<(String, Value)> {
    let attachments: Vec<Value> = valid
        .iter()
        .map(|(id, ifname)| json!({ "containerID": id, "ifname": ifname }))
        .collect();
    let plugins = list["plugins"].as_array().into_iter().flatten();
    plugins
        .filter_map(|plugin| {
            let mut config = plugin.as_object()?.clone();
            let kind = config.get("type")?.as_str()?.to_owned();
            config.insert("name".into(), list["name"].clone());
            config.insert("cniVersion".into(), json!(GC_VERSION));
            config.insert("cni.dev/valid-attachments".into(), json!(attachments));
            Some((kind, Value::Object(config)))
        })
        .collect()
}

async fn call(file: &Path, plugin: String, config: &Value, bin_dir: &Path) -> Result<(), CollectError> {
    let run = |source| CollectError::Run {
        plugin: plugin.clone(),
        source,
    };
    let mut child = tokio::process::Command::new(file)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("CNI_COMMAND", "GC")
        .env("CNI_PATH", bin_dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(run)?;
    let text = config.to_string();
    let work = async {
        if let Some(mut stdin) = child.stdin.take() {
            // A plugin that fails early does not read; its own error is the one to report.
            let _ = stdin.write_all(text.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = match tokio::time::timeout(CALL_DEADLINE, work).await {
        Ok(output) => output.map_err(run)?,
        Err(_) => return Err(run(std::io::ErrorKind::TimedOut.into())),
    };
    if output.status.success() {
        return Ok(());
    }
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let message = said["msg"].as_str().unwrap_or("failed without a message").to_owned();
    Err(CollectError::Plugin { plugin, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn reservation(addr: &str, id: &str, ifname: &str, age_seconds: u64) -> Reservation {
        Reservation {
            addr: addr.parse().expect("address"),
            container_id: id.into(),
            ifname: ifname.into(),
            age: Duration::from_secs(age_seconds),
        }
    }

    #[test]
    fn known_sandboxes_and_young_reservations_are_valid() {
        let reservations = [
            reservation("10.1.0.2", "known", "net1", 10_000),
            reservation("10.1.0.3", "young", "eth0", 599),
            reservation("10.1.0.4", "old", "eth0", 600),
            reservation("10.2.0.4", "foreign", "eth0", 600),
            reservation("fd00::5", "old6", "eth0", 600),
        ];
        let list = super::super::conflist(
            "cni0",
            &["10.1.0.0/24".to_owned(), "fd00::/64".to_owned()],
            false,
            super::super::Shape::default(),
        );
        let valid = valid_attachments(&["known".to_owned().into()], &bridge::ranges(&list), &reservations);
        let pairs: Vec<(&str, &str)> = valid
            .iter()
            .map(|(id, ifname)| (id.as_str(), ifname.as_str()))
            .collect();
        let expected = [
            ("foreign", "eth0"),
            ("known", "eth0"),
            ("known", "net1"),
            ("young", "eth0"),
        ];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn files_are_read_and_strangers_passed_over() {
        let dir = tempfile::tempdir().expect("temp dir");
        for (name, text) in [
            ("10.0.0.2", "id\r\neth0"),
            ("fd00::2", "six\r\neth0\n"),
            ("10.0.0.3", ""),
            ("lock", "x\r\ny"),
            ("last_reserved_ip.0", "10.0.0.2"),
        ] {
            fs::write(dir.path().join(name), text).expect("file");
        }
        let later = SystemTime::now() + Duration::from_secs(3600);
        let mut found = read_reservations(dir.path(), later);
        found.sort_by(|one, two| one.container_id.cmp(&two.container_id));
        let ids: Vec<&str> = found.iter().map(|held| held.container_id.as_str()).collect();
        assert_eq!(ids, ["id", "six"]);
        assert!(found.iter().all(|held| held.age >= Duration::from_secs(3590)));
        assert!(read_reservations(&dir.path().join("none"), later).is_empty());
    }

    /// The plugins of the written configuration are told, in order, what to keep; a failure is reported and stops nobody.
    #[tokio::test]
    async fn every_plugin_is_told_what_to_keep() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("bin")).expect("dir");
        let list = super::super::conflist(
            "cni0",
            &["10.1.0.0/24".to_owned()],
            true,
            super::super::Shape::default(),
        );
        fs::write(path(FILE_NAME), list.to_string()).expect("conflist");
        let put = |name: &str, script: String| {
            fs::write(path("bin").join(name), script).expect("plugin");
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(path("bin").join(name), mode).expect("mode");
        };
        let record = |name: &str| format!("#!/bin/sh\n[ $CNI_COMMAND = GC ] && cat > {}\n", path(name).display());
        put(
            "bridge",
            record("bridge.in") + "echo '{\"code\": 999, \"msg\": \"boom\"}'\nexit 1\n",
        );
        put("portmap", record("portmap.in"));
        let sandboxes = ["a".to_owned().into()];
        let error = collect(dir.path(), &path("bin"), &sandboxes, SystemTime::now()).await;
        assert_eq!(
            error.expect_err("a plugin failed").to_string(),
            "CNI plugin bridge: boom"
        );
        for name in ["bridge.in", "portmap.in"] {
            let told: Value = serde_json::from_slice(&fs::read(path(name)).expect("told")).expect("JSON");
            assert_eq!(
                (told["name"].as_str(), told["cniVersion"].as_str()),
                (Some("skiff"), Some("1.1.0"))
            );
            let attachments = told["cni.dev/valid-attachments"].as_array().expect("attachments");
            assert!(
                attachments.contains(&json!({"containerID": "a", "ifname": "eth0"})),
                "{told}"
            );
        }
    }
}
