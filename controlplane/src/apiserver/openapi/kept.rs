//! The documents as they are kept: made once for all requests, since they change with the kinds only, and compressed, since
//! together they have many megabytes and most clients take them so.

use super::{Document, group_key, v2, v2_message, v3_group, v3_index};
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

type Cell = Arc<OnceLock<Arc<Kept>>>;

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
        Arc::clone(cell.get_or_init(|| Arc::new(Kept::new(v3_group(&self.registry, version)))))
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

    /// Whether what is asked for below `/openapi/` is there already. Making it takes long, the first time.
    pub fn is_made(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        match path.strip_prefix("/openapi/v3") {
            None => self.v2.get().is_some() && self.v2_message.get().is_some(),
            Some("") => self.index.get().is_some(),
            Some(key) => self
                .cell(key.trim_matches('/'))
                .is_none_or(|(_, cell)| cell.get().is_some()),
        }
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
            kept_bytes += kept.compressed.len();
        }
        all.v2_message();
        assert!(all.is_made("/openapi/v2") && all.is_made("/openapi/v3/api/v1"));
        assert!(kept_bytes < 2 << 20, "{kept_bytes} bytes are kept");
    }
}
