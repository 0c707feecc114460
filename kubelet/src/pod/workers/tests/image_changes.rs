//! A container's image that is changed in place: the container restarts with the new one, whatever it was doing, and no other.

use super::*;
use k8s_openapi::api::core::v1::ContainerStatus;

const OLD: &str = "old:1";
const NEW: &str = "new:1";

/// Which list of the pod a case's container is in.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Init,
    Sidecar,
    Regular,
}

fn probe() -> Probe {
    Probe {
        exec: Some(k8s_openapi::api::core::v1::ExecAction {
            command: Some(vec!["check".into()]),
        }),
        period_seconds: Some(1),
        failure_threshold: Some(1000),
        ..Probe::default()
    }
}

fn with_changing(place: Place, change: impl Fn(&mut Container)) -> Pod {
    let mut pod = simple("p");
    let mut changing = named("changing");
    changing.image = Some(OLD.into());
    change(&mut changing);
    let spec = pod.spec.as_mut().expect("spec");
    match place {
        Place::Regular => spec.containers.push(changing),
        Place::Init => spec.init_containers = Some(vec![changing]),
        Place::Sidecar => {
            changing.restart_policy = Some("Always".into());
            spec.init_containers = Some(vec![changing]);
        }
    }
    pod
}

fn told(bench: &Bench, name: &str) -> Option<ContainerStatus> {
    let status = bench.api.status("p")?;
    let lists = [status.init_container_statuses, status.container_statuses];
    lists.into_iter().flatten().flatten().find(|told| told.name == name)
}

fn runs(bench: &Bench, name: &str) -> bool {
    told(bench, name).is_some_and(|told| told.state.is_some_and(|state| state.running.is_some()))
}

async fn changes(place: Place, what: &str, change: impl Fn(&mut Container)) {
    let bench = Bench::new();
    let waits = Behaviour {
        exec_exit_code: 1,
        ..Behaviour::obedient()
    };
    bench.runtime.script_image(OLD, waits);
    let done = match place {
        Place::Init => Behaviour {
            run: Run::For {
                duration: Duration::from_secs(1),
                exit_code: 0,
            },
            ..Behaviour::obedient()
        },
        Place::Sidecar | Place::Regular => Behaviour::obedient(),
    };
    bench.runtime.script_image(NEW, done);
    for image in [OLD, NEW] {
        bench.runtime.add_image(image);
    }
    let kubelet = bench.start();
    bench.api.create(&with_changing(place, change));
    bench.until("the old one runs", |b| runs(b, "changing")).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = told(&bench, "c").and_then(|told| told.container_id);
    bench.api.edit("p", |pod| {
        let (list, index) = match place {
            Place::Regular => ("containers", 1),
            Place::Init | Place::Sidecar => ("initContainers", 0),
        };
        pod["spec"][list][index]["image"] = NEW.into();
    });
    let renewed = |b: &Bench| told(b, "changing").is_some_and(|told| told.image == NEW) && is_ready(b, "p");
    bench.until(&format!("{what}: ready"), renewed).await;
    let after = told(&bench, "changing").expect("told");
    assert_eq!((after.restart_count, after.image.as_str()), (1, NEW), "{what}");
    let text = "changing definition changed";
    bench.until("told why", |b| has_event(b, "Killing", text)).await;
    let other = told(&bench, "c").expect("told");
    assert_eq!(other.restart_count, 0, "{what}");
    assert!(
        before.is_none() || before == other.container_id,
        "{what}: the other goes on"
    );
    assert_eq!(bench.runtime.sandboxes().len(), 1, "{what}: and so does the pod");
    assert!(bench.runtime.doubled().is_empty());
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_image_restarts_its_container_and_nothing_else() {
    for place in [Place::Regular, Place::Sidecar] {
        changes(place, "it just runs", |_| {}).await;
        changes(place, "it does not come up", |c| c.startup_probe = Some(probe())).await;
        changes(place, "it is not ready", |c| c.readiness_probe = Some(probe())).await;
        changes(place, "it is not well", |c| c.liveness_probe = Some(probe())).await;
    }
    changes(Place::Init, "it does not come to its end", |_| {}).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_restarts_nothing_restarts_what_has_another_image() {
    let bench = Bench::new();
    for image in [OLD, NEW] {
        bench.runtime.add_image(image);
    }
    let kubelet = bench.start();
    let mut pod = with_changing(Place::Regular, |_| {});
    pod.spec.as_mut().expect("spec").restart_policy = Some("Never".into());
    bench.api.create(&pod);
    bench.until("ready", |b| is_ready(b, "p")).await;
    bench
        .api
        .edit("p", |pod| pod["spec"]["containers"][1]["image"] = NEW.into());
    let renewed = |b: &Bench| told(b, "changing").is_some_and(|told| told.image == NEW && told.ready);
    bench.until("renewed", renewed).await;
    assert_eq!(told(&bench, "changing").map(|told| told.restart_count), Some(1));
    kubelet.kill().await;
}
