//! Which cgroup driver the runtime uses.
//!
//! `RuntimeConfig` says so in containerd 2 and CRI-O. containerd 1.6 and 1.7 do not have that call, but print their
//! configuration in a verbose status: better read there than found out when pods end up in cgroups nobody looks at.

use super::{CgroupDriver, RuntimeError, bounded, convert};
use proto::cri as pb;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use serde_json::Value;
use std::time::Duration;
use tonic::transport::Channel;

/// The entry of a verbose status that holds containerd's configuration.
const CONFIG: &str = "config";
const RUNC: &str = "io.containerd.runc.v2";

/// Asks; `None` when the runtime does not tell in either way.
pub(super) async fn ask(
    mut client: RuntimeServiceClient<Channel>,
    deadline: Duration,
) -> Result<Option<CgroupDriver>, RuntimeError> {
    let config = client.runtime_config(pb::RuntimeConfigRequest {});
    match bounded("RuntimeConfig", deadline, config).await {
        Ok(reply) => return Ok(reply.linux.map(|linux| convert::cgroup_driver(linux.cgroup_driver))),
        Err(error) if error.is_unimplemented() => {}
        Err(error) => return Err(error),
    }
    let status = client.status(pb::StatusRequest { verbose: true });
    let status = bounded("Status", deadline, status).await?;
    Ok(status.info.get(CONFIG).and_then(|config| in_configuration(config)))
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
