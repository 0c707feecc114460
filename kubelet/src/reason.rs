//! The words by which users and programs tell outcomes apart: reasons of events, of waiting and ended containers, of pods and
//! of their refusal, and the types and reasons of conditions of pods and nodes (kubelet contract §5, §14, §2.2). Upstream's
//! strings, each written once: `tests/tidy` finds those that are written elsewhere. Pure.

/// Reasons of events.
pub mod event {
    /// A container or a pull waits for its back-off.
    pub const BACK_OFF: &str = "BackOff";
    /// The node's cgroups are of the older version, which is no longer cared for.
    pub const CGROUP_V1: &str = "CgroupV1";
    /// The node's resolver configuration is more than pods can be given.
    pub const CHECK_LIMITS_FOR_RESOLV_CONF: &str = "CheckLimitsForResolvConf";
    /// Dead containers could not be removed.
    pub const CONTAINER_GC_FAILED: &str = "ContainerGCFailed";
    /// A container is created.
    pub const CREATED: &str = "Created";
    /// The pod was active for longer than it may.
    pub const DEADLINE_EXCEEDED: &str = super::pod::DEADLINE_EXCEEDED;
    /// Another kubelet of this node's name is at work (upstream has no such event).
    pub const DUPLICATE_NODE_NAME: &str = "DuplicateNodeName";
    /// What the node keeps of its pods cannot be read or written (a setting of our own).
    pub const NODE_AUTONOMY: &str = "NodeAutonomy";
    /// A part of the cluster's network does not do its work on this node (a setting of our own).
    pub const CLUSTER_NETWORK: &str = "ClusterNetworkFailed";
    /// Something in a NetworkPolicy cannot be enforced as it is written (likewise).
    pub const POLICY_NOT_ENFORCED: &str = "NetworkPolicyNotEnforced";
    /// A new pod lacks what deleted pods still have, and waits for them to end (likewise).
    pub const WAITING_FOR_ROOM: &str = "WaitingForRoom";
    /// What is in the pod's volumes cannot be told.
    pub const VOLUME_CONDITION_ABNORMAL: &str = "VolumeConditionAbnormal";
    /// The node runs short of something and begins to reclaim it.
    pub const EVICTION_THRESHOLD_MET: &str = "EvictionThresholdMet";
    /// The pod had to go: it used too much, or the node had too little.
    pub const EVICTED: &str = super::pod::EVICTED;
    /// The pod's resolver configuration had to be cut.
    pub const DNS_CONFIG_FORMING: &str = "DNSConfigForming";
    /// An image is not there, and is not to be pulled.
    pub const ERR_IMAGE_NEVER_PULL: &str = super::waiting::ERR_IMAGE_NEVER_PULL;
    /// The node ends the pod, and it is not over long after its grace.
    pub const EXCEEDED_GRACE_PERIOD: &str = "ExceededGracePeriod";
    /// A container's image, creation or start failed.
    pub const FAILED: &str = "Failed";
    /// The pod's cgroup cannot be made.
    pub const FAILED_CREATE_POD_CONTAINER: &str = "FailedCreatePodContainer";
    /// The pod's sandbox cannot be made.
    pub const FAILED_CREATE_POD_SANDBOX: &str = "FailedCreatePodSandBox";
    /// A container or a sandbox cannot be stopped.
    pub const FAILED_KILL_POD: &str = "FailedKillPod";
    /// The pod's directories cannot be made.
    pub const FAILED_TO_MAKE_POD_DATA_DIRECTORIES: &str = "FailedToMakePodDataDirectories";
    /// The pod's volumes cannot be mounted.
    pub const FAILED_MOUNT: &str = "FailedMount";
    /// The runtime does not say how a sandbox is that it just made.
    pub const FAILED_POD_SANDBOX_STATUS: &str = "FailedPodSandBoxStatus";
    /// What the pod's resource claims stand for could not be prepared.
    pub const FAILED_PREPARE_DYNAMIC_RESOURCES: &str = "FailedPrepareDynamicResources";
    /// A postStart hook failed.
    pub const FAILED_POST_START_HOOK: &str = "FailedPostStartHook";
    /// A preStop hook failed.
    pub const FAILED_PRE_STOP_HOOK: &str = "FailedPreStopHook";
    /// Pull secrets of the pod are missing or cannot be read.
    pub const FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET: &str = "FailedToRetrieveImagePullSecret";
    /// The runtime does not say how the pod is.
    pub const FAILED_SYNC: &str = "FailedSync";
    /// A source delivers the pod twice.
    pub const FAILED_VALIDATION: &str = "FailedValidation";
    /// Unused images did not give enough room.
    pub const FREE_DISK_SPACE_FAILED: &str = "FreeDiskSpaceFailed";
    /// The pod was told an address of another family than the node's first one is of.
    pub const HOST_IPS_FAMILY_MISMATCH: &str = "HostIPsIPFamilyMismatch";
    /// Unused images could not be removed, more than once.
    pub const IMAGE_GC_FAILED: &str = "ImageGCFailed";
    /// An image's name or presence cannot be made out.
    pub const INSPECT_FAILED: &str = "InspectFailed";
    /// The file system of images has no size.
    pub const INVALID_DISK_CAPACITY: &str = "InvalidDiskCapacity";
    /// The kubelet's directories or the pods' cgroups cannot be made: it ends.
    pub const KUBELET_SETUP_FAILED: &str = "KubeletSetupFailed";
    /// A container is being stopped.
    pub const KILLING: &str = "Killing";
    /// A hook was answered without TLS.
    pub const LIFECYCLE_HTTP_FALLBACK: &str = "LifecycleHTTPFallback";
    /// The pod wants the cluster's DNS, and the kubelet knows none.
    pub const MISSING_CLUSTER_DNS: &str = "MissingClusterDNS";
    /// The pod waits for the node's network.
    pub const NETWORK_NOT_READY: &str = "NetworkNotReady";
    /// Pods together are held to what is allocatable.
    pub const NODE_ALLOCATABLE_ENFORCED: &str = "NodeAllocatableEnforced";
    /// Pods, or a cgroup that something is set aside for, could not be held to their part of the node yet.
    pub const FAILED_NODE_ALLOCATABLE_ENFORCEMENT: &str = "FailedNodeAllocatableEnforcement";
    /// The node runs short of disk.
    pub const NODE_HAS_DISK_PRESSURE: &str = "NodeHasDiskPressure";
    /// The node runs short of memory.
    pub const NODE_HAS_INSUFFICIENT_MEMORY: &str = "NodeHasInsufficientMemory";
    /// The node runs short of process ids.
    pub const NODE_HAS_INSUFFICIENT_PID: &str = "NodeHasInsufficientPID";
    /// The node has disk enough.
    pub const NODE_HAS_NO_DISK_PRESSURE: &str = "NodeHasNoDiskPressure";
    /// The node has memory enough.
    pub const NODE_HAS_SUFFICIENT_MEMORY: &str = "NodeHasSufficientMemory";
    /// The node has process ids enough.
    pub const NODE_HAS_SUFFICIENT_PID: &str = "NodeHasSufficientPID";
    /// The node can no longer run pods.
    pub const NODE_NOT_READY: &str = "NodeNotReady";
    /// The node takes no new pods: somebody said so.
    pub const NODE_NOT_SCHEDULABLE: &str = "NodeNotSchedulable";
    /// The node can run pods.
    pub const NODE_READY: &str = "NodeReady";
    /// The node takes new pods again.
    pub const NODE_SCHEDULABLE: &str = "NodeSchedulable";
    /// The node has swap, and its kernel cannot keep volumes of memory out of it.
    pub const POSSIBLE_MEMORY_BACKED_VOLUMES_ON_DISK: &str = "PossibleMemoryBackedVolumesOnDisk";
    /// The pod makes room for a critical one.
    pub const PREEMPTING: &str = super::pod::PREEMPTING;
    /// A probe worked, but not quite.
    pub const PROBE_WARNING: &str = "ProbeWarning";
    /// An image is there.
    pub const PULLED: &str = "Pulled";
    /// An image is being pulled.
    pub const PULLING: &str = "Pulling";
    /// The machine was booted since the node was last described.
    pub const REBOOTED: &str = "Rebooted";
    /// A resize is done.
    pub const RESIZE_COMPLETED: &str = "ResizeCompleted";
    /// A resize waits for room.
    pub const RESIZE_DEFERRED: &str = "ResizeDeferred";
    /// A resize was given its room, and does not get further for now.
    pub const RESIZE_ERROR: &str = "ResizeError";
    /// A resize is refused for good.
    pub const RESIZE_INFEASIBLE: &str = "ResizeInfeasible";
    /// A resize was given its room.
    pub const RESIZE_STARTED: &str = "ResizeStarted";
    /// The pod gets another sandbox.
    pub const SANDBOX_CHANGED: &str = "SandboxChanged";
    /// The machine is going down, or does not after all.
    pub const SHUTDOWN: &str = "Shutdown";
    /// The kubelet begins its work.
    pub const STARTING: &str = "Starting";
    /// A container is started.
    pub const STARTED: &str = "Started";
    /// The runtime does not stop a container by the signal it asks for (upstream has no such event).
    pub const STOP_SIGNAL_IGNORED: &str = "StopSignalIgnored";
    /// The kernel killed a process because the machine had no memory left.
    pub const SYSTEM_OOM: &str = "SystemOOM";
    /// A probe failed.
    pub const UNHEALTHY: &str = "Unhealthy";
}

/// Reasons of waiting containers.
pub mod waiting {
    /// Nothing stands in its way but time.
    pub const CONTAINER_CREATING: &str = "ContainerCreating";
    /// It ended, and waits to be started again.
    pub const CRASH_LOOP_BACK_OFF: &str = "CrashLoopBackOff";
    /// It cannot be put into the runtime's terms.
    pub const CREATE_CONTAINER_CONFIG_ERROR: &str = "CreateContainerConfigError";
    /// The runtime cannot create it.
    pub const CREATE_CONTAINER_ERROR: &str = "CreateContainerError";
    /// Its image is not there, and is not to be pulled.
    pub const ERR_IMAGE_NEVER_PULL: &str = "ErrImageNeverPull";
    /// Its image cannot be pulled.
    pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
    /// The runtime does not say whether its image is there.
    pub const IMAGE_INSPECT_ERROR: &str = "ImageInspectError";
    /// Its image cannot be pulled, and is not tried at the moment.
    pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
    /// Its image's name is none.
    pub const INVALID_IMAGE_NAME: &str = "InvalidImageName";
    /// It was removed because all containers of its pod are restarted.
    pub const RESTARTING_ALL_CONTAINERS: &str = "RestartingAllContainers";
    /// Init containers come first.
    pub const POD_INITIALIZING: &str = "PodInitializing";
    /// Its postStart hook failed.
    pub const POST_START_HOOK_ERROR: &str = "PostStartHookError";
    /// The registry does not answer.
    pub const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";
    /// The runtime cannot start it.
    pub const RUN_CONTAINER_ERROR: &str = "RunContainerError";
    /// Its image's signature is wrong.
    pub const SIGNATURE_VALIDATION_FAILED: &str = "SignatureValidationFailed";
}

/// Reasons of containers that ended, where they are not the runtime's.
pub mod terminated {
    /// It did its work.
    pub const COMPLETED: &str = "Completed";
    /// It could not even be run.
    pub const CONTAINER_CANNOT_RUN: &str = "ContainerCannotRun";
    /// Nobody can find it any more.
    pub const CONTAINER_STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
    /// It ended with another exit code than 0; the runtime says so.
    pub const ERROR: &str = "Error";
    /// It was removed because all containers of its pod are restarted.
    pub const RESTARTING_ALL_CONTAINERS: &str = super::waiting::RESTARTING_ALL_CONTAINERS;
    /// Those that are counted by their names, some of them the runtimes' own; all others count as [`ERROR`].
    pub const COUNTED: &[&str] = &[
        COMPLETED,
        CONTAINER_CANNOT_RUN,
        CONTAINER_STATUS_UNKNOWN,
        super::pod::DEADLINE_EXCEEDED,
        ERROR,
        "OOMKilled",
        RESTARTING_ALL_CONTAINERS,
        "StartError",
        "Unknown",
    ];
}

/// Reasons of pods as a whole.
pub mod pod {
    /// It was active for longer than it may.
    pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
    /// It used too much of something, or the node had too little.
    pub const EVICTED: &str = "Evicted";
    /// It made room for a critical pod.
    pub const PREEMPTING: &str = "Preempting";
    /// The node is being shut down.
    pub const TERMINATED: &str = "Terminated";
}

/// Types and reasons of pod conditions.
pub mod condition {
    /// A container's end restarts all of the pod's.
    pub const ALL_CONTAINERS_RESTARTING: &str = "AllContainersRestarting";
    /// All containers are ready.
    pub const CONTAINERS_READY: &str = "ContainersReady";
    /// The node ends the pod.
    pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
    /// Init containers have done their work.
    pub const INITIALIZED: &str = "Initialized";
    /// The pod was given other resources than its containers run with.
    pub const POD_RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";
    /// The pod wants other resources than it was given.
    pub const POD_RESIZE_PENDING: &str = "PodResizePending";
    /// The pod has the sandbox it needs.
    pub const POD_READY_TO_START_CONTAINERS: &str = "PodReadyToStartContainers";
    /// The pod has a node.
    pub const POD_SCHEDULED: &str = "PodScheduled";
    /// The pod serves.
    pub const READY: &str = "Ready";

    /// Init containers are not over.
    pub const CONTAINERS_NOT_INITIALIZED: &str = "ContainersNotInitialized";
    /// Some container is not ready.
    pub const CONTAINERS_NOT_READY: &str = "ContainersNotReady";
    /// The pod did its work.
    pub const POD_COMPLETED: &str = "PodCompleted";
    /// The pod failed.
    pub const POD_FAILED: &str = "PodFailed";
    /// A readiness gate is closed.
    pub const READINESS_GATES_NOT_READY: &str = "ReadinessGatesNotReady";
    /// A container ended by a rule that restarts all.
    pub const RESTART_ALL_CONTAINERS_STARTED: &str = "RestartAllContainersStarted";
    /// There is no room for a resize now.
    pub const DEFERRED: &str = "Deferred";
    /// A resize cannot be had.
    pub const INFEASIBLE: &str = "Infeasible";
    /// A resize does not get further.
    pub const ERROR: &str = super::terminated::ERROR;
    /// It is the kubelet that ends the pod.
    pub const TERMINATION_BY_KUBELET: &str = "TerminationByKubelet";

    /// The types whose state is the kubelet's to tell.
    pub const OWN: [&str; 9] = [
        ALL_CONTAINERS_RESTARTING,
        POD_READY_TO_START_CONTAINERS,
        INITIALIZED,
        READY,
        CONTAINERS_READY,
        POD_SCHEDULED,
        DISRUPTION_TARGET,
        POD_RESIZE_IN_PROGRESS,
        POD_RESIZE_PENDING,
    ];
}

/// Reasons of pods the node refuses.
pub mod admission {
    /// They are to be confined by AppArmor, which the kernel does not have.
    pub const APP_ARMOR: &str = "AppArmor";
    /// The node's labels are not those they ask for.
    pub const NODE_AFFINITY: &str = "NodeAffinity";
    /// They are bound to another node.
    pub const NODE_NAME: &str = "NodeName";
    /// Another pod has a port they want.
    pub const NODE_PORTS: &str = "NodePorts";
    /// The machine is going down.
    pub const NODE_SHUTDOWN: &str = "NodeShutdown";
    /// They need what this node does not declare.
    pub const POD_FEATURE_UNSUPPORTED: &str = "PodFeatureUnsupported";
    /// How the reason begins where too little is left of a resource, whose name follows.
    pub const OUT_OF: &str = "OutOf";
    /// They are written for another operating system.
    pub const POD_OS_NOT_SUPPORTED: &str = "PodOSNotSupported";
    /// Their label names another operating system.
    pub const POD_OS_SELECTOR_NODE_LABEL_DOES_NOT_MATCH: &str = "PodOSSelectorNodeLabelDoesNotMatch";
    /// They must not have the groups of their images, which the runtime cannot keep from them.
    pub const SUPPLEMENTAL_GROUPS_POLICY_NOT_SUPPORTED: &str = "SupplementalGroupsPolicyNotSupported";
    /// They ask for parts of cores where only whole ones are given.
    pub const SMT_ALIGNMENT_ERROR: &str = "SMTAlignmentError";
    /// What they ask for is not near enough to each other.
    pub const TOPOLOGY_AFFINITY_ERROR: &str = "TopologyAffinityError";
    /// They set a sysctl they may not.
    pub const SYSCTL_FORBIDDEN: &str = "SysctlForbidden";
    /// The node runs short of something.
    pub const EVICTED: &str = super::pod::EVICTED;
    /// They are critical, and nobody can make room for them; or CPUs or memory they are to have alone cannot be given.
    pub const UNEXPECTED_ADMISSION_ERROR: &str = "UnexpectedAdmissionError";
    /// They would be evicted at once.
    pub const TAINT_TOLERATION: &str = "TaintToleration";
}

/// How well a device is (`allocatedResourcesStatus`).
pub mod device_health {
    /// It works.
    pub const HEALTHY: &str = "Healthy";
    /// It does not.
    pub const UNHEALTHY: &str = "Unhealthy";
    /// Nobody says.
    pub const UNKNOWN: &str = "Unknown";
}

/// Types and reasons of the node's conditions.
pub mod node {
    /// The node runs short of disk.
    pub const DISK_PRESSURE: &str = "DiskPressure";
    /// The node runs short of memory.
    pub const MEMORY_PRESSURE: &str = "MemoryPressure";
    /// The node runs short of process ids.
    pub const PID_PRESSURE: &str = "PIDPressure";
    /// The node can run pods.
    pub const READY: &str = super::condition::READY;

    /// There is too little disk.
    pub const KUBELET_HAS_DISK_PRESSURE: &str = "KubeletHasDiskPressure";
    /// There is too little memory.
    pub const KUBELET_HAS_INSUFFICIENT_MEMORY: &str = "KubeletHasInsufficientMemory";
    /// There are too few process ids.
    pub const KUBELET_HAS_INSUFFICIENT_PID: &str = "KubeletHasInsufficientPID";
    /// There is disk enough.
    pub const KUBELET_HAS_NO_DISK_PRESSURE: &str = "KubeletHasNoDiskPressure";
    /// There is memory enough.
    pub const KUBELET_HAS_SUFFICIENT_MEMORY: &str = "KubeletHasSufficientMemory";
    /// There are process ids enough.
    pub const KUBELET_HAS_SUFFICIENT_PID: &str = "KubeletHasSufficientPID";
    /// Something is missing that pods need.
    pub const KUBELET_NOT_READY: &str = "KubeletNotReady";
    /// Nothing is missing.
    pub const KUBELET_READY: &str = "KubeletReady";
}
