//! The node's pulls: those of one image with the same credentials are one, and only so many run at a time, first come first
//! served. A pull goes on while anybody waits for it, and is finished even if nobody does any more. One that hangs holds
//! others up for [`TURN_MAX`], and ends after [`PULL_MAX`]: upstream bounds neither.

use crate::rate::{Bucket, Rate};
use crate::runtime::{Runtime, RuntimeError};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use proto::cri as pb;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tonic::Code;

/// How long a pull counts among those that run at a time: with one at a time (`serializeImagePulls`) a registry that hangs
/// would keep every other image away.
const TURN_MAX: Duration = Duration::from_secs(10 * 60);
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
    /// The runtime could not.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

type Waiting = Shared<BoxFuture<'static, Result<Pulled, PullError>>>;

/// Pulls images. Cheap to clone.
#[derive(Clone)]
pub struct Puller {
    runtime: Arc<dyn Runtime>,
    permits: Arc<Semaphore>,
    bucket: Arc<Mutex<Bucket>>,
    running: Arc<Mutex<BTreeMap<(String, String), Waiting>>>,
}

impl Puller {
    /// A puller that runs at most `parallel_max` pulls at a time, and begins them at this rate.
    pub fn new(runtime: Arc<dyn Runtime>, parallel_max: usize, rate: Rate) -> Self {
        Self {
            runtime,
            permits: Arc::new(Semaphore::new(parallel_max.max(1))),
            bucket: Arc::new(Mutex::new(Bucket::new(rate))),
            running: Arc::default(),
        }
    }

    /// Pulls an image with the first of the credentials that works, anonymously if there are none.
    pub async fn pull(
        &self,
        image: &str,
        credentials: &[pb::AuthConfig],
        sandbox: Option<pb::PodSandboxConfig>,
    ) -> Result<Pulled, PullError> {
        let key = (image.to_owned(), fingerprint(credentials));
        let waiting = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            match running.get(&key) {
                Some(waiting) => waiting.clone(),
                None => {
                    let waiting = self.start(key.clone(), credentials.to_vec(), sandbox);
                    running.insert(key, waiting.clone());
                    waiting
                }
            }
        };
        waiting.await
    }

    fn start(
        &self,
        key: (String, String),
        credentials: Vec<pb::AuthConfig>,
        sandbox: Option<pb::PodSandboxConfig>,
    ) -> Waiting {
        let (runtime, permits, running) = (self.runtime.clone(), self.permits.clone(), self.running.clone());
        let bucket = self.bucket.clone();
        let task = tokio::spawn(async move {
            let result = match permits.acquire().await {
                Ok(_permit) if !may_begin(&bucket) => Err(PullError::Throttled),
                Ok(permit) => {
                    let pull = pull_with_any(&*runtime, &key.0, credentials, sandbox);
                    let pulled = bounded(&key.0, permit, pull).await;
                    pulled.map_err(PullError::from)
                }
                Err(_) => Err(failed(Code::Cancelled, "the kubelet is shutting down")),
            };
            running.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            result
        });
        let finished =
            task.map(|joined| joined.unwrap_or_else(|error| Err(failed(Code::Internal, &error.to_string()))));
        finished.boxed().shared()
    }
}

/// Runs a pull, which is dropped when its time is over: that cancels it in the runtime too.
async fn bounded(
    image: &str,
    permit: SemaphorePermit<'_>,
    pull: impl Future<Output = Result<Pulled, RuntimeError>>,
) -> Result<Pulled, RuntimeError> {
    let ends = Instant::now() + PULL_MAX;
    let mut pull = std::pin::pin!(pull);
    if let Ok(pulled) = tokio::time::timeout(TURN_MAX, &mut pull).await {
        return pulled;
    }
    tracing::warn!(image, "a pull takes long, others go on beside it");
    drop(permit);
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
    let mut last = None;
    for (used, auth) in tries {
        match runtime.pull_image(image, auth, sandbox.clone()).await {
            Ok(reference) => {
                return Ok(Pulled {
                    reference,
                    took: begun.elapsed(),
                    used,
                });
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| RuntimeError::new("PullImage", Code::Internal, "nothing was tried")))
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
mod tests {
    use super::*;
    use crate::runtime::fake::FakeRuntime;
    use client::TokioClock;
    use jiff::Timestamp;

    fn puller(parallel: usize) -> (FakeRuntime, Puller) {
        let fake = FakeRuntime::new(Arc::new(TokioClock::starting_at(Timestamp::UNIX_EPOCH)), 1);
        fake.set_latency("PullImage", Duration::from_secs(10));
        for image in ["a", "b", "c"] {
            fake.add_remote_image(image);
        }
        let puller = Puller::new(Arc::new(fake.clone()), parallel, Rate::UNBOUND);
        (fake, puller)
    }

    fn pulls(fake: &FakeRuntime) -> usize {
        fake.calls().iter().filter(|call| call.starts_with("PullImage")).count()
    }

    #[tokio::test(start_paused = true)]
    async fn one_image_is_pulled_once_for_everybody() {
        let (fake, puller) = puller(5);
        let results = futures::future::join_all((0..4).map(|_| puller.pull("a", &[], None))).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        assert_eq!(pulls(&fake), 1);
        let other = pb::AuthConfig {
            username: "u".into(),
            ..pb::AuthConfig::default()
        };
        let both = futures::future::join(puller.pull("a", &[], None), puller.pull("a", &[other], None)).await;
        assert!(both.0.is_ok() && both.1.is_ok());
        assert_eq!(pulls(&fake), 3, "other credentials are another pull");
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_run_at_a_time() {
        let (_fake, puller) = puller(2);
        let begun = Instant::now();
        let results = futures::future::join_all(["a", "b", "c"].map(|image| puller.pull(image, &[], None))).await;
        assert!(results.iter().all(Result::is_ok));
        assert_eq!(begun.elapsed(), Duration::from_secs(20));
    }

    #[tokio::test(start_paused = true)]
    async fn more_pulls_than_the_rate_allows_are_turned_down_and_not_begun() {
        let (fake, _) = puller(1);
        let rate = Rate {
            per_second: 1,
            burst: 2,
        };
        let puller = Puller::new(Arc::new(fake.clone()), 5, rate);
        let results = futures::future::join_all(["a", "b", "c"].map(|image| puller.pull(image, &[], None))).await;
        let refused: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
        assert_eq!(refused, [&PullError::Throttled]);
        assert_eq!(refused[0].to_string(), "pull QPS exceeded");
        assert_eq!(pulls(&fake), 2);
        assert!(puller.pull("c", &[], None).await.is_ok(), "ten seconds later");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pull_that_hangs_ends_and_keeps_no_other_image_away() {
        let (fake, puller) = puller(1);
        fake.set_latency("PullImage", Duration::from_secs(7 * 24 * 3600));
        let begun = Instant::now();
        let hung = tokio::spawn({
            let puller = puller.clone();
            async move { puller.pull("a", &[], None).await }
        });
        while pulls(&fake) == 0 {
            tokio::task::yield_now().await;
        }
        fake.set_latency("PullImage", Duration::from_secs(10));
        assert!(puller.pull("b", &[], None).await.is_ok());
        assert_eq!(begun.elapsed(), TURN_MAX + Duration::from_secs(10));
        let error = hung.await.expect("no panic").expect_err("too long");
        assert_eq!(error, PullError::Runtime(RuntimeError::deadline("PullImage")));
        assert_eq!(begun.elapsed(), PULL_MAX);
        assert!(puller.pull("a", &[], None).await.is_ok(), "the next try begins anew");
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_leaves_does_not_end_it_for_others() {
        let (fake, puller) = puller(1);
        let leaving = tokio::spawn({
            let puller = puller.clone();
            async move { puller.pull("a", &[], None).await }
        });
        tokio::task::yield_now().await;
        leaving.abort();
        assert!(puller.pull("a", &[], None).await.is_ok());
        assert_eq!(pulls(&fake), 1);
    }
}
