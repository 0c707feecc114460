use super::*;
use crate::apiserver::body;
use crate::apiserver::request::Query;
use futures::StreamExt;
use futures::future::{FutureExt, join_all, poll_immediate};
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

/// A body that names 64 KiB and sends one byte, read until it waits for more.
fn idle<'a>(
    flow: &'a Flow,
    user: &'a User,
    info: &'a RequestInfo,
) -> futures::future::BoxFuture<'a, Result<(Bytes, Option<Room>), ApiError>> {
    let pieces = futures::stream::once(async { Bytes::from_static(b"{") }).chain(futures::stream::pending());
    let mut reading = receive(flow, user, info, body::stream(pieces)).boxed();
    assert!((&mut reading).now_or_never().is_none(), "it is not there");
    reading
}

#[tokio::test(start_paused = true)]
async fn four_slow_users_keep_nobody_waiting() {
    let (flow, info) = (Flow::new(), create());
    let slow = ["a", "b", "c", "d"].map(user);
    let idle: Vec<_> = slow
        .iter()
        .flat_map(|user| (0..256).map(|_| idle(&flow, user, &info)))
        .collect();
    let large = "x".repeat(BODY_LIMIT_BYTES);
    for name in ["jane", "joe", "a"] {
        let other = user(name);
        let quick = receive(&flow, &other, &info, body::full(large.clone())).now_or_never();
        assert!(quick.expect("there is room").is_ok(), "{name}");
    }
    assert_eq!(flow.body_bytes(), idle.len() * FIRST_BYTES);
}

#[tokio::test(start_paused = true)]
async fn when_there_is_no_room_silent_bodies_end_as_far_as_somebody_waits_for_theirs() {
    let (flow, info) = (Flow::new(), create());
    let slow = user("slow");
    let idle: Vec<_> = (0..100).map(|_| idle(&flow, &slow, &info)).collect();
    let others = ["a", "b", "c", "slow"].map(user);
    let mut taken = Vec::new();
    for other in &others {
        let has = match other.name == slow.name {
            true => idle.len() * FIRST_BYTES,
            false => 0,
        };
        taken.push(flow.body(other, &info, BODIES_BYTES / PARTS - has).await.ok().unwrap());
    }
    assert_eq!(flow.body_bytes(), BODIES_BYTES);
    let (began, jane) = (Instant::now(), user("jane"));
    let small = async {
        let read = receive(&flow, &jane, &info, body::full("{}")).await;
        (read.map(|(bytes, _)| bytes), began.elapsed())
    };
    let (ended, (read, waited)) = futures::join!(join_all(idle), small);
    assert_eq!((read.ok().unwrap(), waited), (Bytes::from_static(b"{}"), SILENCE));
    let mut codes: Vec<_> = ended.into_iter().map(|end| end.err().unwrap().code).collect();
    codes.sort_unstable();
    assert_eq!((codes[0], &codes[1..]), (408, &[504; 99][..]), "one of them was enough");
    drop(taken);
    assert_eq!(flow.body_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_body_has_a_requests_time_while_nobody_waits_for_its_room() {
    let (flow, info) = (Flow::new(), create());
    let (jane, flood) = (user("jane"), user("flood"));
    let reading = idle(&flow, &jane, &info);
    // All that one user may have, and another of his, which nobody else is to suffer for.
    let share = flow.body(&flood, &info, BODIES_BYTES / PARTS).await.ok().unwrap();
    let began = Instant::now();
    let more = flow
        .body(&flood, &info, 1)
        .map(|end| assert!(end.is_err(), "there is no room"));
    let (end, ()) = futures::join!(reading, more);
    assert_eq!((end.err().unwrap().code, began.elapsed()), (504, deadline::DEADLINE));
    drop(share);
}

/// As many as may wait, all of which have come as far as the second step, and what any of them may become fills the room.
#[tokio::test(start_paused = true)]
async fn bodies_of_many_users_that_have_begun_do_not_wait_for_one_another_in_a_circle() {
    let (flow, info) = (Flow::new(), create());
    let users: Vec<User> = (0..20).map(|number| user(&number.to_string())).collect();
    let all = users.iter().flat_map(|user| std::iter::repeat_n(user, WAITING_OF_USER));
    let all = all.map(|user| async {
        let pieces = futures::stream::iter([1, SECOND_BYTES - 1, 1]).then(|bytes| async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Bytes::from(vec![b'x'; bytes])
        });
        let (bytes, _room) = receive(&flow, user, &info, body::stream(pieces)).await?;
        Ok::<_, ApiError>(bytes.len())
    });
    for length in join_all(all).await {
        assert_eq!(length.unwrap(), SECOND_BYTES + 1);
    }
    assert_eq!(flow.body_bytes(), 0);
}
