//! Which resources are followed, and what is taken in of one that is followed alone.

use super::*;
use crate::controller::event::Recorder;
use crate::controller::harness::Environment;
use crate::controller::tests::world::informers_of;
use crate::controller::write::{CONFIG_MAPS, PODS, SECRETS};
use crate::metrics::QueueMetrics;
use serde::de::Error;
use serde_json::json;
use std::borrow::Cow;
use tokio_util::sync::CancellationToken;

fn resource(group: &'static str, version: &'static str, plural: &'static str) -> Resource {
    Resource {
        group: Cow::Borrowed(group),
        version: Cow::Borrowed(version),
        plural: Cow::Borrowed(plural),
        kind: Cow::Borrowed(plural),
        namespaced: true,
    }
}

#[test]
fn what_is_followed_of_a_group_that_fails_stays_as_it_is() {
    let found = |resources: &[Resource]| -> Vec<Discovered> {
        let verbs = ["list", "watch", "delete"].map(str::to_owned).to_vec();
        let found = resources.iter().cloned();
        found
            .map(|resource| Discovered {
                resource,
                verbs: verbs.clone(),
            })
            .collect()
    };
    let (old, new, other) = (
        resource("zoo", "v1", "lions"),
        resource("zoo", "v2", "lions"),
        resource("zoo", "v2", "cubs"),
    );
    let (gone, event) = (
        resource("park", "v1", "benches"),
        resource("events.k8s.io", "v1", "events"),
    );
    let followed = BTreeSet::from([old.clone(), gone.clone()]);
    let failed = FailedVersion {
        group: "zoo".into(),
        group_version: "zoo/v1".into(),
        error: "unavailable".into(),
    };
    let now = found(&[new.clone(), other.clone(), event]);
    let unlisted = |followed: &[&Resource]| {
        unlisted_versions(
            std::slice::from_ref(&failed),
            &followed.iter().copied().cloned().collect(),
        )
    };
    assert_eq!(unlisted(&[&gone]), ["zoo/v1: unavailable"]);
    assert_eq!(unlisted(&[&gone, &other]), [""; 0]);
    assert_eq!(
        wanted(now.clone(), std::slice::from_ref(&failed), &followed),
        BTreeSet::from([old, other.clone()])
    );
    assert_eq!(wanted(now, &[], &followed), BTreeSet::from([new, other]));
}

/// A collector whose server has nothing, beside a quota that bounds config maps.
async fn collector() -> Arc<Collector> {
    let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
        if request.uri().query().is_some() {
            // An informer's list.
            std::future::pending::<()>().await;
        }
        let name = request.uri().path().rsplit('/').next();
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
            "reason": "NotFound", "message": "not found", "details": {"name": name}});
        let body = kube::client::Body::from(status.to_string().into_bytes());
        Ok::<_, std::convert::Infallible>(http::Response::builder().status(404).body(body).unwrap())
    });
    let client = kube::Client::new(service, "default");
    let clock: Arc<dyn client::Clock> = Arc::new(client::SystemClock);
    let quota = json!({"metadata": {"namespace": "quoted", "name": "q", "uid": "q", "resourceVersion": "1"},
        "spec": {"hard": {"configmaps": "3"}}});
    let informers = informers_of(BTreeMap::from([("resourcequotas", vec![quota])]));
    informers.quotas.synced().await;
    Arc::new(Collector::new(Environment {
        informers,
        recorder: Recorder::spawn(client.clone(), Arc::clone(&clock), "test"),
        client,
        clock,
        metrics: QueueMetrics::default(),
        shutdown: CancellationToken::new(),
    }))
}

fn uid(name: &str) -> String {
    format!("abcdef01-2345-4789-8000-00000000000{name}")
}

/// Of what it is named, it is owned by that.
fn object(name: &str, owner: Option<&str>) -> Metadata {
    let reference = |owner: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid(owner)});
    let owners: Vec<_> = owner.into_iter().map(reference).collect();
    let meta = json!({"namespace": "default", "name": name, "uid": uid(name), "ownerReferences": owners});
    serde_json::from_value(json!({ "metadata": meta })).unwrap()
}

/// What is to be looked at now.
async fn woken(collector: &Collector) -> BTreeSet<String> {
    let mut woken = BTreeSet::new();
    while let Some(uid) = collector.queue.next().now_or_never() {
        collector.queue.done(&uid);
        woken.insert(uid[uid.len() - 1..].to_owned());
    }
    woken
}

#[tokio::test(start_paused = true)]
async fn what_is_followed_alone_is_known_once_a_whole_list_was_heard_and_what_it_lacks_is_gone() {
    let collector = collector().await;
    lock(&collector.unlisted).resources.insert(CONFIG_MAPS);
    lock(&collector.unlisted).versions.clear();
    for (name, owner) in [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")] {
        collector.observe(&PODS, &change(object(name, Some(owner)), true));
    }
    woken(&collector).await;
    let ear = Ear {
        collector: Arc::downgrade(&collector),
        resource: CONFIG_MAPS,
        has_heard: AtomicBool::new(false),
    };
    let is_listed = || lock(&collector.unlisted).first().is_none();
    let has = || ["1", "2", "3", "4"].map(|name| lock(&collector.graph).contains(&uid(name)));
    let quotas = || collector.environment.informers.freed.take().len();
    let hear = |names: &[&str]| ear.all(&mut names.iter().map(|name| Ok(object(name, None))));

    let broken = [
        Ok(object("1", None)),
        Ok(object("2", None)),
        Err(serde_json::Error::custom("unreadable")),
    ];
    assert!(ear.all(&mut broken.into_iter()).is_err());
    assert_eq!((has(), is_listed()), ([true, true, false, false], false));
    // What nobody can have told of meanwhile is gone with the first list that is whole.
    hear(&["2", "3"]).unwrap();
    assert_eq!((has(), is_listed()), ([false, true, true, false], true));
    assert_eq!(
        (woken(&collector).await, quotas()),
        (BTreeSet::from(["a".to_owned()]), 1)
    );
    hear(&["3", "2"]).unwrap();
    assert_eq!(
        (has(), woken(&collector).await, quotas()),
        ([false, true, true, false], BTreeSet::new(), 0)
    );
    // The one for the other: as many as before.
    hear(&["2", "4"]).unwrap();
    assert_eq!((has(), quotas()), ([false, true, false, true], 1));
    assert_eq!(woken(&collector).await, BTreeSet::from(["c".to_owned()]));
    ear.there(object("1", None));
    ear.gone(object("4", None));
    assert_eq!((has(), quotas()), ([true, true, false, false], 0));
    assert_eq!(woken(&collector).await, BTreeSet::from(["d".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_first_list_takes_nothing_out() {
    let collector = collector().await;
    collector.observe(&SECRETS, &change(object("1", None), true));
    let ear = Ear {
        collector: Arc::downgrade(&collector),
        resource: SECRETS,
        has_heard: AtomicBool::new(false),
    };
    ear.all(&mut std::iter::empty()).unwrap();
    assert!(lock(&collector.graph).contains(&uid("1")));
    ear.all(&mut std::iter::empty()).unwrap();
    assert!(!lock(&collector.graph).contains(&uid("1")));
}

/// Upstream's leader that loses its Lease ends; ours may lead again.
#[tokio::test(start_paused = true)]
async fn nothing_of_a_shared_informer_is_taken_in_once_nobody_follows_it() {
    let collector = collector().await;
    let (followed, _) = collector.follow(&PODS);
    let Followed::Shared(feeding) = &followed else {
        panic!("pods have a shared informer")
    };
    let task = feeding.0.abort_handle();
    tokio::task::yield_now().await;
    assert!(!task.is_finished());
    drop(followed);
    let ended = async {
        while !task.is_finished() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(timeout(Duration::from_secs(60), ended).await.is_ok());
}

/// An extension's server may tell of a deletion by another UID, or not at all.
#[tokio::test(start_paused = true)]
async fn what_the_server_has_no_more_keeps_no_owner_waiting() {
    let collector = collector().await;
    let going = json!({"metadata": {"namespace": "default", "name": "1", "uid": uid("1"), "finalizers": ["foregroundDeletion"],
        "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let mut dependent = object("a", Some("1"));
    let owners = dependent.metadata.owner_references.iter_mut().flatten();
    owners.for_each(|owner| owner.block_owner_deletion = Some(true));
    collector.observe(&CONFIG_MAPS, &change(serde_json::from_value(going).unwrap(), true));
    collector.observe(&PODS, &change(dependent, true));
    woken(&collector).await;
    let decided = lock(&collector.graph).decide(&uid("a"), |_| panic!("the owner is known"));
    assert!(matches!(&decided, graph::Action::Delete { .. }), "{decided:?}");
    collector.act(decided).await.unwrap();
    assert!(!lock(&collector.graph).contains(&uid("a")));
    assert_eq!(woken(&collector).await, BTreeSet::from(["1".to_owned()]));
    let decided = lock(&collector.graph).decide(&uid("1"), |_| panic!("it has no owner"));
    assert!(matches!(decided, graph::Action::SetFinalizers { .. }));
}
