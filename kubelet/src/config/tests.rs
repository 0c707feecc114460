//! Files, drop-ins and flags together, as a user has them.

use super::*;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("temp dir"))
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(&path, text).expect("write");
        path.display().to_string()
    }

    fn load(&self, args: &[&str]) -> Result<Config, String> {
        let flags = match parse_flags(args.iter().map(|arg| (*arg).to_owned())) {
            Ok(flags) => flags,
            Err(end) => panic!("{end:?}"),
        };
        load(&flags).map_err(|error| error.to_string())
    }
}

/// What `kubeadm init` writes.
const KUBEADM: &str = "authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 0s, enabled: true}, \
    x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}\n\
    authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}}\n\
    cgroupDriver: systemd\nclusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\ncontainerRuntimeEndpoint: \"\"\n\
    cpuManagerReconcilePeriod: 0s\ncrashLoopBackOff: {}\nevictionPressureTransitionPeriod: 0s\nfileCheckFrequency: 0s\n\
    healthzBindAddress: 127.0.0.1\nhealthzPort: 10248\nhttpCheckFrequency: 0s\nimageMaximumGCAge: 0s\nimageMinimumGCAge: 0s\n\
    logging: {flushFrequency: 0, options: {json: {infoBufferSize: \"0\"}, text: {infoBufferSize: \"0\"}}, verbosity: 0}\n\
    memorySwap: {}\nnodeStatusReportFrequency: 0s\nnodeStatusUpdateFrequency: 0s\nresolvConf: /run/systemd/resolve/resolv.conf\n\
    rotateCertificates: true\n\
    runtimeRequestTimeout: 0s\nshutdownGracePeriod: 0s\nshutdownGracePeriodCriticalPods: 0s\n\
    staticPodPath: /etc/kubernetes/manifests\nstreamingConnectionIdleTimeout: 0s\nsyncFrequency: 0s\nvolumeStatsAggPeriod: 0s\n";

#[test]
fn kubeadms_file_and_flags_are_taken_without_a_warning() {
    let files = Files::new();
    let config = files.write("config.yaml", &format!("{HEAD}{KUBEADM}"));
    let loaded = files.load(&[
        &format!("--config={config}"),
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
        "--container-runtime-endpoint=unix:///var/run/containerd/containerd.sock",
        "--node-ip=192.0.2.1",
    ]);
    let loaded = loaded.expect("sound");
    assert_eq!(loaded.warnings, Vec::<String>::new());
    let bootstrap = PathBuf::from("/etc/kubernetes/bootstrap-kubelet.conf");
    assert_eq!(loaded.paths.bootstrap_kubeconfig, Some(bootstrap));
    assert!(loaded.rotate_certificates && !loaded.server.tls_bootstrap);
    assert_eq!(loaded.statics.path, Some(PathBuf::from("/etc/kubernetes/manifests")));
    assert_eq!(
        loaded.runtime.socket,
        PathBuf::from("/var/run/containerd/containerd.sock")
    );
    assert_eq!(loaded.node.status_update, Duration::from_secs(10));
    assert_eq!(loaded.server.read_only_port, None);
    assert_eq!(loaded.effective["syncFrequency"], "1m0s");
    assert_eq!(loaded.effective["cgroupDriver"], "systemd");
}

#[test]
fn flags_win_over_drop_ins_and_those_over_the_file() {
    let files = Files::new();
    let config = files.write(
        "config.yaml",
        &format!("{HEAD}port: 1001\nmaxPods: 10\nfeatureGates: {{AllBeta: false, EventedPLEG: true}}\n"),
    );
    files.write(
        "conf.d/10.conf",
        &format!("{HEAD}port: 1002\nclusterDomain: drop.in\nmaxPods: 20\n"),
    );
    let directory = files.0.path().join("conf.d").display().to_string();
    let loaded = files.load(&[
        &format!("--config={config}"),
        &format!("--config-dir={directory}"),
        "--port=1003",
        "--feature-gates=EventedPLEG=false",
    ]);
    let loaded = loaded.expect("sound");
    assert_eq!((loaded.server.port, loaded.node.max_pods), (1003, 20));
    assert_eq!(loaded.dns.cluster_domain, "drop.in");
    let gates = serde_json::json!({"AllBeta": false, "EventedPLEG": false});
    assert_eq!(loaded.effective["featureGates"], gates);
    assert_eq!(loaded.warnings, ["no effect in this kubelet yet: featureGates"]);
}

#[test]
fn what_has_an_effect_is_obeyed_and_not_warned_about() {
    let files = Files::new();
    let plain = files.load(&["--feature-gates=EventedPLEG=true"]).expect("sound");
    assert!(plain.local_storage && !plain.stop_signals && !plain.warnings.is_empty());
    let config = files.write(
        "config.yaml",
        &format!("{HEAD}localStorageCapacityIsolation: false\nfeatureGates: {{ContainerStopSignals: true, PodLogsQuerySplitStreams: true}}\n"),
    );
    let loaded = files.load(&[&format!("--config={config}")]).expect("sound");
    assert!(!loaded.local_storage && loaded.stop_signals && loaded.server.handlers.log_streams);
    assert_eq!(loaded.warnings, Vec::<String>::new());
}

#[test]
fn without_a_file_the_older_defaults_hold_and_everything_unused_is_one_warning() {
    let files = Files::new();
    let loaded = files
        .load(&[
            "--volume-stats-agg-period=2m",
            "--housekeeping-interval=5s",
            "-v=6",
            "--logging-format=json",
        ])
        .expect("sound");
    assert_eq!(loaded.server.read_only_port, Some(10255));
    assert!(loaded.server.anonymous);
    assert_eq!(
        loaded.warnings,
        ["no effect in this kubelet yet: volumeStatsAggPeriod, --housekeeping-interval"]
    );
    assert_eq!(loaded.logging.format, crate::log::Format::Json);
    assert_eq!(loaded.logging.verbosity.default, 6);
}

#[test]
fn what_hardens_is_obeyed_without_a_warning() {
    let files = Files::new();
    let text = format!(
        "{HEAD}enableDebuggingHandlers: false\ntlsMinVersion: VersionTLS13\ntlsCipherSuites: [TLS_AES_128_GCM_SHA256]\n\
        protectKernelDefaults: true\nallowedUnsafeSysctls: [\"net.core.*\"]\nenableProfilingHandler: false\n\
        enableSystemLogHandler: false\nenableDebugFlagsHandler: false\nmaxOpenFiles: 4096\n\
        imageServiceEndpoint: unix:///run/images.sock\nlogging: {{verbosity: 0}}\n"
    );
    let config = files.write("config.yaml", &text);
    let loaded = files.load(&[&format!("--config={config}")]).expect("sound");
    assert_eq!(loaded.warnings, Vec::<String>::new());
    assert_eq!(
        loaded.server.handlers,
        Handlers {
            debugging: false,
            profiling: false,
            flags: false,
            system_log: false,
            system_log_query: false,
            log_streams: false,
        }
    );
    let asking = files.write("query.yaml", &format!("{HEAD}enableSystemLogQuery: true\n"));
    let asking = format!("--config={asking}");
    let loaded_query = files
        .load(&[&asking, "--manifest-url-header=Authorization:secret"])
        .expect("sound");
    assert!(loaded_query.server.handlers.system_log_query && loaded_query.warnings.is_empty());
    assert_eq!(loaded_query.flags["manifest-url-header"], "<masked>");
    let neither = files.write(
        "neither.yaml",
        &format!("{HEAD}enableSystemLogQuery: true\nenableSystemLogHandler: false\n"),
    );
    assert!(files.load(&[&format!("--config={neither}")]).is_err());
    assert!(loaded.protect_kernel_defaults && loaded.server.tls.tls13_only);
    assert_eq!(loaded.server.tls.suites, Some(Vec::new()));
    assert_eq!(loaded.pods.allowed_unsafe_sysctls, ["net.core.*"]);
    assert_eq!(loaded.max_open_files, 4096);
    assert_eq!(loaded.runtime.image_socket, Some(PathBuf::from("/run/images.sock")));
    // Tools write a zero who mean nothing by it; whoever types it means it.
    let zero = files.write("zero.yaml", &format!("{HEAD}maxOpenFiles: 0\n"));
    let unset = files.load(&[&format!("--config={zero}")]).expect("sound");
    assert_eq!(unset.max_open_files, 1_000_000, "not a process that may open nothing");
    assert_eq!(loaded.logging.verbosity.default, 2);
    let typed = files.load(&[&format!("--config={config}"), "-v=0"]).expect("sound");
    assert_eq!(typed.logging.verbosity.default, 0);
    let error = files
        .load(&[
            &format!("--config={config}"),
            "--allowed-unsafe-sysctls=vm.swappiness,net.*.x",
        ])
        .expect_err("mistakes");
    assert_eq!(error.matches("allowedUnsafeSysctls: ").count(), 2, "{error}");
}

#[test]
fn every_mistake_of_every_place_is_told_at_once() {
    let files = Files::new();
    let text = format!(
        "{HEAD}prot: 1\ncpuManagerPolicy: fast\nfeatureGates: {{NoSuch: true}}\nevictionSoft: {{pid.available: 5%}}\n"
    );
    let config = files.write("config.yaml", &text);
    let error = files
        .load(&[&format!("--config={config}"), "--tls-min-version=SSL3"])
        .expect_err("mistakes");
    for part in [
        "\"prot\"",
        "cpuManagerPolicy: invalid policy \"fast\"",
        "unrecognized feature gate: NoSuch",
        "evictionSoft: grace period",
        "tlsMinVersion: unknown tls version \"SSL3\"",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    files.write("conf.d/a.conf", "port: 1\n");
    let directory = files.0.path().join("conf.d").display().to_string();
    let error = files
        .load(&[&format!("--config-dir={directory}")])
        .expect_err("mistakes");
    assert!(error.contains("a.conf: apiVersion: must be"), "{error}");
    let error = files
        .load(&["--exit-on-lock-contention", "--cloud-provider=aws", "--node-autonomy"])
        .expect_err("mistakes");
    assert!(
        error.contains("--exit-on-lock-contention: no lock file") && error.contains("--cloud-provider: \"aws\""),
        "{error}"
    );
    assert!(
        error.contains("--node-autonomy: there are no pods of an API server"),
        "{error}"
    );
    assert!(!files.load(&[]).expect("valid").autonomy);
}
