//! The rules about controllers: each fires on events made up for it, and on nothing sound.

use super::*;
use jiff::Timestamp;

/// What happens, in order: a key, and what it holds from then on.
type Events = Vec<(String, Option<Value>)>;

fn told(events: Events) -> String {
    told_of(events, &[])
}

/// As above, where these controllers asked for those deletions beforehand.
fn told_of(events: Events, deletions: &[(&str, &str)]) -> String {
    breaches(|model| {
        deletions.iter().for_each(|(who, uid)| model.asked_to_delete(who, uid));
        for (revision, (key, value)) in (1..).zip(events) {
            model.on_change(revision, &format!("/registry/{key}"), value);
        }
    })
}

fn owned(owner: &str) -> Value {
    json!([{"uid": owner, "name": owner, "controller": true}])
}

fn with(mut object: Value, path: &str, value: Value) -> Value {
    *object.pointer_mut(path).expect("a field that is there") = value;
    object
}

fn ready() -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
}

fn pod(name: &str, owner: &str, status: Value) -> Value {
    json!({"metadata": {"name": name, "uid": name, "ownerReferences": owned(owner), "deletionTimestamp": null,
        "finalizers": ["batch.kubernetes.io/job-tracking"], "annotations": {}, "labels": {"app": owner}},
        "spec": {}, "status": status})
}

fn at(name: &str) -> String {
    format!("pods/default/{name}")
}

fn going(pod: Value) -> Value {
    with(pod, "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))
}

fn stateful(policy: &str, replicas: i64) -> (String, Option<Value>) {
    let set = json!({"metadata": {"name": "s", "uid": "s", "generation": 1}, "status": {"observedGeneration": 1},
        "spec": {"replicas": replicas, "podManagementPolicy": policy}});
    ("statefulsets/default/s".to_owned(), Some(set))
}

#[test]
fn stateful_sets_keep_to_their_ordinals_and_their_order() {
    let start = |policy, second: &str, first: Value| {
        let mut events = vec![stateful(policy, 2), (at("s-0"), Some(pod("s-0", "s", first)))];
        events.push((at(second), Some(pod(second, "s", json!({})))));
        told(events)
    };
    assert_eq!(start("OrderedReady", "s-1", ready()), "");
    assert_eq!(start("Parallel", "s-1", json!({})), "");
    assert!(start("OrderedReady", "s-1", json!({})).contains("s-1 was made before s-0 was ready"));
    assert!(start("Parallel", "s-2", ready()).contains("s-2 was made, and wanted are"));
}

#[test]
fn stateful_sets_take_one_pod_away_at_a_time() {
    let stop = |policy, asked: &[(&str, &str)]| {
        let [zero, one] = ["s-0", "s-1"].map(|name| pod(name, "s", ready()));
        let mut events = vec![
            stateful(policy, 2),
            (at("s-0"), Some(zero.clone())),
            (at("s-1"), Some(one.clone())),
        ];
        events.extend([(at("s-1"), Some(going(one))), (at("s-0"), Some(going(zero)))]);
        told_of(events, asked)
    };
    let both = [("statefulset-controller", "s-0"), ("statefulset-controller", "s-1")];
    assert!(stop("OrderedReady", &both).contains("s-0 was taken away while s-1 was still going"));
    assert_eq!(stop("Parallel", &both), "");
    assert_eq!(stop("OrderedReady", &both[..1]), "", "somebody else took the other");
}

#[test]
fn an_identity_is_one_pods_at_a_time() {
    let run = |owner: &str| {
        breaches(|model| {
            let (key, set) = stateful("Parallel", 2);
            model.on_change(1, &format!("/registry/{key}"), set);
            let mut views = BTreeMap::new();
            for (revision, uid) in (2..).zip(["one", "other"]) {
                let pod = with(pod("s-0", owner, json!({})), "/metadata/uid", json!(uid));
                model.on_change(revision, POD, Some(pod));
                let container = ContainerView {
                    uid: uid.into(),
                    name: "c".into(),
                    running: true,
                    exit_code: None,
                };
                let view = RuntimeView {
                    containers: vec![container],
                    ..RuntimeView::default()
                };
                views.insert(uid.to_owned(), view);
            }
            model.on_runtimes(&views);
        })
    };
    assert!(run("s").contains("2 pods of the identity default/p run at once"));
    assert_eq!(run("another"), "");
}

fn daemon(surge: i64, unavailable: i64) -> (String, Option<Value>) {
    let rolling = json!({"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
    let set = json!({"metadata": {"name": "d", "uid": "d", "generation": 1}, "status": {"observedGeneration": 1},
        "spec": {"updateStrategy": rolling}});
    ("daemonsets/default/d".to_owned(), Some(set))
}

fn daemon_pod(name: &str, node: &str) -> Value {
    let terms = json!({"nodeSelectorTerms": [{"matchFields": [{"values": [node]}]}]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    with(pod(name, "d", ready()), "/spec", json!({"affinity": affinity}))
}

#[test]
fn a_node_has_one_pod_of_a_daemon_set_or_two_in_a_surge() {
    let make = |surge, count: usize, node: &str| {
        let mut events = vec![daemon(surge, 1), (at("a"), Some(daemon_pod("a", "n")))];
        let more = (0..count).map(|n| format!("b{n}"));
        events.extend(more.map(|name| (at(&name), Some(daemon_pod(&name, node)))));
        told(events)
    };
    assert_eq!(make(0, 1, "m"), "");
    assert_eq!(make(1, 1, "n"), "");
    assert!(make(0, 1, "n").contains("n has 2 pods of d, 1 may be"));
    assert!(make(1, 2, "n").contains("n has 3 pods of d, 2 may be"));
}

#[test]
fn a_daemon_set_takes_no_more_pods_away_than_may_be_unavailable() {
    let stop = |unavailable, taints: Value| {
        let mut events = vec![daemon(0, unavailable)];
        for node in ["m", "n"] {
            let object = json!({"metadata": {"name": node, "uid": node}, "spec": {"taints": taints}});
            events.push((format!("minions/{node}"), Some(object)));
            events.push((at(&format!("on-{node}")), Some(daemon_pod(&format!("on-{node}"), node))));
        }
        for node in ["m", "n"] {
            let name = format!("on-{node}");
            events.push((at(&name), Some(going(daemon_pod(&name, node)))));
        }
        told_of(
            events,
            &[("daemon-set-controller", "on-m"), ("daemon-set-controller", "on-n")],
        )
    };
    assert_eq!(stop(2, json!([])), "");
    assert_eq!(stop(1, json!([{"key": "k"}])), "", "they may have to leave");
    assert!(stop(1, json!([])).contains("on-n was taken away: 2 nodes are down, 1 may be"));
}

fn job(status: Value) -> (String, Option<Value>) {
    job_of(json!({"completions": 2, "parallelism": 2, "backoffLimit": 6}), status)
}

fn job_of(spec: Value, status: Value) -> (String, Option<Value>) {
    let job = json!({"metadata": {"name": "j", "uid": "j", "generation": 1}, "spec": spec, "status": status});
    ("jobs/default/j".to_owned(), Some(job))
}

fn listing(succeeded: i64, uids: &[&str]) -> Value {
    json!({"succeeded": succeeded, "uncountedTerminatedPods": {"succeeded": uids}})
}

fn done(name: &str) -> Value {
    pod(name, "j", json!({"phase": "Succeeded"}))
}

fn released(pod: Value) -> Value {
    with(pod, "/metadata/finalizers", json!([]))
}

#[test]
fn a_job_counts_each_pod_once() {
    let (listed, counted) = (job(listing(0, &["a"])), job(listing(1, &[])));
    let start = || vec![job(json!({})), (at("a"), Some(done("a")))];
    let after = |more: &[(String, Option<Value>)]| told([start(), more.to_vec()].concat());
    let release = (at("a"), Some(released(done("a"))));
    assert_eq!(after(&[listed.clone(), release.clone(), counted.clone()]), "");
    assert!(after(std::slice::from_ref(&release)).contains("a of j was let go of uncounted"));
    assert!(after(std::slice::from_ref(&counted)).contains("succeeded of j grew by 1, and 0 pods were counted"));
    assert!(after(&[listed.clone(), counted.clone()]).contains("pod a of j was counted and is still held"));
    let again = [listed.clone(), release.clone(), counted, job(listing(1, &["a"]))];
    assert!(after(&again).contains("is listed again after it was counted"));
    let lost = [listed, release, job(listing(0, &[]))];
    assert!(after(&lost).contains("succeeded of j grew by 0, and 1 pods were counted"));
    let early = [
        job(json!({})),
        (at("a"), Some(pod("a", "j", json!({})))),
        job(listing(0, &["a"])),
    ];
    assert!(told(early.to_vec()).contains("j lists pod a, which has not succeeded"));
}

#[test]
fn a_job_that_is_over_has_counted_everything() {
    let end = |succeeded: i64, uids: &[&str], held: Value| {
        let mut status = listing(succeeded, uids);
        status["conditions"] = json!([{"type": "Complete", "status": "True"}]);
        told(vec![job(listing(succeeded, uids)), (at("a"), Some(held)), job(status)])
    };
    assert_eq!(end(2, &[], released(done("a"))), "");
    assert!(end(2, &[], done("a")).contains("j is over, and a is not counted"));
    assert!(end(2, &["a"], released(done("a"))).contains("listed and not counted"));
    assert!(end(1, &[], released(done("a"))).contains("j is complete with 1 of 2"));
}

#[test]
fn a_job_has_no_more_pods_than_it_may() {
    let make = |status: Value, names: &[&str]| {
        let pods = names.iter().map(|name| (at(name), Some(pod(name, "j", json!({})))));
        told([job(status)].into_iter().chain(pods).collect())
    };
    assert_eq!(make(json!({}), &["a", "b"]), "");
    assert!(make(json!({}), &["a", "b", "c"]).contains("j has 3 pods at once, 2 may be"));
    assert!(make(listing(1, &[]), &["a", "b"]).contains("j has 1 pods that succeeded and 2 at work, for 2"));
}

#[test]
fn an_index_is_done_once_and_stays_done() {
    let spec = json!({"completions": 3, "parallelism": 3, "backoffLimit": 6, "completionMode": "Indexed"});
    let indexed = |completed: &str, succeeded: i64| {
        let status = json!({"completedIndexes": completed, "succeeded": succeeded});
        job_of(spec.clone(), status)
    };
    let of_index = |name: &str, index: &str| {
        let annotations = json!({"batch.kubernetes.io/job-completion-index": index});
        (
            at(name),
            Some(with(pod(name, "j", json!({})), "/metadata/annotations", annotations)),
        )
    };
    assert_eq!(
        told(vec![
            indexed("", 0),
            of_index("a", "0"),
            of_index("b", "1"),
            indexed("0-1", 2)
        ]),
        ""
    );
    let twice = told(vec![indexed("", 0), of_index("a", "0"), of_index("b", "0")]);
    assert!(twice.contains("j has two pods at once for index 0"), "{twice}");
    let late = told(vec![indexed("0-1", 2), of_index("a", "1")]);
    assert!(late.contains("j has a pod for index 1, which is done"), "{late}");
    let forgot = told(vec![indexed("0-1", 2), indexed("0", 1)]);
    assert!(forgot.contains("j forgot the indexes [1]"), "{forgot}");
    let wrong = told(vec![indexed("0", 1), indexed("0-1", 1)]);
    assert!(wrong.contains("j says it has 1 of {0, 1}"), "{wrong}");
}

#[test]
fn a_cron_job_makes_one_job_for_each_moment() {
    let cron = |policy: &str| {
        let cron =
            json!({"metadata": {"name": "c", "uid": "c"}, "spec": {"jobTemplate": {}, "concurrencyPolicy": policy}});
        ("cronjobs/default/c".to_owned(), Some(cron))
    };
    let job = |minute: i64, made: i64, uid: &str| {
        let made = Timestamp::from_second(60 * made).expect("a time").to_string();
        let name = format!("c-{minute}");
        let job =
            json!({"metadata": {"name": name, "uid": uid, "ownerReferences": owned("c"), "creationTimestamp": made}});
        (format!("jobs/default/{name}"), Some(job))
    };
    assert_eq!(told(vec![cron("Allow"), job(5, 5, "a"), job(6, 7, "b")]), "");
    assert!(told(vec![cron("Forbid"), job(5, 5, "a"), job(6, 6, "b")]).contains("c-6 was made while c-5 was not over"));
    assert!(told(vec![cron("Allow"), job(6, 5, "a")]).contains("c-6 was made before its time"));
    let gone = ("jobs/default/c-5".to_owned(), None);
    let again = told(vec![cron("Allow"), job(5, 5, "a"), gone, job(5, 6, "b")]);
    assert!(again.contains("c-5 was made again for the same moment"), "{again}");
}

fn budget(allowed: i64, disrupted: Value) -> (String, Option<Value>) {
    let budget = json!({"metadata": {"name": "b", "uid": "b", "generation": 1},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "s"}}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "disruptedPods": disrupted}});
    ("poddisruptionbudgets/default/b".to_owned(), Some(budget))
}

#[test]
fn an_eviction_leaves_what_its_budget_wants() {
    let spend = |status: Value, had: i64, has: i64| {
        let pods = [("s-0", ready()), ("s-1", status)].map(|(name, status)| (at(name), Some(pod(name, "s", status))));
        let spent = budget(has, json!({"s-0": "2026-01-01T00:00:00Z"}));
        told(pods.into_iter().chain([budget(had, json!({})), spent]).collect())
    };
    assert_eq!(spend(ready(), 1, 0), "");
    assert!(spend(json!({}), 1, 0).contains("an eviction leaves 0 healthy pods of b, 1 must be"));
    assert!(spend(ready(), 0, 0).contains("b allowed 0 disruptions and was spent from 1 times"));
    assert!(spend(ready(), 1, 1).contains("1 are left"));
    let unknown = with(
        budget(1, json!({})).1.expect("a budget"),
        "/metadata/generation",
        json!(2),
    );
    let early = told(vec![
        (at("s-1"), Some(pod("s-1", "s", ready()))),
        ("poddisruptionbudgets/default/b".to_owned(), Some(unknown)),
        budget(0, json!({"s-0": "2026-01-01T00:00:00Z"})),
    ]);
    assert!(early.contains("b was spent from before it was known"), "{early}");
}

fn space(name: &str) -> (String, Option<Value>) {
    (
        format!("namespaces/{name}"),
        Some(json!({"metadata": {"name": name, "uid": name}})),
    )
}

fn within(space: &str, kind: &str, name: &str, spec: Value) -> (String, Option<Value>) {
    let meta = json!({"name": name, "uid": name, "namespace": space, "creationTimestamp": "2026-01-01T00:00:00Z"});
    (
        format!("{kind}/{space}/{name}"),
        Some(json!({"metadata": meta, "spec": spec, "status": {}})),
    )
}

#[test]
fn a_quota_is_never_exceeded() {
    let hard = json!({"pods": "2", "requests.cpu": "100m", "configmaps": "1"});
    let mut quota = within("t", "resourcequotas", "q", json!({"hard": hard}));
    if let Some(quota) = &mut quota.1 {
        quota["status"]["hard"] = hard.clone();
    }
    let cpu = |cpu: &str| json!({"containers": [{"resources": {"requests": {"cpu": cpu}}}]});
    let make = |made: &[(String, Option<Value>)]| told([&[space("t"), quota.clone()], made].concat());
    let [one, two, three] = ["a", "b", "c"].map(|name| within("t", "pods", name, cpu("10m")));
    assert_eq!(make(&[one.clone(), two.clone()]), "");
    let ended = (
        two.0.clone(),
        Some(with(
            two.1.clone().expect("a pod"),
            "/status",
            json!({"phase": "Failed"}),
        )),
    );
    assert_eq!(make(&[one.clone(), two.clone(), ended, three.clone()]), "");
    assert!(make(&[one.clone(), two, three]).contains("c exceeds the quota of t: pods 3000 of 2000"));
    let large = within("t", "pods", "large", cpu("91m"));
    assert!(make(&[one, large]).contains("large exceeds the quota of t: requests.cpu 101 of 100"));
    let maps = ["a", "b"].map(|name| within("t", "configmaps", name, json!({})));
    assert!(make(&maps).contains("b exceeds the quota of t: configmaps 2000 of 1000"));
}

#[test]
fn a_namespace_that_is_gone_has_left_nothing() {
    let map = within("t", "configmaps", "m", json!({}));
    let gone = ("namespaces/t".to_owned(), None);
    assert_eq!(
        told(vec![space("t"), map.clone(), (map.0.clone(), None), gone.clone()]),
        ""
    );
    let left = told(vec![space("t"), map.clone(), gone]);
    assert!(
        left.contains("/registry/configmaps/t/m is left of namespace t"),
        "{left}"
    );
    assert!(told(vec![map]).contains("was made in namespace t, which is not there"));
}
