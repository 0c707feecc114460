//! The documents as they are kept: made once for all requests, since they change with the build only, and compressed, since
//! together they have many megabytes and most clients take them so.

use super::{Document, group_keys, v2, v3_group, v3_index};
use bytes::{Buf, Bytes};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::OnceLock;

/// Most bytes of a document that are uncompressed at a time.
const PIECE_BYTES: usize = 64 << 10;

static V2: OnceLock<Kept> = OnceLock::new();
static V3: OnceLock<KeptV3> = OnceLock::new();

/// A document, compressed.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    /// JSON, as gzip.
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

    /// The JSON, a piece at a time.
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

/// The documents of version 3.
pub(super) struct KeptV3 {
    pub(super) index: Kept,
    /// By key: `api/v1` or `apis/apps/v1`.
    pub(super) groups: BTreeMap<String, Kept>,
}

pub(super) fn kept_v2() -> &'static Kept {
    V2.get_or_init(|| Kept::new(v2()))
}

pub(super) fn kept_v3() -> &'static KeptV3 {
    V3.get_or_init(|| {
        let groups: BTreeMap<String, Kept> = group_keys()
            .into_iter()
            .filter_map(|key| {
                let document = v3_group(&key)?;
                Some((key, Kept::new(document)))
            })
            .collect();
        let hashes = groups.iter().map(|(key, kept)| (key.as_str(), kept.hash.as_str()));
        let index = Kept::new(v3_index(hashes));
        KeptV3 { index, groups }
    })
}

/// Whether what is asked for below `/openapi/` is there already. Making it takes long, the first time.
pub fn is_made(path: &str) -> bool {
    match path.starts_with("/openapi/v2") {
        true => V2.get().is_some(),
        false => V3.get().is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_small_and_the_same_as_was_made() {
        let all = kept_v3();
        let mut kept_bytes = kept_v2().compressed.len() + all.index.compressed.len();
        for (key, kept) in &all.groups {
            let document = v3_group(key).unwrap();
            assert_eq!(kept.pieces().collect::<Vec<_>>().concat(), document.bytes, "{key}");
            assert_eq!(kept.hash, document.hash);
            assert!(kept.pieces().all(|piece| piece.len() <= PIECE_BYTES));
            kept_bytes += kept.compressed.len();
        }
        assert!(is_made("/openapi/v2") && is_made("/openapi/v3/api/v1"));
        assert!(kept_bytes < 2 << 20, "{kept_bytes} bytes are kept");
    }
}
