//! What an interface's attributes were before they were tuned: one file per attachment, in upstream's place and form
//! (contract §4.5). It names its network too, which upstream's plugin passes over and our garbage collection needs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::config::Attributes;
use crate::protocol::json::Fields;

/// The backup cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} {path}")]
pub struct Error {
    action: &'static str,
    path: String,
    #[source]
    source: io::Error,
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.display().to_string();
    move |source| Error { action, path, source }
}

/// The file of one attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    path: PathBuf,
}

impl Backup {
    /// The file of an attachment in `data_dir`; both names are validated and hold no slash.
    pub fn new(data_dir: &str, container_id: &str, ifname: &str) -> Self {
        let path = Path::new(data_dir).join(format!("{container_id}_{ifname}.json"));
        Self { path }
    }

    /// Remembers `before`. What an earlier, unfinished call remembered stays: it saw the attributes untouched.
    pub fn write(&self, network: &str, before: &Attributes) -> Result<(), Error> {
        let earlier = self.read().unwrap_or_default();
        let before = Attributes {
            mac: earlier.mac.or_else(|| before.mac.clone()),
            promisc: earlier.promisc.or(before.promisc),
            mtu: earlier.mtu.or(before.mtu),
            allmulti: earlier.allmulti.or(before.allmulti),
            tx_queue: earlier.tx_queue.or(before.tx_queue),
        };
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(failed("create backup directory", folder))?;
        }
        let new = self.path.with_extension("new");
        fs::write(&new, render(network, &before)).map_err(failed("save file", &new))?;
        fs::rename(&new, &self.path).map_err(failed("save file", &self.path))
    }

    /// What was remembered; nothing if there is no readable file.
    pub fn read(&self) -> Option<Attributes> {
        parse(&fs::read(&self.path).ok()?).map(|(_, before)| before)
    }

    /// Removes the file, and one a killed call did not finish.
    pub fn forget(&self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(self.path.with_extension("new"));
    }
}

fn render(network: &str, before: &Attributes) -> String {
    let mut map = Map::new();
    map.insert("network".into(), json!(network));
    map.extend(before.mac.as_ref().map(|mac| ("mac".into(), json!(mac))));
    map.extend(before.promisc.map(|on| ("promisc".into(), json!(on))));
    map.extend(before.mtu.map(|mtu| ("mtu".into(), json!(mtu))));
    map.extend(before.allmulti.map(|on| ("allmulti".into(), json!(on))));
    map.extend(before.tx_queue.map(|length| ("txQLen".into(), json!(length))));
    Value::Object(map).to_string()
}

/// The network, if the file says it, and the attributes.
fn parse(bytes: &[u8]) -> Option<(String, Attributes)> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let fields = Fields::new(value.as_object()?, "configToRestore");
    let number = |key| u32::try_from(fields.int(key).ok()?).ok().filter(|number| *number != 0);
    let before = Attributes {
        mac: fields
            .string("mac")
            .ok()
            .filter(|mac| !mac.is_empty())
            .map(str::to_owned),
        promisc: fields.maybe_bool("promisc").ok()?,
        mtu: number("mtu"),
        allmulti: fields.maybe_bool("allmulti").ok()?,
        tx_queue: number("txQLen"),
    };
    Some((fields.string("network").ok()?.to_owned(), before))
}

/// Removes the files of `network` that belong to none of the valid attachments (container ID, interface name).
pub fn collect(data_dir: &str, network: &str, valid: &[(String, String)]) -> Result<(), Error> {
    let folder = Path::new(data_dir);
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed("list", folder))?,
    };
    let keep: Vec<PathBuf> = valid
        .iter()
        .map(|(container_id, ifname)| Backup::new(data_dir, container_id, ifname).path)
        .collect();
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        let of_network = fs::read(&path)
            .ok()
            .and_then(|bytes| parse(&bytes))
            .is_some_and(|(named, _)| named == network);
        if of_network && !keep.contains(&path) {
            fs::remove_file(&path).map_err(failed("remove", &path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(mtu: u32) -> Attributes {
        Attributes {
            mtu: Some(mtu),
            promisc: Some(false),
            ..Attributes::default()
        }
    }

    #[test]
    fn the_first_memory_stays() {
        let folder = tempfile::tempdir().unwrap();
        let backup = Backup::new(folder.path().join("new").to_str().unwrap(), "c", "eth0");
        assert_eq!(backup.read(), None);
        backup.write("net", &attributes(1500)).unwrap();
        backup.write("net", &attributes(1400)).unwrap();
        assert_eq!(backup.read(), Some(attributes(1500)));
        backup.forget();
        assert_eq!(backup.read(), None);
    }

    #[test]
    fn upstreams_and_newer_files_are_read_and_broken_ones_are_nothing() {
        let text = br#"{ "mac": "02:00:00:00:00:01", "promisc": false, "mtu": 1500 }"#;
        let (network, before) = parse(text).unwrap();
        assert_eq!((network.as_str(), before.mtu), ("", Some(1500)));
        assert_eq!(before.mac.as_deref(), Some("02:00:00:00:00:01"));
        let newer = br#"{ "version": 9, "network": "n", "mtu": 1500, "gso": { "max": 1 }, "list": [1] }"#;
        assert_eq!(
            parse(newer).map(|(network, before)| (network, before.mtu)),
            Some(("n".to_owned(), Some(1500)))
        );
        for broken in [&b""[..], b"{", b"[]", b"{\"promisc\": 1}"] {
            assert_eq!(parse(broken), None);
        }
    }

    #[test]
    fn only_stale_files_of_the_network_are_collected() {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path().to_str().unwrap();
        let write = |network: &str, id: &str| {
            let backup = Backup::new(data_dir, id, "eth0");
            backup.write(network, &attributes(1)).unwrap();
            backup
        };
        let [kept, stale, other] = [write("n", "a"), write("n", "b"), write("m", "c")];
        collect(data_dir, "n", &[("a".into(), "eth0".into())]).unwrap();
        assert!(kept.read().is_some() && stale.read().is_none() && other.read().is_some());
        assert!(collect("/nowhere", "n", &[]).is_ok());
    }
}
