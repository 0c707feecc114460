//! A container's environment: references, expansion, service variables (kubelet contract §6, env rows).

use super::room::Room;
use super::{FileKeyError, NodeContext, ResolvedObjects, SpecError};
use crate::downward::{self, Addresses};
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

/// Variables that take their place when they are put there. What is written over had its place, too: a manifest may ask for
/// it any number of times.
struct Variables {
    by_name: BTreeMap<String, String>,
    room: Room,
}

impl Variables {
    fn put(&mut self, name: String, value: String) -> Result<(), SpecError> {
        self.room.take(&name, &value)?;
        self.by_name.insert(name, value);
        Ok(())
    }
}

/// Variables of one service, in the form links had.
fn service_variables(service: &Service, out: &mut Variables) -> Result<(), SpecError> {
    let Some(spec) = &service.spec else { return Ok(()) };
    let ip = spec.cluster_ip.clone().unwrap_or_default();
    let ports = spec.ports.as_deref().unwrap_or_default();
    let (Some(name), Some(first)) = (service.metadata.name.as_deref(), ports.first()) else {
        return Ok(());
    };
    if ip.is_empty() || ip == "None" {
        return Ok(());
    }
    let prefix = variable_prefix(name);
    let host = if ip.contains(':') {
        format!("[{ip}]")
    } else {
        ip.clone()
    };
    out.put(format!("{prefix}_SERVICE_HOST"), ip.clone())?;
    out.put(format!("{prefix}_SERVICE_PORT"), first.port.to_string())?;
    for port in ports {
        if let Some(port_name) = port.name.as_deref().filter(|n| !n.is_empty()) {
            let name = format!("{prefix}_SERVICE_PORT_{}", variable_prefix(port_name));
            out.put(name, port.port.to_string())?;
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let url = format!("{}://{host}:{}", protocol.to_lowercase(), port.port);
        if index == 0 {
            out.put(format!("{prefix}_PORT"), url.clone())?;
        }
        let base = format!("{prefix}_PORT_{}_{}", port.port, protocol.to_uppercase());
        out.put(format!("{base}_PROTO"), protocol.to_lowercase())?;
        out.put(format!("{base}_PORT"), port.port.to_string())?;
        out.put(format!("{base}_ADDR"), ip.clone())?;
        out.put(base, url)?;
    }
    Ok(())
}

/// The service variables a pod of this namespace sees.
fn service_environment(pod: &Pod, objects: &ResolvedObjects, ctx: &NodeContext) -> Result<Variables, SpecError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let links = pod.spec.as_ref().is_none_or(|s| s.enable_service_links != Some(false));
    let mut out = Variables {
        by_name: BTreeMap::new(),
        room: Room::new(),
    };
    // The pod's own namespace is written last, so that it wins over the master service of the same name.
    for own in [false, true] {
        for service in &objects.services {
            let is_own = service.metadata.namespace.as_deref() == Some(namespace);
            let is_master = service.metadata.namespace.as_deref() == Some(&ctx.master_service_namespace)
                && service.metadata.name.as_deref() == Some("kubernetes");
            if (own && is_own && links) || (!own && is_master) {
                service_variables(service, &mut out)?;
            }
        }
    }
    Ok(out)
}

struct Builder<'a> {
    pod: &'a Pod,
    container: &'a Container,
    objects: &'a ResolvedObjects,
    ctx: &'a NodeContext,
    pod_ips: &'a [String],
    vars: Variables,
    /// Bytes of values that were taken from files.
    of_files: Cell<usize>,
}

impl Builder<'_> {
    fn namespace(&self) -> String {
        self.pod.metadata.namespace.clone().unwrap_or_default()
    }

    fn take_all_from_objects(&mut self) -> Result<(), SpecError> {
        let (container, objects) = (self.container, self.objects);
        for source in container.env_from.iter().flatten() {
            let prefix = source.prefix.as_deref().unwrap_or("");
            if let Some(reference) = &source.config_map_ref {
                match objects.config_maps.get(&reference.name) {
                    Some(map) => {
                        for (key, value) in map.data.iter().flatten() {
                            self.vars.put(format!("{prefix}{key}"), value.clone())?;
                        }
                    }
                    None if reference.optional == Some(true) => {}
                    None => return Err(missing("configmap", &reference.name)),
                }
            }
            if let Some(reference) = &source.secret_ref {
                match objects.secrets.get(&reference.name) {
                    Some(secret) => {
                        for (key, value) in secret.data.iter().flatten() {
                            let text = super::secret_text(&self.namespace(), &reference.name, key, value)?;
                            self.vars.put(format!("{prefix}{key}"), text)?;
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
            let value = secret.data.as_ref().and_then(|d| d.get(&key.key));
            let text = |value| super::secret_text(&self.namespace(), &key.name, &key.key, value);
            let value = value.map(text).transpose()?;
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
            _ => {
                let vars = &self.vars;
                let lookup = |name: &str| vars.by_name.get(name).or_else(|| services.get(name));
                let lookup = |name: &str| lookup(name).map(String::as_str);
                vars.room.value(&variable.name, literal, lookup)?
            }
        };
        self.vars.put(variable.name.clone(), value)
    }
}

fn missing(kind: &'static str, name: &str) -> SpecError {
    SpecError::ObjectMissing {
        kind,
        name: name.to_owned(),
    }
}

/// The container's whole environment, sorted by name.
///
/// # Errors
/// What it refers to is not there, or it is more than a process can be started with.
pub fn environment(
    pod: &Pod,
    container: &Container,
    objects: &ResolvedObjects,
    pod_ips: &[String],
    ctx: &NodeContext,
) -> Result<BTreeMap<String, String>, SpecError> {
    let Variables { by_name, room } = service_environment(pod, objects, ctx)?;
    let services = by_name;
    let mut builder = Builder {
        pod,
        container,
        objects,
        ctx,
        pod_ips,
        vars: Variables {
            by_name: BTreeMap::new(),
            room,
        },
        of_files: Cell::new(0),
    };
    builder.take_all_from_objects()?;
    for variable in container.env.iter().flatten() {
        builder.take(variable, &services)?;
    }
    let mut vars = builder.vars.by_name;
    for (name, value) in services {
        vars.entry(name).or_insert(value);
    }
    Ok(vars)
}

#[cfg(test)]
mod tests;
