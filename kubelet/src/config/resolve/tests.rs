//! Defaults, and every mistake at once.

use super::*;
use crate::config::{AuthorizationMode, FlagsEnd, parse_flags};

fn flags(args: &[&str]) -> Flags {
    match parse_flags(args.iter().map(|s| (*s).to_owned())) {
        Ok(flags) => flags,
        Err(FlagsEnd::Mistakes(list)) => panic!("{list:?}"),
        Err(FlagsEnd::Print(text)) => panic!("{text}"),
    }
}

#[test]
fn defaults_with_and_without_a_file() {
    let nothing = KubeletConfiguration::default();
    let config = resolve(&nothing, &Flags::default(), true).expect("defaults");
    assert!(!config.server.anonymous);
    assert_eq!(config.server.token_webhook, Some(Duration::from_secs(120)));
    assert!(matches!(config.server.authorization, AuthorizationMode::Webhook { .. }));
    assert_eq!(
        (config.server.port, config.server.healthz.map(|h| h.1)),
        (10250, Some(10248))
    );
    assert_eq!(config.node.status_report, Duration::from_secs(300));
    assert_eq!((config.node.lease_seconds, config.node.max_pods), (40, 110));
    assert!(config.fail_cgroup_v1 && config.fail_swap_on && config.cgroups.enforce_pods);
    assert_eq!(config.runtime.parallel_pulls, Some(1));
    let legacy = resolve(&nothing, &Flags::default(), false).expect("defaults");
    assert!(legacy.server.anonymous && legacy.server.token_webhook.is_none());
    assert_eq!(legacy.server.authorization, AuthorizationMode::AlwaysAllow);
}

#[test]
fn the_report_frequency_follows_a_set_update_frequency() {
    let written = KubeletConfiguration {
        node_status_update_frequency: Some("20s".into()),
        ..Default::default()
    };
    let config = resolve(&written, &Flags::default(), true).expect("sound");
    assert_eq!(config.node.status_report, Duration::from_secs(20));
}

#[test]
fn all_mistakes_at_once() {
    let written = KubeletConfiguration {
        port: Some(70000),
        cluster_dns: Some(vec!["x".into()]),
        cgroup_driver: Some("magic".into()),
        sync_frequency: Some("10".into()),
        tls_cert_file: Some("/c".into()),
        container_runtime_endpoint: Some("tcp://x".into()),
        system_reserved: Some([("cpu".to_owned(), "x".to_owned()), ("gpu".to_owned(), "1".to_owned())].into()),
        ..Default::default()
    };
    let flags = flags(&["--node-labels=kubernetes.io/role=x", "--node-ip=y"]);
    let mistakes = resolve(&written, &flags, true).expect_err("mistakes");
    for field in [
        "port",
        "clusterDNS",
        "cgroupDriver",
        "syncFrequency",
        "tlsCertFile",
        "containerRuntimeEndpoint",
        "systemReserved",
        "--node-labels",
        "--node-ip",
    ] {
        assert!(
            mistakes.iter().any(|m| m.starts_with(&format!("{field}: "))),
            "{field}: {mistakes:?}"
        );
    }
    assert_eq!(mistakes.len(), 10, "{mistakes:?}");
}

#[test]
fn reservations_add_up_and_labels_are_taken() {
    let list = |cpu: &str| {
        Some(
            [
                ("cpu".to_owned(), cpu.to_owned()),
                ("memory".to_owned(), "1Mi".to_owned()),
            ]
            .into(),
        )
    };
    let written = KubeletConfiguration {
        system_reserved: list("100m"),
        kube_reserved: list("1"),
        max_parallel_image_pulls: Some(5),
        ..Default::default()
    };
    let flags = flags(&[
        "--node-labels=a/b=c,node.kubernetes.io/x=y",
        "--cloud-provider=external",
    ]);
    let config = resolve(&written, &flags, true).expect("sound");
    assert_eq!(
        config.node.taints[0].key,
        "node.cloudprovider.kubernetes.io/uninitialized"
    );
    assert_eq!(
        (config.cgroups.reserved.cpu_milli, config.cgroups.reserved.memory),
        (1100, 2 << 20)
    );
    assert_eq!(config.node.labels.len(), 2);
    assert_eq!(config.runtime.parallel_pulls, Some(5));
}

#[test]
fn image_verification_policies() {
    let resolved = |policy: Option<&str>, listed: &[&str]| {
        let written = KubeletConfiguration {
            image_pull_credentials_verification_policy: policy.map(Into::into),
            preloaded_images_verification_allowlist: Some(listed.iter().map(|l| (*l).to_owned()).collect()),
            ..Default::default()
        };
        resolve(&written, &flags(&[]), true).map(|config| config.runtime.image_verification)
    };
    use crate::image::verification::Policy;
    assert_eq!(resolved(None, &[]).expect("sound"), Policy::NeverVerifyPreloaded);
    assert_eq!(
        resolved(Some("AlwaysVerify"), &[]).expect("sound"),
        Policy::AlwaysVerify
    );
    let listed = resolved(Some("NeverVerifyAllowlistedImages"), &["r.io/a", "r.io/b/*"]).expect("sound");
    assert_eq!(
        listed,
        Policy::NeverVerifyAllowlisted(vec!["r.io/a".into(), "r.io/b/*".into()])
    );
    for (policy, listed) in [
        (Some("Sometimes"), &[] as &[&str]),
        (None, &["r.io/a"]),
        (Some("NeverVerifyAllowlistedImages"), &["r.io/a:1"]),
        (Some("NeverVerifyAllowlistedImages"), &["r.*/a"]),
    ] {
        assert!(resolved(policy, listed).is_err(), "{policy:?} {listed:?}");
    }
}

#[test]
fn how_much_stays_of_logs_images_and_dead_containers() {
    let seconds = jiff::SignedDuration::from_secs;
    let defaults = resolve(&KubeletConfiguration::default(), &Flags::default(), true).expect("defaults");
    assert_eq!(defaults.container_logs, crate::container_log::Rules::default());
    assert_eq!(defaults.dead_containers, crate::collect::containers::Limits::default());
    assert_eq!(defaults.image_collection, crate::collect::images::Rules::default());
    // Zeros are what tools write who mean nothing by it.
    let written = KubeletConfiguration {
        container_log_max_size: Some("-1".into()),
        container_log_monitor_interval: Some("0s".into()),
        image_minimum_gc_age: Some("0s".into()),
        image_maximum_gc_age: Some("24h".into()),
        image_gc_high_threshold_percent: Some(100),
        ..Default::default()
    };
    let given = flags(&[
        "--maximum-dead-containers=-1",
        "--maximum-dead-containers-per-container=0",
        "--minimum-container-ttl-duration=1m",
    ]);
    let config = resolve(&written, &given, true).expect("sound");
    assert_eq!(config.container_logs.size_max, None, "logs are not rotated");
    assert_eq!(config.container_logs.interval, Duration::from_secs(10));
    let images = config.image_collection;
    assert_eq!(
        (images.high_percent, images.youngest, images.oldest),
        (100, seconds(120), Some(seconds(86_400)))
    );
    let dead = config.dead_containers;
    assert_eq!(
        (dead.per_container, dead.total, dead.youngest),
        (Some(0), None, seconds(60))
    );
    let wrong = KubeletConfiguration {
        container_log_max_size: Some("ten".into()),
        container_log_max_files: Some(1),
        container_log_max_workers: Some(0),
        container_log_monitor_interval: Some("2s".into()),
        image_gc_high_threshold_percent: Some(101),
        image_gc_low_threshold_percent: Some(90),
        image_maximum_gc_age: Some("1m".into()),
        ..Default::default()
    };
    let mistakes = resolve(&wrong, &flags(&["--minimum-container-ttl-duration=soon"]), true).expect_err("mistakes");
    for told in [
        "containerLogMaxSize: \"ten\" is not a quantity",
        "containerLogMaxFiles: 1 must be between 2",
        "containerLogMaxWorkers: 0 must be between 1",
        "containerLogMonitorInterval: must be either zero or at least 3s",
        "imageGCHighThresholdPercent: 101 must be between 0 and 100",
        "imageGCLowThresholdPercent: must be less than imageGCHighThresholdPercent",
        "imageMaximumGCAge: must be greater than imageMinimumGCAge",
        "--minimum-container-ttl-duration: invalid duration",
    ] {
        assert!(
            mistakes.iter().any(|mistake| mistake.starts_with(told)),
            "{told}: {mistakes:?}"
        );
    }
}

#[test]
fn the_nodes_addresses_are_one_or_one_of_each_family() {
    let of = |text: &str| {
        let flags = flags(&[&format!("--node-ip={text}")]);
        let config = resolve(&KubeletConfiguration::default(), &flags, true)?;
        let ips: Vec<String> = config.node.ips.iter().map(ToString::to_string).collect();
        Ok::<_, Vec<String>>((ips.join(" "), config.node.prefers_v6))
    };
    for (text, ips, prefers_v6) in [
        ("192.0.2.1", "192.0.2.1", false),
        ("2001:db8::1,192.0.2.1", "2001:db8::1 192.0.2.1", false),
        ("0.0.0.0", "", false),
        ("::", "", true),
    ] {
        assert_eq!(of(text), Ok((ips.to_owned(), prefers_v6)), "{text}");
    }
    for text in ["192.0.2.1,192.0.2.2", "::,192.0.2.1", "192.0.2.1,2001:db8::1,192.0.2.2"] {
        let why = "--node-ip: must contain either a single IP or a dual-stack pair of IPs";
        assert_eq!(of(text), Err(vec![why.to_owned()]), "{text}");
    }
}
