use super::*;

use crate::pod::testing::{container, observed, pod};
use crate::runtime::fake::FakeRuntime;
use client::TokioClock;
use k8s_openapi::api::core::v1::TCPSocketAction;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

fn tools(clock: Arc<dyn Clock>) -> ProbeContext {
    let (recorder, _sink) = Recorder::new(clock.clone(), "n", None, crate::rate::Rate::default(), 1);
    let runtime = Arc::new(FakeRuntime::new(clock.clone(), 1));
    ProbeContext {
        runtime,
        recorder,
        clock,
        kubelet_start: Timestamp::UNIX_EPOCH,
        host_ips: HostIps::fixed(Vec::new()),
        metrics: crate::metrics::Metrics::new("n").probes,
    }
}

fn tcp(port: u16) -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction {
            host: Some("127.0.0.1".into()),
            port: IntOrString::Int(i32::from(port)),
        }),
        period_seconds: Some(1),
        failure_threshold: Some(1),
        ..Probe::default()
    }
}

#[tokio::test]
async fn a_container_becomes_ready_when_it_listens_and_unready_when_it_ends() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    let mut c = container("c");
    c.readiness_probe = Some(tcp(port));
    c.startup_probe = Some(tcp(port));
    let p = Arc::new(pod("p").with(c.clone()).build());
    let (sender, receiver) = watch::channel(None);
    let mut prober = Prober::new(tools(Arc::new(client::SystemClock)), receiver);
    let mut outcomes = prober.outcomes();
    prober.run(&p, [&c].into_iter(), false);
    sender.send_replace(Some(Arc::new(observed("p").sandbox(true).running("c").build())));
    let id = ContainerId::from("c0");
    let ready = outcomes.wait_for(|outcomes| outcomes.ready(&c, &id));
    tokio::time::timeout(Duration::from_secs(20), ready)
        .await
        .expect("in time")
        .expect("open");
    sender.send_replace(Some(Arc::new(observed("p").sandbox(true).exited("c", 0, 9).build())));
    let unready = outcomes.wait_for(|outcomes| outcomes.get("c", Kind::Readiness, &id) == Outcome::Failure);
    tokio::time::timeout(Duration::from_secs(20), unready)
        .await
        .expect("in time")
        .expect("open");
}

#[tokio::test(start_paused = true)]
async fn a_failing_command_is_told_after_its_threshold() {
    use crate::runtime::fake::Mishap;
    use crate::runtime::{Runtime as _, RuntimeError};
    let clock = Arc::new(TokioClock::starting_at(crate::pod::testing::at(0)));
    let tools = tools(clock.clone());
    let fake = FakeRuntime::new(clock, 2);
    let tools = ProbeContext {
        runtime: Arc::new(fake.clone()),
        ..tools
    };
    for _ in 0..100 {
        // The scripted runtime does not know the container: every command is an error, which counts as nothing.
        fake.next(
            "ExecSync",
            Mishap::Fail(RuntimeError::new("ExecSync", tonic::Code::Unknown, "no")),
        );
    }
    let mut c = container("c");
    let exec = k8s_openapi::api::core::v1::ExecAction {
        command: Some(vec!["x".into()]),
    };
    c.liveness_probe = Some(Probe {
        exec: Some(exec),
        failure_threshold: Some(1),
        ..Probe::default()
    });
    let p = Arc::new(pod("p").with(c.clone()).build());
    let (_sender, receiver) = watch::channel(Some(Arc::new(observed("p").sandbox(true).running("c").build())));
    let mut prober = Prober::new(tools, receiver);
    prober.run(&p, [&c].into_iter(), false);
    tokio::time::sleep(Duration::from_secs(25)).await;
    let calls = fake.calls().iter().filter(|call| call.starts_with("ExecSync")).count();
    assert_eq!(calls, 9, "three periods, three tries each");
    let id = ContainerId::from("c0");
    assert_eq!(
        prober.outcomes().borrow().get("c", Kind::Liveness, &id),
        Outcome::Success
    );
    assert!(fake.status().await.is_ok());
}

#[tokio::test]
async fn a_pod_is_probed_at_its_first_address_of_the_nodes_family() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let mut c = container("c");
    let mut probe = tcp(listener.local_addr().expect("address").port());
    probe.tcp_socket.as_mut().expect("an action").host = None;
    c.readiness_probe = Some(probe);
    let p = Arc::new(pod("p").with(c.clone()).build());
    let mut seen = observed("p").sandbox(true).running("c").build();
    // Nobody answers at the one the runtime tells first, which is for documentation.
    seen.sandboxes[0].ips = vec!["2001:db8::1".into(), "127.0.0.1".into()];
    let (_sender, receiver) = watch::channel(Some(Arc::new(seen)));
    let mut prober = Prober::new(tools(Arc::new(client::SystemClock)), receiver);
    let mut outcomes = prober.outcomes();
    prober.run(&p, [&c].into_iter(), false);
    let id = ContainerId::from("c0");
    let told = |outcomes: &Outcomes| outcomes.ready(&c, &id);
    let ready = tokio::time::timeout(Duration::from_secs(20), outcomes.wait_for(told)).await;
    assert!(ready.is_ok_and(|ready| ready.is_ok()));
}
