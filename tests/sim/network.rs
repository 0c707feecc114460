//! The faulty wire between a component and the API server: a client whose requests are, by seed, delayed, refused before
//! they arrive, or carried out with the reply lost, and whose watches are cut.

use crate::judge::Judge;
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyDataStream, StreamBody};
use kube::client::Body;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What every request takes.
const LATENCY: Duration = Duration::from_millis(1);

/// How often each kind of fault happened, over the life of one simulation.
#[derive(Debug, Default)]
pub struct Counts {
    pub delayed: AtomicU64,
    pub refused: AtomicU64,
    pub reply_lost: AtomicU64,
    pub watch_cut: AtomicU64,
}

/// The wire's behaviour: on until [`Wire::heal`].
#[derive(Clone)]
pub struct Wire {
    rng: Arc<Mutex<StdRng>>,
    faulty: Arc<AtomicBool>,
    held: Arc<Mutex<Option<&'static str>>>,
    judge: Judge,
    pub counts: Arc<Counts>,
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Clean,
    Delayed(u64),
    Refused,
    ReplyLost,
}

impl Wire {
    pub fn new(seed: u64, judge: Judge) -> Self {
        let rng = Arc::new(Mutex::new(StdRng::seed_from_u64(seed)));
        Self {
            rng,
            faulty: Arc::new(AtomicBool::new(true)),
            held: Arc::default(),
            judge,
            counts: Arc::default(),
        }
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.faulty.store(false, Ordering::Relaxed);
    }

    /// Lets no watch of that collection (`/configmaps`) begin from now on: lists are all that anybody learns of it.
    pub fn hold_watches(&self, collection: &'static str) {
        *self.held.lock().expect("no holder panics") = Some(collection);
    }

    fn is_held(&self, path: &str) -> bool {
        let held = *self.held.lock().expect("no holder panics");
        held.is_some_and(|collection| path.ends_with(collection))
    }

    fn fate(&self) -> Fate {
        if !self.faulty.load(Ordering::Relaxed) {
            return Fate::Clean;
        }
        let mut rng = self.rng.lock().expect("no holder panics");
        match rng.random_range(0..100) {
            0..4 => Fate::Refused,
            4..7 => Fate::ReplyLost,
            7..20 => Fate::Delayed(rng.random_range(1..2000)),
            _ => Fate::Clean,
        }
    }

    /// How long a watch may live, in milliseconds of simulated time.
    fn watch_life(&self) -> Option<u64> {
        if !self.faulty.load(Ordering::Relaxed) {
            return None;
        }
        let mut rng = self.rng.lock().expect("no holder panics");
        rng.random_bool(0.7).then(|| rng.random_range(500..60_000))
    }

    /// A client that reaches the same server as `inner`, over this wire.
    pub fn wrap(&self, inner: kube::Client) -> kube::Client {
        let wire = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (wire, inner) = (wire.clone(), inner.clone());
            async move { wire.carry(inner, request).await }
        });
        kube::Client::new(service, "default")
    }

    async fn carry(
        &self,
        inner: kube::Client,
        request: http::Request<Body>,
    ) -> Result<http::Response<Reply>, tower::BoxError> {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        if is_watch && self.is_held(request.uri().path()) {
            return std::future::pending().await;
        }
        let fate = self.fate();
        tracing::debug!(method = %request.method(), uri = %request.uri(), ?fate, "request");
        match fate {
            Fate::Refused => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                return Err("connection refused (injected)".into());
            }
            Fate::Delayed(millis) => {
                self.counts.delayed.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(millis)).await;
            }
            Fate::ReplyLost if !is_watch => {
                self.counts.reply_lost.fetch_add(1, Ordering::Relaxed);
                if let Some(pod) = bound_pod(request.uri().path()) {
                    self.judge.lost_binding(&pod);
                }
                drop(inner.send(request).await);
                return Err("connection reset (injected)".into());
            }
            // Whoever asks again and again lets time pass, as on a real wire; else nothing that waits would ever get its turn.
            Fate::ReplyLost | Fate::Clean => tokio::time::sleep(LATENCY).await,
        }
        let response = inner.send(request).await?;
        match self.watch_life().filter(|_| is_watch) {
            Some(millis) => Ok(response.map(|body| self.cut_after(body, millis))),
            None => Ok(response.map(|body| cut_at(body, std::future::pending()))),
        }
    }

    /// The body, ended with an error after `millis` unless the wire has healed by then.
    fn cut_after(&self, body: Body, millis: u64) -> Reply {
        let (faulty, counts) = (self.faulty.clone(), self.counts.clone());
        let cut = async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            if !faulty.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            counts.watch_cut.fetch_add(1, Ordering::Relaxed);
        };
        cut_at(body, cut)
    }
}

/// The pod, `NAMESPACE/NAME`, that a request gives a node to.
fn bound_pod(path: &str) -> Option<String> {
    let path = path.strip_prefix("/api/v1/namespaces/")?.strip_suffix("/binding")?;
    Some(path.replace("/pods/", "/"))
}

/// A reply's body, as it travels.
pub type Reply = UnsyncBoxBody<Bytes, tower::BoxError>;

/// The body, ended when `cut` is done.
pub fn cut_at(body: Body, cut: impl Future<Output = ()> + Send + 'static) -> Reply {
    let chunks = BodyDataStream::new(body).take_until(Box::pin(cut));
    let frames = chunks.map(|chunk| chunk.map(http_body::Frame::data).map_err(tower::BoxError::from));
    UnsyncBoxBody::new(StreamBody::new(frames))
}
