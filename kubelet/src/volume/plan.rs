//! What kind of volume each of a pod's volumes is, and where it goes. Pure.

use super::error::set_up;
use super::{SetUpError, VolumeError};
use crate::downward;
use crate::objects::ObjectRef;
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeFile, DownwardAPIVolumeSource, EmptyDirVolumeSource, KeyToPath, Pod,
    ProjectedVolumeSource, SecretVolumeSource, ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use std::collections::BTreeSet;
use std::path::PathBuf;

const MODE_DEFAULT: i32 = 0o644;
/// What a token projection without a life of its own asks for, seconds.
const TOKEN_LIFE_DEFAULT: i64 = 3600;

/// One volume of one pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct VolumePlan {
    pub(super) name: String,
    /// Below the pod's directory; empty for a host path and an image.
    pub(super) directory: PathBuf,
    pub(super) source: Source,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Source {
    EmptyDir(EmptyDir),
    HostPath {
        path: PathBuf,
        kind: String,
    },
    Files(Files),
    /// An image, which the runtime mounts.
    Image,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EmptyDir {
    pub(super) medium: Medium,
    /// Bytes.
    pub(super) size_limit: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Medium {
    Disk,
    Memory,
    /// The page size as the mount option wants it, such as `2M`.
    HugePages(String),
}

/// A volume whose files the kubelet writes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Files {
    pub(super) tmpfs: bool,
    pub(super) default_mode: i32,
    pub(super) parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    ConfigMap(Keys),
    Secret(Keys),
    Downward(Vec<DownwardAPIVolumeFile>),
    Token(TokenFile),
}

/// Keys of one object; `items` empty means all of them under their own names.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Keys {
    pub(super) object: String,
    pub(super) optional: bool,
    pub(super) items: Vec<KeyToPath>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TokenFile {
    pub(super) path: String,
    pub(super) audience: String,
    pub(super) expiration_seconds: i64,
}

fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

impl VolumePlan {
    /// The objects the volume is filled from.
    pub(super) fn references(&self, pod: &Pod) -> Vec<ObjectRef> {
        let Source::Files(files) = &self.source else {
            return Vec::new();
        };
        let reference = |part: &Part| match part {
            Part::ConfigMap(keys) => Some(ObjectRef::config_map(namespace(pod), &keys.object)),
            Part::Secret(keys) => Some(ObjectRef::secret(namespace(pod), &keys.object)),
            Part::Downward(_) | Part::Token(_) => None,
        };
        files.parts.iter().filter_map(reference).collect()
    }

    /// Whether some content changes without any object that could be watched: tokens by time, the pod's own fields with it.
    pub(super) fn changes_by_itself(&self) -> bool {
        let own = |part: &Part| matches!(part, Part::Token(_) | Part::Downward(_));
        matches!(&self.source, Source::Files(files) if files.parts.iter().any(own))
    }
}

/// Names of the volumes some container mounts; others are never made.
fn mounted_names(pod: &Pod) -> BTreeSet<&str> {
    let Some(spec) = &pod.spec else {
        return BTreeSet::new();
    };
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let ephemeral = spec
        .ephemeral_containers
        .iter()
        .flatten()
        .flat_map(|c| c.volume_mounts.iter().flatten());
    let mounts = containers.clone().flat_map(|c| c.volume_mounts.iter().flatten());
    // A file's variables may be wanted of a volume that nobody mounts.
    let variables = containers.flat_map(|c| c.env.iter().flatten());
    let files = variables.filter_map(|variable| variable.value_from.as_ref()?.file_key_ref.as_ref());
    mounts
        .chain(ephemeral)
        .map(|m| m.name.as_str())
        .chain(files.map(|file| file.volume_name.as_str()))
        .collect()
}

/// The plans of all volumes the pod's containers mount, in spec order.
pub(super) fn plans(pod: &Pod) -> impl Iterator<Item = Result<VolumePlan, VolumeError>> {
    let mounted = mounted_names(pod);
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default();
    volumes
        .iter()
        .filter(move |v| mounted.contains(v.name.as_str()))
        .map(plan)
}

fn plan(volume: &Volume) -> Result<VolumePlan, VolumeError> {
    let (plugin, source) = if let Some(empty) = &volume.empty_dir {
        ("empty-dir", empty_dir(volume, empty)?)
    } else if let Some(host) = &volume.host_path {
        let source = Source::HostPath {
            path: PathBuf::from(&host.path),
            kind: host.type_.clone().unwrap_or_default(),
        };
        return Ok(VolumePlan {
            name: volume.name.clone(),
            directory: PathBuf::new(),
            source,
        });
    } else if volume.image.is_some() {
        return Ok(VolumePlan {
            name: volume.name.clone(),
            directory: PathBuf::new(),
            source: Source::Image,
        });
    } else if let Some(map) = &volume.config_map {
        ("configmap", Source::Files(config_map(map)))
    } else if let Some(secret) = &volume.secret {
        ("secret", Source::Files(secret_files(secret)))
    } else if let Some(downward) = &volume.downward_api {
        ("downward-api", Source::Files(downward_files(downward)))
    } else if let Some(projected) = &volume.projected {
        ("projected", Source::Files(projected_files(volume, projected)?))
    } else {
        return Err(set_up(&volume.name, unsupported(volume)));
    };
    Ok(VolumePlan {
        name: volume.name.clone(),
        directory: PathBuf::from(format!("volumes/kubernetes.io~{plugin}/{}", volume.name)),
        source,
    })
}

fn unsupported(volume: &Volume) -> SetUpError {
    // The kind is whatever field is set besides the name.
    let kind = serde_json::to_value(volume)
        .ok()
        .and_then(|value| value.as_object()?.keys().find(|k| *k != "name").cloned());
    kind.map_or(SetUpError::NoSource, SetUpError::Unsupported)
}

fn empty_dir(volume: &Volume, source: &EmptyDirVolumeSource) -> Result<Source, VolumeError> {
    let medium = match source.medium.as_deref().unwrap_or("") {
        "" => Medium::Disk,
        "Memory" => Medium::Memory,
        other => match other.strip_prefix("HugePages-") {
            // The kernel writes 2M where the API writes 2Mi.
            Some(size) => Medium::HugePages(size.trim_end_matches('i').to_owned()),
            None => return Err(set_up(&volume.name, SetUpError::Medium(other.to_owned()))),
        },
    };
    Ok(Source::EmptyDir(EmptyDir {
        medium,
        size_limit: source.size_limit.as_ref().map(downward::value).filter(|size| *size > 0),
    }))
}

fn config_map(source: &ConfigMapVolumeSource) -> Files {
    Files {
        tmpfs: false,
        default_mode: source.default_mode.unwrap_or(MODE_DEFAULT),
        parts: vec![Part::ConfigMap(Keys {
            object: source.name.clone(),
            optional: source.optional == Some(true),
            items: source.items.clone().unwrap_or_default(),
        })],
    }
}

fn secret_files(source: &SecretVolumeSource) -> Files {
    Files {
        tmpfs: true,
        default_mode: source.default_mode.unwrap_or(MODE_DEFAULT),
        parts: vec![Part::Secret(Keys {
            object: source.secret_name.clone().unwrap_or_default(),
            optional: source.optional == Some(true),
            items: source.items.clone().unwrap_or_default(),
        })],
    }
}

fn downward_files(source: &DownwardAPIVolumeSource) -> Files {
    Files {
        tmpfs: true,
        default_mode: source.default_mode.unwrap_or(MODE_DEFAULT),
        parts: vec![Part::Downward(source.items.clone().unwrap_or_default())],
    }
}

fn projection(volume: &Volume, source: &VolumeProjection) -> Result<Part, VolumeError> {
    if let Some(map) = &source.config_map {
        return Ok(Part::ConfigMap(Keys {
            object: map.name.clone(),
            optional: map.optional == Some(true),
            items: map.items.clone().unwrap_or_default(),
        }));
    }
    if let Some(secret) = &source.secret {
        return Ok(Part::Secret(Keys {
            object: secret.name.clone(),
            optional: secret.optional == Some(true),
            items: secret.items.clone().unwrap_or_default(),
        }));
    }
    if let Some(downward) = &source.downward_api {
        return Ok(Part::Downward(downward.items.clone().unwrap_or_default()));
    }
    if let Some(token) = &source.service_account_token {
        return Ok(Part::Token(token_file(token)));
    }
    Err(set_up(&volume.name, SetUpError::Projection))
}

fn token_file(token: &ServiceAccountTokenProjection) -> TokenFile {
    TokenFile {
        path: token.path.clone(),
        audience: token.audience.clone().unwrap_or_default(),
        expiration_seconds: token.expiration_seconds.unwrap_or(TOKEN_LIFE_DEFAULT),
    }
}

fn projected_files(volume: &Volume, source: &ProjectedVolumeSource) -> Result<Files, VolumeError> {
    let parts = source.sources.iter().flatten().map(|s| projection(volume, s));
    Ok(Files {
        tmpfs: true,
        default_mode: source.default_mode.unwrap_or(MODE_DEFAULT),
        parts: parts.collect::<Result<_, _>>()?,
    })
}
