//! The node's pulls: those of one image with the same credentials are one, and only so many run at a time, first come first
//! served. A pull that has begun is finished even if nobody waits for it any more; one that has not ends with the last who
//! waits. One that hangs holds others up for [`TURN_MAX`], and ends after [`PULL_MAX`]: upstream bounds neither.

use super::given::Given;
use super::records::{Pull, RecordError, Records};
use crate::rate::{Bucket, Rate};
use crate::runtime::{Runtime, RuntimeError};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use proto::cri as pb;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Code;

/// How long a pull counts among those that run at a time: with one at a time (`serializeImagePulls`) a registry that hangs
/// would keep every other image away.
const TURN_MAX: Duration = Duration::from_secs(60);
/// The most a pull may take, all its credentials together. What a runtime has of an image by then it keeps for the next try.
const PULL_MAX: Duration = Duration::from_secs(60 * 60);

/// A finished pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// What to create containers from.
    pub reference: String,
    /// How long the pull itself took.
    pub took: Duration,
    /// Which of the credentials it was done with; none if anonymously.
    pub used: Option<usize>,
}

/// Why an image was not pulled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullError {
    /// There were more pulls than `registryPullQPS` and `registryBurst` allow. It is the container's back-off that waits.
    #[error("pull QPS exceeded")]
    Throttled,
    /// That it begins could not be written down.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The runtime could not.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// What a pull gives everybody who waits for it: its outcome, and where they record that it worked.
type Outcome = Result<(Pulled, Arc<Pull>), PullError>;
type Waiting = Shared<BoxFuture<'static, Outcome>>;
/// The image, and what tells its credentials apart.
type Key = (String, String);

/// Pulls images. Cheap to clone.
#[derive(Clone)]
pub struct Puller {
    runtime: Arc<dyn Runtime>,
    records: Records,
    given: Given,
    permits: Arc<Semaphore>,
    bucket: Arc<Mutex<Bucket>>,
    joined: Arc<Mutex<Joined>>,
}

/// Pulls that can be joined.
#[derive(Default)]
struct Joined {
    pulls: BTreeMap<Key, Entry>,
    /// How many were asked for so far: their numbers.
    asked: u64,
}

struct Entry {
    number: u64,
    waiting: Waiting,
    /// It had its turn.
    begun: bool,
    /// Whoever waits for it holds this; when nobody does, it need not begin.
    wanted: Weak<DropGuard>,
}

impl Joined {
    /// Has a pull begin, unless nobody waits for it any more.
    fn begin(&mut self, key: &Key, number: u64, unwanted: &CancellationToken) -> bool {
        if unwanted.is_cancelled() {
            self.end(key, number);
            return false;
        }
        if let Some(entry) = self.pulls.get_mut(key).filter(|entry| entry.number == number) {
            entry.begun = true;
        }
        true
    }

    /// Forgets a pull; one that was asked for after it stays.
    fn end(&mut self, key: &Key, number: u64) {
        if self.pulls.get(key).is_some_and(|entry| entry.number == number) {
            self.pulls.remove(key);
        }
    }
}

impl Puller {
    /// A puller that runs at most `parallel_max` pulls at a time, and begins them at this rate. What was pulled it notes for others, and
    /// what it begins on disk.
    pub(super) fn new(
        runtime: Arc<dyn Runtime>,
        (records, given): (Records, Given),
        parallel_max: usize,
        rate: Rate,
    ) -> Self {
        Self {
            runtime,
            records,
            given,
            permits: Arc::new(Semaphore::new(parallel_max.max(1))),
            bucket: Arc::new(Mutex::new(Bucket::new(rate))),
            joined: Arc::default(),
        }
    }

    fn joined(&self) -> MutexGuard<'_, Joined> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pulls an image with the first of the credentials that works, anonymously if there are none. Gives also where whoever
    /// waited records that it worked; a pull nobody records leaves its intent behind.
    pub async fn pull(
        &self,
        image: &str,
        credentials: &[pb::AuthConfig],
        sandbox: Option<pb::PodSandboxConfig>,
    ) -> Outcome {
        let key = (image.to_owned(), fingerprint(credentials));
        let (waiting, _wanted) = {
            let mut joined = self.joined();
            let there = joined.pulls.get(&key).and_then(|entry| {
                let wanted = entry.wanted.upgrade();
                (entry.begun || wanted.is_some()).then(|| (entry.waiting.clone(), wanted))
            });
            there.unwrap_or_else(|| {
                joined.asked += 1;
                let number = joined.asked;
                let unwanted = CancellationToken::new();
                let wanted = Arc::new(unwanted.clone().drop_guard());
                let pull = self
                    .clone()
                    .run(key.clone(), number, unwanted, credentials.to_vec(), sandbox);
                let finished = tokio::spawn(pull.boxed())
                    .map(|ended| ended.unwrap_or_else(|error| Err(failed(Code::Internal, &error.to_string()))));
                let waiting = finished.boxed().shared();
                let entry = Entry {
                    number,
                    waiting: waiting.clone(),
                    begun: false,
                    wanted: Arc::downgrade(&wanted),
                };
                joined.pulls.insert(key, entry);
                (waiting, Some(wanted))
            })
        };
        waiting.await
    }

    /// One pull from its place in the queue to its end.
    async fn run(
        self,
        key: Key,
        number: u64,
        unwanted: CancellationToken,
        credentials: Vec<pb::AuthConfig>,
        sandbox: Option<pb::PodSandboxConfig>,
    ) -> Outcome {
        let turn = tokio::select! {
            biased;
            () = unwanted.cancelled() => None,
            turn = self.permits.clone().acquire_owned() => turn.ok(),
        };
        let begins = self.joined().begin(&key, number, &unwanted);
        let outcome = match turn.filter(|_| begins) {
            Some(turn) => self.begun(&key.0, turn, credentials, sandbox).await,
            None => Err(failed(Code::Cancelled, "nobody waits for the pull")),
        };
        self.joined().end(&key, number);
        outcome
    }

    async fn begun(
        &self,
        image: &str,
        turn: OwnedSemaphorePermit,
        credentials: Vec<pb::AuthConfig>,
        sandbox: Option<pb::PodSandboxConfig>,
    ) -> Outcome {
        if !may_begin(&self.bucket) {
            return Err(PullError::Throttled);
        }
        let record = self.records.begin(image).await?;
        let pull = pull_with_any(&*self.runtime, image, credentials, sandbox);
        match bounded(image, turn, pull).await {
            Ok(pulled) => {
                // Here, and not where it is waited for: nobody may.
                self.given.pulled(&pulled.reference);
                Ok((pulled, Arc::new(record)))
            }
            Err(error) => {
                record.failed().await;
                Err(error.into())
            }
        }
    }
}

/// Runs a pull, which is dropped when its time is over: that cancels it in the runtime too.
async fn bounded(
    image: &str,
    turn: OwnedSemaphorePermit,
    pull: impl Future<Output = Result<Pulled, RuntimeError>>,
) -> Result<Pulled, RuntimeError> {
    let ends = Instant::now() + PULL_MAX;
    let mut pull = std::pin::pin!(pull);
    if let Ok(pulled) = tokio::time::timeout(TURN_MAX, &mut pull).await {
        return pulled;
    }
    tracing::warn!(image, "a pull takes long, others go on beside it");
    drop(turn);
    let pulled = tokio::time::timeout_at(ends, pull).await;
    pulled.unwrap_or_else(|_| Err(RuntimeError::deadline("PullImage")))
}

fn failed(code: Code, message: &str) -> PullError {
    RuntimeError::new("PullImage", code, message).into()
}

fn may_begin(bucket: &Mutex<Bucket>) -> bool {
    let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
    bucket.take(Instant::now()).is_ok()
}

async fn pull_with_any(
    runtime: &dyn Runtime,
    image: &str,
    credentials: Vec<pb::AuthConfig>,
    sandbox: Option<pb::PodSandboxConfig>,
) -> Result<Pulled, RuntimeError> {
    let begun = Instant::now();
    let tries: Vec<(Option<usize>, Option<pb::AuthConfig>)> = if credentials.is_empty() {
        vec![(None, None)]
    } else {
        let numbered = credentials.into_iter().enumerate();
        numbered.map(|(index, auth)| (Some(index), Some(auth))).collect()
    };
    let mut errors: Vec<RuntimeError> = Vec::new();
    for (used, auth) in tries {
        match runtime.pull_image(image, auth, sandbox.clone()).await {
            Ok(reference) => {
                return Ok(Pulled {
                    reference,
                    took: begun.elapsed(),
                    used,
                });
            }
            Err(error) if errors.contains(&error) => {}
            Err(error) => errors.push(error),
        }
    }
    Err(match errors.pop() {
        None => RuntimeError::new("PullImage", Code::Internal, "nothing was tried"),
        Some(only) if errors.is_empty() => only,
        Some(last) => {
            let all: Vec<String> = errors.iter().chain([&last]).map(text).collect();
            RuntimeError::new("PullImage", Code::Unknown, format!("[{}]", all.join(", ")))
        }
    })
}

/// What a failed pull says: an unknown code adds nothing, and some runtimes' first word is a reason.
pub(super) fn text(error: &RuntimeError) -> String {
    match error.code {
        Code::Unknown => error.message.clone(),
        _ => error.to_string(),
    }
}

/// Tells credentials apart without keeping them.
fn fingerprint(credentials: &[pb::AuthConfig]) -> String {
    use sha2::{Digest, Sha256};
    let mut hasher = Sha256::new();
    for auth in credentials {
        for part in [
            &auth.username,
            &auth.password,
            &auth.identity_token,
            &auth.registry_token,
        ] {
            hasher.update(part.len().to_le_bytes());
            hasher.update(part.as_bytes());
        }
    }
    hex::encode(hasher.finalize())
}

#[cfg(test)]
mod tests;
