use super::*;
use crate::apiserver::body;
use futures::FutureExt;

fn pieces(count: usize) -> Body {
    body::stream(futures::stream::iter((0..count).map(|_| Bytes::from_static(b"piece"))))
}

async fn read(body: &mut Body) -> Option<Result<Bytes, BodyError>> {
    let frame = body.frame().await?;
    Some(frame.map(|frame| frame.into_data().unwrap()))
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_not_read_ends_and_a_slow_reader_is_let_be() {
    let drains: Arc<OutgoingReplies> = Arc::default();
    let sweeper = tokio::spawn(Arc::clone(&drains).run());
    let mut slow = drains.guard(pieces(10), HeldResources::default(), OnStall::Break, None);
    let mut list = drains.guard(pieces(10), HeldResources::default(), OnStall::Break, None);
    let mut watch = drains.guard(pieces(10), HeldResources::default(), OnStall::End, None);
    let mut idle = drains.guard(
        body::stream(futures::stream::pending()),
        HeldResources::default(),
        OnStall::End,
        None,
    );
    assert!(idle.frame().now_or_never().is_none());
    for body in [&mut list, &mut watch] {
        assert_eq!(read(body).await.unwrap().unwrap(), "piece");
    }
    for _ in 0..10 {
        assert_eq!(read(&mut slow).await.unwrap().unwrap(), "piece");
        tokio::time::sleep(STALL - Duration::from_secs(1)).await;
    }
    assert!(read(&mut slow).await.is_none());
    assert!(read(&mut list).await.unwrap().is_err());
    assert!(read(&mut watch).await.is_none());
    assert!(
        idle.frame().now_or_never().is_none(),
        "a watch without events is not stalled"
    );
    sweeper.abort();
    drop((slow, list, watch, idle));
    assert_eq!(
        drains.list().replies.len(),
        0,
        "nothing is remembered of what has ended"
    );
}

#[tokio::test]
async fn lengths_are_told_and_large_bodies_cut() {
    let drains: Arc<OutgoingReplies> = Arc::default();
    let mut body = drains.guard(
        body::full(vec![0; 200_000]),
        HeldResources::default(),
        OnStall::Break,
        None,
    );
    assert_eq!(http_body::Body::size_hint(&body).exact(), Some(200_000));
    let mut lengths = Vec::new();
    while let Some(piece) = read(&mut body).await {
        lengths.push(piece.unwrap().len());
    }
    assert!(lengths.iter().all(|length| *length <= PIECE_BYTES));
    assert_eq!(lengths.iter().sum::<usize>(), 200_000);
    assert!(http_body::Body::is_end_stream(&body));
    let empty = drains.guard(body::empty(), HeldResources::default(), OnStall::Break, None);
    assert!(http_body::Body::is_end_stream(&empty));
}
