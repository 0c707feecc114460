//! The tasks that work with plugins: their registration, and what is done with those there are.

use super::tasks::Tasks;
use crate::dra::reconcile;
use crate::parts::Parts;
use crate::plugin::registry::Handlers;
use crate::plugin::{DEVICE, DRA, Registry};
use crate::source::Pods;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The directory below the kubelet's own that plugins put their sockets in.
const DIRECTORY: &str = "plugins_registry";

/// Begins them.
pub(super) fn begin(tasks: &mut Tasks, parts: &Arc<Parts>, pods: watch::Receiver<Pods>, shutdown: &CancellationToken) {
    let handlers: Handlers = [
        (DRA, parts.dra.handler()),
        (DEVICE, parts.devices.handler(shutdown.clone())),
    ]
    .into();
    let metrics = parts.metrics.plugins.clone();
    let registry = Registry::new(parts.context.root_dir.join(DIRECTORY), handlers, metrics);
    tasks.spawn("plugin registration", registry.run(shutdown.clone()));
    tasks.spawn("resource slices", parts.dra.clone().wipe(shutdown.clone()));
    tasks.spawn("resource claims", reconcile::run(parts.clone(), pods, shutdown.clone()));
}
