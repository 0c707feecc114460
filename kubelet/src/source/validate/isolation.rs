//! The mistakes in what keeps a pod and its node apart: users, mounts that travel, `/proc`, files that variables come from.

use super::Mistakes;
use k8s_openapi::api::core::v1::{Container, PodSpec, VolumeMount};

/// Checks what a pod shares with its node.
pub(super) fn pod(mistakes: &mut Mistakes, spec: &PodSpec) {
    if spec.host_users != Some(false) {
        return;
    }
    // The last two are shown as upstream shows them.
    for (shared, path) in [
        (spec.host_network, "spec.hostNetwork"),
        (spec.host_pid, "spec.HostPID"),
        (spec.host_ipc, "spec.HostIPC"),
    ] {
        if shared == Some(true) {
            mistakes.forbidden(path, "when `hostUsers` is false");
        }
    }
}

/// Checks a container of that pod.
pub(super) fn container(mistakes: &mut Mistakes, path: &str, container: &Container, spec: &PodSpec) {
    let context = container.security_context.as_ref();
    let proc_mount = context.and_then(|context| context.proc_mount.as_deref());
    let field = format!("{path}.securityContext.procMount");
    mistakes.one_of(&field, proc_mount, &["Default", "Unmasked"]);
    if proc_mount == Some("Unmasked") && spec.host_users != Some(false) {
        mistakes.invalid(&field, "Unmasked", "`hostUsers` must be false to use `Unmasked`");
    }
    let privileged = context.and_then(|context| context.privileged) == Some(true);
    for (at, mount) in container.volume_mounts.iter().flatten().enumerate() {
        check_mount(mistakes, &format!("{path}.volumeMounts[{at}]"), mount, privileged);
    }
    for (at, variable) in container.env.iter().flatten().enumerate() {
        let Some(file) = variable.value_from.as_ref().and_then(|from| from.file_key_ref.as_ref()) else {
            continue;
        };
        let path = format!("{path}.env[{at}].valueFrom.fileKeyRef");
        let mut volumes = spec.volumes.iter().flatten();
        match volumes.find(|volume| volume.name == file.volume_name) {
            None => mistakes
                .0
                .push(format!("{path}.volumeName: Not found: {:?}", file.volume_name)),
            Some(volume) if volume.empty_dir.is_none() => {
                let why = "referenced volume must be of type emptyDir";
                mistakes.invalid(&format!("{path}.volumeName"), &file.volume_name, why);
            }
            Some(_) => {}
        }
    }
}

fn check_mount(mistakes: &mut Mistakes, path: &str, mount: &VolumeMount, privileged: bool) {
    let mode = mount.mount_propagation.as_deref();
    let field = format!("{path}.mountPropagation");
    mistakes.one_of(&field, mode, &["Bidirectional", "HostToContainer", "None"]);
    if mode == Some("Bidirectional") && !privileged {
        let why = "Bidirectional mount propagation is available only to privileged containers";
        mistakes.forbidden(&field, why);
    }
    let recursive = mount.recursive_read_only.as_deref();
    let field = format!("{path}.recursiveReadOnly");
    mistakes.one_of(&field, recursive, &["Disabled", "Enabled", "IfPossible"]);
    if matches!(recursive, Some("Enabled" | "IfPossible")) {
        if mount.read_only != Some(true) {
            mistakes.forbidden(&field, "may only be specified when readOnly is true");
        }
        if mode.is_some_and(|mode| mode != "None") {
            let why = "may only be specified when mountPropagation is None or not specified";
            mistakes.forbidden(&field, why);
        }
    }
}
