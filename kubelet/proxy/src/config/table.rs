//! Every field of KubeProxyConfiguration v1alpha1, with what its value must be, upstream's default and what comes of it here
//! (`k8s.io/kube-proxy/config/v1alpha1`). A table; what follows from it is [`super::tree`]'s.

/// What a field's value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Bool,
    /// A whole number of 32 bits.
    Int,
    Float,
    Text,
    /// Go's duration text.
    Time,
    /// A list of texts.
    List,
    /// Truth by name.
    Gates,
    /// An object or a list, looked into no further.
    Any,
}

/// When upstream's default takes the place of what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defaulted {
    /// When it is absent, null or zero.
    Zero,
    /// When it is absent or null: zero means something.
    Null,
}

/// What comes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It is obeyed.
    Used,
    /// Nothing, and the user is told when it asks for more than the default.
    Inert,
    /// Nothing, and upstream's would do the same in this place, for this reason. It needs no warning.
    Moot(&'static str),
}

/// One field.
pub(super) struct Field {
    pub(super) path: &'static str,
    pub(super) shape: Shape,
    pub(super) defaulted: Defaulted,
    /// JSON.
    pub(super) default: &'static str,
    pub(super) effect: Effect,
}

use Defaulted::{Null, Zero};
use Effect::{Inert, Moot, Used};
use Shape::{Any, Bool, Float, Gates, Int, List, Text, Time};

const fn field(path: &'static str, shape: Shape, defaulted: Defaulted, default: &'static str, effect: Effect) -> Field {
    Field {
        path,
        shape,
        defaulted,
        default,
        effect,
    }
}

const JSON_ALONE: Effect = Moot("objects say the same in either format; ours travel as JSON");
const FEW_REQUESTS: Effect = Moot("watches and few events are far below any limit");
const WINDOWS: Effect = Moot("it is read on Windows alone");
const NO_RESYNC: Effect = Moot("the watch cache needs no second delivery of what is known");

/// All of them, by path.
pub(super) const FIELDS: &[Field] = &[
    field("bindAddress", Text, Zero, "\"0.0.0.0\"", Used),
    field("bindAddressHardFail", Bool, Zero, "false", Used),
    field("clientConnection.acceptContentTypes", Text, Zero, "\"\"", JSON_ALONE),
    field("clientConnection.burst", Int, Zero, "10", FEW_REQUESTS),
    field(
        "clientConnection.contentType",
        Text,
        Zero,
        "\"application/vnd.kubernetes.protobuf\"",
        JSON_ALONE,
    ),
    field("clientConnection.kubeconfig", Text, Zero, "\"\"", Used),
    field("clientConnection.qps", Float, Zero, "5", FEW_REQUESTS),
    field("clusterCIDR", Text, Zero, "\"\"", Used),
    field("configSyncPeriod", Time, Zero, "\"15m0s\"", NO_RESYNC),
    field("conntrack.maxPerCore", Int, Null, "32768", Used),
    field("conntrack.min", Int, Null, "131072", Used),
    field("conntrack.tcpBeLiberal", Bool, Zero, "false", Used),
    field("conntrack.tcpCloseWaitTimeout", Time, Null, "\"1h0m0s\"", Used),
    field("conntrack.tcpEstablishedTimeout", Time, Null, "\"24h0m0s\"", Used),
    field("conntrack.udpStreamTimeout", Time, Zero, "\"0s\"", Used),
    field("conntrack.udpTimeout", Time, Zero, "\"0s\"", Used),
    field("detectLocal.bridgeInterface", Text, Zero, "\"\"", Used),
    field("detectLocal.interfaceNamePrefix", Text, Zero, "\"\"", Used),
    field("detectLocalMode", Text, Zero, "\"\"", Used),
    field("enableProfiling", Bool, Zero, "false", Inert),
    field("featureGates", Gates, Zero, "{}", Inert),
    field("healthzBindAddress", Text, Zero, "\"0.0.0.0:10256\"", Used),
    field("hostnameOverride", Text, Zero, "\"\"", Used),
    field("iptables.localhostNodePorts", Bool, Null, "true", Used),
    field("iptables.masqueradeAll", Bool, Zero, "false", Used),
    field("iptables.masqueradeBit", Int, Null, "14", Used),
    field("iptables.minSyncPeriod", Time, Zero, "\"1s\"", Used),
    field("iptables.snatNodeInternalIP", Bool, Null, "false", Inert),
    field("iptables.syncPeriod", Time, Zero, "\"30s\"", Used),
    field("ipvs.excludeCIDRs", List, Zero, "null", Inert),
    field("ipvs.minSyncPeriod", Time, Zero, "\"0s\"", Used),
    field("ipvs.scheduler", Text, Zero, "\"\"", Inert),
    field("ipvs.strictARP", Bool, Zero, "false", Inert),
    field("ipvs.syncPeriod", Time, Zero, "\"30s\"", Used),
    field("ipvs.tcpFinTimeout", Time, Zero, "\"0s\"", Inert),
    field("ipvs.tcpTimeout", Time, Zero, "\"0s\"", Inert),
    field("ipvs.udpTimeout", Time, Zero, "\"0s\"", Inert),
    field(
        "logging.flushFrequency",
        Any,
        Zero,
        "\"5s\"",
        Moot("lines are written at once"),
    ),
    field("logging.format", Text, Zero, "\"text\"", Used),
    field(
        "logging.options",
        Any,
        Zero,
        "null",
        Moot("lines of every kind go to one stream, at once"),
    ),
    field("logging.verbosity", Int, Zero, "0", Used),
    field("logging.vmodule", Any, Zero, "null", Used),
    field("metricsBindAddress", Text, Zero, "\"127.0.0.1:10249\"", Used),
    field("mode", Text, Zero, "\"\"", Used),
    field("nftables.masqueradeAll", Bool, Zero, "false", Used),
    field("nftables.masqueradeBit", Int, Null, "14", Used),
    field("nftables.minSyncPeriod", Time, Zero, "\"1s\"", Used),
    field("nftables.syncPeriod", Time, Zero, "\"30s\"", Used),
    field("nodePortAddresses", List, Zero, "null", Used),
    field("oomScoreAdj", Int, Null, "-999", Used),
    field(
        "portRange",
        Text,
        Zero,
        "\"\"",
        Moot("only the user space proxy that is gone upstream read it"),
    ),
    field("showHiddenMetricsForVersion", Text, Zero, "\"\"", Inert),
    field("windowsRunAsService", Bool, Zero, "false", WINDOWS),
    field("winkernel.enableDSR", Bool, Zero, "false", WINDOWS),
    field("winkernel.forwardHealthCheckVip", Bool, Zero, "false", WINDOWS),
    field("winkernel.networkName", Text, Zero, "\"\"", WINDOWS),
    field("winkernel.rootHnsEndpointName", Text, Zero, "\"\"", WINDOWS),
    field("winkernel.sourceVip", Text, Zero, "\"\"", WINDOWS),
];

/// The field at a path.
pub(super) fn find(path: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.path == path)
}

/// Whether some field lies below a path.
pub(super) fn is_section(path: &str) -> bool {
    FIELDS
        .iter()
        .any(|field| field.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

/// Whether upstream would read the field in that mode.
pub(super) fn is_read_in(path: &str, mode: &str) -> bool {
    match path.split('.').next() {
        Some("ipvs") => mode == "ipvs",
        Some("nftables") => mode == "nftables",
        Some("iptables") => mode != "nftables",
        _ => true,
    }
}
