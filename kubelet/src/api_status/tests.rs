use super::queue::{Outcome, Queue, Work};
use super::*;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

fn status(phase: &str, ready: &str) -> PodStatus {
    serde_json::from_value(json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}))
        .expect("a status")
}

fn phase_of(work: &Work) -> String {
    match work {
        Work::Status { status, .. } => status.phase.clone().unwrap_or_default(),
        Work::Delete => "delete".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_latest_status_wins_and_an_equal_one_is_not_written() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let uid = PodUid::new("u");
    let acknowledged = queue.register(&uid, "default", "web");
    queue.publish(&uid, status("Pending", "False"));
    queue.publish(&uid, status("Running", "False"));
    let job = queue.next(now).expect("work");
    assert_eq!(phase_of(&job.work), "Running");
    assert!(queue.next(now).is_none(), "one write per pod at a time");
    queue.finish(&job, Outcome::Done, now);
    assert!(matches!(&*acknowledged.borrow(), Acknowledged::Status(s) if s.phase.as_deref() == Some("Running")));
    queue.publish(&uid, status("Running", "False"));
    assert!(queue.next(now).is_none(), "nothing changed");
}

#[tokio::test(start_paused = true)]
async fn what_changed_during_a_write_is_written_next() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let uid = PodUid::new("u");
    let _acknowledged = queue.register(&uid, "default", "web");
    queue.publish(&uid, status("Pending", "False"));
    let job = queue.next(now).expect("work");
    queue.publish(&uid, status("Running", "True"));
    queue.finish(&job, Outcome::Done, now);
    assert_eq!(phase_of(&queue.next(now).expect("work").work), "Running");
}

#[tokio::test(start_paused = true)]
async fn ready_changes_overtake_older_changes() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    for name in ["a", "b"] {
        let uid = PodUid::new(name);
        drop(queue.register(&uid, "default", name));
        queue.publish(&uid, status("Pending", "False"));
        let job = queue.next(now).expect("work");
        queue.finish(&job, Outcome::Done, now);
    }
    let mut quiet = status("Pending", "False");
    quiet.message = Some("later".into());
    queue.publish(&PodUid::new("a"), quiet);
    queue.publish(&PodUid::new("b"), status("Running", "True"));
    assert_eq!(queue.next(now).expect("work").name, "b");
    assert_eq!(queue.next(now).expect("work").name, "a");
}

#[tokio::test(start_paused = true)]
async fn a_delete_waits_for_the_status_before_it() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let uid = PodUid::new("u");
    let _acknowledged = queue.register(&uid, "default", "web");
    queue.publish(&uid, status("Failed", "False"));
    queue.request_delete(&uid);
    let job = queue.next(now).expect("work");
    assert_eq!(phase_of(&job.work), "Failed");
    queue.finish(&job, Outcome::Failed, now);
    assert!(queue.next(now).is_none(), "a failed write waits");
    let later = now + Duration::from_secs(1);
    let job = queue.next(later).expect("due again");
    queue.finish(&job, Outcome::Done, later);
    let job = queue.next(later).expect("the delete");
    assert_eq!(phase_of(&job.work), "delete");
    queue.release(&uid);
    queue.finish(&job, Outcome::Done, later);
    assert!(queue.wake_at(later).is_none(), "nothing is left to do");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_gone_ends_the_work() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let uid = PodUid::new("u");
    let acknowledged = queue.register(&uid, "default", "web");
    queue.publish(&uid, status("Running", "True"));
    let job = queue.next(now).expect("work");
    queue.finish(&job, Outcome::Gone, now);
    assert_eq!(*acknowledged.borrow(), Acknowledged::Gone);
    queue.publish(&uid, status("Failed", "False"));
    assert!(queue.next(now).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_flaky_server_gets_the_status_in_the_end() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let calls = Arc::new(AtomicU32::new(0));
    let seen = calls.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let n = seen.fetch_add(1, Ordering::Relaxed);
        async move {
            assert_eq!(request.uri().path(), "/api/v1/namespaces/default/pods/web/status");
            let body = if n < 3 {
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "reason": "x", "message": "x"})
            } else {
                json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"}})
            };
            let code = if n < 3 { 500 } else { 200 };
            let body = kube::client::Body::from(body.to_string().into_bytes());
            Ok::<_, std::convert::Infallible>(http::Response::builder().status(code).body(body).expect("a response"))
        }
    });
    let writer = StatusWriter::new(Some(kube::Client::new(service, "default")));
    let running = tokio::spawn(writer.clone().run());
    let handle = writer.handle(&PodUid::new("u"), "default", "web");
    handle.publish(status("Running", "True"));
    let mut acknowledged = handle.acknowledged();
    tokio::time::timeout(
        Duration::from_secs(60),
        acknowledged.wait_for(|a| matches!(a, Acknowledged::Status(_))),
    )
    .await
    .expect("written in time")
    .expect("the writer lives");
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    running.abort();
}
