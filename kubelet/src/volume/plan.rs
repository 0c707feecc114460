//! What kind of volume each of a pod's volumes is, and where it goes. Pure.

use super::error::set_up;
use super::{SetUpError, VolumeError};
use crate::downward;
use crate::objects::ObjectRef;
use client::ordered::CollectOrdered;
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeFile, DownwardAPIVolumeSource, EmptyDirVolumeSource, KeyToPath, Pod,
    ProjectedVolumeSource, SecretVolumeSource, ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use proto::api::quantity::Quantity;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Media of huge pages: of the one size the pod requests, and of the size that follows.
const HUGE_PAGES: &str = "HugePages";
const HUGE_PAGES_OF: &str = "HugePages-";
/// Plugins whose volumes are mounted in a pod's directory.
const PLUGINS: &[&str] = &[
    "kubernetes.io/empty-dir",
    "kubernetes.io/secret",
    "kubernetes.io/downward-api",
    "kubernetes.io/projected",
];
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

impl Source {
    /// Upstream's name of the plugin whose volume it is.
    pub(super) fn plugin(&self) -> &'static str {
        match self {
            Self::EmptyDir(_) => "kubernetes.io/empty-dir",
            Self::HostPath { .. } => "kubernetes.io/host-path",
            Self::Files(files) => files.plugin,
            Self::Image => "kubernetes.io/image",
        }
    }
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
    /// The page size as the mount option wants it, in bytes.
    HugePages(String),
}

/// A volume whose files the kubelet writes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Files {
    /// Upstream's name of the plugin.
    pub(super) plugin: &'static str,
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

/// Upstream's name of the plugin whose volume is mounted there, below the pod's directory.
pub(super) fn plugin_at(pod_dir: &Path, mount: &Path) -> Option<&'static str> {
    let directory = mount.strip_prefix(pod_dir).ok()?.strip_prefix("volumes").ok()?;
    let escaped = directory.components().next()?.as_os_str().to_str()?;
    let name = escaped.strip_prefix("kubernetes.io~")?;
    PLUGINS
        .iter()
        .find(|plugin| plugin.strip_prefix("kubernetes.io/") == Some(name))
        .copied()
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

    /// The tokens in it.
    pub(super) fn tokens(&self) -> impl Iterator<Item = &TokenFile> {
        let parts = match &self.source {
            Source::Files(files) => files.parts.as_slice(),
            _ => &[],
        };
        parts.iter().filter_map(|part| match part {
            Part::Token(token) => Some(token),
            _ => None,
        })
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
        .collect_ordered()
}

/// The plans of all volumes the pod's containers mount, in spec order.
pub(super) fn plans(pod: &Pod) -> impl Iterator<Item = Result<VolumePlan, VolumeError>> {
    let mounted = mounted_names(pod);
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default();
    volumes
        .iter()
        .filter(move |v| mounted.contains(v.name.as_str()))
        .map(|volume| plan(pod, volume))
}

fn plan(pod: &Pod, volume: &Volume) -> Result<VolumePlan, VolumeError> {
    let (plugin, source) = if let Some(empty) = &volume.empty_dir {
        ("empty-dir", empty_dir(pod, volume, empty)?)
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
    if volume.git_repo.is_some() {
        return SetUpError::GitRepo;
    }
    // The kind is whatever field is set besides the name.
    let kind = serde_json::to_value(volume)
        .ok()
        .and_then(|value| value.as_object()?.keys().find(|k| *k != "name").cloned());
    kind.map_or(SetUpError::NoSource, SetUpError::Unsupported)
}

fn empty_dir(pod: &Pod, volume: &Volume, source: &EmptyDirVolumeSource) -> Result<Source, VolumeError> {
    let medium = match source.medium.as_deref().unwrap_or("") {
        "" => Medium::Disk,
        "Memory" => Medium::Memory,
        huge if huge == HUGE_PAGES || huge.starts_with(HUGE_PAGES_OF) => {
            Medium::HugePages(page_size(pod, huge).map_err(|why| set_up(&volume.name, why))?)
        }
        other => return Err(set_up(&volume.name, SetUpError::Medium(other.to_owned()))),
    };
    Ok(Source::EmptyDir(EmptyDir {
        medium,
        size_limit: source.size_limit.as_ref().map(downward::value).filter(|size| *size > 0),
    }))
}

/// The size of a medium's pages as the kernel reads it: one that the pod requests, and the only one unless the medium names it.
fn page_size(pod: &Pod, medium: &str) -> Result<String, SetUpError> {
    let spec = pod.spec.as_ref();
    let containers = spec
        .into_iter()
        .flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
    let of_containers = containers.filter_map(|container| container.resources.as_ref());
    let of_pod = spec.and_then(|spec| spec.resources.as_ref());
    let requests = of_containers
        .chain(of_pod)
        .filter_map(|resources| resources.requests.as_ref());
    let names = requests.flat_map(|list| list.keys());
    let sizes = names.filter_map(|name| Quantity::parse(name.strip_prefix("hugepages-")?).ok());
    let wanted = medium.strip_prefix(HUGE_PAGES_OF).map(Quantity::parse).transpose();
    let Ok(wanted) = wanted else {
        return Err(SetUpError::Medium(medium.to_owned()));
    };
    let sizes: BTreeSet<i64> = sizes.map(Quantity::value).collect_ordered();
    let size = match wanted {
        Some(wanted) => sizes.get(&wanted.value()),
        None if sizes.len() > 1 => return Err(SetUpError::HugePageSizes(medium.to_owned())),
        None => sizes.first(),
    };
    let size = size.ok_or_else(|| SetUpError::NoHugePages(medium.to_owned()))?;
    // In bytes, which the kernel takes as well as its own 2M.
    Ok(size.to_string())
}

fn config_map(source: &ConfigMapVolumeSource) -> Files {
    Files {
        plugin: "kubernetes.io/configmap",
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
        plugin: "kubernetes.io/secret",
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
        plugin: "kubernetes.io/downward-api",
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
        plugin: "kubernetes.io/projected",
        tmpfs: true,
        default_mode: source.default_mode.unwrap_or(MODE_DEFAULT),
        parts: parts.collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::spec::testing::pod;

    #[test]
    fn pages_are_of_a_size_that_the_pod_requests() {
        let none = |medium: &str| {
            format!("medium {medium}: hugePages storage requested, but there is no resource request for huge pages")
        };
        let both = r#""hugepages-2Mi":"4Mi","hugepages-1Gi":"1Gi""#;
        for (medium, requests, expected) in [
            ("HugePages", r#""hugepages-2Mi":"4Mi""#, Ok("2097152".to_owned())),
            ("HugePages", r#""memory":"4Mi""#, Err(none("HugePages"))),
            (
                "HugePages",
                both,
                Err("medium: HugePages can't be used if container requests multiple huge page sizes".to_owned()),
            ),
            ("HugePages-1Gi", both, Ok("1073741824".to_owned())),
            ("HugePages-2048Ki", both, Ok("2097152".to_owned())),
            ("HugePages-1Gi", r#""hugepages-2Mi":"4Mi""#, Err(none("HugePages-1Gi"))),
            (
                "HugePages-x",
                both,
                Err("unknown storage medium \"HugePages-x\"".to_owned()),
            ),
        ] {
            let of_container =
                format!(r#"{{"containers":[{{"name":"c","resources":{{"requests":{{{requests}}}}}}}]}}"#);
            let of_pod = format!(r#"{{"resources":{{"requests":{{{requests}}}}},"containers":[{{"name":"c"}}]}}"#);
            for spec in [of_container, of_pod] {
                let size = page_size(&pod(&spec), medium).map_err(|error| error.to_string());
                assert_eq!(size, expected, "{medium} {spec}");
            }
        }
    }
}
