//! What drivers have sent that is not whole yet: no more than all of them may have sent together.

use super::super::drivers::UNREAD_BYTES_MAX;
use super::super::health::State;
use super::*;

/// More than everybody may send, and less than is read of an answer.
fn large() -> String {
    "x".repeat(100 << 10)
}

#[tokio::test]
async fn a_large_answer_is_refused_while_others_have_sent_all_that_is_held() {
    let (_node, dra, driver) = with_driver().await;
    driver.behave(Manner::Fails(large().leak()));
    let p = pod("p", &["c"]);
    let told = error(&dra, &p).await;
    assert!(told.contains("failed for ResourceClaim c: xxx"), "{told}");
    let mut others = dra.drivers.unread().share();
    others.hold(UNREAD_BYTES_MAX).expect("all of it");
    let told = error(&dra, &p).await;
    assert!(
        told.starts_with("NodePrepareResources: rpc error: code = ResourceExhausted"),
        "{told}"
    );
    driver.behave(Manner::Good);
    dra.prepare(&p).await.expect("what is small is read");
}

#[tokio::test]
async fn a_large_report_ends_the_stream_while_others_have_sent_all_that_is_held() {
    let node = Node::new();
    let dra = node.dra();
    let driver = SampleDriver::start(node.dir.path(), "a.example");
    let tells = |message: String| {
        let device = DeviceHealth {
            device: Some(DeviceIdentifier {
                pool_name: "pool".into(),
                device_name: "dev".into(),
            }),
            health: HealthStatus::Unhealthy.into(),
            health_check_timeout_seconds: 3600,
            message,
            ..DeviceHealth::default()
        };
        let told = NodeWatchResourcesResponse { devices: vec![device] };
        driver.health.send_replace(told);
    };
    tells("hot".to_owned());
    let mut changes = dra.health_changes();
    driver.register(&*dra.handler(), V1).await;
    changes.changed().await.expect("told");
    let state = || dra.board.of("a.example", "pool", "dev").0;
    assert_eq!(state(), State::Unhealthy);
    let mut others = dra.drivers.unread().share();
    others.hold(UNREAD_BYTES_MAX).expect("all of it");
    tells(large());
    changes.changed().await.expect("told");
    assert_eq!(state(), State::Unknown, "what it tells is not known any more");
}
