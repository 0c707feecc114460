//! Pieces of a watch's body, before they are handed over.

use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// Objects of at least so many bytes are not copied for each watch.
const SHARED_BYTES: usize = 16 << 10;

/// Frames being written: small events together, the bytes of large objects as they are in memory, which all watches share.
#[derive(Default)]
pub(super) struct Out {
    frames: VecDeque<Bytes>,
    /// What follows the frames.
    pub(super) text: BytesMut,
    /// Bytes in the frames.
    framed: usize,
}

impl Out {
    pub(super) fn len(&self) -> usize {
        self.framed + self.text.len()
    }

    pub(super) fn share(&mut self, bytes: Bytes) {
        if bytes.len() < SHARED_BYTES {
            self.text.extend_from_slice(&bytes);
            return;
        }
        let before = self.text.split().freeze();
        self.framed += before.len() + bytes.len();
        self.frames.extend([before, bytes]);
    }

    pub(super) fn frames(mut self) -> VecDeque<Bytes> {
        if !self.text.is_empty() {
            self.frames.push_back(self.text.freeze());
        }
        self.frames
    }
}
