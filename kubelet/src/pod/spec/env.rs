//! A container's environment: references, expansion, service variables (kubelet contract §6, env rows).

use super::{FileKeyError, NodeContext, ResolvedObjects, SpecError};
use crate::downward::{self, Addresses};
use crate::expansion::expand;
use crate::objects::ObjectRef;
use crate::pod_object;
use crate::volume::EnvFile;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, FileKeySelector, Pod, Service};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// The ConfigMaps and Secrets a container's environment refers to, each once, sorted.
pub fn env_references(pod: &Pod, container: &Container) -> Vec<ObjectRef> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_else(|| "default".into());
    let mut refs = BTreeSet::new();
    for source in container.env_from.iter().flatten() {
        if let Some(map) = &source.config_map_ref {
            refs.insert(ObjectRef::config_map(&namespace, &map.name));
        }
        if let Some(secret) = &source.secret_ref {
            refs.insert(ObjectRef::secret(&namespace, &secret.name));
        }
    }
    for from in container.env.iter().flatten().filter_map(|e| e.value_from.as_ref()) {
        if let Some(key) = &from.config_map_key_ref {
            refs.insert(ObjectRef::config_map(&namespace, &key.name));
        }
        if let Some(key) = &from.secret_key_ref {
            refs.insert(ObjectRef::secret(&namespace, &key.name));
        }
    }
    refs.into_iter().collect()
}

/// The longest name a variable may have in a file, bytes.
const FILE_KEY_BYTES_MAX: usize = 128;
/// The most that variables of files may have together, bytes: one long value may be wanted under many names.
const FILE_VALUES_BYTES_MAX: usize = 1 << 20;

/// The files a container's environment refers to, and the variables it wants of each.
pub fn env_files(container: &Container) -> BTreeMap<EnvFile, BTreeSet<String>> {
    let mut wanted = BTreeMap::<_, BTreeSet<_>>::new();
    let sources = container.env.iter().flatten().filter_map(|e| e.value_from.as_ref());
    for from in sources.filter_map(|from| from.file_key_ref.as_ref()) {
        let file = (from.volume_name.clone(), from.path.clone());
        wanted.entry(file).or_default().insert(from.key.clone());
    }
    wanted
}

fn variable_prefix(service: &str) -> String {
    service.to_uppercase().replace('-', "_")
}

/// Variables of one service, in the form links had.
fn service_variables(service: &Service, out: &mut BTreeMap<String, String>) {
    let Some(spec) = &service.spec else { return };
    let ip = spec.cluster_ip.clone().unwrap_or_default();
    let ports = spec.ports.as_deref().unwrap_or_default();
    let (Some(name), Some(first)) = (service.metadata.name.as_deref(), ports.first()) else {
        return;
    };
    if ip.is_empty() || ip == "None" {
        return;
    }
    let prefix = variable_prefix(name);
    let host = if ip.contains(':') {
        format!("[{ip}]")
    } else {
        ip.clone()
    };
    out.insert(format!("{prefix}_SERVICE_HOST"), ip.clone());
    out.insert(format!("{prefix}_SERVICE_PORT"), first.port.to_string());
    for port in ports {
        if let Some(port_name) = port.name.as_deref().filter(|n| !n.is_empty()) {
            out.insert(
                format!("{prefix}_SERVICE_PORT_{}", variable_prefix(port_name)),
                port.port.to_string(),
            );
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let url = format!("{}://{host}:{}", protocol.to_lowercase(), port.port);
        if index == 0 {
            out.insert(format!("{prefix}_PORT"), url.clone());
        }
        let base = format!("{prefix}_PORT_{}_{}", port.port, protocol.to_uppercase());
        out.insert(format!("{base}_PROTO"), protocol.to_lowercase());
        out.insert(format!("{base}_PORT"), port.port.to_string());
        out.insert(format!("{base}_ADDR"), ip.clone());
        out.insert(base, url);
    }
}

/// The service variables a pod of this namespace sees.
fn service_environment(pod: &Pod, objects: &ResolvedObjects, ctx: &NodeContext) -> BTreeMap<String, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let links = pod.spec.as_ref().is_none_or(|s| s.enable_service_links != Some(false));
    let mut out = BTreeMap::new();
    // The pod's own namespace is written last, so that it wins over the master service of the same name.
    for own in [false, true] {
        for service in &objects.services {
            let is_own = service.metadata.namespace.as_deref() == Some(namespace);
            let is_master = service.metadata.namespace.as_deref() == Some(&ctx.master_service_namespace)
                && service.metadata.name.as_deref() == Some("kubernetes");
            if (own && is_own && links) || (!own && is_master) {
                service_variables(service, &mut out);
            }
        }
    }
    out
}

struct Builder<'a> {
    pod: &'a Pod,
    container: &'a Container,
    objects: &'a ResolvedObjects,
    ctx: &'a NodeContext,
    pod_ips: &'a [String],
    vars: BTreeMap<String, String>,
    /// Bytes of values that were taken from files.
    of_files: Cell<usize>,
}

impl Builder<'_> {
    fn namespace(&self) -> String {
        self.pod.metadata.namespace.clone().unwrap_or_default()
    }

    fn take_all_from_objects(&mut self) -> Result<(), SpecError> {
        for source in self.container.env_from.iter().flatten() {
            let prefix = source.prefix.as_deref().unwrap_or("");
            if let Some(reference) = &source.config_map_ref {
                match self.objects.config_maps.get(&reference.name) {
                    Some(map) => {
                        for (key, value) in map.data.iter().flatten() {
                            self.vars.insert(format!("{prefix}{key}"), value.clone());
                        }
                    }
                    None if reference.optional == Some(true) => {}
                    None => return Err(missing("configmap", &reference.name)),
                }
            }
            if let Some(reference) = &source.secret_ref {
                match self.objects.secrets.get(&reference.name) {
                    Some(secret) => {
                        for (key, value) in secret.data.iter().flatten() {
                            let text = String::from_utf8_lossy(&value.0).into_owned();
                            self.vars.insert(format!("{prefix}{key}"), text);
                        }
                    }
                    None if reference.optional == Some(true) => {}
                    None => return Err(missing("secret", &reference.name)),
                }
            }
        }
        Ok(())
    }

    /// The value of one reference; `None` is an optional one that is absent.
    fn referenced(&self, variable: &str, from: &EnvVarSource) -> Result<Option<String>, SpecError> {
        if let Some(field) = &from.field_ref {
            let host_ips = self.ctx.host_ips.texts();
            let addresses = Addresses {
                pod_ips: self.pod_ips,
                host_ips: &host_ips,
            };
            return Ok(Some(downward::field_value(self.pod, field, addresses)?));
        }
        if let Some(field) = &from.resource_field_ref {
            let value = downward::resource_value(self.pod, Some(self.container), field, self.ctx.allocatable)?;
            return Ok(Some(value));
        }
        if let Some(key) = &from.config_map_key_ref {
            let optional = key.optional == Some(true);
            let Some(map) = self.objects.config_maps.get(&key.name) else {
                return if optional {
                    Ok(None)
                } else {
                    Err(missing("configmap", &key.name))
                };
            };
            let value = map.data.as_ref().and_then(|d| d.get(&key.key)).cloned();
            return self.keyed(value, optional, "ConfigMap", &key.name, &key.key);
        }
        if let Some(key) = &from.secret_key_ref {
            let optional = key.optional == Some(true);
            let Some(secret) = self.objects.secrets.get(&key.name) else {
                return if optional {
                    Ok(None)
                } else {
                    Err(missing("secret", &key.name))
                };
            };
            let value = secret
                .data
                .as_ref()
                .and_then(|d| d.get(&key.key))
                .map(|v| String::from_utf8_lossy(&v.0).into_owned());
            return self.keyed(value, optional, "Secret", &key.name, &key.key);
        }
        if let Some(key) = &from.file_key_ref {
            let variable = variable.to_owned();
            return self.in_file(key).map_err(|why| SpecError::FileKey { variable, why });
        }
        Ok(Some(String::new()))
    }

    /// The value of a variable of a file. An empty one counts as absent, as upstream has it.
    fn in_file(&self, from: &FileKeySelector) -> Result<Option<String>, FileKeyError> {
        let (key, optional) = (&from.key, from.optional == Some(true));
        if key.len() > FILE_KEY_BYTES_MAX {
            return Err(FileKeyError::Key(key.clone()));
        }
        let mut volumes = pod_object::spec(self.pod).volumes.iter().flatten();
        if !volumes.any(|volume| volume.name == from.volume_name) {
            return Err(FileKeyError::Volume(from.volume_name.clone()));
        }
        let file = (from.volume_name.clone(), from.path.clone());
        let Some(told) = self.objects.files.get(&file) else {
            return match optional {
                true => Ok(None),
                false => Err(FileKeyError::File(from.path.clone())),
            };
        };
        match (told.values.get(key), &told.broken) {
            (Some(None), _) => Err(FileKeyError::Value(key.clone())),
            (Some(Some(value)), _) if !value.is_empty() => {
                let taken = self.of_files.get() + value.len();
                self.of_files.set(taken);
                match taken > FILE_VALUES_BYTES_MAX {
                    true => Err(FileKeyError::Sum),
                    false => Ok(Some(value.clone())),
                }
            }
            (None, Some(error)) => Err(FileKeyError::Format(error.clone())),
            _ if optional => Ok(None),
            _ => Err(FileKeyError::Missing {
                key: key.clone(),
                path: from.path.clone(),
            }),
        }
    }

    fn keyed(
        &self,
        value: Option<String>,
        optional: bool,
        kind: &'static str,
        name: &str,
        key: &str,
    ) -> Result<Option<String>, SpecError> {
        match value {
            None if !optional => Err(SpecError::KeyMissing {
                kind,
                namespace: self.namespace(),
                name: name.to_owned(),
                key: key.to_owned(),
            }),
            other => Ok(other),
        }
    }

    fn take(&mut self, variable: &EnvVar, services: &BTreeMap<String, String>) -> Result<(), SpecError> {
        let literal = variable.value.as_deref().unwrap_or("");
        let value = match &variable.value_from {
            Some(from) if literal.is_empty() => match self.referenced(&variable.name, from)? {
                Some(value) => value,
                // A skipped optional entry leaves an earlier value in place.
                None => return Ok(()),
            },
            _ => expand(literal, |name| {
                self.vars.get(name).or_else(|| services.get(name)).cloned()
            }),
        };
        self.vars.insert(variable.name.clone(), value);
        Ok(())
    }
}

fn missing(kind: &'static str, name: &str) -> SpecError {
    SpecError::ObjectMissing {
        kind,
        name: name.to_owned(),
    }
}

/// The container's whole environment, sorted by name.
pub fn environment(
    pod: &Pod,
    container: &Container,
    objects: &ResolvedObjects,
    pod_ips: &[String],
    ctx: &NodeContext,
) -> Result<BTreeMap<String, String>, SpecError> {
    let services = service_environment(pod, objects, ctx);
    let mut builder = Builder {
        pod,
        container,
        objects,
        ctx,
        pod_ips,
        vars: BTreeMap::new(),
        of_files: Cell::new(0),
    };
    builder.take_all_from_objects()?;
    for variable in container.env.iter().flatten() {
        builder.take(variable, &services)?;
    }
    let mut vars = builder.vars;
    for (name, value) in services {
        vars.entry(name).or_insert(value);
    }
    Ok(vars)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{context, pod};
    use super::*;
    use crate::volume::EnvFileValues;
    use std::sync::Arc;

    fn objects() -> ResolvedObjects {
        let map = serde_json::json!({"metadata":{"name":"cm"},"data":{"k":"v","bad key":"x"}});
        let secret = serde_json::json!({"metadata":{"name":"s"},"data":{"p":"c2VjcmV0"}});
        let service = |namespace: &str, name: &str| {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"clusterIP": "10.0.0.9", "ports": [{"name": "web-http", "port": 80}, {"port": 53, "protocol": "UDP"}]}
            }))
            .expect("service")
        };
        ResolvedObjects {
            config_maps: BTreeMap::from([("cm".into(), Arc::new(serde_json::from_value(map).expect("map")))]),
            secrets: BTreeMap::from([("s".into(), Arc::new(serde_json::from_value(secret).expect("secret")))]),
            services: vec![
                Arc::new(service("default", "kubernetes")),
                Arc::new(service("shop", "my-db")),
                Arc::new(service("other", "hidden")),
            ],
            files: BTreeMap::from([(
                ("v".into(), "d/env".into()),
                EnvFileValues {
                    values: [("GREETING", Some("hello")), ("EMPTY", Some("")), ("LONG", None)]
                        .map(|(key, value)| (key.to_owned(), value.map(str::to_owned)))
                        .into(),
                    broken: None,
                },
            )]),
        }
    }

    fn env(container: &str, extra: &str) -> Result<BTreeMap<String, String>, SpecError> {
        let pod = pod(&format!(r#"{{"containers":[{container}]{extra}}}"#));
        let container = pod.spec.as_ref().expect("spec").containers[0].clone();
        environment(&pod, &container, &objects(), &["10.1.0.5".into()], &context())
    }

    #[test]
    fn order_references_and_service_variables() {
        let vars = env(
            r#"{"name":"c","envFrom":[{"prefix":"P_","configMapRef":{"name":"cm"}},{"secretRef":{"name":"s"}},{"configMapRef":{"name":"none","optional":true}}],
               "env":[{"name":"A","value":"$(P_k)-$(MY_DB_SERVICE_HOST)-$(LATER)"},{"name":"LATER","value":"l"},
                      {"name":"IP","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}},
                      {"name":"A2","valueFrom":{"configMapKeyRef":{"name":"cm","key":"k"}}},
                      {"name":"LATER","valueFrom":{"secretKeyRef":{"name":"s","key":"none","optional":true}}}]}"#,
            "",
        )
        .expect("environment");
        for (name, value) in [
            ("P_k", "v"),
            ("P_bad key", "x"),
            ("p", "secret"),
            ("A", "v-10.0.0.9-$(LATER)"),
            ("LATER", "l"),
            ("IP", "10.1.0.5"),
            ("A2", "v"),
            ("KUBERNETES_SERVICE_HOST", "10.0.0.9"),
            ("MY_DB_SERVICE_PORT", "80"),
            ("MY_DB_SERVICE_PORT_WEB_HTTP", "80"),
            ("MY_DB_PORT", "tcp://10.0.0.9:80"),
            ("MY_DB_PORT_53_UDP", "udp://10.0.0.9:53"),
            ("MY_DB_PORT_53_UDP_PROTO", "udp"),
            ("MY_DB_PORT_53_UDP_ADDR", "10.0.0.9"),
        ] {
            assert_eq!(vars.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!vars.keys().any(|k| k.starts_with("HIDDEN")));
    }

    #[test]
    fn links_off_leaves_only_the_master_service() {
        let vars = env(r#"{"name":"c"}"#, r#","enableServiceLinks":false"#).expect("environment");
        assert!(vars.contains_key("KUBERNETES_SERVICE_HOST"));
        assert!(!vars.contains_key("MY_DB_SERVICE_HOST"));
    }

    #[test]
    fn what_is_missing_is_named() {
        for (container, message) in [
            (
                r#"{"name":"c","envFrom":[{"configMapRef":{"name":"none"}}]}"#,
                "configmap \"none\" not found",
            ),
            (
                r#"{"name":"c","env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"none","key":"k"}}}]}"#,
                "secret \"none\" not found",
            ),
            (
                r#"{"name":"c","env":[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"cm","key":"zz"}}}]}"#,
                "couldn't find key zz in ConfigMap shop/cm",
            ),
        ] {
            assert_eq!(env(container, "").expect_err(container).to_string(), message);
        }
    }

    #[test]
    fn references_are_listed_once() {
        let pod = pod(
            r#"{"containers":[{"name":"c","envFrom":[{"configMapRef":{"name":"cm"}}],"env":[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"cm","key":"k"}}},{"name":"B","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]}]}"#,
        );
        let refs = env_references(&pod, &pod.spec.as_ref().expect("spec").containers[0]);
        assert_eq!(
            refs,
            vec![ObjectRef::config_map("shop", "cm"), ObjectRef::secret("shop", "s")]
        );
    }

    /// A reference to `d/env` in `v`, but for what is given.
    fn reference(given: &str) -> String {
        let mut reference = serde_json::json!({"volumeName": "v", "path": "d/env"});
        let given: serde_json::Value = serde_json::from_str(&format!("{{{given}}}")).expect("JSON");
        for (key, value) in given.as_object().into_iter().flatten() {
            reference[key] = value.clone();
        }
        reference.to_string()
    }

    #[test]
    fn variables_of_files() {
        let from = |key: &str| {
            let container = format!(
                r#"{{"name":"c","env":[{{"name":"A","value":"before"}},{{"name":"A","valueFrom":{{"fileKeyRef":{}}}}}]}}"#,
                reference(key)
            );
            let vars = env(&container, r#","volumes":[{"name":"v","emptyDir":{}}]"#);
            vars.map(|vars| vars["A"].clone()).map_err(|error| error.to_string())
        };
        let lead = "environment variable \"A\": ";
        assert_eq!(from(r#""key":"GREETING""#).as_deref(), Ok("hello"));
        assert_eq!(
            from(r#""key":"NONE","optional":true"#).as_deref(),
            Ok("before"),
            "what is left out changes nothing"
        );
        assert_eq!(
            from(r#""key":"EMPTY""#),
            Err(format!(
                "{lead}environment variable key \"EMPTY\" not found in file \"d/env\""
            ))
        );
        assert_eq!(
            from(r#""key":"LONG""#),
            Err(format!(
                "{lead}environment variable value for key \"LONG\" exceeds maximum size of 32KB"
            ))
        );
        assert_eq!(
            from(r#""key":"NONE","path":"none""#),
            Err(format!(
                "{lead}couldn't parse env file: open \"none\": no such file or directory"
            ))
        );
        assert_eq!(
            from(r#""key":"NONE","path":"none","optional":true"#).as_deref(),
            Ok("before")
        );
        assert_eq!(
            from(r#""key":"K","volumeName":"w""#),
            Err(format!("{lead}cannot find the volume \"w\" referenced by FileKeyRef"))
        );
        let long = "K".repeat(129);
        assert_eq!(
            from(&format!(r#""key":"{long}""#)),
            Err(format!(
                "{lead}environment variable key \"{long}\" exceeds maximum length of 128 characters"
            ))
        );
    }
}
