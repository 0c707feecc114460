//! Claims through drivers over real sockets.

mod unread;

use super::testing::{Manner, SampleDriver};
use super::{Dra, Given};
use crate::metrics::Metrics;
use futures::FutureExt;
use http::Response;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::client::Body;
use proto::dra::health::{DeviceHealth, DeviceIdentifier, HealthStatus, NodeWatchResourcesResponse};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::sync::watch;

const V1: &[&str] = &["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"];

/// A node's directory, and an API server that has claims.
struct Node {
    dir: TempDir,
    claims: Arc<Mutex<BTreeMap<String, Value>>>,
    /// What was deleted, by path and query.
    deleted: watch::Sender<Vec<String>>,
    metrics: Metrics,
}

impl Node {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a directory"),
            claims: Arc::default(),
            deleted: watch::Sender::default(),
            metrics: Metrics::new("node-a"),
        }
    }

    /// The claims as a kubelet that starts now knows them.
    fn dra(&self) -> Arc<Dra> {
        let (claims, deleted) = (self.claims.clone(), self.deleted.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let answer = match request.method() {
                &http::Method::DELETE => {
                    deleted.send_modify(|all| all.push(request.uri().to_string()));
                    Some(json!({"kind": "Status", "status": "Success"}))
                }
                _ => {
                    let name = request.uri().path().rsplit('/').next().unwrap_or_default();
                    claims.lock().expect("not poisoned").get(name).cloned()
                }
            };
            let code = if answer.is_some() { 200 } else { 404 };
            let missing = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound",
                "message": "resourceclaims.resource.k8s.io \"c\" not found"});
            let body = answer.unwrap_or(missing).to_string();
            let response = Response::builder().status(code).body(Body::from(body.into_bytes()));
            async move { Ok::<_, Infallible>(response.expect("a response")) }
        });
        let given = Given {
            client: Some(kube::Client::new(service, "ns")),
            node: "node-a".to_owned(),
            metrics: self.metrics.dra.clone(),
        };
        Arc::new(Dra::open(self.dir.path(), given))
    }

    /// Stores a claim of these drivers, reserved for these pods.
    fn store(&self, name: &str, drivers: &[&str], pods: &[&str]) {
        let allocated = |driver: &&str| json!({"request": "r", "driver": driver, "pool": "pool", "device": "dev"});
        let results: Vec<Value> = drivers.iter().map(allocated).collect();
        let reserved = pods
            .iter()
            .map(|pod| json!({"resource": "pods", "name": pod, "uid": pod}));
        let claim = json!({
            "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}")},
            "status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved.collect::<Vec<_>>()},
        });
        self.claims.lock().expect("not poisoned").insert(name.to_owned(), claim);
    }

    fn file(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("dra_manager_state")).unwrap_or_default()
    }
}

/// A pod of one container that uses claims by their names.
fn pod(name: &str, claims: &[&str]) -> Pod {
    let named = |claim: &&str| json!({"name": claim, "resourceClaimName": claim});
    let used = |claim: &&str| json!({"name": claim});
    serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": name, "uid": name},
        "spec": {
            "resourceClaims": claims.iter().map(named).collect::<Vec<_>>(),
            "containers": [{"name": "c", "resources": {"claims": claims.iter().map(used).collect::<Vec<_>>()}}],
        },
    }))
    .expect("a pod")
}

fn devices(dra: &Dra, pod: &Pod) -> Vec<String> {
    dra.devices(pod, &crate::pod_object::regulars(pod)[0])
        .expect("prepared")
}

async fn error(dra: &Dra, pod: &Pod) -> String {
    dra.prepare(pod).await.expect_err("not prepared").to_string()
}

/// A node with the claim `c` of the pod `p`, and the driver that it needs.
async fn with_driver() -> (Node, Arc<Dra>, SampleDriver) {
    let node = Node::new();
    node.store("c", &["a.example"], &["p"]);
    let (dra, driver) = (node.dra(), SampleDriver::start(node.dir.path(), "a.example"));
    driver.register(&*dra.handler(), V1).await;
    (node, dra, driver)
}

#[tokio::test]
async fn a_claim_is_prepared_once_for_all_its_pods_and_let_go_of_with_the_last() {
    let node = Node::new();
    node.store("c", &["a.example", "b.example"], &["p", "q"]);
    let dra = node.dra();
    let first = SampleDriver::start(node.dir.path(), "a.example");
    let second = SampleDriver::start(node.dir.path(), "b.example");
    first.register(&*dra.handler(), V1).await;
    second.register(&*dra.handler(), &["v1beta1.DRAPlugin"]).await;
    let (p, q) = (pod("p", &["c"]), pod("q", &["c"]));
    dra.prepare(&p).await.expect("prepared");
    dra.prepare(&q).await.expect("prepared");
    assert_eq!(devices(&dra, &q), ["a.example/class=uid-c", "b.example/class=uid-c"]);
    let text = node.metrics.text(&crate::pod::view::PodView::default());
    for line in [
        "dra_resource_claims_in_use{driver_name=\"<any>\"} 1",
        "dra_resource_claims_in_use{driver_name=\"b.example\"} 1",
        "dra_operations_duration_seconds_count{is_error=\"false\",operation_name=\"PrepareResources\"} 2",
        "dra_grpc_operations_duration_seconds_count{driver_name=\"a.example\",grpc_status_code=\"OK\",method_name=\"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    dra.unprepare("p").await.expect("let go");
    assert_eq!(first.calls(), ["v1 +c"]);
    dra.unprepare("q").await.expect("let go");
    dra.unprepare("q").await.expect("nothing more to do");
    assert_eq!(first.calls(), ["v1 +c", "v1 -c"]);
    assert_eq!(second.calls(), ["v1beta1 +c", "v1beta1 -c"]);
    assert!(!node.file().contains("uid-c"), "{}", node.file());
}

#[tokio::test]
async fn what_cannot_be_used_is_told_before_any_driver_is_asked() {
    let node = Node::new();
    let dra = node.dra();
    let p = pod("p", &["c"]);
    assert_eq!(
        error(&dra, &p).await,
        "fetch ResourceClaim c: resourceclaims.resource.k8s.io \"c\" not found"
    );
    node.store("c", &["a.example"], &["q"]);
    assert_eq!(
        error(&dra, &p).await,
        "pod p (p) is not allowed to use ResourceClaim c (uid-c)"
    );
    node.store("c", &["a.example"], &["p"]);
    assert_eq!(error(&dra, &p).await, "DRA driver a.example is not registered");
    // Nothing is held: the pod can go though the driver never comes.
    dra.unprepare("p").await.expect("nothing to let go of");
    assert!(dra.devices(&p, &crate::pod_object::regulars(&p)[0]).is_err());
}

#[tokio::test]
async fn a_claim_allocated_anew_is_let_go_of_by_its_old_driver_first() {
    let node = Node::new();
    node.store("c", &["old.example"], &["p"]);
    let dra = node.dra();
    let old = SampleDriver::start(node.dir.path(), "old.example");
    let new = SampleDriver::start(node.dir.path(), "new.example");
    for driver in [&old, &new] {
        driver.register(&*dra.handler(), V1).await;
    }
    let (p, q) = (pod("p", &["c"]), pod("q", &["c"]));
    dra.prepare(&p).await.expect("prepared");
    node.store("c", &["new.example"], &["p", "q"]);
    // While the pod that has the old devices is there, nobody else gets the new ones.
    assert_eq!(
        error(&dra, &q).await,
        "ResourceClaim c was allocated anew while other pods still use the devices it had before (previous pod force-deleted?!)"
    );
    // One that does not let go keeps the claim as it was, and the new one is not asked.
    old.behave(Manner::Fails("busy"));
    assert!(error(&dra, &p).await.contains("NodeUnprepareResources"));
    assert!(new.calls().is_empty() && node.file().contains("old.example"));
    old.behave(Manner::Good);
    dra.prepare(&p).await.expect("prepared anew");
    assert_eq!(devices(&dra, &p), ["new.example/class=uid-c"]);
    assert_eq!(old.calls(), ["v1 +c", "v1 -c", "v1 -c"]);
    assert_eq!(new.calls(), ["v1 +c"]);
    assert!(!node.file().contains("old.example"), "{}", node.file());
    dra.unprepare("p").await.expect("let go");
    dra.prepare(&q).await.expect("prepared");
    assert_eq!((old.calls().len(), new.calls().len()), (3, 3));
}

#[tokio::test]
async fn more_claims_than_are_looked_at_are_refused_and_not_passed_over() {
    let node = Node::new();
    let names: Vec<String> = (0..65).map(|number| format!("c{number}")).collect();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    for name in &names {
        node.store(name, &["a.example"], &["p"]);
    }
    let dra = node.dra();
    let driver = SampleDriver::start(node.dir.path(), "a.example");
    driver.register(&*dra.handler(), V1).await;
    assert_eq!(
        error(&dra, &pod("p", &names)).await,
        "Pod ns/p names 65 ResourceClaims, more than 64"
    );
    names.pop();
    dra.prepare(&pod("p", &names)).await.expect("prepared");
    assert_eq!(driver.calls().len(), 64);
}

#[tokio::test]
async fn a_driver_that_fails_or_lies_is_named_and_harms_nobody_else() {
    let node = Node::new();
    node.store("c", &["bad.example"], &["p"]);
    node.store("d", &["good.example"], &["q"]);
    let dra = node.dra();
    let bad = SampleDriver::start(node.dir.path(), "bad.example");
    let good = SampleDriver::start(node.dir.path(), "good.example");
    for driver in [&bad, &good] {
        driver.register(&*dra.handler(), V1).await;
    }
    let p = pod("p", &["c"]);
    for (manner, told) in [
        (
            Manner::Fails("no such device"),
            "NodePrepareResources failed for ResourceClaim c: no such device (DRA driver bad.example)",
        ),
        (
            Manner::Lies,
            "NodePrepareResources returned result for unknown claim UID stranger (DRA driver bad.example)",
        ),
    ] {
        bad.behave(manner);
        assert_eq!(error(&dra, &p).await, told);
    }
    bad.behave(Manner::Floods);
    let told = error(&dra, &p).await;
    assert!(
        told.starts_with("NodePrepareResources: rpc error: code = ") && told.len() < 3000,
        "{told}"
    );
    assert!(told.ends_with("(DRA driver bad.example, ResourceClaims: c)"), "{told}");
    dra.prepare(&pod("q", &["d"])).await.expect("prepared");
    // What was begun is let go of, and until that works nothing is forgotten.
    bad.behave(Manner::Fails("busy"));
    let told = dra.unprepare("p").await.expect_err("not let go").to_string();
    assert_eq!(
        told,
        "NodeUnprepareResources: rpc error: code = Internal desc = busy (DRA driver bad.example, ResourceClaims: c)"
    );
    assert!(node.file().contains("uid-c"));
    bad.behave(Manner::Good);
    dra.unprepare("p").await.expect("let go");
    assert!(!node.file().contains("uid-c") && node.file().contains("uid-d"));
}

#[tokio::test]
async fn a_kubelet_that_dies_while_a_driver_works_leaves_word_of_it() {
    let (node, dra, mut driver) = with_driver().await;
    driver.behave(Manner::Hangs);
    let p = pod("p", &["c"]);
    let (dying, theirs) = (dra.clone(), p.clone());
    let task = tokio::spawn(async move { dying.prepare(&theirs).await });
    driver.asked(1).await;
    // The driver was asked: what there is to let go of is on disk already.
    assert!(node.file().contains("uid-c"), "{}", node.file());
    task.abort();
    drop(dra);
    driver.behave(Manner::Good);
    let next = node.dra();
    driver.register(&*next.handler(), V1).await;
    next.prepare(&p).await.expect("prepared again");
    let file = node.file();
    assert!(file.contains("a.example/class=uid-c"), "{file}");
    // And one that dies now: the devices are known to the next, which lets go of them.
    let last = node.dra();
    assert_eq!(devices(&last, &p), ["a.example/class=uid-c"]);
    let why = last
        .unprepare("p")
        .await
        .expect_err("its driver is not there")
        .to_string();
    assert_eq!(why, "DRA driver a.example is not registered");
    driver.register(&*last.handler(), V1).await;
    last.unprepare("p").await.expect("let go");
    assert_eq!(driver.calls(), ["v1 +c", "v1 +c", "v1 -c"]);
}

#[tokio::test]
async fn a_disk_that_takes_nothing_holds_up_no_pods_end_and_no_driver_is_forgotten() {
    let (node, dra, driver) = with_driver().await;
    let p = pod("p", &["c"]);
    dra.prepare(&p).await.expect("prepared");
    let beside = node.dir.path().join("dra_manager_state.tmp");
    std::fs::create_dir(&beside).expect("made");
    dra.unprepare("p").await.expect("its driver let go");
    assert_eq!(driver.calls(), ["v1 +c", "v1 -c"]);
    assert!(dra.is_behind() && node.file().contains("uid-c"));
    let told = error(&dra, &p).await;
    assert!(told.starts_with("checkpoint ResourceClaim state: "), "{told}");
    assert_eq!(driver.calls().len(), 2, "nobody is asked who would not be known");
    // A kubelet that comes now knows of no end yet, and asks again.
    let next = node.dra();
    driver.register(&*next.handler(), V1).await;
    next.unprepare("p").await.expect("let go");
    assert_eq!(driver.calls().len(), 3);
    std::fs::remove_dir(&beside).expect("removed");
    next.keep_if_behind().await.expect("written");
    assert!(!next.is_behind() && !node.file().contains("uid-c"), "{}", node.file());
}

#[tokio::test]
async fn a_file_of_no_use_is_told_and_left_as_it_is() {
    let node = Node::new();
    std::fs::write(node.dir.path().join("dra_manager_state"), "{").expect("written");
    let dra = node.dra();
    let told = dra.useless().expect("of no use").to_string();
    assert!(told.contains("please drain node and remove DRA state file"), "{told}");
    assert_eq!(node.file(), "{");
}

#[tokio::test]
async fn the_newest_of_a_drivers_instances_is_asked() {
    let node = Node::new();
    node.store("c", &["a.example"], &["p"]);
    let dra = node.dra();
    let old = SampleDriver::start(node.dir.path(), "a.example");
    old.register(&*dra.handler(), V1).await;
    let aside = node.dir.path().join("new");
    std::fs::create_dir(&aside).expect("made");
    let new = SampleDriver::start(&aside, "a.example");
    new.register(&*dra.handler(), V1).await;
    let twice = dra
        .handler()
        .register(&new.plugin(V1))
        .await
        .expect_err("it is there")
        .to_string();
    assert!(
        twice.contains("already registered for DRA driver plugin a.example"),
        "{twice}"
    );
    // Each is connected before it is asked, or none is: the newest one it is.
    let mut usable = dra.drivers.usable();
    usable
        .wait_for(|usable| usable.get("a.example") == Some(&true))
        .await
        .expect("connected");
    dra.handler().deregister(&old.plugin(V1));
    dra.prepare(&pod("p", &["c"])).await.expect("prepared");
    assert_eq!((old.calls().len(), new.calls().len()), (0, 1));
    dra.handler().deregister(&new.plugin(V1));
    assert_eq!(
        error(&dra, &pod("p", &["c"])).await,
        "DRA driver a.example is not registered"
    );
}

#[tokio::test]
async fn what_drivers_tell_of_devices_is_in_the_status() {
    let (_node, dra, driver) = with_driver().await;
    let p = pod("p", &["c"]);
    dra.prepare(&p).await.expect("prepared");
    let status = || {
        let mut status: PodStatus = serde_json::from_value(json!({"containerStatuses": [
            {"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0}]}))
        .expect("a status");
        dra.tell_health(&p, &mut status);
        serde_json::to_value(&status.container_statuses.expect("one")[0].allocated_resources_status).expect("json")
    };
    let told = |health: &str, message: Option<&str>| {
        let mut device = json!({"resourceID": "a.example/class=uid-c", "health": health});
        if let Some(message) = message {
            device["message"] = json!(message);
        }
        json!([{"name": "claim:c", "resources": [device]}])
    };
    assert_eq!(status(), told("Unknown", None));
    let mut changes = dra.health_changes();
    let device = DeviceHealth {
        device: Some(DeviceIdentifier {
            pool_name: "pool".into(),
            device_name: "dev".into(),
        }),
        health: HealthStatus::Unhealthy.into(),
        health_check_timeout_seconds: 3600,
        message: "too hot".into(),
        ..DeviceHealth::default()
    };
    driver
        .health
        .send_replace(NodeWatchResourcesResponse { devices: vec![device] });
    changes.changed().await.expect("told");
    assert_eq!(status(), told("Unhealthy", Some("too hot")));
    // A driver that is gone says nothing any more.
    drop(driver);
    changes.changed().await.expect("told");
    assert_eq!(status(), told("Unknown", None));
}

#[tokio::test]
async fn slices_of_nobody_go_when_the_kubelet_starts() {
    let node = Node::new();
    let dra = node.dra();
    let stop = tokio_util::sync::CancellationToken::new();
    let wiping = tokio::spawn(dra.wipe(stop.clone()));
    let mut deleted = node.deleted.subscribe();
    let first = deleted.wait_for(|all| !all.is_empty()).await.expect("asked")[0].clone();
    assert_eq!(
        first,
        "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3Dnode-a"
    );
    stop.cancel();
    wiping.await.expect("ended");
}

#[tokio::test(start_paused = true)]
async fn slices_of_a_driver_go_once_it_is_away_for_a_while() {
    let node = Node::new();
    let dra = node.dra();
    let stop = tokio_util::sync::CancellationToken::new();
    let wiping = tokio::spawn(dra.clone().wipe(stop.clone()));
    // Nobody listens there: it is registered, and cannot be asked.
    let plugin = crate::plugin::Plugin {
        name: "a.example".into(),
        socket: node.dir.path().join("nobody.sock"),
        endpoint: node.dir.path().join("nobody.sock"),
        versions: vec!["v1.DRAPlugin".into()],
    };
    let begun = tokio::time::Instant::now();
    dra.handler().register(&plugin).await.expect("registered");
    let mut deleted = node.deleted.subscribe();
    let wiped = deleted.wait_for(|all| all.len() == 2).await.expect("asked")[1].clone();
    assert!(wiped.ends_with("%3Dnode-a%2Cspec.driver%3Da.example"), "{wiped}");
    assert!(
        begun.elapsed() >= std::time::Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
    stop.cancel();
    assert!(wiping.now_or_never().is_none_or(|ended| ended.is_ok()));
}

#[tokio::test]
async fn a_driver_that_is_gone_is_remembered_only_for_its_slices() {
    for (client, remembered) in [(None, 0), (Some(()), 1)] {
        let node = Node::new();
        let given = Given {
            client: client.map(|()| kube::Client::new(tower::service_fn(never), "ns")),
            node: "node-a".to_owned(),
            metrics: node.metrics.dra.clone(),
        };
        let dra = Dra::open(node.dir.path(), given);
        let plugin = crate::plugin::Plugin {
            name: "a.example".into(),
            socket: node.dir.path().join("nobody.sock"),
            endpoint: node.dir.path().join("nobody.sock"),
            versions: vec!["v1.DRAPlugin".into()],
        };
        dra.handler().register(&plugin).await.expect("registered");
        dra.handler().deregister(&plugin);
        assert_eq!(dra.drivers.usable().borrow().len(), remembered);
    }
}

async fn never(_: http::Request<Body>) -> Result<Response<Body>, Infallible> {
    std::future::pending().await
}
