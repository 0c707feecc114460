use super::*;
use crate::pod::testing::container;
use crate::probe::testing::serve;
use crate::runtime::RuntimeError;
use crate::runtime::fake::{FakeRuntime, Mishap};
use k8s_openapi::api::core::v1::{ContainerPort, ExecAction, SleepAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::sync::Arc;
use tokio::net::TcpListener;

fn get(scheme: &str) -> LifecycleHandler {
    LifecycleHandler {
        http_get: Some(HTTPGetAction {
            scheme: Some(scheme.into()),
            path: Some("/bye".into()),
            port: IntOrString::String("web".into()),
            ..HTTPGetAction::default()
        }),
        ..LifecycleHandler::default()
    }
}

async fn run_at(port: u16, handler: &LifecycleHandler) -> Result<Done, HookError> {
    let runtime = FakeRuntime::new(Arc::new(client::SystemClock), 1);
    let mut c = container("c");
    c.ports = Some(vec![ContainerPort {
        name: Some("web".into()),
        container_port: i32::from(port),
        ..ContainerPort::default()
    }]);
    let id = ContainerId::from("1");
    let target = Target {
        container: &c,
        id: &id,
        pod: "p_ns(u)",
        pod_ip: Some("127.0.0.1"),
    };
    run(&runtime, handler, &target).await
}

#[tokio::test]
async fn any_http_status_is_a_success() {
    let (port, asked) = serve(vec!["HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"]).await;
    assert_eq!(run_at(port, &get("HTTP")).await, Ok(Done::Plainly));
    let asked = asked.await.expect("server").remove(0).to_lowercase();
    assert!(asked.starts_with("get /bye http/1.1"), "{asked}");
    assert!(asked.contains("user-agent: kube-lifecycle/1.36"), "{asked}");
}

#[tokio::test]
async fn a_server_without_tls_is_asked_again_without() {
    let reply = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    let (port, asked) = serve(vec![reply, reply]).await;
    let done = run_at(port, &get("HTTPS")).await;
    assert_eq!(done, Ok(Done::WithoutTls(format!("127.0.0.1:{port}"))));
    assert!(asked.await.expect("server")[1].starts_with("GET /bye"));
}

#[tokio::test]
async fn nobody_there_is_a_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    drop(listener);
    let error = run_at(port, &get("HTTP")).await.expect_err("nobody there");
    assert_eq!(
        error.to_string(),
        format!(
            "HTTP lifecycle hook (/bye) for Container \"c\" in Pod \"p_ns(u)\" failed - error: Get \
             \"http://127.0.0.1:{port}/bye\": dial tcp 127.0.0.1:{port}: connect: connection refused"
        )
    );
}

#[tokio::test(start_paused = true)]
async fn commands_fail_with_their_words_and_sleep_takes_its_time() {
    let runtime = FakeRuntime::new(Arc::new(client::SystemClock), 1);
    let (c, id) = (container("c"), ContainerId::from("1"));
    let target = Target {
        container: &c,
        id: &id,
        pod: "p_ns(u)",
        pod_ip: None,
    };
    let exec = LifecycleHandler {
        exec: Some(ExecAction {
            command: Some(vec!["a".into(), "$(B)".into()]),
        }),
        ..LifecycleHandler::default()
    };
    let gone = RuntimeError::new("ExecSync", tonic::Code::Unknown, "no such file");
    runtime.next("ExecSync", Mishap::Fail(gone));
    let error = run(&runtime, &exec, &target).await.expect_err("fails");
    assert_eq!(
        error.to_string(),
        "Exec lifecycle hook ([a $(B)]) for Container \"c\" in Pod \"p_ns(u)\" failed - error: rpc error: code = Unknown desc \
         = no such file, message: \"\""
    );
    let sleep = LifecycleHandler {
        sleep: Some(SleepAction { seconds: 7 }),
        ..LifecycleHandler::default()
    };
    let begun = tokio::time::Instant::now();
    assert_eq!(run(&runtime, &sleep, &target).await, Ok(Done::Plainly));
    assert_eq!(begun.elapsed().as_secs(), 7);
    let error = run(&runtime, &get("HTTP"), &target).await.expect_err("no address");
    assert!(
        error.to_string().contains("failed to find networking container"),
        "{error}"
    );
    assert!(matches!(
        run(&runtime, &LifecycleHandler::default(), &target).await,
        Err(HookError::Invalid(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_command_that_hangs_ends_with_the_deadline() {
    let runtime = FakeRuntime::new(Arc::new(client::SystemClock), 1);
    runtime.set_latency("ExecSync", DEADLINE * 100);
    let c = container("c");
    let id = ContainerId::from("1");
    let target = Target {
        container: &c,
        id: &id,
        pod: "p_ns(u)",
        pod_ip: None,
    };
    let handler = LifecycleHandler {
        exec: Some(ExecAction {
            command: Some(vec!["hangs".into()]),
        }),
        ..LifecycleHandler::default()
    };
    let begun = tokio::time::Instant::now();
    let error = run(&runtime, &handler, &target).await.expect_err("too long");
    assert_eq!(begun.elapsed(), DEADLINE);
    assert!(error.to_string().contains("code = DeadlineExceeded"), "{error}");
}
