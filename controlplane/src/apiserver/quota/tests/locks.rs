//! Who waits for whom: counters, Services, large work.

use super::*;
use crate::apiserver::request::{Query, RequestInfo};
use crate::apiserver::user::User;
use std::future::Future;
use std::pin::{Pin, pin};

fn service(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}})
}

/// Lets everybody go on who can; the request cannot be done.
async fn waits<T>(mut request: Pin<&mut impl Future<Output = T>>) {
    for _ in 0..100 {
        assert!(futures::poll!(request.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
}

/// What is done without the passing of time.
async fn at_once<T>(mut request: Pin<&mut impl Future<Output = T>>) -> T {
    for _ in 0..10_000 {
        if let std::task::Poll::Ready(done) = futures::poll!(request.as_mut()) {
            return done;
        }
        tokio::task::yield_now().await;
    }
    panic!("it waits for somebody");
}

#[tokio::test(start_paused = true)]
async fn a_count_in_one_namespace_keeps_no_service_of_another_waiting() {
    let world = World::start().await;
    let other = json!({"metadata": {"name": "b"}});
    assert_eq!(world.send("POST", "/api/v1/namespaces", &other).await.0, 201);
    let (here, there) = (format!("{SPACE}/services"), "/api/v1/namespaces/b/services");
    assert_eq!(world.send("POST", &here, &service("s")).await.0, 201);
    assert_eq!(world.send("POST", there, &service("s")).await.0, 201);
    let (one, label) = (format!("{here}/s"), json!({"metadata": {"labels": {"l": "x"}}}));
    let counting = world.server.charges().count("a").await;
    let second = service("t");
    let mut made = pin!(world.send("POST", &here, &second));
    waits(made.as_mut()).await;
    assert_eq!(at_once(pin!(world.send("POST", there, &service("t")))).await.0, 201);
    let mut changed = pin!(world.send("PATCH", &one, &label));
    waits(changed.as_mut()).await;
    let elsewhere = format!("{there}/s");
    assert_eq!(at_once(pin!(world.send("PATCH", &elsewhere, &label))).await.0, 200);
    drop(counting);
    assert_eq!((made.await.0, changed.await.0), (201, 200));
}

/// Whoever has the user's turn may wait for the count.
#[tokio::test(start_paused = true)]
async fn a_count_that_became_large_meanwhile_waits_for_no_turn_of_its_user() {
    let world = World::start().await;
    world.quota("q", json!({"configmaps": "9"})).await;
    let quota = format!("{SPACE}/resourcequotas/q");
    let status = format!("{quota}/status");
    let user = User::named("tenant", &["system:masters"]);
    let info = RequestInfo::parse(&http::Method::PATCH, &status, &Query::default());
    let told = json!({"status": {"used": {"configmaps": "3"}}});
    let counting = world.server.charges().count("a").await;
    let request = Request::patch(&status).header("content-type", "application/merge-patch+json");
    let request = request.body(body::full(serde_json::to_vec(&told).unwrap())).unwrap();
    let mut waiting = pin!(world.server.handle(Some(user.clone()), request));
    waits(waiting.as_mut()).await;
    let large = json!({"metadata": {"annotations": {"a": "x".repeat(70 << 10)}}});
    assert_eq!(world.send("PATCH", &quota, &large).await.0, 200);
    let turn = world.server.flow().heavy(&user, &info).await.ok().unwrap();
    drop(counting);
    assert_eq!(waiting.await.status(), 200);
    drop(turn);
    assert_eq!(world.used("q").await["configmaps"], "3");
}
