//! A container's mounts: volumes in spec order, then the hosts file, then the termination message file.

use super::{ContainerInput, SpecError, namespaces};
use crate::expansion::{TooLong, expand};
use crate::runtime::ImageInfo;
use crate::volume::{ContainerFiles, HostVolume, ImageMount, SubPath};
use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};
use proto::cri;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

const ETC_HOSTS: &str = "/etc/hosts";
const DEFAULT_TERMINATION_PATH: &str = "/dev/termination-log";
/// The longest path the kernel takes, bytes.
const PATH_MAX: usize = 4096;

fn checked(volume: &str, path: &str) -> Result<PathBuf, SpecError> {
    if path.is_empty() {
        return Err(SpecError::SubPath(format!("SubPath of volume {volume:?} is empty")));
    }
    if path.starts_with('/') {
        let why = format!("error SubPath `{path}` must not be an absolute path");
        return Err(SpecError::SubPath(why));
    }
    if Path::new(path).components().any(|c| matches!(c, Component::ParentDir)) {
        let why = format!("unable to provision SubPath `{path}`: must not contain '..'");
        return Err(SpecError::SubPath(why));
    }
    Ok(PathBuf::from(path))
}

fn expand_strictly(expression: &str, vars: &BTreeMap<String, String>) -> Result<String, SpecError> {
    let missing = std::cell::RefCell::new(None);
    let expanded = expand(expression, PATH_MAX, |name| {
        let value = vars.get(name).filter(|v| !v.is_empty());
        if value.is_none() {
            missing.borrow_mut().get_or_insert_with(|| name.to_owned());
        }
        Some(value.map_or("", String::as_str))
    });
    match missing.into_inner() {
        Some(name) => Err(SpecError::SubPath(format!("missing value for {name:?}"))),
        None => expanded.map_err(|TooLong| SpecError::SubPath(format!("SubPath is longer than {PATH_MAX} bytes"))),
    }
}

/// The sub paths of a container's mounts, `subPathExpr` expanded from its environment.
pub fn sub_paths(container: &Container, environment: &BTreeMap<String, String>) -> Result<Vec<SubPath>, SpecError> {
    let mut out = Vec::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let path = match (mount.sub_path.as_deref(), mount.sub_path_expr.as_deref()) {
            (_, Some(expression)) if !expression.is_empty() => expand_strictly(expression, environment)?,
            (Some(path), _) if !path.is_empty() => path.to_owned(),
            _ => continue,
        };
        out.push(SubPath {
            index,
            volume: mount.name.clone(),
            path: checked(&mount.name, &path)?,
            read_only: mount.read_only == Some(true),
        });
    }
    Ok(out)
}

/// Whether the container gets the pod's hosts file: not when it mounts something there itself.
pub fn mounts_hosts_file(container: &Container) -> bool {
    !container
        .volume_mounts
        .iter()
        .flatten()
        .any(|m| m.mount_path.trim_end_matches('/') == ETC_HOSTS)
}

/// Where the container finds its termination message file.
pub fn termination_path(container: &Container) -> &str {
    match container.termination_message_path.as_deref() {
        Some(path) if !path.is_empty() => path,
        _ => DEFAULT_TERMINATION_PATH,
    }
}

fn propagation(mount: &VolumeMount) -> i32 {
    let mode = match mount.mount_propagation.as_deref() {
        Some("HostToContainer") => cri::MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => cri::MountPropagation::PropagationBidirectional,
        _ => cri::MountPropagation::PropagationPrivate,
    };
    mode as i32
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn volume_mount(
    index: usize,
    mount: &VolumeMount,
    container: &Container,
    (volumes, can_recurse): (&BTreeMap<String, HostVolume>, bool),
    files: &ContainerFiles,
) -> Result<cri::Mount, SpecError> {
    let volume = volumes
        .get(&mount.name)
        .ok_or_else(|| missing(container, &mount.name))?;
    let container_path = match mount.mount_path.strip_prefix('/') {
        Some(_) => mount.mount_path.clone(),
        None => format!("/{}", mount.mount_path),
    };
    if let Some(image) = files.images.get(&index) {
        return Ok(cri::Mount {
            container_path,
            readonly: true,
            image: Some(cri::ImageSpec {
                image: image.id.clone(),
                user_specified_image: image.reference.clone(),
                ..cri::ImageSpec::default()
            }),
            image_sub_path: text(&image.sub_path),
            ..Default::default()
        });
    }
    let host_path = files.sub_paths.get(&index).unwrap_or(&volume.path);
    Ok(cri::Mount {
        container_path,
        host_path: text(host_path),
        readonly: mount.read_only == Some(true) || volume.read_only,
        propagation: propagation(mount),
        recursive_read_only: recursive_read_only(mount, can_recurse)?,
        ..Default::default()
    })
}

fn missing(container: &Container, volume: &str) -> SpecError {
    SpecError::VolumeMissing {
        container: container.name.clone(),
        volume: volume.to_owned(),
    }
}

/// The images a container mounts, by the index of the mount; `images` tells those that are there by volume. Their sub paths are
/// taken out of `sub_paths`, because they are in no directory of the node.
///
/// # Errors
/// An image is not there.
pub fn image_mounts(
    pod: &Pod,
    container: &Container,
    images: &BTreeMap<String, ImageInfo>,
    sub_paths: &mut Vec<SubPath>,
) -> Result<BTreeMap<usize, ImageMount>, SpecError> {
    let volumes = || pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mut out = BTreeMap::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let volume = volumes().find(|volume| volume.name == mount.name);
        let Some(source) = volume.and_then(|volume| volume.image.as_ref()) else {
            continue;
        };
        let image = images.get(&mount.name).ok_or_else(|| missing(container, &mount.name))?;
        let own = sub_paths.extract_if(.., |sub| sub.index == index).next();
        let mount = ImageMount {
            id: image.id.clone(),
            reference: source.reference.clone().unwrap_or_default(),
            sub_path: own.map(|sub| sub.path).unwrap_or_default(),
        };
        out.insert(index, mount);
    }
    Ok(out)
}

/// Whether a mount is read only with all that is mounted below it; `supported` tells whether the handler can do that
/// (KEP-3857).
///
/// # Errors
/// It must be, and cannot.
pub fn recursive_read_only(mount: &VolumeMount, supported: bool) -> Result<bool, SpecError> {
    let mode = match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => return Ok(false),
        Some(mode) => mode,
    };
    let bad = |why: String| {
        Err(SpecError::RecursiveReadOnly {
            volume: mount.name.clone(),
            why,
        })
    };
    if mount.read_only != Some(true) {
        return bad("is not read-only".to_owned());
    }
    if let Some(propagation) = mount.mount_propagation.as_deref().filter(|mode| *mode != "None") {
        return bad(format!("is not compatible with propagation {propagation:?}"));
    }
    match mode {
        "IfPossible" => Ok(supported),
        "Enabled" if supported => Ok(true),
        "Enabled" => bad("is not supported by the runtime".to_owned()),
        other => bad(format!("has the unknown mode {other:?}")),
    }
}

/// All mounts of the container, in the contracted order.
pub(super) fn mounts(input: &ContainerInput<'_>) -> Result<Vec<cri::Mount>, SpecError> {
    let ContainerInput { container, files, .. } = *input;
    let volumes = (input.volumes, input.recursive_read_only);
    let mut out = Vec::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        out.push(volume_mount(index, mount, container, volumes, files)?);
    }
    if let Some(hosts) = files.etc_hosts.as_ref().filter(|_| mounts_hosts_file(container)) {
        out.push(cri::Mount {
            container_path: ETC_HOSTS.into(),
            host_path: text(hosts),
            ..Default::default()
        });
    }
    if let Some(log) = &files.termination_log {
        out.push(cri::Mount {
            container_path: termination_path(container).to_owned(),
            host_path: text(log),
            ..Default::default()
        });
    }
    if input.ctx.selinux {
        let own = |index: usize| {
            let mount = container.volume_mounts.iter().flatten().nth(index);
            mount.is_none_or(|mount| input.volumes.get(&mount.name).is_some_and(|volume| volume.own))
        };
        for (index, mount) in out.iter_mut().enumerate() {
            mount.selinux_relabel = own(index);
        }
    }
    if let Some(ids) = input.ids {
        for mount in &mut out {
            mount.uid_mappings = namespaces::mappings(ids);
            mount.gid_mappings = namespaces::mappings(ids);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::NodeContext;
    use super::super::testing::{context, pod};
    use super::*;
    use crate::user_namespace::IdRange;

    /// The mounts of a container in a pod with or without ids of its own, by a handler that can or cannot recurse.
    fn made(
        (pod, container): (&Pod, &Container),
        volumes: &BTreeMap<String, HostVolume>,
        files: &ContainerFiles,
        ids: Option<IdRange>,
        recursive_read_only: bool,
    ) -> Result<Vec<cri::Mount>, SpecError> {
        mounts(&ContainerInput {
            pod,
            container,
            restart_count: 0,
            image: &ImageInfo::default(),
            environment: &BTreeMap::new(),
            volumes,
            files,
            target: None,
            ids,
            recursive_read_only,
            unbounded: &Default::default(),
            ctx: &context(),
        })
    }

    fn container(mounts: &str) -> (Pod, Container) {
        let pod = pod(&format!(r#"{{"containers":[{{"name":"c","volumeMounts":{mounts}}}]}}"#));
        let container = pod.spec.as_ref().expect("spec").containers[0].clone();
        (pod, container)
    }

    #[test]
    fn order_and_modes() {
        let (pod, c) = container(
            r#"[{"name":"b","mountPath":"data","readOnly":true},{"name":"a","mountPath":"/a","subPath":"x","mountPropagation":"Bidirectional"}]"#,
        );
        let volumes = BTreeMap::from([
            (
                "a".to_owned(),
                HostVolume {
                    path: "/v/a".into(),
                    read_only: false,
                    own: true,
                },
            ),
            (
                "b".to_owned(),
                HostVolume {
                    path: "/v/b".into(),
                    read_only: false,
                    own: true,
                },
            ),
        ]);
        let files = ContainerFiles {
            etc_hosts: Some("/p/etc-hosts".into()),
            termination_log: Some("/p/t".into()),
            sub_paths: BTreeMap::from([(1, PathBuf::from("/sub/1"))]),
            images: BTreeMap::new(),
        };
        let got: Vec<_> = made((&pod, &c), &volumes, &files, None, false)
            .expect("mounts")
            .into_iter()
            .map(|m| (m.container_path, m.host_path, m.readonly, m.propagation))
            .collect();
        assert_eq!(
            got,
            vec![
                ("/data".into(), "/v/b".into(), true, 0),
                ("/a".into(), "/sub/1".into(), false, 2),
                ("/etc/hosts".into(), "/p/etc-hosts".into(), false, 0),
                ("/dev/termination-log".into(), "/p/t".into(), false, 0),
            ]
        );
    }

    #[test]
    fn images_are_the_runtimes_to_mount() {
        let spec = r#"{"volumes":[{"name":"i","image":{"reference":"img:1"}},{"name":"d","emptyDir":{}}],"containers":[{"name":"c",
            "volumeMounts":[{"name":"d","mountPath":"/d","subPath":"x"},{"name":"i","mountPath":"/i","subPathExpr":"$(A)/y"}]}]}"#;
        let pod = pod(spec);
        let c = &pod.spec.as_ref().expect("spec").containers[0];
        let vars = BTreeMap::from([("A".to_owned(), "x".to_owned())]);
        let mut subs = sub_paths(c, &vars).expect("sub paths");
        let none = image_mounts(&pod, c, &BTreeMap::new(), &mut subs).expect_err("the image is not there");
        assert!(matches!(none, SpecError::VolumeMissing { .. }), "{none}");
        let info = ImageInfo {
            id: "sha256:1".into(),
            ..ImageInfo::default()
        };
        let images = image_mounts(&pod, c, &BTreeMap::from([("i".to_owned(), info)]), &mut subs).expect("mounts");
        assert_eq!(
            subs.iter().map(|sub| sub.index).collect::<Vec<_>>(),
            [0],
            "the node binds the other alone"
        );
        let files = ContainerFiles {
            images,
            ..ContainerFiles::default()
        };
        let volumes = BTreeMap::from([("i".to_owned(), volume("")), ("d".to_owned(), volume("/v/d"))]);
        let made = made((&pod, c), &volumes, &files, None, false).expect("mounts");
        let image = made[1]
            .image
            .as_ref()
            .map(|i| (i.image.as_str(), i.user_specified_image.as_str()));
        assert_eq!(image, Some(("sha256:1", "img:1")));
        assert_eq!(
            (made[1].image_sub_path.as_str(), made[1].host_path.as_str()),
            ("x/y", "")
        );
        assert!(made[1].readonly && made[0].image.is_none());
    }

    #[test]
    fn own_hosts_mount_wins_and_missing_volumes_are_named() {
        let (pod, c) = container(r#"[{"name":"a","mountPath":"/etc/hosts"}]"#);
        assert!(!mounts_hosts_file(&c));
        let error = made((&pod, &c), &BTreeMap::new(), &ContainerFiles::default(), None, false).expect_err("no volume");
        assert!(error.to_string().contains("\"a\""), "{error}");
    }

    #[test]
    fn sub_path_expressions() {
        let vars = BTreeMap::from([
            ("A".to_owned(), "x/y".to_owned()),
            ("UP".to_owned(), "../z".to_owned()),
            ("E".to_owned(), String::new()),
            ("ROOT".to_owned(), "/r".to_owned()),
            ("HALF".to_owned(), "h".repeat(2048)),
        ]);
        let one = |expr: &str| {
            let (_, c) = container(&format!(r#"[{{"name":"v","mountPath":"/m","subPathExpr":"{expr}"}}]"#));
            sub_paths(&c, &vars).map(|mut v| v.remove(0).path)
        };
        assert_eq!(one("p/$(A)"), Ok(PathBuf::from("p/x/y")));
        assert_eq!(one("$$(A)"), Ok(PathBuf::from("$(A)")), "escaped");
        assert_eq!(one("$(A"), Ok(PathBuf::from("$(A")), "no reference");
        assert_eq!(one("$(A)$(A)/..x"), Ok(PathBuf::from("x/yx/y/..x")));
        for (bad, why) in [
            ("$(NONE)", "missing value for \"NONE\""),
            ("$(E)", "missing value for \"E\""),
            ("$(UP)", "unable to provision SubPath `../z`: must not contain '..'"),
            ("$(A)$(E)$(NONE)", "missing value for \"E\""),
            ("$(ROOT)", "error SubPath `/r` must not be an absolute path"),
            ("a/$(UP)", "unable to provision SubPath `a/../z`: must not contain '..'"),
            ("a/..", "unable to provision SubPath `a/..`: must not contain '..'"),
            ("/abs", "error SubPath `/abs` must not be an absolute path"),
            ("$(HALF)$(HALF)$(A)", "SubPath is longer than 4096 bytes"),
        ] {
            assert_eq!(
                one(bad).map_err(|error| error.to_string()),
                Err(why.to_owned()),
                "{bad}"
            );
        }
    }

    fn volume(path: &str) -> HostVolume {
        HostVolume {
            path: path.into(),
            read_only: false,
            own: path.starts_with("/v/"),
        }
    }

    #[test]
    fn what_is_mounted_below_is_read_only_where_the_handler_can() {
        let one = |more: &str, supported: bool| {
            let (pod, c) = container(&format!(r#"[{{"name":"a","mountPath":"/a",{more}}}]"#));
            let volumes = BTreeMap::from([("a".to_owned(), volume("/v/a"))]);
            let made = made((&pod, &c), &volumes, &ContainerFiles::default(), None, supported);
            made.map(|mounts| mounts[0].recursive_read_only)
                .map_err(|error| error.to_string())
        };
        let lead =
            "failed to resolve recursive read-only mode: volume \"a\" requested recursive read-only mode, but it";
        let enabled = r#""readOnly":true,"recursiveReadOnly":"Enabled""#;
        let possible = r#""readOnly":true,"recursiveReadOnly":"IfPossible""#;
        assert_eq!(one(r#""readOnly":true"#, true), Ok(false));
        assert_eq!((one(enabled, true), one(possible, true)), (Ok(true), Ok(true)));
        assert_eq!(one(possible, false), Ok(false));
        assert_eq!(
            one(enabled, false),
            Err(format!("{lead} is not supported by the runtime"))
        );
        assert_eq!(
            one(r#""recursiveReadOnly":"IfPossible""#, true),
            Err(format!("{lead} is not read-only"))
        );
        let shared = r#""readOnly":true,"recursiveReadOnly":"Enabled","mountPropagation":"HostToContainer""#;
        let why = "is not compatible with propagation \"HostToContainer\"";
        assert_eq!(one(shared, true), Err(format!("{lead} {why}")));
    }

    #[test]
    fn mounts_of_a_pod_with_users_of_its_own_are_mapped() {
        let (pod, c) = container(r#"[{"name":"a","mountPath":"/a"}]"#);
        let volumes = BTreeMap::from([("a".to_owned(), volume("/v/a"))]);
        let files = ContainerFiles {
            etc_hosts: Some("/p/etc-hosts".into()),
            ..ContainerFiles::default()
        };
        let ids = IdRange {
            first: 65_536,
            length: 65_536,
        };
        let mounts = made((&pod, &c), &volumes, &files, Some(ids), false).expect("mounts");
        assert_eq!(mounts.len(), 2);
        for mount in mounts {
            let mapping = cri::IdMapping {
                host_id: 65_536,
                container_id: 0,
                length: 65_536,
            };
            assert_eq!((mount.uid_mappings, mount.gid_mappings), (vec![mapping], vec![mapping]));
        }
    }

    #[test]
    fn what_is_the_pods_own_is_labelled_for_it_where_labels_count() {
        let (pod, c) = container(r#"[{"name":"a","mountPath":"/a"},{"name":"h","mountPath":"/h"}]"#);
        let volumes = BTreeMap::from([("a".to_owned(), volume("/v/a")), ("h".to_owned(), volume("/host"))]);
        let files = ContainerFiles {
            termination_log: Some("/p/t".into()),
            ..ContainerFiles::default()
        };
        let labelled = |selinux: bool| {
            let ctx = NodeContext { selinux, ..context() };
            let mounts = mounts(&ContainerInput {
                pod: &pod,
                container: &c,
                restart_count: 0,
                image: &ImageInfo::default(),
                environment: &BTreeMap::new(),
                volumes: &volumes,
                files: &files,
                target: None,
                ids: None,
                recursive_read_only: false,
                unbounded: &Default::default(),
                ctx: &ctx,
            });
            let mounts = mounts.expect("mounts").into_iter();
            mounts.map(|mount| mount.selinux_relabel).collect::<Vec<_>>()
        };
        assert_eq!(labelled(true), [true, false, true], "never a directory of the node");
        assert_eq!(labelled(false), [false; 3]);
    }
}
