//! Security contexts of sandboxes and containers (kubelet contract §6).

use super::namespaces::{namespaces, targeted};
use super::{ContainerInput, SpecError};
use crate::pod_object;
use crate::user_namespace::IdRange;
use k8s_openapi::api::core::v1::{
    AppArmorProfile, Capabilities, Container, Pod, PodSpec, SELinuxOptions, SeccompProfile, SecurityContext,
};
use proto::cri;
use std::path::{Component, Path};

const MASKED: &[&str] = &[
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

fn int(value: i64) -> Option<cri::Int64Value> {
    Some(cri::Int64Value { value })
}

fn selinux(options: &SELinuxOptions) -> cri::SeLinuxOption {
    cri::SeLinuxOption {
        user: options.user.clone().unwrap_or_default(),
        role: options.role.clone().unwrap_or_default(),
        r#type: options.type_.clone().unwrap_or_default(),
        level: options.level.clone().unwrap_or_default(),
    }
}

/// Whether any container is privileged; an ephemeral one counts, as the runtime compares it with this.
fn is_privileged(spec: &PodSpec) -> bool {
    let own = super::sandbox::all_containers(spec).map(|container| &container.security_context);
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let mut contexts = own.chain(ephemeral.map(|container| &container.security_context));
    contexts.any(|context| context.as_ref().and_then(|s| s.privileged) == Some(true))
}

fn supplemental_groups(spec: &PodSpec) -> (Vec<i64>, i32) {
    let Some(sc) = &spec.security_context else {
        return (Vec::new(), 0);
    };
    let mut groups: Vec<i64> = sc.fs_group.into_iter().collect();
    groups.extend(sc.supplemental_groups.iter().flatten());
    let policy = match sc.supplemental_groups_policy.as_deref() {
        Some("Strict") => cri::SupplementalGroupsPolicy::Strict,
        _ => cri::SupplementalGroupsPolicy::Merge,
    };
    (groups, policy as i32)
}

fn seccomp_type(profile_type: cri::security_profile::ProfileType) -> cri::SecurityProfile {
    cri::SecurityProfile {
        profile_type: profile_type as i32,
        localhost_ref: String::new(),
    }
}

/// The sandbox's security context.
pub(super) fn sandbox_security(
    spec: &PodSpec,
    ids: Option<IdRange>,
) -> Result<cri::LinuxSandboxSecurityContext, SpecError> {
    let (groups, policy) = supplemental_groups(spec);
    let sc = spec.security_context.as_ref();
    Ok(cri::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(spec, ids)?),
        selinux_options: sc.and_then(|s| s.se_linux_options.as_ref()).map(selinux),
        run_as_user: sc.and_then(|s| s.run_as_user).and_then(int),
        run_as_group: sc.and_then(|s| s.run_as_group).and_then(int),
        supplemental_groups: groups,
        supplemental_groups_policy: policy,
        privileged: is_privileged(spec),
        seccomp: Some(seccomp_type(cri::security_profile::ProfileType::RuntimeDefault)),
        ..Default::default()
    })
}

/// A localhost profile must stay below the profile root (CVE-2023-2431: an empty one must not mean "none").
fn localhost_profile<'a>(field: &'static str, name: Option<&'a str>) -> Result<&'a str, SpecError> {
    let bad = |why: &str| SpecError::Invalid {
        field,
        why: why.to_owned(),
    };
    match name {
        None | Some("") => Err(bad("localhostProfile must be set if the type is Localhost")),
        Some(name) => {
            let path = Path::new(name);
            let leaves = path.is_absolute() || path.components().any(|c| matches!(c, Component::ParentDir));
            if leaves {
                return Err(bad("localhostProfile must be a descending relative path"));
            }
            Ok(name)
        }
    }
}

fn seccomp(profile: Option<&SeccompProfile>, input: &ContainerInput<'_>) -> Result<cri::SecurityProfile, SpecError> {
    use cri::security_profile::ProfileType;
    let Some(profile) = profile else {
        return Ok(seccomp_type(if input.ctx.seccomp_default {
            ProfileType::RuntimeDefault
        } else {
            ProfileType::Unconfined
        }));
    };
    match profile.type_.as_str() {
        "RuntimeDefault" => Ok(seccomp_type(ProfileType::RuntimeDefault)),
        "Unconfined" => Ok(seccomp_type(ProfileType::Unconfined)),
        "Localhost" => {
            let name = localhost_profile("seccompProfile", profile.localhost_profile.as_deref())?;
            let path = input.ctx.root_dir.join("seccomp").join(name);
            Ok(cri::SecurityProfile {
                profile_type: ProfileType::Localhost as i32,
                localhost_ref: path.to_string_lossy().into_owned(),
            })
        }
        other => Err(SpecError::Invalid {
            field: "seccompProfile",
            why: format!("unknown type {other:?}"),
        }),
    }
}

/// AppArmor in both forms: typed, and the string older runtimes read.
/// Annotations by which older manifests ask for a profile; the API server turns them into fields, nobody does for static pods.
const APPARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The AppArmor profile a container is to have: its own, else a static pod's annotation for it, else the pod's.
pub fn apparmor_profile(pod: &Pod, container: &Container) -> Option<AppArmorProfile> {
    let of_pod = pod_object::spec(pod).security_context.as_ref();
    let of_pod = of_pod.and_then(|context| context.app_armor_profile.clone());
    let own = container.security_context.as_ref();
    let own = own.and_then(|context| context.app_armor_profile.clone());
    let annotated = pod.metadata.annotations.as_ref().filter(|_| pod_object::is_static(pod));
    let annotated = annotated.and_then(|all| all.get(&format!("{APPARMOR_ANNOTATION}{}", container.name)));
    own.or_else(|| annotated.and_then(|text| annotated_profile(text)))
        .or(of_pod)
}

/// What an annotation asks for: `runtime/default`, `unconfined` or `localhost/<profile>`.
fn annotated_profile(text: &str) -> Option<AppArmorProfile> {
    let (kind, name) = match text.split_once('/') {
        Some(("runtime", "default")) => ("RuntimeDefault", None),
        Some(("localhost", name)) => ("Localhost", Some(name.to_owned())),
        None if text == "unconfined" => ("Unconfined", None),
        _ => return None,
    };
    Some(AppArmorProfile {
        type_: kind.to_owned(),
        localhost_profile: name,
    })
}

fn apparmor(profile: Option<&AppArmorProfile>) -> Result<(Option<cri::SecurityProfile>, String), SpecError> {
    use cri::security_profile::ProfileType;
    let Some(profile) = profile else {
        return Ok((None, String::new()));
    };
    match profile.type_.as_str() {
        "RuntimeDefault" => Ok((
            Some(seccomp_type(ProfileType::RuntimeDefault)),
            "runtime/default".into(),
        )),
        "Unconfined" => Ok((Some(seccomp_type(ProfileType::Unconfined)), "unconfined".into())),
        _ => {
            let name = localhost_profile("appArmorProfile", profile.localhost_profile.as_deref())?;
            let typed = cri::SecurityProfile {
                profile_type: ProfileType::Localhost as i32,
                localhost_ref: name.to_owned(),
            };
            Ok((Some(typed), format!("localhost/{name}")))
        }
    }
}

fn capabilities(caps: &Capabilities) -> cri::Capability {
    cri::Capability {
        add_capabilities: caps.add.clone().unwrap_or_default(),
        drop_capabilities: caps.drop.clone().unwrap_or_default(),
        add_ambient_capabilities: Vec::new(),
    }
}

/// The user a container runs as: number, else name; an image without a user means root.
struct User {
    number: Option<i64>,
    name: String,
}

fn check_non_root(
    pod: &Pod,
    container: &Container,
    wanted: bool,
    explicit: Option<i64>,
    image: &User,
) -> Result<(), SpecError> {
    if !wanted {
        return Ok(());
    }
    let meta = &pod.metadata;
    let name = format!(
        "{}_{}({})",
        meta.name.as_deref().unwrap_or_default(),
        meta.namespace.as_deref().unwrap_or_default(),
        meta.uid.as_deref().unwrap_or_default()
    );
    let place = format!("(pod: {name:?}, container: {})", container.name);
    match explicit {
        Some(0) => {
            return Err(SpecError::NonRoot(format!(
                "container's runAsUser breaks non-root policy {place}"
            )));
        }
        Some(_) => return Ok(()),
        None => {}
    }
    match image.number {
        Some(0) => Err(SpecError::NonRoot(format!(
            "container has runAsNonRoot and image will run as root {place}"
        ))),
        Some(_) => Ok(()),
        None => Err(SpecError::NonRoot(format!(
            "container has runAsNonRoot and image has non-numeric user ({}), cannot verify user is non-root {place}",
            image.name
        ))),
    }
}

/// The container's security context: its own fields, else the pod's, else the image's.
pub(super) fn container_security(input: &ContainerInput<'_>) -> Result<cri::LinuxContainerSecurityContext, SpecError> {
    let spec = input.pod.spec.clone().unwrap_or_default();
    let of_pod = spec.security_context.clone().unwrap_or_default();
    let own: SecurityContext = input.container.security_context.clone().unwrap_or_default();
    let explicit = own.run_as_user.or(of_pod.run_as_user);
    let image = User {
        number: match (input.image.uid, input.image.username.as_str()) {
            (None, "") => Some(0),
            (number, _) => number,
        },
        name: input.image.username.clone(),
    };
    let non_root = own.run_as_non_root.or(of_pod.run_as_non_root) == Some(true);
    check_non_root(input.pod, input.container, non_root, explicit, &image)?;
    let user = explicit.or(image.number);
    let unmasked = own.proc_mount.as_deref() == Some("Unmasked");
    let (groups, policy) = supplemental_groups(&spec);
    let (apparmor, apparmor_profile) = apparmor(apparmor_profile(input.pod, input.container).as_ref())?;
    let masked = MASKED
        .iter()
        .map(|p| (*p).to_owned())
        .chain(input.ctx.thermal_paths.iter().cloned());
    Ok(cri::LinuxContainerSecurityContext {
        capabilities: own.capabilities.as_ref().map(capabilities),
        privileged: own.privileged == Some(true),
        namespace_options: Some(targeted(namespaces(&spec, input.ids)?, input.target)),
        selinux_options: own
            .se_linux_options
            .as_ref()
            .or(of_pod.se_linux_options.as_ref())
            .map(selinux),
        run_as_user: user.and_then(int),
        run_as_group: own.run_as_group.or(of_pod.run_as_group).and_then(int),
        run_as_username: if user.is_none() { image.name } else { String::new() },
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: groups,
        supplemental_groups_policy: policy,
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: if unmasked { Vec::new() } else { masked.collect() },
        readonly_paths: if unmasked {
            Vec::new()
        } else {
            READ_ONLY.iter().map(|p| (*p).to_owned()).collect()
        },
        seccomp: Some(seccomp(
            own.seccomp_profile.as_ref().or(of_pod.seccomp_profile.as_ref()),
            input,
        )?),
        apparmor,
        apparmor_profile,
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::ContainerFiles;
    use super::super::testing::{context, pod};
    use super::*;
    use crate::runtime::ImageInfo;
    use std::collections::BTreeMap;

    fn security(spec: &str, image: ImageInfo) -> Result<cri::LinuxContainerSecurityContext, SpecError> {
        let pod = pod(spec);
        let ctx = context();
        container_security(&ContainerInput {
            pod: &pod,
            container: &pod.spec.as_ref().expect("spec").containers[0],
            restart_count: 0,
            image: &image,
            environment: &BTreeMap::new(),
            volumes: &BTreeMap::new(),
            files: &ContainerFiles::default(),
            target: None,
            ids: None,
            recursive_read_only: false,
            unbounded: &Default::default(),
            ctx: &ctx,
        })
    }

    fn user(uid: Option<i64>, username: &str) -> ImageInfo {
        ImageInfo {
            id: "i".into(),
            uid,
            username: username.into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_static_pods_annotation_is_its_containers_profile() {
        let profile = |source: &str, annotation: &str, own: &str| {
            let spec = format!(r#"{{"containers":[{{"name":"c"{own}}}]}}"#);
            let mut pod = pod(&spec);
            let all = pod.metadata.annotations.get_or_insert_default();
            all.insert("kubernetes.io/config.source".into(), source.into());
            all.insert(format!("{APPARMOR_ANNOTATION}c"), annotation.into());
            let ctx = context();
            let context = container_security(&ContainerInput {
                pod: &pod,
                container: &pod.spec.as_ref().expect("spec").containers[0],
                restart_count: 0,
                image: &user(Some(1), ""),
                environment: &BTreeMap::new(),
                volumes: &BTreeMap::new(),
                files: &ContainerFiles::default(),
                target: None,
                ids: None,
                recursive_read_only: false,
                unbounded: &Default::default(),
                ctx: &ctx,
            });
            context.expect("valid").apparmor_profile
        };
        assert_eq!(profile("file", "localhost/k8s-deny", ""), "localhost/k8s-deny");
        assert_eq!(profile("file", "runtime/default", ""), "runtime/default");
        assert_eq!(profile("http", "unconfined", ""), "unconfined");
        assert_eq!(
            profile("api", "localhost/k8s-deny", ""),
            "",
            "the API server's fields say it"
        );
        let own = r#","securityContext":{"appArmorProfile":{"type":"Unconfined"}}"#;
        assert_eq!(profile("file", "localhost/k8s-deny", own), "unconfined");
    }

    #[test]
    fn non_root_is_verified() {
        let message = |spec: &str, image| security(spec, image).err().map(|e| e.to_string());
        let non_root = r#"{"securityContext":{"runAsNonRoot":true}}"#;
        assert_eq!(
            message(non_root, user(None, "")).as_deref(),
            Some("container has runAsNonRoot and image will run as root (pod: \"web_shop(u-1)\", container: main)")
        );
        assert_eq!(
            message(non_root, user(None, "www")).as_deref(),
            Some(
                "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root (pod: \"web_shop(u-1)\", container: main)"
            )
        );
        assert_eq!(
            message(
                r#"{"securityContext":{"runAsNonRoot":true,"runAsUser":0}}"#,
                user(Some(5), "")
            )
            .as_deref(),
            Some("container's runAsUser breaks non-root policy (pod: \"web_shop(u-1)\", container: main)")
        );
        assert_eq!(message(non_root, user(Some(101), "")), None);
    }

    #[test]
    fn container_overrides_pod_overrides_image() {
        let spec = r#"{"securityContext":{"runAsUser":10,"runAsGroup":11,"fsGroup":12,"supplementalGroups":[13]},
            "containers":[{"name":"c","securityContext":{"runAsUser":20,"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true,"capabilities":{"add":["NET_ADMIN"],"drop":["ALL"]}}}]}"#;
        let sc = security(spec, user(Some(30), "")).expect("valid");
        assert_eq!(sc.run_as_user.map(|v| v.value), Some(20));
        assert_eq!(sc.run_as_group.map(|v| v.value), Some(11));
        assert_eq!(sc.supplemental_groups, vec![12, 13]);
        assert!(sc.no_new_privs && sc.readonly_rootfs);
        assert_eq!(
            sc.capabilities.map(|c| (c.add_capabilities, c.drop_capabilities)),
            Some((vec!["NET_ADMIN".into()], vec!["ALL".into()]))
        );
        let by_name = security("{}", user(None, "www")).expect("valid");
        assert_eq!((by_name.run_as_user, by_name.run_as_username.as_str()), (None, "www"));
        assert_eq!(by_name.seccomp.map(|s| s.profile_type), Some(1));
        assert_eq!(by_name.masked_paths.len(), 12);
        let unmasked = security(
            r#"{"containers":[{"name":"c","securityContext":{"procMount":"Unmasked"}}]}"#,
            user(None, ""),
        )
        .expect("valid");
        assert!(unmasked.masked_paths.is_empty() && unmasked.readonly_paths.is_empty());
    }

    #[test]
    fn localhost_profiles_stay_inside_their_root() {
        let with = |name: &str| {
            let spec = format!(
                r#"{{"securityContext":{{"seccompProfile":{{"type":"Localhost","localhostProfile":"{name}"}}}}}}"#
            );
            security(&spec, user(None, "")).map(|s| s.seccomp.map(|p| p.localhost_ref).unwrap_or_default())
        };
        assert_eq!(with("a/b.json").as_deref(), Ok("/var/lib/kubelet/seccomp/a/b.json"));
        for bad in ["", "../x", "/etc/x", "a/../../x"] {
            assert!(with(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sandbox_namespaces() {
        let of = |spec: &str| {
            let pod = pod(spec);
            sandbox_security(pod.spec.as_ref().expect("spec"), None).map(|s| {
                let n = s.namespace_options.expect("set");
                (n.network, n.pid, n.ipc, s.privileged)
            })
        };
        assert_eq!(of("{}"), Ok((0, 1, 0, false)));
        assert_eq!(
            of(r#"{"hostNetwork":true,"hostPID":true,"hostIPC":true}"#),
            Ok((2, 2, 2, false))
        );
        assert_eq!(of(r#"{"shareProcessNamespace":true}"#), Ok((0, 0, 0, false)));
        assert_eq!(
            of(r#"{"containers":[{"name":"c","securityContext":{"privileged":true}}]}"#),
            Ok((0, 1, 0, true))
        );
        assert_eq!(
            of(r#"{"ephemeralContainers":[{"name":"d","securityContext":{"privileged":true}}]}"#),
            Ok((0, 1, 0, true))
        );
        assert_eq!(
            of(r#"{"hostUsers":false}"#),
            Err(SpecError::NoIds),
            "never the node's by mistake"
        );
    }
}
