//! What a static pod must not say. Nobody has validated a manifest before this kubelet reads it. Pure.
//!
//! Checks what the kubelet relies on, in the API server's words; the mirror pod goes through the API server's own validation.

mod container;
mod isolation;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};
use proto::api::names;
use std::collections::BTreeSet;

/// The kind of API object the pod refers to, if it refers to one: a static pod has nobody to ask for it.
pub(super) fn api_reference(pod: &Pod) -> Option<&'static str> {
    let spec = pod.spec.as_ref()?;
    let account = [&spec.service_account_name, &spec.service_account];
    if account.into_iter().flatten().any(|name| !name.is_empty()) {
        return Some("serviceaccounts");
    }
    let volumes = || spec.volumes.iter().flatten();
    if spec.image_pull_secrets.iter().flatten().next().is_some() || volumes().any(has_secret) {
        return Some("secrets");
    }
    let variables = || containers(spec).flat_map(|(_, c)| c.env.iter().flatten().filter_map(|e| e.value_from.as_ref()));
    let env_from = || containers(spec).flat_map(|(_, c)| c.env_from.iter().flatten());
    if variables().any(|from| from.secret_key_ref.is_some()) || env_from().any(|from| from.secret_ref.is_some()) {
        return Some("secrets");
    }
    if volumes().any(has_config_map)
        || variables().any(|from| from.config_map_key_ref.is_some())
        || env_from().any(|from| from.config_map_ref.is_some())
    {
        return Some("configmaps");
    }
    if spec.resource_claims.iter().flatten().next().is_some() {
        return Some("resourceclaims");
    }
    volumes().find_map(|volume| {
        if volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() {
            Some("persistentvolumeclaims")
        } else if volume.csi.is_some() {
            Some("csidrivers")
        } else {
            let sources = volume.projected.iter().flat_map(|p| p.sources.iter().flatten());
            let mut refers = sources.filter_map(|source| {
                let token = source.service_account_token.as_ref().map(|_| "serviceaccounts");
                token.or(source.cluster_trust_bundle.as_ref().map(|_| "clustertrustbundles"))
            });
            refers.next()
        }
    })
}

fn has_secret(volume: &Volume) -> bool {
    let projected = volume.projected.iter().flat_map(|p| p.sources.iter().flatten());
    volume.secret.is_some() || projected.into_iter().any(|source| source.secret.is_some())
}

fn has_config_map(volume: &Volume) -> bool {
    let projected = volume.projected.iter().flat_map(|p| p.sources.iter().flatten());
    volume.config_map.is_some() || projected.into_iter().any(|source| source.config_map.is_some())
}

/// Every container with the path to it.
fn containers(spec: &PodSpec) -> impl Iterator<Item = (String, &Container)> {
    let inits = spec.init_containers.iter().flatten().enumerate();
    let inits = inits.map(|(at, container)| (format!("spec.initContainers[{at}]"), container));
    let regulars = spec.containers.iter().enumerate();
    inits.chain(regulars.map(|(at, container)| (format!("spec.containers[{at}]"), container)))
}

/// Collects mistakes in the API server's form: `path: Invalid value: "x": why`.
#[derive(Default)]
struct Mistakes(Vec<String>);

impl Mistakes {
    fn required(&mut self, path: &str) {
        self.0.push(format!("{path}: Required value"));
    }

    fn invalid(&mut self, path: &str, value: impl std::fmt::Debug, why: impl std::fmt::Display) {
        self.0.push(format!("{path}: Invalid value: {value:?}: {why}"));
    }

    fn duplicate(&mut self, path: &str, value: impl std::fmt::Debug) {
        self.0.push(format!("{path}: Duplicate value: {value:?}"));
    }

    fn unsupported(&mut self, path: &str, value: &str, allowed: &[&str]) {
        let allowed: Vec<_> = allowed.iter().map(|word| format!("{word:?}")).collect();
        let allowed = allowed.join(", ");
        self.0.push(format!(
            "{path}: Unsupported value: {value:?}: supported values: {allowed}"
        ));
    }

    fn forbidden(&mut self, path: &str, why: &str) {
        self.0.push(format!("{path}: Forbidden: {why}"));
    }

    /// A name that must be there and keep a rule.
    fn name(&mut self, path: &str, name: &str, rule: impl Fn(&str) -> Option<String>) {
        if name.is_empty() {
            self.required(path);
        } else if let Some(why) = rule(name) {
            self.invalid(path, name, why);
        }
    }

    fn one_of(&mut self, path: &str, value: Option<&str>, allowed: &[&str]) {
        if let Some(value) = value
            && !allowed.contains(&value)
        {
            self.unsupported(path, value, allowed);
        }
    }
}

/// Every mistake of a pod with its defaults.
pub(super) fn pod(pod: &Pod) -> Vec<String> {
    let mut mistakes = Mistakes::default();
    metadata(&mut mistakes, pod);
    let Some(spec) = &pod.spec else {
        mistakes.required("spec");
        return mistakes.0;
    };
    mistakes.one_of(
        "spec.restartPolicy",
        spec.restart_policy.as_deref(),
        &["Always", "OnFailure", "Never"],
    );
    mistakes.one_of(
        "spec.dnsPolicy",
        spec.dns_policy.as_deref(),
        &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"],
    );
    if spec.active_deadline_seconds.is_some_and(|seconds| seconds < 1) {
        let value = spec.active_deadline_seconds.unwrap_or_default();
        mistakes.invalid("spec.activeDeadlineSeconds", value, "must be greater than 0");
    }
    if let Some(seconds) = spec.termination_grace_period_seconds.filter(|seconds| *seconds < 0) {
        let path = "spec.terminationGracePeriodSeconds";
        mistakes.invalid(path, seconds, "must be greater than or equal to 0");
    }
    if spec.ephemeral_containers.iter().flatten().next().is_some() {
        mistakes.forbidden("spec.ephemeralContainers", "cannot be set on create");
    }
    isolation::pod(&mut mistakes, spec);
    let volumes = volumes(&mut mistakes, spec);
    if spec.containers.is_empty() {
        mistakes.required("spec.containers");
    }
    let mut seen = BTreeSet::new();
    for (path, container) in containers(spec) {
        if !seen.insert(container.name.as_str()) {
            mistakes.duplicate(&format!("{path}.name"), &container.name);
        }
        container::check(&mut mistakes, &path, container, spec, &volumes);
        isolation::container(&mut mistakes, &path, container, spec);
    }
    mistakes.0
}

fn metadata(mistakes: &mut Mistakes, pod: &Pod) {
    let meta = &pod.metadata;
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    mistakes.name("metadata.name", &text(&meta.name), names::dns1123_subdomain_error);
    mistakes.name("metadata.namespace", &text(&meta.namespace), names::dns1123_label_error);
    for (key, value) in meta.labels.iter().flatten() {
        let wrong = names::qualified_name_error(key).or_else(|| names::label_value_error(value));
        if let Some(why) = wrong {
            mistakes.invalid("metadata.labels", format!("{key}={value}"), why);
        }
    }
}

/// Checks the volumes and returns their names.
fn volumes<'a>(mistakes: &mut Mistakes, spec: &'a PodSpec) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for (at, volume) in spec.volumes.iter().flatten().enumerate() {
        let path = format!("spec.volumes[{at}]");
        mistakes.name(&format!("{path}.name"), &volume.name, names::dns1123_label_error);
        if !seen.insert(volume.name.as_str()) {
            mistakes.duplicate(&format!("{path}.name"), &volume.name);
        }
        let fields = match serde_json::to_value(volume) {
            Ok(serde_json::Value::Object(fields)) => fields.len(),
            _ => 0,
        };
        if fields > 2 {
            mistakes.forbidden(&path, "may not specify more than 1 volume type");
        }
        if let Some(host) = &volume.host_path {
            if host.path.is_empty() {
                mistakes.required(&format!("{path}.hostPath.path"));
            } else if host.path.split('/').any(|part| part == "..") {
                mistakes.invalid(&format!("{path}.hostPath.path"), &host.path, "must not contain '..'");
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests;
