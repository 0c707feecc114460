//! HorizontalPodAutoscalers, from kubelets' pages to the replicas of a target.

use super::*;

const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";

fn autoscaler(name: &str, target: Value, max: i32, metric: Value) -> Value {
    json!({"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2", "metadata": {"name": name},
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": max, "metrics": [metric]}})
}

fn cpu() -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}})
}

fn of_web() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})
}

/// Reason of a condition with its status.
fn said(autoscaler: &Value, kind: &str) -> String {
    let conditions = autoscaler["status"]["conditions"].as_array().into_iter().flatten();
    let mut found = conditions.filter(|condition| condition["type"] == kind);
    found.next().map_or_else(String::new, |condition| {
        format!(
            "{} {}",
            condition["status"].as_str().unwrap(),
            condition["reason"].as_str().unwrap()
        )
    })
}

/// A deployment `web` whose pods request 100m and whose use is measured.
async fn world(replicas: usize) -> World {
    let world = World::start(3).await;
    let mut web = deployment("web", replicas, "nginx");
    web["spec"]["template"]["metadata"]["labels"]["measured"] = json!("yes");
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    world.create("/apis/apps/v1/namespaces/default/deployments", web).await;
    world.until(WEB, |web| web["status"]["readyReplicas"] == replicas).await;
    world
}

async fn reasons(world: &World, about: &str) -> Vec<String> {
    // Events are gathered for a moment before they are written.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let path = format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{about}");
    let events = world.items(&path).await;
    let mut reasons: Vec<String> = events
        .iter()
        .filter(|event| event["involvedObject"]["kind"] == "HorizontalPodAutoscaler")
        .map(|event| {
            format!(
                "{}: {}",
                event["reason"].as_str().unwrap(),
                event["message"].as_str().unwrap()
            )
        })
        .collect();
    reasons.sort();
    reasons.dedup();
    reasons
}

#[tokio::test(start_paused = true)]
async fn replicas_follow_what_pods_use() {
    let world = world(2).await;
    world.usage.use_cpu(100);
    world.create(AUTOSCALERS, autoscaler("web", of_web(), 7, cpu())).await;
    world.until(WEB, |web| web["spec"]["replicas"] == 4).await;
    world.until(WEB, |web| web["spec"]["replicas"] == 7).await;
    let path = format!("{AUTOSCALERS}/web");
    let limited = world
        .until(&path, |own| {
            own["status"]["currentReplicas"] == 7 && said(own, "ScalingLimited") == "True TooManyReplicas"
        })
        .await;
    assert_eq!(said(&limited, "ScalingActive"), "True ValidMetricFound");
    assert_eq!(limited["status"]["desiredReplicas"], 7);
    assert!(limited["status"]["lastScaleTime"].is_string(), "{limited:#}");
    let current = &limited["status"]["currentMetrics"][0]["resource"]["current"];
    assert_eq!(current, &json!({"averageUtilization": 100, "averageValue": "100m"}));
    // Down only when nothing higher has been recommended for five minutes.
    world.usage.use_cpu(10);
    let asked_at = world.clock.now();
    world
        .until(&path, |own| said(own, "AbleToScale") == "True ScaleDownStabilized")
        .await;
    assert_eq!(world.get(WEB).await.unwrap()["spec"]["replicas"], 7);
    world.until(WEB, |web| web["spec"]["replicas"] == 2).await;
    let waited = world.clock.now().duration_since(asked_at).as_secs();
    assert!((270..=420).contains(&waited), "{waited} s");
    let told = reasons(&world, "web").await;
    let up = "SuccessfulRescale: New size: 4; reason: cpu resource utilization (percentage of request) above target";
    assert!(told.iter().any(|told| told == up), "{told:#?}");
    assert!(
        told.iter()
            .any(|told| told == "SuccessfulRescale: New size: 2; reason: All metrics below target"),
        "{told:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn custom_resources_are_scaled_too() {
    let world = world(2).await;
    let herds = define_herds(&world).await;
    // Its pods are the deployment's, for nobody makes others.
    let herd =
        json!({"kind": "Herd", "apiVersion": "zoo.example/v1", "metadata": {"name": "web"}, "spec": {"replicas": 2}});
    world.create(herds, herd).await;
    let status = json!({"status": {"replicas": 2, "selector": "app=web"}});
    world.patch(&format!("{herds}/web/status"), status).await;
    let metric = json!({"type": "ContainerResource", "containerResource": {"name": "memory", "container": "c",
        "target": {"type": "AverageValue", "averageValue": "512Ki"}}});
    // Any version of the group leads to the kind.
    let target = json!({"apiVersion": "zoo.example/v1alpha1", "kind": "Herd", "name": "web"});
    world.create(AUTOSCALERS, autoscaler("herd", target, 9, metric)).await;
    let herd = world
        .until(&format!("{herds}/web"), |herd| herd["spec"]["replicas"] != 2)
        .await;
    assert_eq!(herd["spec"]["replicas"], 4);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_scaled_is_told() {
    let world = world(1).await;
    let pods = json!({"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "5"}}});
    let absent = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"});
    let unknown = json!({"apiVersion": "zoo.example/v1", "kind": "Herd", "name": "web"});
    let fixed = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "web"});
    let odd = json!({"apiVersion": "apps/v1/../../../api", "kind": "Deployment", "name": "web"});
    for (name, target, metric, condition, message) in [
        (
            "absent",
            absent,
            cpu(),
            "AbleToScale",
            "deployments.apps \"none\" not found",
        ),
        (
            "unknown",
            unknown,
            cpu(),
            "AbleToScale",
            "no matches for kind \"Herd\" in group \"zoo.example\"",
        ),
        (
            "fixed",
            fixed,
            cpu(),
            "AbleToScale",
            "the server could not find the requested resource",
        ),
        (
            "odd",
            odd,
            cpu(),
            "AbleToScale",
            "unexpected GroupVersion string: apps/v1/../../../api",
        ),
        (
            "pods",
            of_web(),
            pods,
            "ScalingActive",
            "no custom metrics API (custom.metrics.k8s.io) registered",
        ),
    ] {
        world.create(AUTOSCALERS, autoscaler(name, target, 5, metric)).await;
        let path = format!("{AUTOSCALERS}/{name}");
        let own = world
            .until(&path, |own| said(own, condition).starts_with("False "))
            .await;
        let conditions = own["status"]["conditions"].to_string();
        assert!(
            conditions.contains(&message.replace('"', "\\\"")),
            "{name}: {conditions}"
        );
    }
    let told = reasons(&world, "absent").await;
    assert_eq!(told, ["FailedGetScale: deployments.apps \"none\" not found"]);
}

#[tokio::test(start_paused = true)]
async fn two_of_the_same_pods_are_one_too_many() {
    let world = world(2).await;
    world.usage.use_cpu(100);
    let first = autoscaler("first", of_web(), 2, cpu());
    world.create(AUTOSCALERS, first).await;
    let path = |name: &str| format!("{AUTOSCALERS}/{name}");
    world
        .until(&path("first"), |own| {
            said(own, "ScalingActive") == "True ValidMetricFound"
        })
        .await;
    world
        .create(AUTOSCALERS, autoscaler("second", of_web(), 2, cpu()))
        .await;
    for name in ["first", "second"] {
        let own = world
            .until(&path(name), |own| {
                said(own, "ScalingActive") == "False AmbiguousSelector"
            })
            .await;
        let text = own["status"]["conditions"].to_string();
        assert!(
            text.contains(
                "pods by selector app=web are controlled by multiple HPAs: [{first default} {second default}]"
            ),
            "{text}"
        );
    }
    world.call("DELETE", &path("second"), None).await.unwrap();
    world
        .until(&path("first"), |own| {
            said(own, "ScalingActive") == "True ValidMetricFound"
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_what_is_wanted_is_followed_at_once() {
    let world = world(2).await;
    world.create(AUTOSCALERS, autoscaler("web", of_web(), 5, cpu())).await;
    let path = format!("{AUTOSCALERS}/web");
    world
        .until(&path, |own| said(own, "AbleToScale").starts_with("True"))
        .await;
    world.patch(&path, json!({"spec": {"minReplicas": 5}})).await;
    let changed_at = world.clock.now();
    world.until(WEB, |web| web["spec"]["replicas"] == 5).await;
    let waited = world.clock.now().duration_since(changed_at).as_secs();
    assert!(waited < 15, "{waited} s");
    // A target of no replicas is nobody's to scale.
    world.patch(&path, json!({"spec": {"minReplicas": 1}})).await;
    world.patch(WEB, json!({"spec": {"replicas": 0}})).await;
    world
        .until(&path, |own| said(own, "ScalingActive") == "False ScalingDisabled")
        .await;
    assert_eq!(world.get(WEB).await.unwrap()["spec"]["replicas"], 0);
}
