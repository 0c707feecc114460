//! The downward API: what a container may read about its own pod, through environment variables and volumes alike.
//!
//! Pure. Owns the field paths and the arithmetic of `resourceFieldRef` (kubelet contract §6, §9).

use k8s_openapi::api::core::v1::{Container, ObjectFieldSelector, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// What a limit that is not set reads as: the node's allocatable resources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeAllocatable {
    /// Millicores.
    pub cpu_milli: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub ephemeral_storage: i64,
}

/// A reference to a field that cannot be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// No such field path.
    #[error("unsupported fieldPath: {0}")]
    Path(String),
    /// No such resource.
    #[error("unsupported container resource : {0}")]
    Resource(String),
    /// The container named by a `resourceFieldRef` is not in the pod.
    #[error("container {0} not found")]
    Container(String),
}

/// Addresses known only once the pod runs, or only to the node.
#[derive(Debug, Clone, Copy)]
pub struct Addresses<'a> {
    /// The pod's addresses, primary first.
    pub pod_ips: &'a [String],
    /// The node's addresses, primary first.
    pub host_ips: &'a [String],
}

/// `key` of `metadata.labels['key']`.
fn subscript<'a>(path: &'a str, field: &str) -> Option<&'a str> {
    path.strip_prefix(field)?.strip_prefix("['")?.strip_suffix("']")
}

/// A map as the downward API prints it: `key="escaped value"` per line, sorted.
fn format_map(map: &BTreeMap<String, String>) -> String {
    let lines: Vec<String> = map.iter().map(|(k, v)| format!("{k}={}", go_quote(v))).collect();
    lines.join("\n")
}

/// A string as Go's `%q` prints it.
fn go_quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn label(map: Option<&BTreeMap<String, String>>, key: &str) -> String {
    map.and_then(|m| m.get(key)).cloned().unwrap_or_default()
}

/// The value of a `fieldRef`.
pub fn field_value(pod: &Pod, field: &ObjectFieldSelector, addresses: Addresses<'_>) -> Result<String, FieldError> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let path = field.field_path.as_str();
    if let Some(key) = subscript(path, "metadata.labels") {
        return Ok(label(meta.labels.as_ref(), key));
    }
    if let Some(key) = subscript(path, "metadata.annotations") {
        return Ok(label(meta.annotations.as_ref(), key));
    }
    Ok(match path {
        "metadata.name" => meta.name.clone().unwrap_or_default(),
        "metadata.namespace" => meta.namespace.clone().unwrap_or_default(),
        "metadata.uid" => meta.uid.clone().unwrap_or_default(),
        "metadata.labels" => meta.labels.as_ref().map(format_map).unwrap_or_default(),
        "metadata.annotations" => meta.annotations.as_ref().map(format_map).unwrap_or_default(),
        "spec.nodeName" => spec.and_then(|s| s.node_name.clone()).unwrap_or_default(),
        "spec.serviceAccountName" => spec.and_then(|s| s.service_account_name.clone()).unwrap_or_default(),
        "status.hostIP" => addresses.host_ips.first().cloned().unwrap_or_default(),
        "status.hostIPs" => addresses.host_ips.join(","),
        "status.podIP" => addresses.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => addresses.pod_ips.join(","),
        other => return Err(FieldError::Path(other.to_owned())),
    })
}

/// Ceiling of `value / divisor` for non-negative values; a zero divisor counts as one.
fn divide(value: i64, divisor: i64) -> i64 {
    let divisor = divisor.max(1);
    value / divisor + i64::from(value % divisor > 0)
}

fn resource<'a>(container: &'a Container, requests: bool, name: &str) -> Option<&'a Quantity> {
    let resources = container.resources.as_ref()?;
    let list = if requests {
        &resources.requests
    } else {
        &resources.limits
    };
    list.as_ref()?.get(name)
}

/// The value of a `resourceFieldRef` for `own` (environment) or for the container it names (volumes).
pub fn resource_value(
    pod: &Pod,
    own: Option<&Container>,
    field: &ResourceFieldSelector,
    node: NodeAllocatable,
) -> Result<String, FieldError> {
    let named = field.container_name.as_deref().filter(|n| !n.is_empty());
    let container = match (named, own) {
        (Some(name), _) => pod
            .spec
            .iter()
            .flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers))
            .find(|c| c.name == name)
            .ok_or_else(|| FieldError::Container(name.to_owned()))?,
        (None, Some(own)) => own,
        (None, None) => return Err(FieldError::Container(String::new())),
    };
    let unsupported = || FieldError::Resource(field.resource.clone());
    let (kind, name) = field.resource.split_once('.').ok_or_else(unsupported)?;
    let requests = match kind {
        "requests" => true,
        "limits" => false,
        _ => return Err(unsupported()),
    };
    let set = resource(container, requests, name);
    let divisor = field.divisor.as_ref();
    let fallback = |allocatable: i64| if requests { 0 } else { allocatable };
    let result = match name {
        "cpu" => {
            let value = set.map_or(fallback(node.cpu_milli), milli);
            divide(value, divisor.map(milli).filter(|d| *d > 0).unwrap_or(1000))
        }
        "memory" => divide(set.map_or(fallback(node.memory), value), divisor.map_or(1, value)),
        "ephemeral-storage" => divide(
            set.map_or(fallback(node.ephemeral_storage), value),
            divisor.map_or(1, value),
        ),
        other if other.starts_with("hugepages-") => divide(set.map_or(0, value), divisor.map_or(1, value)),
        _ => return Err(unsupported()),
    };
    Ok(result.to_string())
}

/// Thousandths of a quantity, rounded up; an unreadable quantity (the API server admits none) counts as nothing.
pub(crate) fn milli(quantity: &Quantity) -> i64 {
    proto::api::quantity::Quantity::of(quantity).milli_value()
}

/// A quantity in whole units, rounded up; an unreadable one counts as nothing.
pub(crate) fn value(quantity: &Quantity) -> i64 {
    proto::api::quantity::Quantity::of(quantity).value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::spec::testing::pod;

    const NODE: NodeAllocatable = NodeAllocatable {
        cpu_milli: 3500,
        memory: 1 << 30,
        ephemeral_storage: 5000,
    };

    fn field(path: &str) -> Result<String, FieldError> {
        let selector = ObjectFieldSelector {
            field_path: path.into(),
            ..Default::default()
        };
        let addresses = Addresses {
            pod_ips: &["10.0.0.1".into(), "fd00::1".into()],
            host_ips: &["192.0.2.1".into()],
        };
        field_value(
            &pod(r#"{"nodeName":"n","serviceAccountName":"sa"}"#),
            &selector,
            addresses,
        )
    }

    #[test]
    fn fields() {
        for (path, expected) in [
            ("metadata.name", "web"),
            ("metadata.namespace", "shop"),
            ("metadata.uid", "u-1"),
            ("metadata.labels", "app=\"web\""),
            ("metadata.labels['app']", "web"),
            ("metadata.labels['none']", ""),
            ("metadata.annotations['note']", "kept"),
            ("spec.nodeName", "n"),
            ("spec.serviceAccountName", "sa"),
            ("status.hostIP", "192.0.2.1"),
            ("status.podIP", "10.0.0.1"),
            ("status.podIPs", "10.0.0.1,fd00::1"),
        ] {
            assert_eq!(field(path), Ok(expected.to_owned()), "{path}");
        }
        assert_eq!(field("status.phase"), Err(FieldError::Path("status.phase".into())));
    }

    #[test]
    fn maps_are_quoted_and_sorted() {
        let map = BTreeMap::from([("b".to_owned(), "x\"y\n".to_owned()), ("a".to_owned(), "1".to_owned())]);
        assert_eq!(format_map(&map), "a=\"1\"\nb=\"x\\\"y\\n\"");
    }

    #[test]
    fn resources_divide_upwards_and_default_to_the_node() {
        let spec =
            r#"{"containers":[{"name":"c","resources":{"limits":{"memory":"100Mi"},"requests":{"cpu":"1500m"}}}]}"#;
        for (resource, divisor, expected) in [
            ("requests.cpu", None, "2"),
            ("requests.cpu", Some("1m"), "1500"),
            ("limits.cpu", None, "4"),
            ("limits.memory", None, "104857600"),
            ("limits.memory", Some("1Mi"), "100"),
            ("requests.memory", None, "0"),
            ("limits.ephemeral-storage", None, "5000"),
            ("limits.memory", Some("0"), "104857600"),
        ] {
            let selector = ResourceFieldSelector {
                container_name: Some("c".into()),
                resource: resource.into(),
                divisor: divisor.map(|d| Quantity(d.into())),
            };
            assert_eq!(
                resource_value(&pod(spec), None, &selector, NODE),
                Ok(expected.to_owned()),
                "{resource} / {divisor:?}"
            );
        }
    }
}
