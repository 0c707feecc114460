//! What is freed on disks before a pod has to go: eviction asks, [`crate::collect`] knows how.

use crate::collect::{CollectError, Collector};
use async_trait::async_trait;

/// Frees disk without ending a pod.
#[async_trait]
pub trait Reclaim: Send + Sync {
    /// Removes every dead container and every sandbox that is not needed, however new.
    async fn delete_all_unused_containers(&self) -> Result<(), CollectError>;
    /// Whether it is known which images are needed.
    fn may_delete_images(&self) -> bool;
    /// Removes every image that nothing uses and that is old enough.
    async fn delete_unused_images(&self) -> Result<(), CollectError>;
}

#[async_trait]
impl Reclaim for Collector {
    async fn delete_all_unused_containers(&self) -> Result<(), CollectError> {
        Self::delete_all_unused_containers(self).await.map(drop)
    }

    fn may_delete_images(&self) -> bool {
        Self::may_delete_images(self)
    }

    async fn delete_unused_images(&self) -> Result<(), CollectError> {
        Self::delete_unused_images(self).await.map(drop)
    }
}
