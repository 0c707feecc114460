//! What other givers of the node's resources are told.

use super::Pinning;
use super::hint::NumaMask;

impl Pinning {
    /// The NUMA nodes that containers are aligned on; none where nothing is aligned.
    pub fn numas(&self) -> NumaMask {
        self.0.as_ref().map_or(NumaMask::default(), |inner| inner.nodes.all)
    }
}
