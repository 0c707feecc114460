//! Brings events to the API server: so many at once, those of one identity one after the other, and again where there was no answer. Nobody
//! waits for it.

use client::backoff::Seeded;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use http::Request;
use http::header::CONTENT_TYPE;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Events waiting to be told; more are dropped. Enough for a cluster's worth of pods that get their nodes at once: they are bound
/// faster than told of. One takes some hundred bytes, two thousand at most.
pub(crate) const BACKLOG: usize = 16_384;
/// Requests at the same time.
const CONCURRENCY: usize = 16;
const DEADLINE: Duration = Duration::from_secs(10);
/// How often an event is sent that gets no answer, and how long after the last time (client-go's `maxTriesPerEvent`, `defaultSleepDuration`).
const TRIES: u32 = 12;
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// An event as it is to be on the server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Delivery {
    /// What it is the same event by: of several that wait the last is sent.
    pub(crate) identity: u128,
    /// The path of the collection.
    pub(crate) collection: String,
    /// Its name.
    pub(crate) name: String,
    /// What has changed, if it was told before.
    pub(crate) patch: Option<Value>,
    /// All of it: for an event that the server does not have, or no longer.
    pub(crate) whole: Value,
}

/// What becomes of a source's events: two kinds of recorders have different answers.
pub(crate) trait Correlate: Send + 'static {
    /// An event as it comes.
    type Event: Send + 'static;

    /// Takes one in, and says what is to be sent.
    fn take(&mut self, event: Self::Event) -> Vec<Delivery>;

    /// When it wants to be asked without an event.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// What is to be sent at that time.
    fn tick(&mut self) -> Vec<Delivery> {
        Vec::new()
    }
}

/// Sends what comes of events until nobody is left who has any; then what is under way has a moment to end.
pub(crate) async fn run<C: Correlate>(client: kube::Client, mut correlator: C, mut events: mpsc::Receiver<C::Event>) {
    let mut outbox = Outbox {
        client,
        ready: VecDeque::new(),
        under_way: BTreeMap::new(),
        sending: FuturesUnordered::new(),
    };
    loop {
        let due = correlator.due();
        tokio::select! {
            biased;
            Some(identity) = outbox.sending.next(), if !outbox.sending.is_empty() => outbox.sent(identity),
            event = events.recv(), if outbox.has_room() => match event {
                Some(event) => outbox.put(correlator.take(event)),
                None => break,
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() && outbox.has_room() => {
                outbox.put(correlator.tick());
            }
        }
    }
    let rest = async {
        while let Some(identity) = outbox.sending.next().await {
            outbox.sent(identity);
        }
    };
    let _ = timeout(DEADLINE, rest).await;
}

struct Outbox {
    client: kube::Client,
    /// What waits for a place.
    ready: VecDeque<Delivery>,
    /// What is being sent, and what has come of the same event meanwhile.
    under_way: BTreeMap<u128, Option<Delivery>>,
    sending: FuturesUnordered<BoxFuture<'static, u128>>,
}

impl Outbox {
    fn has_room(&self) -> bool {
        self.ready.is_empty() && self.sending.len() < CONCURRENCY
    }

    fn put(&mut self, deliveries: Vec<Delivery>) {
        self.ready.extend(deliveries);
        self.start();
    }

    fn start(&mut self) {
        while self.sending.len() < CONCURRENCY {
            let Some(next) = self.ready.pop_front() else { return };
            match self.under_way.get_mut(&next.identity) {
                Some(later) => *later = Some(next),
                None => {
                    self.under_way.insert(next.identity, None);
                    self.sending.push(Box::pin(deliver(self.client.clone(), next)));
                }
            }
        }
    }

    fn sent(&mut self, identity: u128) {
        if let Some(later) = self.under_way.remove(&identity).flatten() {
            self.ready.push_front(later);
        }
        self.start();
    }
}

/// What came of a request.
enum Outcome {
    Done,
    /// The server has no such event.
    Missing,
    /// Nobody answered.
    Silence,
}

async fn send(client: &kube::Client, request: Result<Request<Vec<u8>>, http::Error>) -> Outcome {
    let Ok(request) = request else {
        return Outcome::Done;
    };
    // It was taken, whatever is said of it: nobody reads that.
    match timeout(DEADLINE, client.request_text(request)).await {
        Ok(Ok(_)) => Outcome::Done,
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Outcome::Missing,
        Ok(Err(kube::Error::Api(status))) => {
            tracing::debug!(error = status.message, "event refused");
            Outcome::Done
        }
        Ok(Err(kube::Error::FromUtf8(_))) => Outcome::Done,
        Ok(Err(_)) | Err(_) => Outcome::Silence,
    }
}

/// How long the first wait of an event is: not all of them are sent at the same moment when the server is there again.
fn random_part(event: &Delivery) -> Duration {
    let seed = u64::try_from(event.identity & u128::from(u64::MAX)).unwrap_or_default();
    let most = u64::try_from(AGAIN_AFTER.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(Seeded::new(seed).below(most))
}

/// Sends an event until there is an answer, or it is too old to matter. Returns its identity.
async fn deliver(client: kube::Client, event: Delivery) -> u128 {
    for tried in 1..=TRIES {
        match once(&client, &event).await {
            Outcome::Done | Outcome::Missing => return event.identity,
            Outcome::Silence if tried == TRIES => {}
            Outcome::Silence if tried == 1 => sleep(random_part(&event)).await,
            Outcome::Silence => sleep(AGAIN_AFTER).await,
        }
    }
    tracing::warn!(event = event.name, "event lost: the API server does not answer");
    event.identity
}

async fn once(client: &kube::Client, event: &Delivery) -> Outcome {
    if let Some(patch) = &event.patch {
        let request = Request::patch(format!("{}/{}", event.collection, event.name));
        let request = request.header(CONTENT_TYPE, "application/merge-patch+json");
        match send(client, request.body(patch.to_string().into_bytes())).await {
            Outcome::Missing => {}
            outcome => return outcome,
        }
    }
    let request = Request::post(&event.collection).header(CONTENT_TYPE, "application/json");
    send(client, request.body(event.whole.to_string().into_bytes())).await
}
