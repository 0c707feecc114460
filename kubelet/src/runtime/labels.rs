//! Label and annotation keys the kubelet puts on sandboxes and containers and reads back (kubelet contract §6): what another
//! kubelet finds when it takes over the node.

/// The label of a sandbox or container that holds its pod's name.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// The label of a sandbox or container that holds its pod's namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// The label of a sandbox or container that holds its pod's UID.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// The label of a container that holds its name in the pod.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// The annotation of a container with the hash of its name and image, lower-case hexadecimal.
pub const HASH: &str = "io.kubernetes.container.hash";
/// The annotation of a container with its restart count, decimal.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// The annotation of a container with the path its termination message is written to, inside the container.
pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// The annotation of a container with its termination message policy.
pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// The annotation of a container with its preStop handler, JSON.
pub const PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
/// The annotation of a container with its ports, JSON.
pub const PORTS: &str = "io.kubernetes.container.ports";
/// The annotation of a container with its pod's deletion grace period, seconds.
pub const POD_DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";
/// The annotation of a container with its pod's termination grace period, seconds.
pub const POD_TERMINATION_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
