//! Feature gates: which names there are, which can no longer be changed, and what those that have an effect say. Pure.
//!
//! A few gates change what this kubelet does; a name that upstream's kubelet would refuse is refused here too.

use crate::pinning::cpu::options::Stages;
use serde_json::{Map, Value};

/// Gates of whole stages.
const STAGES: &[&str] = &["AllAlpha", "AllBeta"];

/// Gates that are locked on (kubelet contract, head).
const LOCKED_ON: &[&str] = &[
    "DynamicResourceAllocation",
    "ImageVolume",
    "InPlacePodVerticalScaling",
    "KubeletCgroupDriverFromCRI",
    "KubeletFineGrainedAuthz",
    "KubeletPSI",
    "MutableCSINodeAllocatableCount",
    "NodeLogQuery",
    "NodeSwap",
    "PodObservedGenerationTracking",
    "ProcMountType",
    "RecursiveReadOnlyMounts",
    "SELinuxMountReadWriteOncePod",
    "SupplementalGroupsPolicy",
    "SystemdWatchdog",
    "UserNamespacesSupport",
];

/// Every other gate of Kubernetes 1.36 and the release before it, which a file of a node that is being upgraded may still name.
const KNOWN: &[&str] = &[
    "APIResponseCompression",
    "APIServerIdentity",
    "APIServerTracing",
    "APIServingWithRoutine",
    "AggregatedDiscoveryRemoveBetaType",
    "AllowDNSOnlyNodeCSR",
    "AllowInsecureKubeletCertificateSigningRequests",
    "AllowOverwriteTerminationGracePeriodSeconds",
    "AllowParsingUserUIDFromCertAuth",
    "AllowUnsafeMalformedObjectDeletion",
    "AnonymousAuthConfigurableEndpoints",
    "AnyVolumeDataSource",
    "AuthorizeNodeWithSelectors",
    "AuthorizePodWebsocketUpgradeCreatePermission",
    "AuthorizeWithSelectors",
    "BtreeWatchCache",
    "CBORServingAndStorage",
    "CPUCFSQuotaPeriod",
    "CPUManagerPolicyAlphaOptions",
    "CPUManagerPolicyBetaOptions",
    "CPUManagerPolicyOptions",
    "CRDObservedGenerationTracking",
    "CRDValidationRatcheting",
    "CRIListStreaming",
    "CSIMigrationPortworx",
    "CSIServiceAccountTokenSecrets",
    "CSIVolumeHealth",
    "ChangeContainerStatusOnKubeletRestart",
    "ClearingNominatedNodeNameAfterBinding",
    "CloudControllerManagerWatchBasedRoutesReconciliation",
    "CloudControllerManagerWebhook",
    "ClusterTrustBundle",
    "ClusterTrustBundleProjection",
    "ComponentFlagz",
    "ComponentStatusz",
    "ConcurrentWatchObjectDecode",
    "ConsistentListFromCache",
    "ConstrainedImpersonation",
    "ContainerCheckpoint",
    "ContainerRestartRules",
    "ContainerStopSignals",
    "ContextualLogging",
    "CoordinatedLeaderElection",
    "CrossNamespaceVolumeDataSource",
    "CustomResourceFieldSelectors",
    "DRAAdminAccess",
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions",
    "DRADeviceTaintRules",
    "DRADeviceTaints",
    "DRAExtendedResource",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
    "DRAResourceClaimDeviceStatus",
    "DRASchedulerFilterTimeout",
    "DeclarativeValidation",
    "DeclarativeValidationTakeover",
    "DeploymentReplicaSetTerminatingReplicas",
    "DetectCacheInconsistency",
    "DisableAllocatorDualWrite",
    "DisableCPUQuotaWithExclusiveCPUs",
    "DisableNodeKubeProxyVersion",
    "EnvFiles",
    "EventedPLEG",
    "ExecProbeTimeout",
    "ExtendWebSocketsToKubelet",
    "ExternalServiceAccountTokenSigner",
    "GangScheduling",
    "GenericWorkload",
    "GitRepoVolumeDriver",
    "GracefulNodeShutdown",
    "GracefulNodeShutdownBasedOnPodPriority",
    "HPAConfigurableTolerance",
    "HPAScaleToZero",
    "HonorPVReclaimPolicy",
    "HostnameOverride",
    "ImageMaximumGCAge",
    "ImageVolumeWithDigest",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingAllocatedStatus",
    "InPlacePodVerticalScalingExclusiveCPUs",
    "InPlacePodVerticalScalingExclusiveMemory",
    "InPlacePodVerticalScalingInitContainers",
    "InTreePluginPortworxUnregister",
    "JobBackoffLimitPerIndex",
    "JobManagedBy",
    "JobPodReplacementPolicy",
    "JobSuccessPolicy",
    "KMSv1",
    "KubeletCrashLoopBackOffMax",
    "KubeletEnsureSecretPulledImages",
    "KubeletInUserNamespace",
    "KubeletPodResourcesDynamicResources",
    "KubeletPodResourcesGet",
    "KubeletPodResourcesListUseActivePods",
    "KubeletRegistrationGetOnExistsOnly",
    "KubeletSeparateDiskGC",
    "KubeletServiceAccountTokenForCredentialProviders",
    "KubeletTracing",
    "ListFromCacheSnapshot",
    "LocalStorageCapacityIsolationFSQuotaMonitoring",
    "LogarithmicScaleDown",
    "LoggingAlphaOptions",
    "LoggingBetaOptions",
    "MatchLabelKeysInPodAffinity",
    "MatchLabelKeysInPodTopologySpread",
    "MatchLabelKeysInPodTopologySpreadSelectorMerge",
    "MaxUnavailableStatefulSet",
    "MemoryManager",
    "MemoryQoS",
    "MultiCIDRServiceAllocator",
    "MutablePVNodeAffinity",
    "MutablePodResourcesForSuspendedJobs",
    "MutableSchedulingDirectivesForSuspendedJobs",
    "MutatingAdmissionPolicy",
    "NFTablesProxyMode",
    "NodeDeclaredFeatures",
    "NodeInclusionPolicyInPodTopologySpread",
    "NominatedNodeNameForExpectation",
    "OpenAPIEnums",
    "OpportunisticBatching",
    "OrderedNamespaceDeletion",
    "PodAndContainerStatsFromCRI",
    "PodCertificateRequest",
    "PodDeletionCost",
    "PodLevelResourceManagers",
    "PodLevelResources",
    "PodLifecycleSleepAction",
    "PodLifecycleSleepActionAllowZero",
    "PodLogsQuerySplitStreams",
    "PodReadyToStartContainersCondition",
    "PodSchedulingReadiness",
    "PodTopologyLabelsAdmission",
    "PodsAPI",
    "PortForwardWebsockets",
    "PreferSameTrafficDistribution",
    "PreventStaticPodAPIReferences",
    "QOSReserved",
    "RecoverVolumeExpansionFailure",
    "ReduceDefaultCrashLoopBackOffDecay",
    "RelaxedDNSSearchValidation",
    "RelaxedEnvironmentVariableValidation",
    "RelaxedServiceNameValidation",
    "ReloadKubeletClientCAFile",
    "ReloadKubeletServerCertificateFile",
    "RemoteRequestHeaderUID",
    "ResilientWatchCacheInitialization",
    "ResourceHealthStatus",
    "RestartAllContainersOnContainerExits",
    "RetryGenerateName",
    "RotateKubeletServerCertificate",
    "RuntimeClassInImageCriAPI",
    "SELinuxChangePolicy",
    "SELinuxMount",
    "SchedulerAsyncAPICalls",
    "SchedulerAsyncPreemption",
    "SchedulerPopFromBackoffQ",
    "SchedulerQueueingHints",
    "SeparateCacheWatchRPC",
    "SeparateTaintEvictionController",
    "ServiceAccountNodeAudienceRestriction",
    "ServiceAccountTokenJTI",
    "ServiceAccountTokenNodeBinding",
    "ServiceAccountTokenNodeBindingValidation",
    "ServiceAccountTokenPodNodeInfo",
    "ServiceTrafficDistribution",
    "SidecarContainers",
    "SizeBasedListCostEstimate",
    "StatefulSetSemanticRevisionComparison",
    "StorageCapacityScoring",
    "StorageNamespaceIndex",
    "StorageVersionAPI",
    "StorageVersionHash",
    "StorageVersionMigrator",
    "StreamingCollectionEncodingToJSON",
    "StreamingCollectionEncodingToProtobuf",
    "StrictIPCIDRValidation",
    "StructuredAuthenticationConfiguration",
    "StructuredAuthenticationConfigurationEgressSelector",
    "StructuredAuthenticationConfigurationJWKSMetrics",
    "StructuredAuthorizationConfiguration",
    "TaintTolerationComparisonOperators",
    "TokenRequestServiceAccountUIDValidation",
    "TopologyAwareHints",
    "TopologyManagerPolicyAlphaOptions",
    "TopologyManagerPolicyBetaOptions",
    "TopologyManagerPolicyOptions",
    "TranslateStreamCloseWebsocketRequests",
    "UnauthenticatedHTTP2DOSMitigation",
    "UnknownVersionInteroperabilityProxy",
    "UserNamespacesHostNetworkSupport",
    "VolumeAttributesClass",
    "VolumeLimitScaling",
    "WatchCacheInitializationPostStartHook",
    "WatchFromStorageWithoutResourceVersion",
    "WatchList",
    "WinDSR",
    "WinOverlay",
    "WindowsCPUAndMemoryAffinity",
    "WindowsGracefulNodeShutdown",
    "WindowsHostNetwork",
];

/// The gate of `lifecycle.stopSignal`.
const STOP_SIGNALS: &str = "ContainerStopSignals";

/// The gate of volumes that the file system counts itself.
const FS_QUOTAS: &str = "LocalStorageCapacityIsolationFSQuotaMonitoring";

/// The gate of the option `stream` of logs.
const LOG_STREAMS: &str = "PodLogsQuerySplitStreams";

/// The gate of `tokenAttributes` of credential provider plugins.
const PROVIDER_TOKENS: &str = "KubeletServiceAccountTokenForCredentialProviders";

/// The gate of containers without a quota of the CPUs they have to themselves.
const NO_QUOTA: &str = "DisableCPUQuotaWithExclusiveCPUs";
/// The gates of options of the static CPU policy.
const CPU_OPTIONS: [&str; 2] = ["CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions"];

/// What gates say of CPUs that containers have to themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pinning {
    /// Which options there are.
    pub options: Stages,
    /// They have no quota of them.
    pub no_quota: bool,
}

impl Default for Pinning {
    fn default() -> Self {
        Self {
            options: Stages::default(),
            no_quota: true,
        }
    }
}

/// Reads what gates say of CPUs that containers have to themselves.
pub(super) fn pinning(gates: &Map<String, Value>) -> Pinning {
    let says = |name: &str| gates.get(name).and_then(Value::as_bool);
    let [alpha, beta] = CPU_OPTIONS;
    Pinning {
        options: Stages {
            alpha: says(alpha).or_else(|| says("AllAlpha")).unwrap_or(false),
            beta: says(beta).or_else(|| says("AllBeta")).unwrap_or(true),
        },
        // Deprecated: no stage turns it.
        no_quota: says(NO_QUOTA).unwrap_or(true),
    }
}

/// The gates of memory that is kept, by containers and by classes.
const MEMORY_QOS: &str = "MemoryQoS";
const QOS_RESERVED: &str = "QOSReserved";

/// What gates say of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Memory is kept for containers, and reclaimed before they meet their limits (KEP-2570).
    pub qos: bool,
    /// A part of what pods request is kept from those of lower classes.
    pub qos_reserved: bool,
}

/// Reads what gates say of memory: off unless the gate, or that of all alpha features, is on.
pub(super) fn memory(gates: &Map<String, Value>) -> Memory {
    let says = |name: &str| gates.get(name).and_then(Value::as_bool);
    let is_on = |name: &str| says(name).or_else(|| says("AllAlpha")).unwrap_or(false);
    Memory {
        qos: is_on(MEMORY_QOS),
        qos_reserved: is_on(QOS_RESERVED),
    }
}

/// The gates of graceful shutdown.
const GRACEFUL_SHUTDOWN: &str = "GracefulNodeShutdown";
const SHUTDOWN_BY_PRIORITY: &str = "GracefulNodeShutdownBasedOnPodPriority";

/// Whether pods may be ended before the machine goes down: on unless the gate, or that of all beta features, is off (KEP-2000).
pub(super) fn graceful_shutdown(gates: &Map<String, Value>) -> bool {
    let says = |name: &str| gates.get(name).and_then(Value::as_bool);
    says(GRACEFUL_SHUTDOWN).or_else(|| says("AllBeta")).unwrap_or(true)
}

/// Whether that may go by their priority, likewise (KEP-2712).
pub(super) fn shutdown_by_priority(gates: &Map<String, Value>) -> bool {
    let says = |name: &str| gates.get(name).and_then(Value::as_bool);
    says(SHUTDOWN_BY_PRIORITY).or_else(|| says("AllBeta")).unwrap_or(true)
}

/// Whether credential provider plugins may be given tokens: on unless the gate, or that of all beta features, is off (KEP-4412).
pub(super) fn provider_tokens(gates: &Map<String, Value>) -> bool {
    let says = |name: &str| gates.get(name).and_then(Value::as_bool);
    says(PROVIDER_TOKENS).or_else(|| says("AllBeta")).unwrap_or(true)
}

/// Whether volumes are counted by project quotas: off unless the gate, or that of all beta features, is on (KEP-1029).
pub(super) fn fs_quotas(gates: &Map<String, Value>) -> bool {
    let says = |name: &str| gates.get(name).and_then(Value::as_bool);
    says(FS_QUOTAS).or_else(|| says("AllBeta")).unwrap_or(false)
}

/// Whether logs may be asked for by stream: off unless the gate, or that of all alpha features, is on (KEP-3288).
pub(super) fn log_streams(gates: &Map<String, Value>) -> bool {
    let says = |name: &str| gates.get(name).and_then(Value::as_bool);
    says(LOG_STREAMS).or_else(|| says("AllAlpha")).unwrap_or(false)
}

/// Whether containers are stopped by the signals they ask for: off unless the gate, or that of all alpha features, is on (KEP-4960).
pub(super) fn stop_signals(gates: &Map<String, Value>) -> bool {
    let says = |name: &str| gates.get(name).and_then(Value::as_bool);
    says(STOP_SIGNALS).or_else(|| says("AllAlpha")).unwrap_or(false)
}

/// Those that have an effect, beside options of CPUs.
const WITH_EFFECT: [&str; 9] = [
    STOP_SIGNALS,
    FS_QUOTAS,
    LOG_STREAMS,
    PROVIDER_TOKENS,
    NO_QUOTA,
    MEMORY_QOS,
    QOS_RESERVED,
    GRACEFUL_SHUTDOWN,
    SHUTDOWN_BY_PRIORITY,
];

/// The gates without those that have an effect.
pub(super) fn without_effect(gates: &Value) -> Value {
    let mut gates = gates.clone();
    if let Value::Object(gates) = &mut gates {
        for name in WITH_EFFECT.iter().chain(&CPU_OPTIONS) {
            gates.remove(*name);
        }
    }
    gates
}

/// What is wrong with `featureGates`.
pub(super) fn mistakes(gates: &Map<String, Value>) -> Vec<String> {
    let mut mistakes = Vec::new();
    for (name, value) in gates {
        let word = name.as_str();
        if LOCKED_ON.contains(&word) {
            if *value == Value::Bool(false) {
                mistakes.push(format!(
                    "featureGates: cannot set feature gate {name} to false, feature is locked to true"
                ));
            }
        } else if !STAGES.contains(&word) && KNOWN.binary_search(&word).is_err() {
            mistakes.push(format!("featureGates: unrecognized feature gate: {name}"));
        }
    }
    mistakes
}

#[cfg(test)]
mod tests;
