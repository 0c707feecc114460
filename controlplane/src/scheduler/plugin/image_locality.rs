//! ImageLocality: prefers nodes that have the images, weighted so that a rare image does not draw every pod to one node.

use crate::scheduler::cluster::{Cluster, NodeInfo};
use crate::scheduler::pod::PodInfo;

const MB: i64 = 1024 * 1024;
const LEAST: i64 = 23 * MB;
const MOST_PER_CONTAINER: i64 = 1000 * MB;

/// The pod's images that any node has, with the share of nodes that have them.
pub fn spread(pod: &PodInfo, cluster: &Cluster, nodes: usize) -> Vec<(String, f64)> {
    let total = nodes.max(1) as f64;
    let images = pod
        .images
        .iter()
        .map(|image| (image.clone(), cluster.nodes_with_image(image) as f64 / total));
    images.filter(|(_, share)| *share > 0.0).collect()
}

/// The score for one node.
pub fn score(pod: &PodInfo, node: &NodeInfo, spread: &[(String, f64)]) -> i64 {
    let sizes = spread
        .iter()
        .filter_map(|(image, share)| node.image(image).map(|size| size as f64 * share));
    let sum = sizes.fold(0i64, |sum, size| sum.saturating_add(size as i64));
    let most = MOST_PER_CONTAINER * i64::try_from(pod.images.len().max(1)).unwrap_or(1);
    100 * (sum.clamp(LEAST, most) - LEAST) / (most - LEAST)
}
