use super::*;
use crate::apiserver::body;
use crate::apiserver::request::Query;
use futures::StreamExt;
use futures::future::{join_all, poll_immediate};
use std::time::Duration;
use tokio::sync::mpsc;

fn create() -> RequestInfo {
    let path = "/api/v1/namespaces/a/configmaps";
    RequestInfo::parse(&http::Method::POST, path, &Query::default())
}

fn user(name: &str) -> User {
    User::named(name, &[])
}

/// A body of unknown length, sent piece by piece.
fn chunked() -> (mpsc::UnboundedSender<Bytes>, Body) {
    let (send, pieces) = mpsc::unbounded_channel();
    let pieces = tokio_stream::wrappers::UnboundedReceiverStream::new(pieces);
    (send, body::stream(pieces))
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_sent_slowly_holds_little_and_others_of_its_user_pass() {
    let (flow, jane, info) = (Flow::new(), user("jane"), create());
    let mut slow = Vec::new();
    for _ in 0..100 {
        let (send, body) = chunked();
        send.send(Bytes::from_static(b"{")).unwrap();
        let mut reading = Box::pin(receive(&flow, &jane, &info, body));
        assert!(poll_immediate(&mut reading).await.is_none());
        slow.push((send, reading));
    }
    assert_eq!(flow.body_bytes(), 100 * FIRST_BYTES);
    let large = "x".repeat(BODY_LIMIT_BYTES);
    let quick = poll_immediate(Box::pin(receive(&flow, &jane, &info, body::full(large)))).await;
    let (bytes, room) = quick.expect("there is room").unwrap();
    assert_eq!(
        (bytes.len(), flow.body_bytes()),
        (BODY_LIMIT_BYTES, 100 * FIRST_BYTES + BODY_LIMIT_BYTES)
    );
    drop(room);
    for (send, reading) in slow {
        drop(send);
        assert_eq!(reading.await.unwrap().0, "{");
    }
    assert_eq!(flow.body_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_is_charged_as_it_grows_and_never_less_than_it_has() {
    let (flow, jane, info) = (Flow::new(), user("jane"), create());
    let (send, body) = chunked();
    let mut reading = Box::pin(receive(&flow, &jane, &info, body));
    let mut sent = 0;
    while sent + 100_000 <= BODY_LIMIT_BYTES {
        send.send(Bytes::from(vec![b'x'; 100_000])).unwrap();
        sent += 100_000;
        assert!(poll_immediate(&mut reading).await.is_none());
        assert!(
            flow.body_bytes() >= sent,
            "{sent} bytes are charged {}",
            flow.body_bytes()
        );
    }
    send.send(Bytes::from(vec![b'x'; 100_000])).unwrap();
    let error = reading.await.err().unwrap();
    assert_eq!((error.code, flow.body_bytes()), (413, 0));
    assert_eq!(error.message, "Request entity too large: limit is 3145728");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_not_there_in_a_requests_time_ends() {
    let (flow, jane, info) = (Flow::new(), user("jane"), create());
    // A byte every five seconds, for ever.
    let pieces = futures::stream::repeat(()).then(|()| async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Bytes::from_static(b" ")
    });
    let began = Instant::now();
    let error = receive(&flow, &jane, &info, body::stream(pieces)).await.err().unwrap();
    assert_eq!(
        (error.code, began.elapsed(), flow.body_bytes()),
        (504, deadline::DEADLINE, 0)
    );
}

/// Large ones that come together, far more than fit, do not wait for one another in a circle: they are read or told to come back.
#[tokio::test(start_paused = true)]
async fn many_large_bodies_of_one_user_get_through_in_turn() {
    let (flow, jane, info) = (Flow::new(), user("jane"), create());
    let all = (0..50).map(|_| async {
        let pieces = futures::stream::repeat(Bytes::from(vec![b'x'; 32 << 10])).take(64);
        let pieces = pieces.then(|piece| async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            piece
        });
        let (bytes, room) = receive(&flow, &jane, &info, body::stream(pieces)).await?;
        tokio::time::sleep(Duration::from_millis(10)).await;
        drop(room);
        Ok::<_, ApiError>(bytes.len())
    });
    for length in join_all(all).await {
        assert_eq!(length.unwrap(), 2 << 20);
    }
    assert_eq!(flow.body_bytes(), 0);
}
