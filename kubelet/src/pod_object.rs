//! What can be read of a Pod object: its names, its containers and their kinds, where it comes from. Pure.
//!
//! For everything that handles pods without deciding their life, which is [`crate::pod`]'s: knows of this crate its identifiers alone.

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, EphemeralContainer, Pod, PodSpec, Volume};
use std::borrow::Cow;
use std::sync::LazyLock;

/// Which list a container is in, and how it behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An init container that runs to its end.
    Init,
    /// An init container that keeps running beside the others.
    Sidecar,
    /// A regular container.
    Regular,
    /// A container added to a running pod to look at it: started once, part of nothing.
    Ephemeral,
}

/// Annotations by which a pod tells where it comes from (kubelet contract §3).
pub mod annotation {
    /// `file`, `http` or `api`.
    pub const SOURCE: &str = "kubernetes.io/config.source";
    /// When this kubelet first saw it, RFC 3339.
    pub const SEEN: &str = "kubernetes.io/config.seen";
    /// The UID of a static pod.
    pub const HASH: &str = "kubernetes.io/config.hash";
    /// On a mirror pod: the hash of the static pod it shows.
    pub const MIRROR: &str = "kubernetes.io/config.mirror";
}

/// What a pod without a spec is read as.
static EMPTY: LazyLock<PodSpec> = LazyLock::new(PodSpec::default);

/// The pod's spec; a pod without one has no containers.
pub fn spec(pod: &Pod) -> &PodSpec {
    pod.spec.as_ref().unwrap_or(&EMPTY)
}

/// The pod's name.
pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// The pod's namespace.
pub fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

/// The pod's UID.
pub fn uid(pod: &Pod) -> crate::id::PodUid {
    pod.metadata.uid.as_deref().unwrap_or_default().into()
}

/// The pod's full name.
pub fn full_name(pod: &Pod) -> crate::id::FullName {
    crate::id::FullName {
        namespace: namespace(pod).to_owned(),
        name: name(pod).to_owned(),
    }
}

fn annotated<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The images the pod names: its containers' and those that are volumes, as they are written.
pub fn images(pod: &Pod) -> impl Iterator<Item = &str> {
    let of_containers = containers(pod).filter_map(|(_, container)| container.image.as_deref());
    let of_ephemerals = ephemerals(pod)
        .iter()
        .filter_map(|container| container.image.as_deref());
    let volumes = spec(pod).volumes.iter().flatten();
    let of_volumes = volumes.filter_map(|volume| volume.image.as_ref()?.reference.as_deref());
    of_containers.chain(of_ephemerals).chain(of_volumes)
}

/// Whether the pod comes from a file or URL of this node and not from the API server.
pub fn is_static(pod: &Pod) -> bool {
    annotated(pod, annotation::SOURCE).is_some_and(|source| source != "api")
}

/// The UID of the static pod that this pod of the API server shows, if it is a mirror pod.
pub fn mirror_hash(pod: &Pod) -> Option<&str> {
    annotated(pod, annotation::MIRROR)
}

/// From this priority on a pod is critical: upstream's `SystemCriticalPriority`.
const PRIORITY_CRITICAL: i32 = 2_000_000_000;

/// Whether the node keeps the pod whatever it runs short of, and makes room for it: it is of a file or a URL, and would only come
/// again, it is a mirror of such a one, or it is critical by its priority.
pub fn is_critical(pod: &Pod) -> bool {
    let by_priority = spec(pod).priority.is_some_and(|priority| priority >= PRIORITY_CRITICAL);
    by_priority || is_static(pod) || mirror_hash(pod).is_some()
}

/// Upstream's way of naming a pod in messages, `name_namespace(uid)`.
pub fn described(pod: &Pod) -> String {
    format!("{}_{}({})", name(pod), namespace(pod), uid(pod))
}

/// The init containers.
pub fn inits(pod: &Pod) -> &[Container] {
    spec(pod).init_containers.as_deref().unwrap_or_default()
}

/// The regular containers.
pub fn regulars(pod: &Pod) -> &[Container] {
    &spec(pod).containers
}

/// The ephemeral containers.
pub fn ephemerals(pod: &Pod) -> &[EphemeralContainer] {
    spec(pod).ephemeral_containers.as_deref().unwrap_or_default()
}

/// Whether the pod has an ephemeral container of that name.
pub fn is_ephemeral(pod: &Pod, name: &str) -> bool {
    ephemerals(pod).iter().any(|container| container.name == name)
}

/// An ephemeral container as the container it is; fields that it may not have (probes, hooks, ports, resources) are left out.
pub fn of_ephemeral(ephemeral: &EphemeralContainer) -> Container {
    let own = ephemeral.clone();
    Container {
        name: own.name,
        image: own.image,
        command: own.command,
        args: own.args,
        working_dir: own.working_dir,
        env_from: own.env_from,
        env: own.env,
        volume_mounts: own.volume_mounts,
        volume_devices: own.volume_devices,
        termination_message_path: own.termination_message_path,
        termination_message_policy: own.termination_message_policy,
        image_pull_policy: own.image_pull_policy,
        security_context: own.security_context,
        stdin: own.stdin,
        stdin_once: own.stdin_once,
        tty: own.tty,
        ..Container::default()
    }
}

/// Every container the pod is made of with its kind, init containers first. Ephemeral ones are no part of it.
pub fn containers(pod: &Pod) -> impl Iterator<Item = (Kind, &Container)> {
    let inits = inits(pod).iter().map(|container| (kind_of_init(container), container));
    inits.chain(regulars(pod).iter().map(|container| (Kind::Regular, container)))
}

/// Whether an init container is a sidecar.
pub fn kind_of_init(container: &Container) -> Kind {
    if container.restart_policy.as_deref() == Some("Always") {
        Kind::Sidecar
    } else {
        Kind::Init
    }
}

/// A container by name, whatever its kind.
pub fn find<'a>(pod: &'a Pod, name: &str) -> Option<(Kind, Cow<'a, Container>)> {
    let found = containers(pod).find(|(_, container)| container.name == name);
    found
        .map(|(kind, container)| (kind, Cow::Borrowed(container)))
        .or_else(|| {
            let ephemeral = ephemerals(pod).iter().find(|container| container.name == name)?;
            Some((Kind::Ephemeral, Cow::Owned(of_ephemeral(ephemeral))))
        })
}

/// A volume that is an image, as what has images there sees it: a container of that image, by a name that no container has.
pub fn image_volume(volume: &Volume) -> Option<Container> {
    let source = volume.image.as_ref()?;
    let reference = source.reference.clone().filter(|reference| !reference.is_empty())?;
    Some(Container {
        name: format!("volume/{}", volume.name),
        image: Some(reference),
        image_pull_policy: source.pull_policy.clone(),
        ..Container::default()
    })
}

/// The image volumes that a container mounts, likewise.
pub fn image_volumes(pod: &Pod, container: &Container) -> Vec<Container> {
    let is_mounted = |volume: &&Volume| {
        let mut mounts = container.volume_mounts.iter().flatten();
        mounts.any(|mount| mount.name == volume.name)
    };
    let volumes = spec(pod).volumes.iter().flatten().filter(is_mounted);
    volumes.filter_map(image_volume).collect()
}

/// What an image is had for: a container, or a volume in its guise.
pub fn image_user<'a>(pod: &'a Pod, name: &str) -> Option<Cow<'a, Container>> {
    let volumes = || spec(pod).volumes.iter().flatten().filter_map(image_volume);
    let found = find(pod, name).map(|(_, container)| container);
    found.or_else(|| volumes().find(|volume| volume.name == name).map(Cow::Owned))
}

/// Whether the pod uses the node's network.
pub fn host_network(pod: &Pod) -> bool {
    spec(pod).host_network.unwrap_or(false)
}

/// Whether the pod has users of its own.
pub fn own_users(pod: &Pod) -> bool {
    spec(pod).host_users == Some(false)
}

/// The pod's restart policy.
pub fn restart_policy(pod: &Pod) -> &str {
    spec(pod).restart_policy.as_deref().unwrap_or("Always")
}

/// Whether a container that ended with `exit_code` is to run again: the first of its own rules that matches, then its own
/// policy, then the pod's (kubelet contract §4.3). Sidecars always are, other init containers only while they fail, ephemeral
/// ones never.
pub fn restarts(pod: &Pod, kind: Kind, container: &Container, exit_code: i32) -> bool {
    match kind {
        Kind::Sidecar => return true,
        Kind::Ephemeral => return false,
        Kind::Init | Kind::Regular => {}
    }
    if let Some(action) = first_match(container, exit_code) {
        return matches!(action, "Restart" | RESTART_ALL);
    }
    let policy = container
        .restart_policy
        .as_deref()
        .unwrap_or_else(|| restart_policy(pod));
    match (policy, kind) {
        ("Never", _) => false,
        ("OnFailure", _) | (_, Kind::Init) => exit_code != 0,
        _ => true,
    }
}

/// The action of a rule that restarts all containers of the pod (KEP-5532).
const RESTART_ALL: &str = "RestartAllContainers";

/// Whether all containers of the pod start anew because this one ended so: the first of its rules that matches says it.
pub fn restarts_all(container: &Container, exit_code: i32) -> bool {
    first_match(container, exit_code) == Some(RESTART_ALL)
}

/// Whether some container of the pod can restart all of them.
pub fn may_restart_all(pod: &Pod) -> bool {
    let mut rules = containers(pod).flat_map(|(_, container)| container.restart_policy_rules.iter().flatten());
    rules.any(|rule| rule.action == RESTART_ALL)
}

/// The action of the first rule that matches an exit code, whatever it is: later rules are not asked.
fn first_match(container: &Container, exit_code: i32) -> Option<&str> {
    let rules = container.restart_policy_rules.iter().flatten();
    let matches = |rule: &&ContainerRestartRule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            let listed = codes.values.as_deref().unwrap_or_default().contains(&exit_code);
            match codes.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
        })
    };
    rules.into_iter().find(matches).map(|rule| rule.action.as_str())
}

/// Whether a container that is stopped while it ran is started again: by its own policy, else by the pod's.
pub fn restarts_after_stop(pod: &Pod, kind: Kind, container: &Container) -> bool {
    let policy = container
        .restart_policy
        .as_deref()
        .unwrap_or_else(|| restart_policy(pod));
    kind == Kind::Sidecar || (kind != Kind::Ephemeral && policy != "Never")
}

/// Whether the pod comes from a file of this node.
pub fn is_of_file(pod: &Pod) -> bool {
    annotated(pod, annotation::SOURCE) == Some("file")
}

/// When its source saw a static pod first, as it was written down.
pub fn seen(pod: &Pod) -> Option<&str> {
    annotated(pod, annotation::SEEN)
}

/// The signal a container asks to be stopped by.
pub fn stop_signal(container: &Container) -> Option<&str> {
    let asked = container.lifecycle.as_ref()?.stop_signal.as_deref();
    asked.filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{container, pod};

    fn with_rules(rules: serde_json::Value) -> Container {
        Container {
            restart_policy: Some("Never".into()),
            restart_policy_rules: serde_json::from_value(rules).expect("rules"),
            ..container("c")
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rule = |action: &str, operator: &str, code: i32| serde_json::json!({"action": action, "exitCodes": {"operator": operator, "values": [code]}});
        let pod = pod("p").policy("Always").build();
        for (rules, code, again) in [
            (vec![rule("RestartAllContainers", "In", 42)], 42, true),
            (vec![rule("RestartAllContainers", "In", 42)], 1, false),
            (vec![rule("Restart", "NotIn", 0)], 42, true),
            (vec![rule("Restart", "NotIn", 0)], 0, false),
            // An action of a later version is still the first match.
            (vec![rule("Later", "In", 42), rule("Restart", "NotIn", 0)], 42, false),
            (vec![rule("Later", "In", 42), rule("Restart", "NotIn", 0)], 7, true),
            (vec![rule("Restart", "Weird", 42)], 42, false),
            (vec![], 42, false),
        ] {
            let container = with_rules(serde_json::json!(rules));
            assert_eq!(
                restarts(&pod, Kind::Regular, &container, code),
                again,
                "{rules:?} {code}"
            );
        }
    }
}
