//! The table of flags: upstream's, those that have an effect here first, and our own: two for CNI, one for autonomy, six for the network.

/// What a flag's text becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Text,
    /// Comma separated.
    List,
    /// `k=v,k=v`.
    Pairs,
    /// `key=value:effect,...`
    Taints,
    /// `name:value,...`, a name perhaps several times.
    Headers,
    /// `Gate=true,...`
    Gates,
    /// `signal<amount,...`
    Thresholds,
    /// `node:resource=amount,...;...`
    Memory,
    /// `pattern=verbosity,...`
    Modules,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// A flag without a configuration field.
    Own,
    /// The field it sets, as a dotted path.
    Field(&'static str),
    /// Known upstream, without effect here yet.
    Inert,
}

/// Flags of fields that upstream does not call deprecated.
const NOT_DEPRECATED: &[&str] = &["v", "vmodule", "log-flush-frequency", "provider-id", "fail-cgroupv1"];

/// One flag.
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) target: Target,
    pub(super) help: &'static str,
}

impl Flag {
    /// Whether upstream says that a configuration file should say this.
    pub(super) fn is_deprecated(&self) -> bool {
        matches!(self.target, Target::Field(_)) && !NOT_DEPRECATED.contains(&self.name)
    }

    /// The group in which `--help` lists it.
    pub(super) fn heading(&self) -> &'static str {
        match self.target {
            Target::Own => "Flags of their own",
            Target::Field(_) => "Fields of the configuration file",
            Target::Inert => "Accepted, without effect yet",
        }
    }
}

const fn own(name: &'static str, kind: Kind, help: &'static str) -> Flag {
    Flag {
        name,
        kind,
        target: Target::Own,
        help,
    }
}

const fn field(name: &'static str, kind: Kind, path: &'static str) -> Flag {
    Flag {
        name,
        kind,
        target: Target::Field(path),
        help: "",
    }
}

const fn inert(name: &'static str, kind: Kind) -> Flag {
    Flag {
        name,
        kind,
        target: Target::Inert,
        help: "",
    }
}

use Kind::{Bool, Gates, Headers, Int, List, Memory, Modules, Pairs, Taints, Text, Thresholds};

/// Every flag.
pub(super) const FLAGS: &[Flag] = &[
    own(
        "config",
        Text,
        "KubeletConfiguration file (kubelet.config.k8s.io/v1beta1)",
    ),
    own(
        "kubeconfig",
        Text,
        "kubeconfig file that says how to reach the API server",
    ),
    own(
        "bootstrap-kubeconfig",
        Text,
        "kubeconfig file to get the first client certificate with; --kubeconfig is then written",
    ),
    own("hostname-override", Text, "name of this node instead of the host name"),
    own("node-ip", Text, "address of this node"),
    own("root-dir", Text, "directory of pods and volumes"),
    own("cert-dir", Text, "directory of the serving certificate"),
    own("node-labels", Pairs, "labels of the node object"),
    own(
        "cni-conf-dir",
        Text,
        "where the network configuration is written from the node's podCIDR, unless there is one",
    ),
    own("cni-bin-dir", Text, "where the CNI plugins are"),
    own(
        "config-dir",
        Text,
        "directory of *.conf files that are merged into the configuration",
    ),
    own(
        "image-credential-provider-config",
        Text,
        "file, or directory of files, that says which credential provider plugins there are",
    ),
    own(
        "image-credential-provider-bin-dir",
        Text,
        "where the credential provider plugins are",
    ),
    own("cloud-provider", Text, "empty or \"external\""),
    own("lock-file", Text, "file that is held locked while this kubelet runs"),
    own(
        "exit-on-lock-contention",
        Bool,
        "end when somebody else opens the lock file",
    ),
    own(
        "cni-plugins",
        Text,
        "the CNI plugins' binary to install into --cni-bin-dir (default: cni-plugins beside the kubelet, if there is one)",
    ),
    own(
        "node-autonomy",
        Bool,
        "keep pods and what they need on disk, to start them without an API server (not upstream's)",
    ),
    own(
        "service-proxy",
        Bool,
        "lead Services' addresses to their endpoints, as kube-proxy does (not upstream's)",
    ),
    own(
        "service-proxy-config",
        Text,
        "with --service-proxy: file with a KubeProxyConfiguration for it, such as nodePortAddresses (not upstream's)",
    ),
    own(
        "reserve-node-ports",
        Text,
        "with --service-proxy: range of node ports that the kernel is kept from choosing for the node's own connections, such as 30000-32767 (not upstream's)",
    ),
    own(
        "cluster-dns-responder",
        Bool,
        "answer names of the cluster on the addresses of clusterDNS (not upstream's)",
    ),
    own(
        "cluster-dns-autopath",
        Bool,
        "answer a pod's search path in one question; names below its namespace that are not there get the answer of the search (not upstream's)",
    ),
    own(
        "network-policies",
        Bool,
        "enforce NetworkPolicies for this node's pods (not upstream's)",
    ),
    own(
        "pod-network-backend",
        Text,
        "how pods of other nodes are reached: vxlan or host-gw (not upstream's)",
    ),
    own(
        "cluster-cidr",
        Text,
        "where all pods' addresses are, one range of each family (not upstream's)",
    ),
    own(
        "remove-cluster-network",
        Bool,
        "take away what the cluster's network made in the kernel, and end (not upstream's)",
    ),
    own(
        "seccomp-default",
        Bool,
        "RuntimeDefault seccomp profile where none is asked for",
    ),
    own(
        "maximum-dead-containers",
        Int,
        "dead containers that may stay on the node (default -1: as many as there are)",
    ),
    own(
        "maximum-dead-containers-per-container",
        Int,
        "dead instances of a container that may stay (default 1)",
    ),
    own(
        "minimum-container-ttl-duration",
        Text,
        "how old a dead container is at least that goes for the sake of the others",
    ),
    field("v", Int, "logging.verbosity"),
    field("pod-manifest-path", Text, "staticPodPath"),
    field("manifest-url", Text, "staticPodURL"),
    field("manifest-url-header", Headers, "staticPodURLHeader"),
    field("file-check-frequency", Text, "fileCheckFrequency"),
    field("http-check-frequency", Text, "httpCheckFrequency"),
    field("address", Text, "address"),
    field("port", Int, "port"),
    field("read-only-port", Int, "readOnlyPort"),
    field("healthz-port", Int, "healthzPort"),
    field("healthz-bind-address", Text, "healthzBindAddress"),
    field("enable-server", Bool, "enableServer"),
    field("tls-cert-file", Text, "tlsCertFile"),
    field("tls-private-key-file", Text, "tlsPrivateKeyFile"),
    field("client-ca-file", Text, "authentication.x509.clientCAFile"),
    field("anonymous-auth", Bool, "authentication.anonymous.enabled"),
    field("authentication-token-webhook", Bool, "authentication.webhook.enabled"),
    field(
        "authentication-token-webhook-cache-ttl",
        Text,
        "authentication.webhook.cacheTTL",
    ),
    field("authorization-mode", Text, "authorization.mode"),
    field(
        "authorization-webhook-cache-authorized-ttl",
        Text,
        "authorization.webhook.cacheAuthorizedTTL",
    ),
    field(
        "authorization-webhook-cache-unauthorized-ttl",
        Text,
        "authorization.webhook.cacheUnauthorizedTTL",
    ),
    field("container-runtime-endpoint", Text, "containerRuntimeEndpoint"),
    field("image-service-endpoint", Text, "imageServiceEndpoint"),
    field("runtime-request-timeout", Text, "runtimeRequestTimeout"),
    field("cgroup-driver", Text, "cgroupDriver"),
    field("cgroup-root", Text, "cgroupRoot"),
    field("cgroups-per-qos", Bool, "cgroupsPerQOS"),
    field("fail-cgroupv1", Bool, "failCgroupV1"),
    field("fail-swap-on", Bool, "failSwapOn"),
    field("cpu-cfs-quota", Bool, "cpuCFSQuota"),
    field("cpu-cfs-quota-period", Text, "cpuCFSQuotaPeriod"),
    field("pod-max-pids", Int, "podPidsLimit"),
    field("max-pods", Int, "maxPods"),
    field("pods-per-core", Int, "podsPerCore"),
    field("pod-cidr", Text, "podCIDR"),
    field("cluster-domain", Text, "clusterDomain"),
    field("cluster-dns", List, "clusterDNS"),
    field("resolv-conf", Text, "resolvConf"),
    field("register-node", Bool, "registerNode"),
    field("register-with-taints", Taints, "registerWithTaints"),
    field("provider-id", Text, "providerID"),
    field("node-status-update-frequency", Text, "nodeStatusUpdateFrequency"),
    field("node-status-max-images", Int, "nodeStatusMaxImages"),
    field("sync-frequency", Text, "syncFrequency"),
    field("serialize-image-pulls", Bool, "serializeImagePulls"),
    field("registry-qps", Int, "registryPullQPS"),
    field("registry-burst", Int, "registryBurst"),
    field("event-qps", Int, "eventRecordQPS"),
    field("event-burst", Int, "eventBurst"),
    field(
        "streaming-connection-idle-timeout",
        Text,
        "streamingConnectionIdleTimeout",
    ),
    field("system-reserved", Pairs, "systemReserved"),
    field("kube-reserved", Pairs, "kubeReserved"),
    field("enforce-node-allocatable", List, "enforceNodeAllocatable"),
    field("oom-score-adj", Int, "oomScoreAdj"),
    field("allowed-unsafe-sysctls", List, "allowedUnsafeSysctls"),
    field("container-log-max-files", Int, "containerLogMaxFiles"),
    field("container-log-max-size", Text, "containerLogMaxSize"),
    field("contention-profiling", Bool, "enableContentionProfiling"),
    field("cpu-manager-policy", Text, "cpuManagerPolicy"),
    field("cpu-manager-policy-options", Pairs, "cpuManagerPolicyOptions"),
    field("cpu-manager-reconcile-period", Text, "cpuManagerReconcilePeriod"),
    field("enable-controller-attach-detach", Bool, "enableControllerAttachDetach"),
    field("enable-debugging-handlers", Bool, "enableDebuggingHandlers"),
    field("eviction-hard", Thresholds, "evictionHard"),
    field("eviction-max-pod-grace-period", Int, "evictionMaxPodGracePeriod"),
    field("eviction-minimum-reclaim", Pairs, "evictionMinimumReclaim"),
    field(
        "eviction-pressure-transition-period",
        Text,
        "evictionPressureTransitionPeriod",
    ),
    field("eviction-soft", Thresholds, "evictionSoft"),
    field("eviction-soft-grace-period", Pairs, "evictionSoftGracePeriod"),
    field("feature-gates", Gates, "featureGates"),
    field("hairpin-mode", Text, "hairpinMode"),
    field("image-gc-high-threshold", Int, "imageGCHighThresholdPercent"),
    field("image-gc-low-threshold", Int, "imageGCLowThresholdPercent"),
    field("kernel-memcg-notification", Bool, "kernelMemcgNotification"),
    field("kube-api-burst", Int, "kubeAPIBurst"),
    field("kube-api-content-type", Text, "contentType"),
    field("kube-api-qps", Int, "kubeAPIQPS"),
    field("kube-reserved-cgroup", Text, "kubeReservedCgroup"),
    field("kubelet-cgroups", Text, "kubeletCgroups"),
    field(
        "local-storage-capacity-isolation",
        Bool,
        "localStorageCapacityIsolation",
    ),
    field("log-flush-frequency", Text, "logging.flushFrequency"),
    field("logging-format", Text, "logging.format"),
    field("make-iptables-util-chains", Bool, "makeIPTablesUtilChains"),
    field("max-open-files", Int, "maxOpenFiles"),
    field("memory-manager-policy", Text, "memoryManagerPolicy"),
    field("minimum-image-ttl-duration", Text, "imageMinimumGCAge"),
    field("protect-kernel-defaults", Bool, "protectKernelDefaults"),
    field("qos-reserved", Pairs, "qosReserved"),
    field("reserved-cpus", Text, "reservedSystemCPUs"),
    field("reserved-memory", Memory, "reservedMemory"),
    field("rotate-certificates", Bool, "rotateCertificates"),
    field("rotate-server-certificates", Bool, "serverTLSBootstrap"),
    field("runonce", Bool, "runOnce"),
    field("system-cgroups", Text, "systemCgroups"),
    field("system-reserved-cgroup", Text, "systemReservedCgroup"),
    field("tls-cipher-suites", List, "tlsCipherSuites"),
    field("tls-min-version", Text, "tlsMinVersion"),
    field("topology-manager-policy", Text, "topologyManagerPolicy"),
    field("topology-manager-policy-options", Pairs, "topologyManagerPolicyOptions"),
    field("topology-manager-scope", Text, "topologyManagerScope"),
    field("vmodule", Modules, "logging.vmodule"),
    field("volume-plugin-dir", Text, "volumePluginDir"),
    field("volume-stats-agg-period", Text, "volumeStatsAggPeriod"),
    inert("experimental-allocatable-ignore-eviction", Bool),
    inert("experimental-mounter-path", Text),
    inert("housekeeping-interval", Text),
    inert("runtime-cgroups", Text),
    inert("application-metrics-count-limit", Int),
    inert("boot-id-file", Text),
    inert("container-hints", Text),
    inert("containerd", Text),
    inert("containerd-namespace", Text),
    inert("enable-load-reader", Bool),
    inert("event-storage-age-limit", Text),
    inert("event-storage-event-limit", Text),
    inert("global-housekeeping-interval", Text),
    inert("log-cadvisor-usage", Bool),
    inert("log-json-info-buffer-size", Text),
    inert("log-json-split-stream", Bool),
    inert("log-text-info-buffer-size", Text),
    inert("log-text-split-stream", Bool),
    inert("machine-id-file", Text),
    inert("storage-driver-buffer-duration", Text),
    inert("storage-driver-db", Text),
    inert("storage-driver-host", Text),
    inert("storage-driver-password", Text),
    inert("storage-driver-secure", Bool),
    inert("storage-driver-table", Text),
    inert("storage-driver-user", Text),
];
