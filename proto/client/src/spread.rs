//! Requests over as many connections as they need.
//!
//! A server takes so many requests at once on one HTTP/2 connection (upstream's API server: 100). What is more waits on it until one ends,
//! and a watch ends after minutes: who follows a hundred resources could not write any more. So another connection is opened where one is
//! nearly full, as Go's client does. Never closes one: those that nobody uses end by themselves.

use futures::future::BoxFuture;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tower::util::Oneshot;
use tower::{Service, ServiceExt};

/// Requests under way on one connection, fewer than a server takes: it may count one for a moment longer than we do.
const AT_ONCE: usize = 90;

/// Each under way has a clone.
type UnderWay = Arc<()>;

struct Lane<S> {
    service: S,
    under_way: UnderWay,
}

struct Lanes<S> {
    make: Box<dyn Fn() -> S + Send + Sync>,
    all: Mutex<Vec<Lane<S>>>,
}

/// A service over services that `make` makes, each with a connection of its own. Clones share them.
pub(crate) struct Spread<S>(Arc<Lanes<S>>);

impl<S> Clone for Spread<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Clone> Spread<S> {
    pub(crate) fn new(make: impl Fn() -> S + Send + Sync + 'static) -> Self {
        let (make, all) = (Box::new(make), Mutex::default());
        Self(Arc::new(Lanes { make, all }))
    }

    /// The first that has room, so that the others are rid of what they have.
    fn lane(&self) -> (S, UnderWay) {
        let mut all = self.0.all.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = |lane: &&Lane<S>| Arc::strong_count(&lane.under_way) <= AT_ONCE;
        if let Some(lane) = all.iter().find(has_room) {
            return (lane.service.clone(), Arc::clone(&lane.under_way));
        }
        let (service, under_way) = ((self.0.make)(), UnderWay::default());
        let taken = (service.clone(), Arc::clone(&under_way));
        all.push(Lane { service, under_way });
        taken
    }
}

impl<S, Q, B> Service<Q> for Spread<S>
where
    S: Service<Q, Response = http::Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    Q: Send + 'static,
{
    type Response = http::Response<Held<B>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Q) -> Self::Future {
        let (service, under_way) = self.lane();
        let answer: Oneshot<S, Q> = service.oneshot(request);
        Box::pin(async move {
            let answer = answer.await?;
            Ok(answer.map(|body| Held {
                body,
                _under_way: under_way,
            }))
        })
    }
}

/// An answer's body: its request is under way until this is dropped.
pub(crate) struct Held<B> {
    body: B,
    _under_way: UnderWay,
}

impl<B: http_body::Body + Unpin> http_body::Body for Held<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Answers with the number of the connection.
    fn numbered()
    -> Spread<impl Service<(), Response = http::Response<usize>, Error = Infallible, Future: Send> + Clone + Send> {
        let made = Mutex::new(0);
        Spread::new(move || {
            let mut made = made.lock().unwrap();
            *made += 1;
            let number = *made;
            tower::service_fn(move |()| async move { Ok::<_, Infallible>(http::Response::new(number)) })
        })
    }

    #[tokio::test]
    async fn what_goes_on_leaves_room_for_the_next() {
        let mut spread = numbered();
        let mut watches = Vec::new();
        for watch in 0..3 * AT_ONCE {
            let held = spread.call(()).await.unwrap().into_body();
            assert_eq!(held.body, 1 + watch / AT_ONCE, "watch {watch}");
            watches.push(held);
        }
        for _ in 0..10 {
            assert_eq!(
                spread.clone().call(()).await.unwrap().body().body,
                4,
                "one is enough for those that end"
            );
        }
        // A request that nobody has answered yet counts, too; one that is given up does not.
        watches.remove(0);
        let waiting = spread.call(());
        assert_eq!(spread.call(()).await.unwrap().body().body, 4);
        drop(waiting);
        assert_eq!(spread.call(()).await.unwrap().body().body, 1, "the first that has room");
        assert_eq!(spread.0.all.lock().unwrap().len(), 4);
    }
}
