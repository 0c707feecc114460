//! Which cgroup driver the runtime uses, and which image its sandboxes are of.
//!
//! `RuntimeConfig` says so in containerd 2 and CRI-O. containerd 1.6 and 1.7 do not have that call, but print their
//! configuration in a verbose status: better read there than found out when pods end up in cgroups nobody looks at.

use super::{RuntimeError, RuntimeSettings, Service, convert};
use crate::runtime::CgroupDriver;
use proto::cri as pb;
use serde_json::Value;
use std::time::Duration;

/// The entry of a verbose status that holds containerd's configuration.
const CONFIG: &str = "config";
const RUNC: &str = "io.containerd.runc.v2";

/// Asks. A runtime that answers the call pins its own image of sandboxes; one that does not may not.
pub(super) async fn ask(runtime: &Service, deadline: Duration) -> Result<RuntimeSettings, RuntimeError> {
    let config = runtime.ask("RuntimeConfig", deadline, pb::RuntimeConfigRequest {});
    match config.await {
        Ok(pb::RuntimeConfigResponse { linux }) => {
            let driver = linux.map(|linux| convert::cgroup_driver(linux.cgroup_driver));
            return Ok(RuntimeSettings {
                driver,
                sandbox_image: None,
            });
        }
        Err(error) if error.is_unimplemented() => {}
        Err(error) => return Err(error),
    }
    let request = pb::StatusRequest { verbose: true };
    let status: pb::StatusResponse = runtime.ask("Status", deadline, request).await?;
    let config = status.info.get(CONFIG).map(String::as_str).unwrap_or_default();
    Ok(RuntimeSettings {
        driver: in_configuration(config),
        sandbox_image: sandbox_image(config),
    })
}

/// The image of sandboxes in containerd's configuration, as JSON. Pure.
fn sandbox_image(config: &str) -> Option<String> {
    let config: Value = serde_json::from_str(config).ok()?;
    let image = config.get("sandboxImage")?.as_str()?;
    (!image.is_empty()).then(|| image.to_owned())
}

/// The driver of the default runtime in containerd's configuration, as JSON; `None` if that is not runc or cannot be
/// read. Pure.
fn in_configuration(config: &str) -> Option<CgroupDriver> {
    let config: Value = serde_json::from_str(config).ok()?;
    let containerd = config.get("containerd")?;
    let runtime = containerd
        .get("runtimes")?
        .get(containerd.get("defaultRuntimeName")?.as_str()?)?;
    if runtime.get("runtimeType")?.as_str()? != RUNC {
        return None;
    }
    let systemd = runtime.pointer("/options/SystemdCgroup").and_then(Value::as_bool);
    Some(match systemd {
        Some(true) => CgroupDriver::Systemd,
        // runc's own default.
        Some(false) | None => CgroupDriver::Cgroupfs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerds_image_of_sandboxes() {
        let config = r#"{"containerd":{},"sandboxImage":"registry.k8s.io/pause:3.6","cni":{}}"#;
        assert_eq!(sandbox_image(config).as_deref(), Some("registry.k8s.io/pause:3.6"));
        for config in ["{}", r#"{"sandboxImage":""}"#, r#"{"sandboxImage":7}"#, ""] {
            assert_eq!(sandbox_image(config), None, "{config}");
        }
    }

    #[test]
    fn containerd_configurations() {
        let with = |name: &str, runtime: &str| {
            format!(r#"{{"containerd":{{"defaultRuntimeName":"{name}","runtimes":{{"runc":{runtime}}}}},"cni":{{}}}}"#)
        };
        let runc = |options: &str| format!(r#"{{"runtimeType":"io.containerd.runc.v2","options":{options}}}"#);
        for (config, expected) in [
            (
                with("runc", &runc(r#"{"BinaryName":"","SystemdCgroup":true}"#)),
                Some(CgroupDriver::Systemd),
            ),
            (
                with("runc", &runc(r#"{"SystemdCgroup":false}"#)),
                Some(CgroupDriver::Cgroupfs),
            ),
            (with("runc", &runc("null")), Some(CgroupDriver::Cgroupfs)),
            (with("kata", &runc("{}")), None),
            (with("runc", r#"{"runtimeType":"io.containerd.kata.v2"}"#), None),
            ("{}".to_owned(), None),
            ("not JSON".to_owned(), None),
        ] {
            assert_eq!(in_configuration(&config), expected, "{config}");
        }
    }
}
