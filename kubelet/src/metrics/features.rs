//! `kubernetes_feature_enabled`: the gates of upstream's that concern a node, with their stage in 1.36 and whether this kubelet
//! does what they stand for. What is not built is 0, whatever upstream's default is; written when asked.

use std::fmt::Write;

/// Gates that are on and whose work is done here.
const DONE: &[(&str, &str)] = &[
    ("CPUCFSQuotaPeriod", ""),
    ("ContainerCheckpoint", "BETA"),
    ("ContainerRestartRules", "BETA"),
    ("DRAExtendedResource", "BETA"),
    ("DynamicResourceAllocation", ""),
    ("EnvFiles", "BETA"),
    ("ExtendWebSocketsToKubelet", "BETA"),
    ("HostnameOverride", "BETA"),
    ("ImageVolume", ""),
    ("InPlacePodLevelResourcesVerticalScaling", "BETA"),
    ("InPlacePodVerticalScaling", ""),
    ("InPlacePodVerticalScalingInitContainers", "BETA"),
    ("KubeletCgroupDriverFromCRI", ""),
    ("KubeletCrashLoopBackOffMax", "BETA"),
    ("KubeletEnsureSecretPulledImages", "BETA"),
    ("KubeletFineGrainedAuthz", ""),
    ("KubeletPSI", ""),
    ("NodeDeclaredFeatures", "BETA"),
    ("NodeLogQuery", ""),
    ("NodeSwap", ""),
    ("PLEGOnDemandRelist", "BETA"),
    ("PodLevelResources", "BETA"),
    ("PodObservedGenerationTracking", ""),
    ("PodReadyToStartContainersCondition", "BETA"),
    ("PreventStaticPodAPIReferences", "BETA"),
    ("ProcMountType", ""),
    ("RecursiveReadOnlyMounts", ""),
    ("ReloadKubeletClientCAFile", "BETA"),
    ("ReloadKubeletServerCertificateFile", "BETA"),
    ("ResourceHealthStatus", "BETA"),
    ("RestartAllContainersOnContainerExits", "BETA"),
    ("RotateKubeletServerCertificate", "BETA"),
    ("SupplementalGroupsPolicy", ""),
    ("SystemdWatchdog", ""),
    ("UserNamespacesSupport", ""),
];

/// Gates that are off, or whose work is not done here.
const NOT_DONE: &[(&str, &str)] = &[
    ("ChangeContainerStatusOnKubeletRestart", "DEPRECATED"),
    ("ClusterTrustBundleProjection", "BETA"),
    ("EventedPLEG", "ALPHA"),
    ("ImageVolumeWithDigest", "ALPHA"),
    ("KubeletInUserNamespace", "ALPHA"),
    ("KubeletSeparateDiskGC", "BETA"),
    ("MutableCSINodeAllocatableCount", ""),
    ("PodAndContainerStatsFromCRI", "ALPHA"),
    ("PodCertificateRequest", "BETA"),
    ("PodLevelResourceManagers", "ALPHA"),
    ("PodLogsQuerySplitStreams", "ALPHA"),
    ("PodsAPI", "ALPHA"),
    ("ReduceDefaultCrashLoopBackOffDecay", "ALPHA"),
    ("RuntimeClassInImageCriAPI", "ALPHA"),
    ("SELinuxMount", "BETA"),
    ("SELinuxMountReadWriteOncePod", ""),
    ("UserNamespacesHostNetworkSupport", "ALPHA"),
];

/// What the gates say that can be turned here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    /// `DisableCPUQuotaWithExclusiveCPUs`.
    pub no_quota: bool,
    /// `LocalStorageCapacityIsolationFSQuotaMonitoring`.
    pub fs_quotas: bool,
    /// `MemoryQoS`.
    pub memory_qos: bool,
    /// `QOSReserved`.
    pub qos_reserved: bool,
    /// `ContainerStopSignals`.
    pub stop_signals: bool,
    /// `KubeletServiceAccountTokenForCredentialProviders`.
    pub provider_tokens: bool,
    /// `GracefulNodeShutdown`.
    pub graceful_shutdown: bool,
    /// `GracefulNodeShutdownBasedOnPodPriority`.
    pub shutdown_by_priority: bool,
}

/// The lines, in Prometheus' classic text.
pub fn features(gates: Gates) -> String {
    let name = "kubernetes_feature_enabled";
    let turned = [
        ("ContainerStopSignals", "ALPHA", gates.stop_signals),
        ("DisableCPUQuotaWithExclusiveCPUs", "DEPRECATED", gates.no_quota),
        ("GracefulNodeShutdown", "BETA", gates.graceful_shutdown),
        (
            "GracefulNodeShutdownBasedOnPodPriority",
            "BETA",
            gates.shutdown_by_priority,
        ),
        (
            "KubeletServiceAccountTokenForCredentialProviders",
            "BETA",
            gates.provider_tokens,
        ),
        (
            "LocalStorageCapacityIsolationFSQuotaMonitoring",
            "BETA",
            gates.fs_quotas,
        ),
        ("MemoryQoS", "ALPHA", gates.memory_qos),
        ("QOSReserved", "ALPHA", gates.qos_reserved),
    ];
    let told = |gates: &'static [(&str, &str)], on| gates.iter().map(move |(gate, stage)| (*gate, *stage, on));
    let mut out = format!(
        "# HELP {name} [BETA] Whether what a feature gate stands for is done here, by the gate's stage\n# TYPE {name} gauge\n"
    );
    for (gate, stage, on) in told(DONE, true).chain(told(NOT_DONE, false)).chain(turned) {
        let _ = writeln!(out, "{name}{{name=\"{gate}\",stage=\"{stage}\"}} {}", u8::from(on));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_told_once_and_those_that_can_be_turned_as_they_are() {
        let text = features(Gates {
            no_quota: true,
            fs_quotas: true,
            memory_qos: true,
            qos_reserved: false,
            stop_signals: true,
            provider_tokens: false,
            graceful_shutdown: true,
            shutdown_by_priority: false,
        });
        for line in [
            r#"kubernetes_feature_enabled{name="ContainerStopSignals",stage="ALPHA"} 1"#,
            r#"kubernetes_feature_enabled{name="KubeletServiceAccountTokenForCredentialProviders",stage="BETA"} 0"#,
            r#"kubernetes_feature_enabled{name="InPlacePodVerticalScaling",stage=""} 1"#,
            r#"kubernetes_feature_enabled{name="GracefulNodeShutdown",stage="BETA"} 1"#,
            r#"kubernetes_feature_enabled{name="GracefulNodeShutdownBasedOnPodPriority",stage="BETA"} 0"#,
            r#"kubernetes_feature_enabled{name="NodeSwap",stage=""} 1"#,
            r#"kubernetes_feature_enabled{name="LocalStorageCapacityIsolationFSQuotaMonitoring",stage="BETA"} 1"#,
            r#"kubernetes_feature_enabled{name="MemoryQoS",stage="ALPHA"} 1"#,
            r#"kubernetes_feature_enabled{name="QOSReserved",stage="ALPHA"} 0"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        let mut names: Vec<&str> = text.lines().filter_map(|line| line.split('"').nth(1)).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
