//! The leader's own bound: what it may write ends before another may begin, even where its process stood still meanwhile.
//!
//! A process that is stopped and goes on later, or whose threads hang, runs its next write before any timer. Each write asks here first.

use kube::client::Body;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long after its time a leader that still thinks it is one counts as unhealthy, beyond its time.
const UNHEALTHY_AFTER: Duration = Duration::from_secs(20);

/// Thirty years.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Until when the process leads. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    until: Arc<Mutex<Option<Instant>>>,
}

/// A write that came too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not written: this process does not hold the lease (any more)")]
pub struct NotLeading;

impl Fence {
    fn until(&self) -> Option<Instant> {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets everything through from now on: where nobody is elected.
    pub fn open_for_ever(&self) {
        self.extend(Instant::now() + FOR_EVER);
    }

    pub(super) fn extend(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    pub(super) fn close(&self) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether the process leads now.
    pub fn holds(&self) -> bool {
        self.until().is_some_and(|until| Instant::now() < until)
    }

    /// False once a leader should have ended long ago and has not: upstream's check `leaderElection`.
    pub fn is_healthy(&self) -> bool {
        self.until()
            .is_none_or(|until| Instant::now() < until + UNHEALTHY_AFTER)
    }

    /// A client that writes only while the process leads. Reads pass: they change nothing.
    pub fn guard(&self, client: kube::Client) -> kube::Client {
        let fence = self.clone();
        let namespace = client.default_namespace().to_owned();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (client, may) = (client.clone(), *request.method() == http::Method::GET || fence.holds());
            async move {
                match may {
                    true => client.send(request).await,
                    false => Err(kube::Error::Service(Box::new(NotLeading))),
                }
            }
        });
        kube::Client::new(service, namespace)
    }
}
