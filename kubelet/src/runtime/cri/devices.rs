//! Whether the runtime gives containers devices by the Container Device Interface. A runtime that does not know the field passes over it,
//! and so does containerd 1.7 unless it is configured: both say nothing.

use super::CriRuntime;
use crate::runtime::{Runtime, RuntimeError};
use proto::cri as pb;
use serde::Deserialize;

impl CriRuntime {
    /// Why it would leave them out; nothing if it would not, as far as is known.
    pub(super) async fn without_devices(&self) -> Result<Option<String>, RuntimeError> {
        let version = self.version().await?;
        if version.name != "containerd" {
            return Ok(None);
        }
        if is_before(&version.version, (1, 7)) {
            let version = version.version;
            return Ok(Some(format!("containerd {version} does not know them, 1.7 is needed")));
        }
        let request = pb::StatusRequest { verbose: true };
        let status: pb::StatusResponse = self.runtime.ask("Status", self.timeout, request).await?;
        let config = status.info.get("config").map(String::as_str).unwrap_or_default();
        Ok(is_off(config).then(|| format!("they are off in containerd {} (enable_cdi)", version.version)))
    }
}

/// Whether containerd's configuration, as it tells it, says that devices are left out. What it does not tell is no reason.
fn is_off(config: &str) -> bool {
    #[derive(Deserialize)]
    struct Config {
        #[serde(rename = "enableCDI")]
        enabled: Option<bool>,
    }
    let config = serde_json::from_str::<Config>(config);
    config.is_ok_and(|config| config.enabled == Some(false))
}

fn is_before(version: &str, least: (u32, u32)) -> bool {
    let mut numbers = version.trim_start_matches('v').split(['.', '-', '+', '~']);
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    match (next(), next()) {
        (Some(major), minor) => major < least.0 || (major == least.0 && minor.is_some_and(|minor| minor < least.1)),
        (None, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_that_leave_devices_out_are_known() {
        for (version, before) in [
            ("1.6.20~ds1", true),
            ("v1.6.36", true),
            ("1.7.0", false),
            ("v2.1.4", false),
            ("1", false),
            ("unknown", false),
        ] {
            assert_eq!(is_before(version, (1, 7)), before, "{version}");
        }
        for (config, off) in [
            (r#"{"enableCDI": false, "cdiSpecDirs": []}"#, true),
            (r#"{"enableCDI": true}"#, false),
            (r#"{"other": 1}"#, false),
            ("", false),
        ] {
            assert_eq!(is_off(config), off, "{config}");
        }
    }
}
