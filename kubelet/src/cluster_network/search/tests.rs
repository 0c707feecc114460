use super::*;
use crate::id::PodUid;
use crate::pod::spec::testing::{context, pod, resolver};
use crate::runtime::observed::ObservedPod;
use serde_json::json;

/// A second after 1970.
fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn status(started: &str) -> PodStatus {
    serde_json::from_value(
        json!({"startTime": started, "podIP": "10.244.0.5", "podIPs": [{"ip": "10.244.0.5"}, {"ip": "fd00::5"}]}),
    )
    .expect("a status")
}

fn known(since: u64) -> Known {
    Known {
        stamp: None,
        conf: resolver(),
        since: Some(at(since)),
    }
}

const USUAL: [&str; 4] = [
    "shop.svc.cluster.local",
    "svc.cluster.local",
    "cluster.local",
    "example.org",
];

#[test]
fn a_pod_like_others_has_the_path_it_was_given() {
    let usual = |spec: &str| path_of(&pod(spec), &status("1970-01-01T00:01:40Z"), &context(), &known(100));
    for spec in [
        "{}",
        r#"{"dnsPolicy":"ClusterFirst"}"#,
        r#"{"dnsPolicy":"ClusterFirstWithHostNet"}"#,
    ] {
        let path = usual(spec).expect(spec);
        assert_eq!(
            (path.domains, path.ndots),
            (USUAL.map(str::to_owned).to_vec(), 5),
            "{spec}"
        );
    }
    for spec in [
        r#"{"dnsPolicy":"Default"}"#,
        r#"{"dnsPolicy":"None","dnsConfig":{"nameservers":["10.96.0.10"]}}"#,
        r#"{"dnsConfig":{"searches":["more.example"]}}"#,
        r#"{"dnsConfig":{"options":[{"name":"ndots","value":"2"}]}}"#,
        r#"{"hostNetwork":true}"#,
        r#"{"hostNetwork":true,"dnsPolicy":"ClusterFirstWithHostNet"}"#,
    ] {
        assert_eq!(usual(spec), None, "{spec}");
    }
}

#[test]
fn a_pod_that_may_be_older_than_the_file_has_none() {
    let of = |started: &str, known: &Known| path_of(&pod("{}"), &status(started), &context(), known).is_some();
    assert!(of("1970-01-01T00:01:41Z", &known(100)));
    assert!(!of("1970-01-01T00:01:39Z", &known(100)));
    let unread = Known {
        since: None,
        ..known(0)
    };
    assert!(!of("1970-01-01T00:01:41Z", &unread));
    let never = PodStatus {
        start_time: None,
        ..status("1970-01-01T00:01:41Z")
    };
    assert_eq!(path_of(&pod("{}"), &never, &context(), &known(0)), None);
}

#[test]
fn a_file_written_again_with_the_same_domains_is_as_old_as_it_was() {
    let mut known = Known::default();
    let of = |searches: &str| ResolvConf::parse(&format!("search {searches}\n"));
    known.take(Some(((at(10), 1), of("a"))));
    known.take(Some(((at(20), 2), of("a"))));
    assert_eq!((known.since, known.stamp), (Some(at(10)), Some((at(20), 2))));
    known.take(Some(((at(30), 2), of("b"))));
    assert_eq!(known.since, Some(at(30)));
    known.take(None);
    assert_eq!((known.since, known.stamp), (None, None));
}

#[test]
fn the_file_is_read_when_it_is_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("resolv.conf");
    let mut known = Known::default();
    known.refresh(&path);
    assert_eq!(known.since, None, "there is none");
    std::fs::write(&path, "search a\n").expect("written");
    known.refresh(&path);
    assert_eq!(known.conf.searches, ["a"]);
    std::fs::write(&path, "search a b\n").expect("written");
    known.refresh(&path);
    assert_eq!(known.conf.searches, ["a", "b"]);
    std::fs::remove_file(&path).expect("removed");
    known.refresh(&path);
    assert_eq!(known.since, None);
}

#[test]
fn an_address_is_one_pods_or_nobodys() {
    let snapshot = |active: bool| {
        Arc::new(PodSnapshot {
            pod: Arc::new(pod("{}")),
            status: Arc::new(status("1970-01-01T00:01:40Z")),
            observed: Arc::new(ObservedPod::empty(PodUid::new("u-1"))),
            active,
            ended: !active,
            life: Default::default(),
        })
    };
    let is_owned =
        |pods: &[Arc<PodSnapshot>], address: &str| owner(pods, address.parse().expect("an address")).is_some();
    for address in ["10.244.0.5", "fd00:0::5"] {
        assert!(is_owned(&[snapshot(true), snapshot(false)], address), "{address}");
        assert!(
            !is_owned(&[snapshot(true), snapshot(true)], address),
            "{address}: whose?"
        );
        assert!(!is_owned(&[snapshot(false)], address), "{address}");
    }
    assert!(!is_owned(&[snapshot(true)], "10.244.0.6"));
}

#[test]
fn addresses_of_pods_that_live_are_known_and_the_nodes_own() {
    let snapshot = |address: &str, ended: bool| {
        Arc::new(PodSnapshot {
            pod: Arc::new(pod("{}")),
            status: Arc::new(
                serde_json::from_value(json!({"podIP": address, "podIPs": [{"ip": address}, {"ip": "fd00::5"}]}))
                    .expect("a status"),
            ),
            observed: Arc::new(ObservedPod::empty(PodUid::new("a"))),
            active: !ended,
            ended,
            life: crate::pod::view::Life::default(),
        })
    };
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    let own = ip("192.0.2.7");
    assert_eq!(known_of(&[own], &[]), [own].into());
    let pods = [snapshot("10.244.0.5", false), snapshot("10.244.0.6", true)];
    let expected = [own, ip("10.244.0.5"), ip("fd00::5")];
    assert_eq!(known_of(&[own], &pods), expected.into());
    assert_eq!(known_of(&[], &pods[1..]), HashSet::new());
}
