//! The container runtime as this start of the kubelet finds it.

use super::BootError;
use crate::cgroup::CgroupDriver;
use crate::config::Config;
use crate::parts::Parts;
use crate::runtime::cri::CriRuntime;
use crate::runtime::{CgroupDriver as Told, Runtime, RuntimeError, RuntimeSettings};
use std::sync::Arc;
use std::time::Duration;

/// How often, and how far apart, an absent runtime is tried before the kubelet gives up.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(2);

/// The runtime as it was found.
pub(super) struct Found {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) driver: CgroupDriver,
    /// The image of its sandboxes, where it may not be pinned.
    pub(super) sandbox_image: Option<String>,
    /// It does not tell its cgroup driver, as runtimes must before long.
    is_old: bool,
}

impl Found {
    /// Tells of a runtime that will not be supported for long.
    pub(super) fn tell(&self, parts: &Parts) {
        if self.is_old {
            parts.metrics.node.runtime_is_old();
        }
    }
}

/// Waits for the runtime a little, and asks how its cgroups are made.
pub(super) async fn find(config: &Config) -> Result<Found, BootError> {
    let runtime = connect(config).await?;
    let told = runtime.runtime_config().await;
    let (driver, is_old) = cgroup_driver(config, &told);
    Ok(Found {
        runtime,
        driver,
        sandbox_image: told.ok().and_then(|told| told.sandbox_image),
        is_old,
    })
}

async fn connect(config: &Config) -> Result<Arc<dyn Runtime>, BootError> {
    let endpoint = config.runtime.socket.clone();
    let images = config.runtime.image_socket.as_ref().map(|path| path.to_string_lossy());
    let timeout = config.runtime.request_timeout;
    let runtime = CriRuntime::new(&endpoint.to_string_lossy(), images.as_deref(), timeout)
        .map_err(|e| BootError::Endpoint(Box::new(e)))?;
    let mut tries = 1;
    loop {
        match runtime.version().await {
            Ok(version) => {
                tracing::info!(name = version.name, version = version.version, "runtime answers");
                return Ok(Arc::new(runtime));
            }
            Err(source) if tries >= TRIES => return Err(BootError::Runtime { endpoint, source }),
            Err(error) => tracing::warn!(endpoint = %endpoint.display(), %error, "runtime does not answer, retrying"),
        }
        tries += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// The runtime's own cgroup driver wins over the configured one: with two drivers pods would be in cgroups of one and
/// their limits in those of the other. Tells, too, whether the runtime is so old that it cannot say.
fn cgroup_driver(config: &Config, told: &Result<RuntimeSettings, RuntimeError>) -> (CgroupDriver, bool) {
    let configured = config.cgroups.driver;
    let told = told.as_ref().map(|told| told.driver);
    let is_old = matches!(told, Ok(None));
    let answer = match told {
        Ok(Some(Told::Systemd)) => CgroupDriver::Systemd,
        Ok(Some(Told::Cgroupfs)) => CgroupDriver::Cgroupfs,
        Ok(None) => configured,
        Err(error) => {
            tracing::warn!(%error, "runtime does not tell its cgroup driver, using the configured one");
            configured
        }
    };
    if answer != configured {
        tracing::warn!(?configured, runtime = ?answer, "cgroupDriver differs from the runtime's, which is used");
    }
    (answer, is_old)
}
