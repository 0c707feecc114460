//! On a paused clock: what is waited for here are connections' ends, never real time.

use super::*;
use crate::rpc::Client;
use tokio::io::AsyncReadExt;
use tonic::transport::{Endpoint, Uri};

/// `Quick` answers at once, `Slow` after ten minutes.
fn methods() -> Handler {
    handler(Arc::new(|path, _| {
        let minutes = if path.ends_with("Slow") { 10 } else { 0 };
        let answer = async move {
            tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
            Ok(Vec::new())
        };
        Some(answer.boxed())
    }))
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_gives_up_its_place() {
    let (mut ours, theirs) = tokio::io::duplex(1 << 16);
    let begun = tokio::time::Instant::now();
    tokio::spawn(converse_while_used(theirs, methods()));
    let mut said = Vec::new();
    ours.read_to_end(&mut said).await.expect("it ends");
    assert_eq!(begun.elapsed(), FIRST_CALL);
}

#[tokio::test(start_paused = true)]
async fn who_calls_stays_until_it_does_no_more() {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let conversation = tokio::spawn(converse_while_used(theirs, methods()));
    let mut ours = Some(TokioIo::new(ours));
    let connector = tower::service_fn(move |_: Uri| {
        let ours = ours.take().ok_or_else(|| io::Error::other("again"));
        async move { ours }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await.expect("connects");
    let client = Client::new(channel, "test.Service", 1 << 10);
    for method in ["Quick", "Slow", "Quick"] {
        let () = client.call(method, (), None).await.expect("answers");
        tokio::time::sleep(NEXT_CALL / 2).await;
        assert!(!conversation.is_finished(), "{method}");
    }
    conversation.await.expect("it ends");
}
