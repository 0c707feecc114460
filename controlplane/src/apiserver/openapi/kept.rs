//! The documents as they are kept: made once for all requests, since they change with the kinds only, and compressed, since
//! together they have many megabytes and most clients take them so.

use super::{Document, group_key, v2, v2_message, v3_group, v3_index, v3_message};
use crate::resource::{Registry, Version};
use bytes::{Buf, Bytes};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::{Arc, OnceLock};

/// Most bytes of a document that are uncompressed at a time.
const PIECE_BYTES: usize = 64 << 10;

/// A document, compressed.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    /// JSON, or a message, as gzip.
    pub compressed: Bytes,
    /// [`Document::hash`], of what it was before.
    pub hash: String,
}

impl Kept {
    fn new(document: Document) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        // Memory takes every write.
        let _ = encoder.write_all(&document.bytes);
        Self {
            compressed: encoder.finish().unwrap_or_default().into_boxed_slice().into(),
            hash: document.hash,
        }
    }

    /// What it was before, a piece at a time.
    pub fn pieces(&self) -> impl Iterator<Item = Bytes> + Send + use<> {
        let mut decoder = GzDecoder::new(self.compressed.clone().reader());
        std::iter::from_fn(move || {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            let read = decoder.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece);
            // What was compressed here is whole.
            read.ok().filter(|read| *read > 0).map(|_| Bytes::from(piece))
        })
    }
}

/// The documents of a version of a group.
#[derive(Default)]
struct Both {
    json: OnceLock<Arc<Kept>>,
    message: OnceLock<Arc<Kept>>,
}

type Cell = Arc<Both>;

/// The documents of the kinds of one moment, each made when it is first asked for.
pub struct OpenApi {
    registry: Arc<Registry>,
    /// By version of a group, in discovery order; shared with other moments that have the same version.
    versions: Vec<(Arc<Version>, Cell)>,
    index: OnceLock<Arc<Kept>>,
    v2: OnceLock<Arc<Kept>>,
    v2_message: OnceLock<Arc<Kept>>,
}

impl OpenApi {
    /// No documents yet.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self::begun(registry, |_| None)
    }

    /// The documents of other kinds; of versions that are the same they need not be made again.
    #[must_use]
    pub fn successor(&self, registry: Arc<Registry>) -> Self {
        let known: HashMap<*const Version, &Cell> = self
            .versions
            .iter()
            .map(|(version, cell)| (Arc::as_ptr(version), cell))
            .collect();
        Self::begun(registry, |version| {
            known.get(&Arc::as_ptr(version)).map(|cell| Arc::clone(cell))
        })
    }

    fn begun(registry: Arc<Registry>, known: impl Fn(&Arc<Version>) -> Option<Cell>) -> Self {
        let versions = registry.versions();
        Self {
            versions: versions
                .map(|(_, version)| (Arc::clone(version), known(version).unwrap_or_default()))
                .collect(),
            index: OnceLock::new(),
            v2: OnceLock::new(),
            v2_message: OnceLock::new(),
            registry,
        }
    }

    fn document(&self, version: &Version, cell: &Cell) -> Arc<Kept> {
        Arc::clone(
            cell.json
                .get_or_init(|| Arc::new(Kept::new(v3_group(&self.registry, version)))),
        )
    }

    fn cell(&self, key: &str) -> Option<&(Arc<Version>, Cell)> {
        let (group, name) = match key.split('/').collect::<Vec<_>>()[..] {
            ["api", version] => ("", version),
            ["apis", group, version] if !group.is_empty() => (group, version),
            _ => return None,
        };
        let wanted = self.registry.version(group, name)?;
        self.versions.iter().find(|(version, _)| Arc::ptr_eq(version, wanted))
    }

    /// The document of a version of a group, by key: `api/v1` or `apis/apps/v1`.
    pub(super) fn of_key(&self, key: &str) -> Option<Arc<Kept>> {
        let (version, cell) = self.cell(key)?;
        Some(self.document(version, cell))
    }

    /// The document of a path below `/openapi/v3`, as protobuf.
    pub fn message_of(&self, path: &str) -> Option<Arc<Kept>> {
        let (version, cell) = self.cell(path.strip_prefix("/openapi/v3")?.trim_matches('/'))?;
        let make = || {
            let json = self.document(version, cell);
            Arc::new(Kept::new(v3_message(&self.registry, version, &json.hash)))
        };
        Some(Arc::clone(cell.message.get_or_init(make)))
    }

    /// What documents there are.
    pub(super) fn index(&self) -> Arc<Kept> {
        let index = self.index.get_or_init(|| {
            let keys = self.registry.versions();
            let keys = keys.map(|(group, version)| group_key(&group.name, &version.name));
            let cells = self.versions.iter();
            let all = keys.zip(cells.map(|(version, cell)| self.document(version, cell)));
            Arc::new(Kept::new(v3_index(all)))
        });
        Arc::clone(index)
    }

    /// The document of all groups.
    pub(super) fn v2(&self) -> Arc<Kept> {
        let document = self.v2.get_or_init(|| Arc::new(Kept::new(v2(&self.registry))));
        Arc::clone(document)
    }

    /// As [`OpenApi::v2`], as protobuf.
    pub fn v2_message(&self) -> Arc<Kept> {
        let document = self
            .v2_message
            .get_or_init(|| Arc::new(Kept::new(v2_message(&self.registry))));
        Arc::clone(document)
    }

    /// Whether what is asked for below `/openapi/` is there already, in JSON or as protobuf. Making it takes long, the first time.
    pub fn is_made(&self, path: &str, is_message: bool) -> bool {
        let path = path.trim_end_matches('/');
        let cell = match (path.strip_prefix("/openapi/v3"), is_message) {
            (None, false) => &self.v2,
            (None, true) => &self.v2_message,
            (Some(""), _) => &self.index,
            (Some(key), _) => match (self.cell(key.trim_matches('/')), is_message) {
                (None, _) => return true,
                (Some((_, both)), false) => &both.json,
                (Some((_, both)), true) => &both.message,
            },
        };
        cell.get().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_small_and_the_same_as_was_made() {
        let registry = Registry::built_in();
        let all = OpenApi::new(Arc::clone(registry));
        let mut kept_bytes = all.v2().compressed.len() + all.index().compressed.len();
        for (group, version) in registry.versions() {
            let key = group_key(&group.name, &version.name);
            let document = v3_group(registry, version);
            let kept = all.of_key(&key).unwrap();
            assert_eq!(kept.pieces().collect::<Vec<_>>().concat(), document.bytes, "{key}");
            assert_eq!(kept.hash, document.hash);
            assert!(kept.pieces().all(|piece| piece.len() <= PIECE_BYTES));
            assert!(!all.is_made(&format!("/openapi/v3/{key}"), true));
            let message = all.message_of(&format!("/openapi/v3/{key}")).unwrap();
            assert_eq!(message.hash, kept.hash, "one name for both");
            kept_bytes += kept.compressed.len() + message.compressed.len();
        }
        kept_bytes += all.v2_message().compressed.len();
        assert!(all.is_made("/openapi/v2", true) && all.is_made("/openapi/v3/api/v1", true));
        assert!(kept_bytes < 3 << 20, "{kept_bytes} bytes are kept");
    }
}
