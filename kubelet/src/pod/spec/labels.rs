//! Label and annotation keys the kubelet puts on sandboxes and containers (kubelet contract §6): what another kubelet reads
//! back when it takes over the node.

/// Pod name.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Pod namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Pod UID.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Container name.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// Container hash, lower-case hex (see [`super::container_hash`]).
pub const HASH: &str = "io.kubernetes.container.hash";
/// Restart count, decimal.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// `terminationMessagePath`.
pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// `terminationMessagePolicy`.
pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// The preStop handler, JSON.
pub const PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
/// The container's ports, JSON.
pub const PORTS: &str = "io.kubernetes.container.ports";
/// The pod's deletion grace period, seconds.
pub const POD_DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";
/// The pod's termination grace period, seconds.
pub const POD_TERMINATION_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
