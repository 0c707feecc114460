//! The table of flags: upstream's (`cmd/kube-proxy/app/options.go`, component-base's logging).

/// What a flag's text becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Float,
    Text,
    /// Go's duration text.
    Time,
    /// Comma separated.
    List,
    /// `Gate=true,...`
    Gates,
    /// `pattern=verbosity,...`
    Modules,
}

/// What a flag says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Something of the program's own.
    Own,
    /// The field of the configuration it sets, as a dotted path.
    Field(&'static str),
    /// Known upstream, without effect here.
    Inert,
}

/// One flag.
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) target: Target,
    pub(super) help: &'static str,
    /// The flag upstream would have in its place.
    pub(super) deprecated_for: Option<&'static str>,
}

const fn own(name: &'static str, kind: Kind, help: &'static str) -> Flag {
    Flag {
        name,
        kind,
        target: Target::Own,
        help,
        deprecated_for: None,
    }
}

const fn field(name: &'static str, kind: Kind, path: &'static str) -> Flag {
    Flag {
        name,
        kind,
        target: Target::Field(path),
        help: "",
        deprecated_for: None,
    }
}

const fn inert(name: &'static str, kind: Kind) -> Flag {
    Flag {
        name,
        kind,
        target: Target::Inert,
        help: "",
        deprecated_for: None,
    }
}

const fn deprecated(name: &'static str, instead: &'static str, help: &'static str) -> Flag {
    Flag {
        name,
        kind: Kind::Int,
        target: Target::Own,
        help,
        deprecated_for: Some(instead),
    }
}

use Kind::{Bool, Float, Gates, Int, List, Modules, Text, Time};

/// All of them.
pub(super) const FLAGS: &[Flag] = &[
    own(
        "config",
        Text,
        "the configuration file; most other flags are ignored beside it",
    ),
    own(
        "write-config-to",
        Text,
        "write the configuration, defaults included, to this file and exit",
    ),
    own("cleanup", Bool, "remove this proxy's rules and exit"),
    own("init-only", Bool, "set what needs full privileges, and exit"),
    own("master", Text, "address of the API server, over the kubeconfig's"),
    own("hostname-override", Text, "the node's name"),
    own(
        "reserve-node-ports",
        Text,
        "range of node ports that the kernel is kept from choosing for connections of the node's own, such as 30000-32767 (not upstream's)",
    ),
    deprecated(
        "healthz-port",
        "healthz-bind-address",
        "port of healthz; 0 is no server",
    ),
    deprecated(
        "metrics-port",
        "metrics-bind-address",
        "port of metrics; 0 is no server",
    ),
    field("bind-address", Text, "bindAddress"),
    field("bind-address-hard-fail", Bool, "bindAddressHardFail"),
    field("cluster-cidr", Text, "clusterCIDR"),
    field("config-sync-period", Time, "configSyncPeriod"),
    field("conntrack-max-per-core", Int, "conntrack.maxPerCore"),
    field("conntrack-min", Int, "conntrack.min"),
    field("conntrack-tcp-be-liberal", Bool, "conntrack.tcpBeLiberal"),
    field(
        "conntrack-tcp-timeout-close-wait",
        Time,
        "conntrack.tcpCloseWaitTimeout",
    ),
    field(
        "conntrack-tcp-timeout-established",
        Time,
        "conntrack.tcpEstablishedTimeout",
    ),
    field("conntrack-udp-timeout", Time, "conntrack.udpTimeout"),
    field("conntrack-udp-timeout-stream", Time, "conntrack.udpStreamTimeout"),
    field("detect-local-mode", Text, "detectLocalMode"),
    field("feature-gates", Gates, "featureGates"),
    field("healthz-bind-address", Text, "healthzBindAddress"),
    field("iptables-localhost-nodeports", Bool, "iptables.localhostNodePorts"),
    field("iptables-masquerade-bit", Int, "iptables.masqueradeBit"),
    field("iptables-min-sync-period", Time, "iptables.minSyncPeriod"),
    field("iptables-sync-period", Time, "iptables.syncPeriod"),
    field("ipvs-exclude-cidrs", List, "ipvs.excludeCIDRs"),
    field("ipvs-min-sync-period", Time, "ipvs.minSyncPeriod"),
    field("ipvs-scheduler", Text, "ipvs.scheduler"),
    field("ipvs-strict-arp", Bool, "ipvs.strictARP"),
    field("ipvs-sync-period", Time, "ipvs.syncPeriod"),
    field("ipvs-tcp-timeout", Time, "ipvs.tcpTimeout"),
    field("ipvs-tcpfin-timeout", Time, "ipvs.tcpFinTimeout"),
    field("ipvs-udp-timeout", Time, "ipvs.udpTimeout"),
    field("kube-api-burst", Int, "clientConnection.burst"),
    field("kube-api-content-type", Text, "clientConnection.contentType"),
    field("kube-api-qps", Float, "clientConnection.qps"),
    field("kubeconfig", Text, "clientConnection.kubeconfig"),
    field("logging-format", Text, "logging.format"),
    field("masquerade-all", Bool, "iptables.masqueradeAll"),
    field("metrics-bind-address", Text, "metricsBindAddress"),
    field("nodeport-addresses", List, "nodePortAddresses"),
    field("oom-score-adj", Int, "oomScoreAdj"),
    field("pod-bridge-interface", Text, "detectLocal.bridgeInterface"),
    field("pod-interface-name-prefix", Text, "detectLocal.interfaceNamePrefix"),
    field("profiling", Bool, "enableProfiling"),
    field("proxy-mode", Text, "mode"),
    field("show-hidden-metrics-for-version", Text, "showHiddenMetricsForVersion"),
    field("v", Int, "logging.verbosity"),
    field("vmodule", Modules, "logging.vmodule"),
    inert("boot-id-file", Text),
    inert("log-flush-frequency", Time),
    inert("log-json-info-buffer-size", Text),
    inert("log-json-split-stream", Bool),
    inert("log-text-info-buffer-size", Text),
    inert("log-text-split-stream", Bool),
    inert("machine-id-file", Text),
];
