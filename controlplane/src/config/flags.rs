//! The command line as the user wrote it: names, values, and what is wrong with them. Pure.

use std::collections::BTreeMap;

/// How a flag takes its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// `--name value` or `--name=value`.
    Value,
    /// `--name` or `--name=false`.
    Bool,
    /// A flag of upstream's that cannot work here: the text says why.
    Refused(&'static str),
}

const NO_OVERRIDES: &str = "one etcd cluster keeps everything";
const NO_FEATURE: &str = "feature gates and API switches are not supported yet";

/// Every flag the daemon knows, with the line `--help` prints.
const FLAGS: &[(&str, Takes, &str)] = &[
    (
        "advertise-address",
        Takes::Value,
        "address members of the cluster reach this API server at",
    ),
    (
        "anonymous-auth",
        Takes::Bool,
        "let requests without a credential in as system:anonymous (true)",
    ),
    (
        "api-audiences",
        Takes::Value,
        "audiences of this API server (the service account issuers)",
    ),
    (
        "audit-log-format",
        Takes::Value,
        "json, the only format of the audit log (json)",
    ),
    (
        "audit-log-maxage",
        Takes::Value,
        "days old audit logs are kept, 0 for ever (0)",
    ),
    (
        "audit-log-maxbackup",
        Takes::Value,
        "old audit logs kept, 0 for all (0)",
    ),
    (
        "audit-log-maxsize",
        Takes::Value,
        "size in MB at which the audit log is turned over (100)",
    ),
    ("audit-log-path", Takes::Value, "the audit log; - is standard output"),
    ("audit-policy-file", Takes::Value, "which requests the audit log has"),
    (
        "authorization-mode",
        Takes::Value,
        "Node and RBAC, or RBAC alone (Node,RBAC)",
    ),
    ("bind-address", Takes::Value, "address to listen on (0.0.0.0)"),
    (
        "client-ca-file",
        Takes::Value,
        "further CA bundle client certificates are accepted from",
    ),
    (
        "cluster-cidr",
        Takes::Value,
        "range of pod addresses, or one of each family with a comma between (10.244.0.0/16)",
    ),
    (
        "cluster-dns-service",
        Takes::Bool,
        "keep the Service kube-system/kube-dns at the tenth Service address, unless one is there (true)",
    ),
    (
        "cluster-signing-cert-file",
        Takes::Value,
        "CA certificate that approved certificate requests are signed by, without the API server (nothing is signed)",
    ),
    (
        "cluster-signing-key-file",
        Takes::Value,
        "key of --cluster-signing-cert-file",
    ),
    (
        "components",
        Takes::Value,
        "parts that run: apiserver, scheduler, controllers, with commas between (all)",
    ),
    (
        "config",
        Takes::Value,
        "the scheduler's configuration, a KubeSchedulerConfiguration (upstream's defaults)",
    ),
    (
        "controllers",
        Takes::Value,
        "controllers that run: * for all, name for one, -name for all but one \
         (*,bootstrap-signer-controller,token-cleaner-controller)",
    ),
    (
        "data-dir",
        Takes::Value,
        "where objects, certificates and admin.kubeconfig are kept (/var/lib/skiff/controlplane)",
    ),
    (
        "disable-admission-plugins",
        Takes::Value,
        "admission plugins to leave out, by name with commas between; those that always run cannot be",
    ),
    (
        "enable-admission-plugins",
        Takes::Value,
        "further admission plugins, by name with commas between: DenyServiceExternalIPs",
    ),
    (
        "etcd-cafile",
        Takes::Value,
        "CA bundle to verify etcd's servers with; https servers need it",
    ),
    ("etcd-certfile", Takes::Value, "certificate to show etcd's servers"),
    (
        "etcd-compaction-interval",
        Takes::Value,
        "how often etcd's history is compacted, 0 to leave it to others (5m)",
    ),
    ("etcd-keyfile", Takes::Value, "key of --etcd-certfile"),
    (
        "etcd-prefix",
        Takes::Value,
        "what all keys in etcd begin with (/registry)",
    ),
    (
        "etcd-servers",
        Takes::Value,
        "URLs of the etcd cluster that keeps objects, with commas between: http, https or unix",
    ),
    (
        "encryption-provider-config",
        Takes::Value,
        "how values are encrypted where they are stored, an EncryptionConfiguration (in clear)",
    ),
    (
        "encryption-provider-config-automatic-reload",
        Takes::Bool,
        "take up changes of --encryption-provider-config (false)",
    ),
    (
        "kubeconfig",
        Takes::Value,
        "how scheduler and controllers reach the API server where --components leaves it out",
    ),
    (
        "kubelet-certificate-authority",
        Takes::Value,
        "CA bundle to verify kubelets with (no verification)",
    ),
    (
        "large-cluster-size-threshold",
        Takes::Value,
        "zones of so many nodes at most stop evictions when they are partly disrupted (50)",
    ),
    (
        "leader-elect",
        Takes::Bool,
        "without the API server: work only while holding a lease (true)",
    ),
    (
        "leader-elect-lease-duration",
        Takes::Value,
        "how long a lease that is not renewed holds others off (15s)",
    ),
    (
        "leader-elect-renew-deadline",
        Takes::Value,
        "how long a leader goes on that cannot renew its lease (10s)",
    ),
    (
        "leader-elect-resource-lock",
        Takes::Value,
        "leases, the only kind of lock (leases)",
    ),
    (
        "leader-elect-resource-name",
        Takes::Value,
        "the lease's name (kube-scheduler, kube-controller-manager)",
    ),
    (
        "leader-elect-resource-namespace",
        Takes::Value,
        "the lease's namespace (kube-system)",
    ),
    (
        "leader-elect-retry-period",
        Takes::Value,
        "pause between two looks at the lease (2s)",
    ),
    (
        "mirroring-max-endpoints-per-subset",
        Takes::Value,
        "addresses of a subset of Endpoints that are mirrored to an EndpointSlice, 1 to 1000 (1000)",
    ),
    (
        "node-cidr-mask-size",
        Takes::Value,
        "prefix length of nodes' podCIDRs, of a cluster of one family (24, of IPv6 64)",
    ),
    (
        "node-cidr-mask-size-ipv4",
        Takes::Value,
        "prefix length of nodes' podCIDRs of IPv4 (24)",
    ),
    (
        "node-cidr-mask-size-ipv6",
        Takes::Value,
        "prefix length of nodes' podCIDRs of IPv6 (64)",
    ),
    (
        "node-eviction-rate",
        Takes::Value,
        "silent nodes a second of a zone that lose their pods (0.1)",
    ),
    (
        "policy-config-file",
        Takes::Value,
        "predicates and priorities of the scheduler by their old names, in place of --config: a v1 Policy",
    ),
    (
        "root-ca-file",
        Takes::Value,
        "CA bundle for the kube-root-ca.crt of namespaces, without the API server (the kubeconfig's)",
    ),
    (
        "secondary-node-eviction-rate",
        Takes::Value,
        "the same in a large zone that is partly disrupted (0.01)",
    ),
    (
        "metrics-api",
        Takes::Bool,
        "serve metrics.k8s.io, from what kubelets say (true)",
    ),
    (
        "secure-port",
        Takes::Value,
        "HTTPS port (6443; without the API server 10259 of the scheduler, 10257 of controllers, 0 for none)",
    ),
    (
        "service-account-issuer",
        Takes::Value,
        "issuer of service account tokens; may stand several times",
    ),
    (
        "service-account-private-key-file",
        Takes::Value,
        "key that signs tokens for Secrets, without the API server (they are not filled)",
    ),
    (
        "service-cluster-ip-range",
        Takes::Value,
        "range of Service addresses, or one of each family with a comma between (10.96.0.0/16)",
    ),
    (
        "service-node-port-range",
        Takes::Value,
        "node ports of Services: first-last, first+more or one (30000-32767)",
    ),
    (
        "store",
        Takes::Value,
        "disk, memory or etcd (disk; with --etcd-servers etcd)",
    ),
    (
        "terminated-pod-gc-threshold",
        Takes::Value,
        "terminated pods that may stay (12500; 0: all)",
    ),
    (
        "tls-cert-file",
        Takes::Value,
        "serving certificate (made under --data-dir)",
    ),
    ("tls-private-key-file", Takes::Value, "key of the serving certificate"),
    (
        "token-auth-file",
        Takes::Value,
        "CSV of static tokens: token,user,uid[,\"group1,group2\"]",
    ),
    (
        "unhealthy-zone-threshold",
        Takes::Value,
        "part of silent nodes, if more than two, at which a zone is partly disrupted (0.55)",
    ),
    (
        "use-service-account-credentials",
        Takes::Bool,
        "without the API server: each controller uses its service account's token (false)",
    ),
    ("v", Takes::Value, "log verbosity (2)"),
    ("help", Takes::Bool, "print this and exit"),
    ("version", Takes::Bool, "print the version and exit"),
    ("etcd-servers-overrides", Takes::Refused(NO_OVERRIDES), ""),
    (
        "storage-backend",
        Takes::Refused("use --store disk, or --etcd-servers"),
        "",
    ),
    ("feature-gates", Takes::Refused(NO_FEATURE), ""),
    ("runtime-config", Takes::Refused(NO_FEATURE), ""),
    (
        "admission-control-config-file",
        Takes::Refused("admission plugins cannot be configured yet"),
        "",
    ),
    (
        "audit-webhook-config-file",
        Takes::Refused("audit webhooks are not supported yet"),
        "",
    ),
    (
        "encryption-provider-config",
        Takes::Refused("encryption at rest is not supported yet"),
        "",
    ),
    (
        "oidc-issuer-url",
        Takes::Refused("OpenID Connect is not supported yet"),
        "",
    ),
    (
        "authentication-token-webhook-config-file",
        Takes::Refused("token webhooks are not supported yet"),
        "",
    ),
    (
        "authorization-webhook-config-file",
        Takes::Refused("authorization webhooks are not supported yet"),
        "",
    ),
    (
        "requestheader-client-ca-file",
        Takes::Refused("a front proxy is not supported yet"),
        "",
    ),
    (
        "cluster-signing-duration",
        Takes::Refused("certificates are signed for a year, or as long as the request asks"),
        "",
    ),
    ("insecure-port", Takes::Refused("there is no insecure port"), ""),
];

/// Parsed words: values by flag, plain arguments, and mistakes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    values: BTreeMap<&'static str, Vec<String>>,
    /// Words that belong to no flag.
    pub arguments: Vec<String>,
    /// Everything wrong so far, one text each.
    pub mistakes: Vec<String>,
}

impl Flags {
    /// The last value given for `flag`.
    pub fn last(&self, flag: &str) -> Option<&str> {
        self.values.get(flag)?.last().map(String::as_str)
    }

    /// All values given for `flag`, in order.
    pub fn all(&self, flag: &str) -> Vec<&str> {
        self.values
            .get(flag)
            .map(|values| values.iter().map(String::as_str).collect())
            .unwrap_or_default()
    }

    /// The flags that were given.
    pub fn given(&self) -> Vec<&'static str> {
        self.values.keys().copied().collect()
    }

    /// Whether a switch such as `--help` was given.
    pub fn is_set(&self, flag: &str) -> bool {
        self.last(flag) == Some("true")
    }
}

/// Reads the words after the program's name.
pub fn parse(words: impl IntoIterator<Item = String>) -> Flags {
    let mut flags = Flags::default();
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let Some(body) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            flags.mistakes.push(format!("unknown argument: {word}"));
            flags.arguments.push(word);
            continue;
        };
        let (name, mut value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        let name = if name == "h" { "help" } else { name };
        let Some((name, takes, _)) = FLAGS.iter().find(|(known, _, _)| *known == name) else {
            flags.mistakes.push(format!("unknown flag: --{name}"));
            skip_value(&mut words, value.is_none());
            continue;
        };
        match takes {
            Takes::Refused(why) => {
                flags.mistakes.push(format!("--{name}: {why}"));
                skip_value(&mut words, value.is_none());
                continue;
            }
            Takes::Bool => value = Some(value.unwrap_or_else(|| "true".to_owned())),
            Takes::Value => value = value.or_else(|| words.next()),
        }
        match value {
            Some(value) => flags.values.entry(name).or_default().push(value),
            None => flags.mistakes.push(format!("flag needs an argument: --{name}")),
        }
    }
    flags
}

/// After a flag that is not taken: its value, if it looks like one, is not a mistake of its own.
fn skip_value(words: &mut std::iter::Peekable<impl Iterator<Item = String>>, may: bool) {
    if may && words.peek().is_some_and(|next| !next.starts_with('-')) {
        words.next();
    }
}

/// Every flag that can be given.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let all = FLAGS.iter().filter(|(_, takes, _)| !matches!(takes, Takes::Refused(_)));
    all.map(|(name, _, _)| *name)
}

/// The text of `--help`.
pub fn help() -> String {
    let mut text = "Usage: controlplane [flags]\n       controlplane kubeconfig --data-dir DIR --user USER \
                    [--group GROUP]... --server URL\n\nFlags (defaults in brackets):\n"
        .to_owned();
    for (name, takes, help) in FLAGS {
        if !matches!(takes, Takes::Refused(_)) {
            let dashes = if name.len() == 1 { "-" } else { "--" };
            text.push_str(&format!("  {:<34} {help}\n", format!("{dashes}{name}")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Flags {
        parse(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn both_spellings_and_repetition() {
        let flags = of(&[
            "--store",
            "memory",
            "--service-account-issuer=a",
            "--service-account-issuer=b",
            "-v=4",
        ]);
        assert_eq!(flags.last("store"), Some("memory"));
        assert_eq!(flags.all("service-account-issuer"), ["a", "b"]);
        assert_eq!(flags.last("v"), Some("4"));
        assert!(flags.mistakes.is_empty());
    }

    #[test]
    fn an_unknown_flag_swallows_its_value() {
        let flags = of(&["--nope", "value", "--store", "disk"]);
        assert_eq!(flags.mistakes, ["unknown flag: --nope"]);
        assert_eq!(flags.last("store"), Some("disk"));
    }

    #[test]
    fn a_missing_value_is_named() {
        assert_eq!(of(&["--data-dir"]).mistakes, ["flag needs an argument: --data-dir"]);
    }

    #[test]
    fn help_names_every_flag_that_works() {
        let text = help();
        assert!(text.contains("--data-dir") && text.contains("-v ") && !text.contains("oidc"));
    }
}
