use super::*;
use crate::flags::parse;

mod defaults;

const HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

fn flags(words: &[&str]) -> Flags {
    parse(words.iter().map(|word| (*word).to_owned())).expect("flags")
}

fn file(text: &str) -> Result<Config, ConfigError> {
    resolve(Some(&format!("{HEAD}{text}")), &Flags::default())
}

fn mistakes(text: &str) -> Vec<String> {
    match file(text) {
        Err(ConfigError::Mistakes { mistakes, .. }) => mistakes,
        other => panic!("{text}: {other:?}"),
    }
}

/// As kubeadm 1.36 writes it.
const KUBEADM: &str = r#"apiVersion: kubeproxy.config.k8s.io/v1alpha1
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: ""
  burst: 0
  contentType: ""
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
  qps: 0
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack:
  maxPerCore: null
  min: null
  tcpBeLiberal: false
  tcpCloseWaitTimeout: null
  tcpEstablishedTimeout: null
  udpStreamTimeout: 0s
  udpTimeout: 0s
detectLocal:
  bridgeInterface: ""
  interfaceNamePrefix: ""
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables:
  localhostNodePorts: null
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
ipvs:
  excludeCIDRs: null
  minSyncPeriod: 0s
  scheduler: ""
  strictARP: false
  syncPeriod: 0s
  tcpFinTimeout: 0s
  tcpTimeout: 0s
  udpTimeout: 0s
kind: KubeProxyConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
metricsBindAddress: ""
mode: ""
nftables:
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel:
  enableDSR: false
  forwardHealthCheckVip: false
  networkName: ""
  rootHnsEndpointName: ""
  sourceVip: ""
"#;

#[test]
fn what_kubeadm_writes_is_taken_as_it_is() {
    let config = resolve(Some(KUBEADM), &flags(&["--hostname-override=Node-1 "])).expect("sound");
    assert_eq!(config.warnings, Vec::<String>::new());
    assert_eq!(
        config.kubeconfig.as_deref(),
        Some("/var/lib/kube-proxy/kubeconfig.conf".as_ref())
    );
    assert_eq!(config.hostname_override.as_deref(), Some("node-1"));
    assert_eq!(config.local, LocalTraffic::ClusterCidr(cidrs(["10.244.0.0/16"])));
    assert_eq!(config.node_ports, NodePorts::All);
    assert_eq!(config.healthz, Some("0.0.0.0:10256".parse().unwrap()));
    assert_eq!(config.metrics, Some("127.0.0.1:10249".parse().unwrap()));
    assert_eq!(config.masquerade, Masquerade { all: false, bit: 14 });
    assert_eq!(
        (config.sync_period, config.min_sync_period),
        (Duration::from_secs(30), Duration::from_secs(1))
    );
    assert_eq!((config.oom_score_adj, config.localhost_node_ports), (-999, true));
    assert_eq!(
        config.conntrack,
        Conntrack {
            max_per_core: 32768,
            min: 131_072,
            tcp_established: Duration::from_secs(86_400),
            tcp_close_wait: Duration::from_secs(3600),
            ..Conntrack::default()
        }
    );
    assert_eq!((config.node_ip, config.logging), (None, Logging::default()));
}

#[test]
fn nothing_written_is_upstreams_defaults() {
    let config = resolve(None, &Flags::default()).expect("sound");
    let empty = file("").expect("sound");
    assert_eq!(config.effective, empty.effective);
    assert_eq!(config.healthz, Some("0.0.0.0:10256".parse().unwrap()));
    let text = written(&config);
    for line in [
        "apiVersion: \"kubeproxy.config.k8s.io/v1alpha1\"\n",
        "conntrack:\n  maxPerCore: 32768\n  min: 131072\n",
        "  tcpEstablishedTimeout: \"24h0m0s\"\n",
        "configSyncPeriod: \"15m0s\"\n",
        "featureGates: {}\n",
        "nodePortAddresses: null\n",
        "oomScoreAdj: -999\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let again = resolve(Some(&text), &Flags::default()).expect("what is written is read");
    assert_eq!(again.effective, config.effective);
}

#[test]
fn modes_read_their_own_section() {
    let nft = "mode: nftables\nnftables: {masqueradeAll: true, masqueradeBit: 3, syncPeriod: 2m, minSyncPeriod: 5s}\niptables: {masqueradeBit: 9}\n";
    let config = file(nft).expect("sound");
    assert_eq!(config.masquerade, Masquerade { all: true, bit: 3 });
    assert_eq!(config.sync_period, Duration::from_secs(120));
    assert_eq!(config.node_ports, NodePorts::Primary);
    assert!(!config.localhost_node_ports && config.warnings.is_empty(), "{config:?}");
    let config = file(
        "mode: ipvs\nipvs: {syncPeriod: 1m, strictARP: true, scheduler: wrr}\niptables: {masqueradeAll: true}\nwinkernel: {sourceVip: 10.0.0.1}\n",
    );
    let config = config.expect("sound");
    assert_eq!(config.sync_period, Duration::from_secs(60));
    assert!(config.masquerade.all);
    assert_eq!(
        config.warnings,
        [
            "mode \"ipvs\": this proxy has rules of nf_tables alone, and uses them in its place",
            "no effect in this proxy: ipvs.scheduler, ipvs.strictARP"
        ]
    );
}

#[test]
fn servers_follow_the_family_of_the_bind_address_and_get_their_ports() {
    for (text, healthz, metrics, node_ip) in [
        ("bindAddress: '::'", "[::]:10256", "[::1]:10249", None),
        ("bindAddress: fd00::1", "[::]:10256", "[::1]:10249", Some("fd00::1")),
        (
            "bindAddress: 10.0.0.1\nhealthzBindAddress: 10.0.0.1\nmetricsBindAddress: '::1'",
            "10.0.0.1:10256",
            "[::1]:10249",
            Some("10.0.0.1"),
        ),
        (
            "healthzBindAddress: 127.0.0.1:1",
            "127.0.0.1:1",
            "127.0.0.1:10249",
            None,
        ),
    ] {
        let config = file(text).expect(text);
        assert_eq!(config.healthz, Some(healthz.parse().unwrap()), "{text}");
        assert_eq!(config.metrics, Some(metrics.parse().unwrap()), "{text}");
        assert_eq!(config.node_ip, node_ip.map(|ip| ip.parse().unwrap()), "{text}");
    }
}

/// Upstream's own cases of validation, as facts: what is written, and all that is said of it.
#[test]
fn what_upstream_refuses_is_refused_in_its_words() {
    let cidr = "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)";
    let dual = "must be a either a single CIDR or dual-stack pair of CIDRs (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]";
    let table: &[(&str, &[&str])] = &[
        (
            "bindAddress: 10.10.12.11:2000",
            &["BindAddress: Invalid value: \"10.10.12.11:2000\": not a valid textual representation of an IP address"],
        ),
        (
            "healthzBindAddress: 0.0.0.0.5",
            &["HealthzBindAddress: Invalid value: \"0.0.0.0.5\": must be IP:port"],
        ),
        (
            "healthzBindAddress: '1.2.3:4'",
            &["HealthzBindAddress: Invalid value: \"1.2.3\": must be a valid IP"],
        ),
        (
            "metricsBindAddress: '127.0.0.1:0'",
            &["MetricsBindAddress: Invalid value: \"0\": must be a valid port"],
        ),
        (
            "metricsBindAddress: '127.0.0.1:http'",
            &["MetricsBindAddress: Invalid value: \"http\": must be a valid port"],
        ),
        (
            "healthzBindAddress: '127.0.0.1:70000'",
            &["HealthzBindAddress: Invalid value: \"70000\": must be a valid port"],
        ),
        (
            "clusterCIDR: 192.168.59.0",
            &[&format!(
                "DetectLocalConfiguration.ClusterCIDRs[0]: Invalid value: \"192.168.59.0\": {cidr}"
            )],
        ),
        (
            "clusterCIDR: '10.0.0.0/16,fd00:192:168::/64,10.1.0.0/16'",
            &[&format!(
                "DetectLocalConfiguration.ClusterCIDRs: Invalid value: [\"10.0.0.0/16\",\"fd00:192:168::/64\",\"10.1.0.0/16\"]: {dual}"
            )],
        ),
        (
            "clusterCIDR: '10.0.0.0/16,10.1.0.0/16'",
            &[&format!(
                "DetectLocalConfiguration.ClusterCIDRs: Invalid value: [\"10.0.0.0/16\",\"10.1.0.0/16\"]: {dual}"
            )],
        ),
        (
            "configSyncPeriod: -1s",
            &["ConfigSyncPeriod: Invalid value: -1s: must be greater than 0"],
        ),
        (
            "iptables: {syncPeriod: -5s}",
            &[
                "SyncPeriod: Invalid value: -5s: must be greater than 0",
                "SyncPeriod: Invalid value: 1s: must be greater than or equal to KubeProxyConfiguration.MinSyncPeriod",
            ],
        ),
        (
            "iptables: {minSyncPeriod: -1s}",
            &["MinSyncPeriod: Invalid value: -1s: must be greater than or equal to 0"],
        ),
        (
            "mode: nftables\nnftables: {syncPeriod: 1s, minSyncPeriod: 5s}",
            &["SyncPeriod: Invalid value: 5s: must be greater than or equal to KubeProxyConfiguration.MinSyncPeriod"],
        ),
        (
            "iptables: {masqueradeBit: -10}",
            &["KubeProxyIPTablesConfiguration.MasqueradeBit: Invalid value: -10: must be within the range [0, 31]"],
        ),
        (
            "mode: nftables\nnftables: {masqueradeBit: 32}",
            &["KubeProxyNFTablesConfiguration.MasqueradeBit: Invalid value: 32: must be within the range [0, 31]"],
        ),
        (
            "mode: userspace",
            &[
                "Mode.ProxyMode: Invalid value: \"userspace\": must be iptables, ipvs, nftables or blank (blank means the best-available proxy [currently iptables])",
            ],
        ),
        (
            "clientConnection: {burst: -5}",
            &["ClientConnection.Burst: Invalid value: -5: must be greater than or equal to 0"],
        ),
        (
            "oomScoreAdj: 1001",
            &["KubeProxyLinuxConfiguration.OOMScoreAdj: Invalid value: 1001: must be within the range [-1000, 1000]"],
        ),
        (
            "conntrack: {maxPerCore: -1, min: -1, udpTimeout: -1s}",
            &[
                "KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration.MaxPerCore: Invalid value: -1: must be greater than or equal to 0",
                "KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration.Min: Invalid value: -1: must be greater than or equal to 0",
                "KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration.UDPTimeout: Invalid value: -1s: must be greater than or equal to 0",
            ],
        ),
        (
            "conntrack: {tcpEstablishedTimeout: -5s, tcpCloseWaitTimeout: -5s, udpStreamTimeout: -1s}",
            &[
                "KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration.TCPEstablishedTimeout: Invalid value: -5s: must be greater than or equal to 0",
                "KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration.TCPCloseWaitTimeout: Invalid value: -5s: must be greater than or equal to 0",
                "KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration.UDPStreamTimeout: Invalid value: -1s: must be greater than or equal to 0",
            ],
        ),
        (
            "nodePortAddresses: [1.2.3.4, 127.0.0.0/8]",
            &["NodePortAddresses[0]: Invalid value: \"1.2.3.4\": must be a valid CIDR"],
        ),
        (
            "nodePortAddresses: [127.0.0.0/8, primary]",
            &["NodePortAddresses[1]: Invalid value: \"primary\": can't use both 'primary' and CIDRs"],
        ),
        (
            "mode: ipvs\nipvs: {tcpTimeout: -1s, excludeCIDRs: [x]}",
            &[
                "KubeProxyIPVSConfiguration.TCPTimeout: Invalid value: -1s: must be greater than or equal to 0",
                "KubeProxyIPVSConfiguration.ExcludeCidrs[0]: Invalid value: \"x\": must be a valid CIDR",
            ],
        ),
        (
            "detectLocalMode: Guess",
            &[
                "DetectLocalMode: Unsupported value: \"Guess\": supported values: \"ClusterCIDR\", \"NodeCIDR\", \"BridgeInterface\", \"InterfaceNamePrefix\", \"\"",
            ],
        ),
        (
            "detectLocalMode: BridgeInterface",
            &["DetectLocalConfiguration.InterfaceName: Invalid value: \"\": must not be empty"],
        ),
        (
            "detectLocalMode: InterfaceNamePrefix",
            &["DetectLocalConfiguration.InterfacePrefix: Invalid value: \"\": must not be empty"],
        ),
        (
            "portRange: 20-10",
            &["PortRange: Invalid value: \"20-10\": must be a valid port range (e.g. 300-2000)"],
        ),
        (
            "showHiddenMetricsForVersion: '1.30'",
            &[
                "ShowHiddenMetricsForVersion: Invalid value: \"1.30\": --show-hidden-metrics-for-version must be omitted or have the value '1.35'. Only the previous minor version is allowed",
            ],
        ),
        (
            "logging: {format: xml}",
            &["logging.format: Invalid value: \"xml\": Unsupported log format"],
        ),
    ];
    for (text, said) in table {
        let said: Vec<String> = said
            .iter()
            .map(|what| format!("KubeProxyConfiguration.{what}"))
            .collect();
        assert_eq!(mistakes(text), said, "{text}");
    }
    for sound in [
        "portRange: 300-2000",
        "portRange: 300+20",
        "portRange: '80'",
        "detectLocalMode: NodeCIDR",
        "clusterCIDR: '10.0.0.0/16,fd00::/64'",
    ] {
        file(sound).expect(sound);
    }
}

#[test]
fn every_wrong_type_is_named_and_unknown_fields_are_warned_about() {
    assert_eq!(
        mistakes(
            "bindAddress: 5\nconntrack: {min: x, maxPerCore: 99999999999}\nnodePortAddresses: {}\nconfigSyncPeriod: soon\nipvs: []\nfeatureGates: {A: maybe}\n"
        ),
        [
            "bindAddress: 5 is not a text",
            "configSyncPeriod: \"soon\" is not a duration such as 1m30s",
            "conntrack.maxPerCore: 99999999999 is not a whole number of 32 bits",
            "conntrack.min: \"x\" is not a whole number of 32 bits",
            "featureGates: {\"A\":\"maybe\"} is not truth by name",
            "ipvs: [] is not an object",
            "nodePortAddresses: {} is not a list of texts",
        ]
    );
    let config = file("udpIdleTimeout: 250ms\nconntrack: {max: 5}\nfeatureGates: {A: true}\nenableProfiling: true\n")
        .expect("upstream takes it");
    assert_eq!(
        config.warnings,
        [
            "Using lenient decoding as strict decoding failed: unknown field \"conntrack.max\", unknown field \"udpIdleTimeout\"",
            "no effect in this proxy: enableProfiling, featureGates"
        ]
    );
    for (text, begins) in [
        ("kind: Pod\n", "apiVersion: must be"),
        ("[]", "the file does not hold"),
        ("a: [", "invalid YAML"),
        (
            "apiVersion: kubeproxy.config.k8s.io/v1\nkind: KubeProxyConfiguration\n",
            "apiVersion: \"kubeproxy.config.k8s.io/v1\" is not",
        ),
    ] {
        let Err(ConfigError::Mistakes { mistakes, .. }) = resolve(Some(text), &Flags::default()) else {
            panic!("{text}");
        };
        assert!(mistakes[0].starts_with(begins), "{mistakes:?}");
    }
}

#[test]
fn flags_beside_a_file_are_ignored_but_for_upstreams_exceptions() {
    let given = flags(&[
        "--config=/x",
        "--hostname-override=a",
        "-v=4",
        "--vmodule=apply=6",
        "--cluster-cidr=10.0.0.0/8",
        "--kubeconfig=/k",
    ]);
    let text = format!(
        "{HEAD}hostnameOverride: b\nlogging: {{verbosity: 1, vmodule: [{{filePattern: diff, verbosity: 5}}]}}\n"
    );
    let config = resolve(Some(&text), &given).expect("sound");
    assert_eq!(config.hostname_override.as_deref(), Some("a"));
    assert_eq!(config.logging.verbosity, Some(4));
    assert_eq!(
        config.logging.modules,
        [("apply".to_owned(), 6), ("diff".to_owned(), 5)]
    );
    assert_eq!(
        (config.kubeconfig, config.local),
        (None, LocalTraffic::ClusterCidr(vec![]))
    );
    assert_eq!(
        config.warnings,
        ["ignored because of --config: --cluster-cidr, --kubeconfig"]
    );
}

#[test]
fn flags_alone_say_everything() {
    let config = resolve(
        None,
        &flags(&[
            "--proxy-mode=nftables",
            "--masquerade-all",
            "--iptables-sync-period=1m",
            "--nodeport-addresses=10.0.0.0/8,192.168.0.0/16",
            "--healthz-port=0",
            "--metrics-bind-address=0.0.0.0",
            "--detect-local-mode=NodeCIDR",
            "--conntrack-max-per-core=0",
            "--master=https://10.0.0.1:6443",
            "--conntrack-tcp-timeout-established=0s",
            "--bind-address=10.0.0.9",
        ]),
    )
    .expect("sound");
    assert_eq!(
        (config.healthz, config.metrics),
        (None, Some("0.0.0.0:10249".parse().unwrap()))
    );
    assert!(config.masquerade.all && config.sync_period == Duration::from_secs(60));
    assert_eq!(
        config.node_ports,
        NodePorts::Ranges(cidrs(["10.0.0.0/8", "192.168.0.0/16"]))
    );
    assert_eq!(config.local, LocalTraffic::NodeCidr);
    assert_eq!(
        (config.conntrack.max_per_core, config.conntrack.tcp_established),
        (0, Duration::ZERO)
    );
    assert_eq!(config.master.as_deref(), Some("https://10.0.0.1:6443"));
    assert_eq!(config.node_ip, Some("10.0.0.9".parse().unwrap()));
    let Err(ConfigError::Mistakes { mistakes, .. }) =
        resolve(None, &flags(&["--iptables-sync-period=0", "--healthz-port=-1"]))
    else {
        panic!("zero is refused where somebody typed it");
    };
    assert_eq!(mistakes.len(), 3, "{mistakes:?}");
}

#[test]
fn the_table_is_sound() {
    let paths: Vec<&str> = table::FIELDS.iter().map(|field| field.path).collect();
    let mut sorted = paths.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(paths, sorted, "sorted, no field twice");
    for field in table::FIELDS {
        let default: Value = serde_json::from_str(field.default).expect(field.path);
        assert_eq!(tree::mistake(field.shape, &default), None, "{}", field.path);
        assert!(!table::is_section(field.path), "{}", field.path);
        if let table::Effect::Moot(why) = field.effect {
            assert!(!why.is_empty());
        }
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
        let _ = file(&text);
    }
}
