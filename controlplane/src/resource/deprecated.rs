//! What upstream calls deprecated and warns about: kinds in every reply, fields when they are written. Pure.
//!
//! Words are upstream's; source: control-plane contract §1 (Warning header).

use super::Kind;
use super::field::at;
use super::without_effect::pod_spec_path;
use serde_json::Value;

/// Kinds by group, plural and warning.
const KINDS: &[(&str, &str, &str)] = &[
    ("", "componentstatuses", "v1 ComponentStatus is deprecated in v1.19+"),
    (
        "",
        "endpoints",
        "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ),
];

/// Annotations of pods by key, or by its beginning if that ends with a slash.
const ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", SYSCTLS),
    ("security.alpha.kubernetes.io/unsafe-sysctls", SYSCTLS),
    ("seccomp.security.alpha.kubernetes.io/pod", SECCOMP),
    ("container.seccomp.security.alpha.kubernetes.io/", SECCOMP),
];
const SYSCTLS: &str = "non-functional in v1.11+; use the \"sysctls\" field instead";
const SECCOMP: &str = "deprecated since v1.19, non-functional in v1.25+; use the \"seccompProfile\" field instead";

/// Labels of nodes: old, since, new.
const NODE_LABELS: &[(&str, &str, &str)] = &[
    ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "v1.17",
        "topology.kubernetes.io/region",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "v1.17",
        "topology.kubernetes.io/zone",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "v1.17",
        "node.kubernetes.io/instance-type",
    ),
];

/// The warning that every reply about the kind carries.
pub(crate) fn kind(kind: &Kind) -> Option<&str> {
    if let Some(own) = &kind.deprecation {
        return Some(own);
    }
    let found = KINDS
        .iter()
        .find(|(group, plural, _)| kind.group == *group && kind.plural == *plural);
    found.map(|(_, _, text)| *text)
}

/// Warnings about what a written object uses, in a pod or its template.
pub(crate) fn fields(kind: &Kind, object: &Value) -> Vec<String> {
    let Some((_, outer)) = pod_spec_path(kind).and_then(|path| path.split_last()) else {
        return Vec::new();
    };
    let pod = at(object, outer);
    let path = outer.iter().map(|part| format!("{part}.")).collect::<String>();
    let keys = |parts: &[&str]| {
        let found = at(pod, parts).as_object().into_iter().flatten();
        found.map(|(key, _)| key.clone()).collect::<Vec<_>>()
    };
    let selected = keys(&["spec", "nodeSelector"]).into_iter().filter_map(|key| {
        let (_, since, new) = NODE_LABELS.iter().find(|(old, ..)| *old == key)?;
        Some(format!(
            "{path}spec.nodeSelector[{key}]: deprecated since {since}; use \"{new}\" instead"
        ))
    });
    let annotated = keys(&["metadata", "annotations"]).into_iter().filter_map(|key| {
        let is_it = |known: &str| key == known || (known.ends_with('/') && key.starts_with(known));
        let (_, text) = ANNOTATIONS.iter().find(|(known, _)| is_it(known))?;
        Some(format!("{path}metadata.annotations[{key}]: {text}"))
    });
    selected.chain(annotated).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Registry;
    use serde_json::json;

    #[test]
    fn pods_and_templates_are_told_in_upstreams_words() {
        let pod = json!({"metadata": {"annotations": {"container.seccomp.security.alpha.kubernetes.io/c": "x", "a": "b"}},
            "spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}}});
        let pods = Registry::built_in().by_resource("", "v1", "pods").unwrap();
        let expected = [
            "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
            "metadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]: deprecated since v1.19, non-functional \
             in v1.25+; use the \"seccompProfile\" field instead",
        ];
        assert_eq!(fields(pods, &pod), expected);
        let deployments = Registry::built_in().by_resource("apps", "v1", "deployments").unwrap();
        let expected = expected.map(|text| format!("spec.template.{text}"));
        assert_eq!(fields(deployments, &json!({"spec": {"template": pod}})), expected);
        assert_eq!(
            fields(Registry::built_in().by_resource("", "v1", "secrets").unwrap(), &pod),
            [""; 0]
        );
    }
}
