//! Which namespaces of the kernel pods and containers have of their own, and whose users they are (kubelet contract §6).

use super::SpecError;
use crate::id::ContainerId;
use crate::user_namespace::IdRange;
use k8s_openapi::api::core::v1::PodSpec;
use proto::cri;

/// A pod's ids of the node, as they are on the inside.
pub(super) fn mappings(ids: IdRange) -> Vec<cri::IdMapping> {
    vec![cri::IdMapping {
        host_id: ids.first,
        container_id: 0,
        length: ids.length,
    }]
}

/// The node's users, or the pod's own.
fn users(spec: &PodSpec, ids: Option<IdRange>) -> Result<cri::UserNamespace, SpecError> {
    if spec.host_users != Some(false) {
        return Ok(cri::UserNamespace {
            mode: cri::NamespaceMode::Node as i32,
            ..Default::default()
        });
    }
    let ids = ids.ok_or(SpecError::NoIds)?;
    Ok(cri::UserNamespace {
        mode: cri::NamespaceMode::Pod as i32,
        uids: mappings(ids),
        gids: mappings(ids),
    })
}

/// Which of the kernel's namespaces a pod has of its own.
pub(super) fn namespaces(spec: &PodSpec, ids: Option<IdRange>) -> Result<cri::NamespaceOption, SpecError> {
    let mode = |host: Option<bool>| match host {
        Some(true) => cri::NamespaceMode::Node,
        _ => cri::NamespaceMode::Pod,
    };
    let pid = match (spec.host_pid, spec.share_process_namespace) {
        (Some(true), _) => cri::NamespaceMode::Node,
        (_, Some(true)) => cri::NamespaceMode::Pod,
        _ => cri::NamespaceMode::Container,
    };
    Ok(cri::NamespaceOption {
        network: mode(spec.host_network) as i32,
        ipc: mode(spec.host_ipc) as i32,
        pid: pid as i32,
        target_id: String::new(),
        userns_options: Some(users(spec, ids)?),
    })
}

/// An ephemeral container that targets another joins its process namespace, unless all containers of the pod share one anyway.
pub(super) fn targeted(mut options: cri::NamespaceOption, target: Option<&ContainerId>) -> cri::NamespaceOption {
    if let Some(target) = target.filter(|_| options.pid == cri::NamespaceMode::Container as i32) {
        options.pid = cri::NamespaceMode::Target as i32;
        options.target_id = target.to_string();
    }
    options
}

#[cfg(test)]
mod tests {
    use super::super::testing::pod;
    use super::*;

    #[test]
    fn a_target_is_seen_from_inside_unless_all_are() {
        let joined = |spec: &str| {
            let pod = pod(spec);
            let options = namespaces(pod.spec.as_ref().expect("spec"), None).expect("valid");
            let options = targeted(options, Some(&"c1".into()));
            (options.pid, options.target_id)
        };
        assert_eq!(joined("{}"), (cri::NamespaceMode::Target as i32, "c1".to_owned()));
        assert_eq!(joined(r#"{"shareProcessNamespace":true}"#), (0, String::new()));
        assert_eq!(joined(r#"{"hostPID":true}"#), (2, String::new()));
    }

    #[test]
    fn a_pod_with_users_of_its_own_has_its_ids() {
        let pod = pod(r#"{"hostUsers":false}"#);
        let ids = IdRange {
            first: 131_072,
            length: 65_536,
        };
        let options = namespaces(pod.spec.as_ref().expect("spec"), Some(ids)).expect("valid");
        let users = options.userns_options.expect("set");
        assert_eq!(users.mode, cri::NamespaceMode::Pod as i32);
        assert_eq!((users.uids, users.gids), (mappings(ids), mappings(ids)));
    }
}
