//! A pod's devices over a whole kubelet, from a driver at a real socket: so on the machine's clock.

use super::*;
use crate::dra::testing::SampleDriver;
use serde_json::json;
use std::sync::Arc;

fn claiming(name: &str) -> Pod {
    let mut pod = serde_json::to_value(simple(name)).expect("a pod");
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "c"}]);
    pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "gpu"}]);
    serde_json::from_value(pod).expect("a pod")
}

#[tokio::test]
async fn a_pod_waits_for_its_devices_and_lets_go_of_them_once_it_has_stopped() {
    let bench = Bench::new();
    let kubelet = bench.start();
    let pod = claiming("p");
    let uid = pod.metadata.uid.clone().expect("a UID");
    bench.api.add_claim("c", "a.example", &uid);
    bench.api.create(&pod);
    let told = "Failed to prepare dynamic resources: prepare dynamic resources: DRA driver a.example is not registered";
    bench
        .until("told", |b| has_event(b, "FailedPrepareDynamicResources", told))
        .await;
    assert_eq!(bench.runtime.counts(), (0, 0));
    let (dir, runtime) = (tempfile::tempdir().expect("a directory"), bench.runtime.clone());
    let look = Arc::new(move || format!(" beside {} containers", runtime.running().len()));
    let driver = SampleDriver::that_looks(dir.path(), "a.example", look);
    driver.register(&*kubelet.parts.dra.handler(), &["v1.DRAPlugin"]).await;
    bench.until("ready", |b| is_ready(b, "p")).await;
    let devices = bench.runtime.container_config("c").expect("a container").cdi_devices;
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["a.example/class=uid-c"]);
    let status = bench
        .api
        .status("p")
        .expect("a status")
        .container_statuses
        .expect("containers");
    let health = status[0].allocated_resources_status.clone().expect("told");
    assert_eq!(health[0].name, "claim:gpu");
    bench.api.delete("p", 30, bench.clock.now());
    bench.until("gone", |b| !b.api.has("p")).await;
    assert_eq!(
        driver.calls(),
        ["v1 +c beside 0 containers", "v1 -c beside 0 containers"]
    );
    kubelet.kill().await;
}
