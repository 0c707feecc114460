//! One job of the keeper on the folder: what nobody needs goes, what differs is written. Blocks.

use super::folder::Folder;
use super::{KeptToken, chain, decide, lock};
use crate::id::PodUid;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

/// What is to be in one file.
pub(super) struct Entry {
    pub(super) name: String,
    /// What it was made from: equal marks mean equal contents.
    pub(super) mark: String,
    pub(super) content: Content,
    /// A pod nothing of which is to start: rather than as it was before, it is not kept at all.
    pub(super) over: Option<PodUid>,
}

/// What is sealed, made into bytes where nobody waits for it.
pub(super) enum Content {
    Pod(Box<Pod>),
    ConfigMap(Option<Arc<ConfigMap>>),
    Secret(Option<Arc<Secret>>),
    Token(KeptToken),
    Handler(String),
    Services(Vec<Arc<Service>>),
}

impl Content {
    /// How many bytes it takes, found without making them.
    pub(super) fn weight(&self) -> u64 {
        struct Count(u64);
        impl io::Write for Count {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 += bytes.len() as u64;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut count = Count(0);
        let counted = match self {
            Self::ConfigMap(map) => tree(&map.as_deref()).and_then(|map| serde_json::to_writer(&mut count, &map)),
            Self::Secret(secret) => {
                tree(&secret.as_deref()).and_then(|secret| serde_json::to_writer(&mut count, &secret))
            }
            // Small ones, and those that are made smaller first.
            Self::Pod(_) | Self::Token(_) | Self::Handler(_) | Self::Services(_) => self.bytes().map(|bytes| {
                count.0 = bytes.len() as u64;
            }),
        };
        // What cannot be made is told when it is to be.
        counted.map_or(0, |()| count.0)
    }

    fn bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        match self {
            Self::Pod(pod) => serde_json::to_vec(&tree(pod)?),
            Self::ConfigMap(map) => serde_json::to_vec(&tree(&map.as_deref())?),
            Self::Secret(secret) => serde_json::to_vec(&tree(&secret.as_deref())?),
            Self::Token(token) => serde_json::to_vec(token),
            Self::Handler(handler) => serde_json::to_vec(handler),
            Self::Services(services) => {
                let services: Vec<Service> = services.iter().map(|service| decide::reduced(service)).collect();
                serde_json::to_vec(&tree(&services)?)
            }
        }
    }
}

/// By way of a tree: code that writes each kind as text would be there for this alone (`client::tree`).
fn tree(object: &impl Serialize) -> Result<Value, serde_json::Error> {
    serde_json::to_value(object)
}

/// The files that are needed, of all whose names begin like that.
pub(super) struct Needed {
    pub(super) names: BTreeSet<String>,
    pub(super) prefix: &'static str,
}

impl Needed {
    pub(super) fn is_useless(&self, name: &str) -> bool {
        name.starts_with(self.prefix) && !self.names.contains(name)
    }
}

/// What a job did.
#[derive(Default)]
pub(super) struct Report {
    /// Files that are as they should be, with their marks.
    pub(super) kept: BTreeMap<String, String>,
    /// Files that could not be written.
    pub(super) refused: Vec<String>,
    /// More than single files is wrong.
    pub(super) broken: bool,
    /// The first that is not, and how many.
    pub(super) fault: Option<String>,
    pub(super) faults: usize,
}

impl Report {
    fn fault(&mut self, why: String) {
        self.faults += 1;
        self.fault.get_or_insert(why);
    }
}

/// Removes what nobody needs, if that is known, and writes what differs. One file after the other: no more than one content is in memory,
/// and who forgets a pod waits for one file.
pub(super) fn carry_out(
    folder: &Mutex<Folder>,
    needed: Option<&Needed>,
    entries: Vec<Entry>,
    gone: impl Fn(&str) -> bool,
) -> Report {
    let mut report = Report::default();
    let mut changed = false;
    let useless = |name: &&String| needed.is_some_and(|needed| needed.is_useless(name));
    let useless: Vec<String> = lock(folder).names().filter(useless).cloned().collect();
    for name in useless {
        changed = true;
        if let Err(error) = lock(folder).remove(&name) {
            report.broken = true;
            report.fault(chain(&error));
        }
    }
    for entry in entries {
        let mut folder = lock(folder);
        // Asked under the lock its removal waits for.
        if gone(&entry.name) {
            continue;
        }
        let content = match entry.content.bytes() {
            Ok(content) => content,
            Err(error) => {
                report.fault(format!("{}: {error}", entry.name));
                report.refused.push(entry.name);
                continue;
            }
        };
        // A kubelet that starts anew does not know what the one before it wrote.
        if matches!(folder.read(&entry.name), Ok(Some(before)) if before == content) {
            report.kept.insert(entry.name, entry.mark);
            continue;
        }
        changed = true;
        match folder.write(&entry.name, content) {
            Ok(()) => drop(report.kept.insert(entry.name, entry.mark)),
            Err(error) => {
                report.fault(chain(&error));
                if entry.over.is_some()
                    && let Err(error) = folder.remove(&entry.name)
                {
                    report.fault(chain(&error));
                }
                report.refused.push(entry.name);
            }
        }
    }
    if changed && let Err(error) = lock(folder).sync() {
        // Nothing of it is certain.
        report.kept.clear();
        report.broken = true;
        report.fault(chain(&error));
    }
    report
}
