//! A pod and a node for the translation's tests.

use super::ResolvConf;
pub(crate) use crate::parts::testing::context;
use k8s_openapi::api::core::v1::Pod;

/// Pod `shop/web` (UID `u-1`) with this spec; a container `main` is added when the text gives none.
pub(crate) fn pod(spec: &str) -> Pod {
    let mut spec: serde_json::Value = serde_json::from_str(spec).expect("test spec is JSON");
    if spec.get("containers").is_none() {
        spec["containers"] = serde_json::json!([{"name": "main", "image": "busybox"}]);
    }
    serde_json::from_value(serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1",
            "labels": {"app": "web"}, "annotations": {"note": "kept"}},
        "spec": spec,
    }))
    .expect("test pod decodes")
}

/// What the node's `resolvConf` says.
pub(crate) fn resolver() -> ResolvConf {
    ResolvConf::parse("nameserver 192.0.2.1\nsearch example.org\noptions timeout:1\n")
}
