//! The table of flags: upstream's, those that have an effect here first, and our two for CNI.

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

/// One flag.
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) target: Target,
    pub(super) help: &'static str,
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

use Kind::{Bool, Headers, Int, List, Pairs, Taints, Text};

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
    field("rotate-certificates", Bool, "rotateCertificates"),
    field("rotate-server-certificates", Bool, "serverTLSBootstrap"),
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
    own("v", Int, "log verbosity"),
    own(
        "seccomp-default",
        Bool,
        "RuntimeDefault seccomp profile where none is asked for",
    ),
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
    inert("allowed-unsafe-sysctls", List),
    inert("cloud-provider", Text),
    inert("config-dir", Text),
    inert("container-log-max-files", Int),
    inert("container-log-max-size", Text),
    inert("contention-profiling", Bool),
    inert("cpu-manager-policy", Text),
    inert("cpu-manager-policy-options", Pairs),
    inert("cpu-manager-reconcile-period", Text),
    inert("enable-controller-attach-detach", Bool),
    inert("enable-debugging-handlers", Bool),
    inert("eviction-hard", Text),
    inert("eviction-max-pod-grace-period", Int),
    inert("eviction-minimum-reclaim", Text),
    inert("eviction-pressure-transition-period", Text),
    inert("eviction-soft", Text),
    inert("eviction-soft-grace-period", Text),
    inert("exit-on-lock-contention", Bool),
    inert("experimental-allocatable-ignore-eviction", Bool),
    inert("experimental-mounter-path", Text),
    inert("feature-gates", Pairs),
    inert("hairpin-mode", Text),
    inert("housekeeping-interval", Text),
    inert("image-credential-provider-bin-dir", Text),
    inert("image-credential-provider-config", Text),
    inert("image-gc-high-threshold", Int),
    inert("image-gc-low-threshold", Int),
    inert("kernel-memcg-notification", Bool),
    inert("kube-api-burst", Int),
    inert("kube-api-content-type", Text),
    inert("kube-api-qps", Int),
    inert("kube-reserved-cgroup", Text),
    inert("kubelet-cgroups", Text),
    inert("local-storage-capacity-isolation", Bool),
    inert("lock-file", Text),
    inert("log-flush-frequency", Text),
    inert("logging-format", Text),
    inert("make-iptables-util-chains", Bool),
    inert("max-open-files", Int),
    inert("maximum-dead-containers", Int),
    inert("maximum-dead-containers-per-container", Int),
    inert("memory-manager-policy", Text),
    inert("minimum-container-ttl-duration", Text),
    inert("minimum-image-ttl-duration", Text),
    inert("protect-kernel-defaults", Bool),
    inert("qos-reserved", Pairs),
    inert("reserved-cpus", Text),
    inert("reserved-memory", Text),
    inert("runonce", Bool),
    inert("runtime-cgroups", Text),
    inert("system-cgroups", Text),
    inert("system-reserved-cgroup", Text),
    inert("tls-cipher-suites", List),
    inert("tls-min-version", Text),
    inert("topology-manager-policy", Text),
    inert("topology-manager-policy-options", Pairs),
    inert("topology-manager-scope", Text),
    inert("vmodule", Text),
    inert("volume-plugin-dir", Text),
    inert("volume-stats-agg-period", Text),
];
