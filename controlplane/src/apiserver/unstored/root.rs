//! `/` and `/version`. Pure.

use crate::resource::Registry;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The API level this server speaks.
pub(crate) const MAJOR: &str = "1";
/// See [`MAJOR`].
pub(crate) const MINOR: &str = "36";

/// The paths served, sorted.
pub(super) fn paths(registry: &Registry) -> Value {
    let mut paths: BTreeSet<String> = [
        "/.well-known/openid-configuration",
        "/api",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .into();
    for (group, version) in registry.versions() {
        if group.name.is_empty() {
            paths.insert(format!("/api/{}", version.name));
        } else {
            paths.insert(format!("/apis/{}", group.name));
            paths.insert(format!("/apis/{}/{}", group.name, version.name));
        }
    }
    for root in ["healthz", "livez", "readyz"] {
        for check in super::health::checks(root) {
            paths.insert(format!("/{root}/{check}"));
        }
    }
    json!({"paths": paths})
}

/// The version: upstream's API level, our build.
pub(crate) fn version() -> Value {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": "35",
        "gitVersion": git_version(),
        "gitCommit": option_env!("SKIFF_COMMIT").unwrap_or("unknown"),
        "gitTreeState": "clean",
        "buildDate": option_env!("SKIFF_BUILD_DATE").unwrap_or("1970-01-01T00:00:00Z"),
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("linux/{arch}"),
    })
}

/// Upstream's version with ours as build metadata, which version comparisons ignore.
pub fn git_version() -> String {
    format!("v{MAJOR}.{MINOR}.2+skiff-{}", env!("CARGO_PKG_VERSION"))
}

pub(super) fn version_text() -> String {
    serde_json::to_string_pretty(&version()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_sorted_and_complete() {
        let paths = paths(Registry::built_in());
        let list: Vec<&str> = paths["paths"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        assert!(list.is_sorted());
        for path in ["/api/v1", "/apis/apps/v1", "/readyz/etcd", "/version"] {
            assert!(list.contains(&path), "{path}");
        }
    }
}
