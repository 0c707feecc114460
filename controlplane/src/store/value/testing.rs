//! Stored bytes for tests that write past the server.

use super::{TypeMeta, canonical};
use crate::resource::stored::KeyKinds;
use bytes::Bytes;
use serde_json::Value;

/// What the server would store of an object under a key of a built-in kind.
pub(crate) fn as_stored(key: &str, object: &Value) -> Bytes {
    let (api_version, kind) = KeyKinds::new().of(key, |_| None).expect("a key of a built-in kind");
    canonical(&TypeMeta::new(&api_version, &kind), object).into()
}
