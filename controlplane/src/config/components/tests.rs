use super::super::{Config, flags};
use super::*;

fn resolve(words: &[&str]) -> Result<Config, Vec<String>> {
    Config::resolve(&flags::parse(words.iter().map(|word| (*word).to_owned())))
}

fn mistakes(words: &[&str]) -> String {
    resolve(words).expect_err(&words.join(" ")).join("\n")
}

const SCHEDULER: &str = "--components=scheduler";
const CONTROLLERS: &str = "--components=controllers";
const KUBECONFIG: &str = "--kubeconfig=k";

#[test]
fn all_parts_run_by_default_and_elect_nobody() {
    let config = resolve(&[]).unwrap();
    assert_eq!((config.components, config.alone), (Components::ALL, None));
    let config = resolve(&["--components=apiserver"]).unwrap();
    assert!(config.components.apiserver && !config.components.scheduler && !config.components.controllers);
    assert_eq!(config.alone, None);
}

#[test]
fn parts_alone_have_upstreams_defaults() {
    let config = resolve(&["--components=scheduler,controllers", KUBECONFIG]).unwrap();
    let alone = config.alone.unwrap();
    assert_eq!(
        (alone.scheduler_port, alone.controllers_port),
        (Some(10259), Some(10257))
    );
    assert!(!alone.service_account_credentials);
    let election = alone.election.resolve(&ElectionWords::default(), "kube-scheduler");
    let expected = ElectionConfig {
        is_on: true,
        times: Times {
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        },
        name: "kube-scheduler".to_owned(),
        namespace: "kube-system".to_owned(),
    };
    assert_eq!(election, Ok(expected));
}

#[test]
fn flags_come_before_the_file() {
    let words = [
        SCHEDULER,
        KUBECONFIG,
        "--secure-port=0",
        "--leader-elect-lease-duration=1m30s",
        "--leader-elect-resource-name=mine",
    ];
    let alone = resolve(&words).unwrap().alone.unwrap();
    assert_eq!((alone.scheduler_port, alone.controllers_port), (None, None));
    let file = ElectionWords {
        is_on: Some(false),
        lease: Some(Duration::from_secs(20)),
        renew: Some(Duration::from_secs(19)),
        name: Some("file".to_owned()),
        namespace: Some("ns".to_owned()),
        ..ElectionWords::default()
    };
    let election = alone.election.resolve(&file, "kube-scheduler").unwrap();
    assert!(!election.is_on);
    assert_eq!(election.times.lease, Duration::from_secs(90));
    assert_eq!(election.times.renew, Duration::from_secs(19));
    assert_eq!((election.name.as_str(), election.namespace.as_str()), ("mine", "ns"));
}

#[test]
fn what_no_part_reads_is_refused_by_name() {
    let table: &[(&[&str], &str)] = &[
        (
            &["--components=scheduler,nope", KUBECONFIG],
            "\"nope\" for \"--components\"",
        ),
        (&["--components="], "must name at least one"),
        (&[SCHEDULER], "--kubeconfig is needed"),
        (
            &[KUBECONFIG],
            "--kubeconfig: only a scheduler and controllers that run without",
        ),
        (
            &["--leader-elect=true"],
            "--leader-elect: only a scheduler and controllers",
        ),
        (
            &["--root-ca-file=x"],
            "--root-ca-file: only controllers that run without",
        ),
        (
            &[SCHEDULER, KUBECONFIG, "--root-ca-file=x"],
            "--root-ca-file: only controllers that run without",
        ),
        (
            &[SCHEDULER, KUBECONFIG, "--data-dir=x"],
            "--data-dir: only the API server reads it",
        ),
        (
            &[SCHEDULER, KUBECONFIG, "--store=memory"],
            "--store: only the API server",
        ),
        (
            &[SCHEDULER, KUBECONFIG, "--controllers=*"],
            "--controllers: only the controllers read it, and --components is scheduler",
        ),
        (
            &[CONTROLLERS, KUBECONFIG, "--config=x"],
            "--config: only the scheduler reads it",
        ),
        (
            &["--components=apiserver", "--config=x"],
            "--config: only the scheduler",
        ),
        (
            &["--components=apiserver", "--policy-config-file=x"],
            "--policy-config-file: only the scheduler",
        ),
        (
            &["--config=x", "--policy-config-file=y"],
            "--policy-config-file: says what --config says",
        ),
        (
            &["--components=apiserver,scheduler", "--node-eviction-rate=1"],
            "--node-eviction-rate: only the controllers",
        ),
        (
            &["--components=scheduler,controllers", KUBECONFIG, "--secure-port=1"],
            "have a port each",
        ),
        (
            &[
                "--components=scheduler,controllers",
                KUBECONFIG,
                "--leader-elect-resource-name=x",
            ],
            "have a lease each",
        ),
        (
            &[SCHEDULER, KUBECONFIG, "--leader-elect-renew-deadline=15s"],
            "renew-deadline must be less",
        ),
        (
            &[SCHEDULER, KUBECONFIG, "--leader-elect-retry-period=-1s"],
            "\"-1s\" for \"--leader-elect-retry-period\"",
        ),
        (
            &[SCHEDULER, KUBECONFIG, "--leader-elect-resource-lock=endpoints"],
            "only leases are supported",
        ),
        (
            &[CONTROLLERS, KUBECONFIG, "--cluster-signing-cert-file=x"],
            "must be given together",
        ),
        (
            &[SCHEDULER, KUBECONFIG, "--service-account-private-key-file=x"],
            "--service-account-private-key-file: ",
        ),
    ];
    for (words, part) in table {
        let all = mistakes(words);
        assert!(all.contains(part), "{words:?}: {all}");
        assert_eq!(all.lines().count(), 1, "{words:?}: {all}");
    }
}

#[test]
fn every_flag_belongs_to_a_part_that_was_thought_of() {
    // The API server reads what nothing else is said of: a flag of another part that is forgotten would be refused to it.
    let of_the_server: Vec<&str> = flags::names()
        .filter(|flag| read_by(flag) == ReadBy::ApiServer)
        .collect();
    let expected = [
        "advertise-address",
        "anonymous-auth",
        "api-audiences",
        "audit-log-format",
        "audit-log-maxage",
        "audit-log-maxbackup",
        "audit-log-maxsize",
        "audit-log-path",
        "audit-policy-file",
        "authorization-mode",
        "client-ca-file",
        "cluster-dns-service",
        "data-dir",
        "disable-admission-plugins",
        "enable-admission-plugins",
        "etcd-cafile",
        "etcd-certfile",
        "etcd-compaction-interval",
        "etcd-keyfile",
        "etcd-prefix",
        "etcd-servers",
        "encryption-provider-config",
        "encryption-provider-config-automatic-reload",
        "kubelet-certificate-authority",
        "metrics-api",
        "service-account-issuer",
        "service-cluster-ip-range",
        "store",
        "token-auth-file",
    ];
    assert_eq!(of_the_server, expected);
}

#[test]
fn durations_are_gos() {
    let table = [
        ("15s", Some(15_000)),
        ("1m30s", Some(90_000)),
        ("1.5s", Some(1_500)),
        ("250ms", Some(250)),
        ("15", None),
        ("-1s", None),
        ("", None),
        ("1s ago", None),
    ];
    for (text, expected) in table {
        assert_eq!(duration(text).ok(), expected.map(Duration::from_millis), "{text:?}");
    }
}
