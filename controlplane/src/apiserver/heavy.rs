//! Work on large bodies, away from the threads that serve everybody else.
//!
//! How much of it runs at once is [`Flow`]'s to say. Never decides what is done.

use super::flow::{Flow, HeavyTurn};
use super::request::RequestInfo;
use super::status::ApiError;
use super::user::User;
use crate::schema::Media;
use bytes::Bytes;
use std::future::Future;
use tokio::task::JoinHandle;

/// Bodies of more bytes than this, with the object they are for, are large.
const LARGE_BYTES: usize = 64 << 10;

/// Whether work about so many bytes takes long enough to be kept off the workers.
pub(super) fn is_large(bytes: usize) -> bool {
    bytes > LARGE_BYTES
}

/// Runs `work` for a request, in its turn, on a thread that serves nobody. What has begun is done to its end, and keeps its
/// turn until then, also when the request is given up.
///
/// # Errors
/// 429 when its turn does not come in time.
pub(super) async fn run<T, W>(flow: &Flow, user: &User, info: &RequestInfo, work: W) -> Result<T, ApiError>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    let turn = flow.heavy(user, info).await?;
    in_turn(turn, work).await
}

async fn in_turn<T, W>(turn: HeavyTurn, work: W) -> Result<T, ApiError>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    run_without_turn(move || {
        let _turn = turn;
        work()
    })
    .await
}

/// As [`run`], but at once: for work that others wait for, so that it must wait for nobody, and of which something else than turns
/// lets one be done at a time.
///
/// # Errors
/// 500 when the process ends.
pub(super) async fn run_without_turn<T, W>(work: W) -> Result<T, ApiError>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    match client::blocking::spawn(work).await {
        Ok(done) => Ok(done),
        Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
        Err(failed) => Err(ApiError::internal(failed)),
    }
}

/// As [`run`], for a request that holds locks: whoever has one of [`run`]'s turns may wait for these.
///
/// # Errors
/// As [`run`].
pub(super) async fn run_locked<T, W>(flow: &Flow, user: &User, info: &RequestInfo, work: W) -> Result<T, ApiError>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    let turn = flow.heavy_locked(user, info).await?;
    in_turn(turn, work).await
}

/// Begins a request's whole work in its turn, on a thread that serves nobody; it keeps the turn to its end.
///
/// # Errors
/// As [`run`].
pub(super) async fn begin<W>(
    flow: &Flow,
    user: &User,
    info: &RequestInfo,
    work: W,
) -> Result<JoinHandle<W::Output>, ApiError>
where
    W: Future + Send + 'static,
    W::Output: Send + 'static,
{
    let turn = flow.heavy(user, info).await?;
    Ok(client::blocking::spawn_task(async move {
        let _turn = turn;
        work.await
    }))
}

/// Reads a body: at once, or as [`run`] does where that takes long, as it does in YAML and for large ones.
///
/// # Errors
/// As [`run`]; what reading says is the answer.
pub(super) async fn read<T, R>(
    flow: &Flow,
    user: &User,
    info: &RequestInfo,
    (body, media): (&[u8], Media),
    read: R,
) -> Result<T, ApiError>
where
    T: Send + 'static,
    R: FnOnce(&[u8]) -> T + Send + 'static,
{
    if media != Media::Yaml && !is_large(body.len()) {
        return Ok(read(body));
    }
    let body = Bytes::copy_from_slice(body);
    run(flow, user, info, move || read(&body)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::request::Query;
    use futures::future::join_all;
    use std::sync::Arc;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    fn create() -> RequestInfo {
        let path = "/api/v1/namespaces/a/configmaps";
        RequestInfo::parse(&http::Method::POST, path, &Query::default())
    }

    #[test]
    fn the_only_worker_goes_on_while_all_large_work_takes_long_and_each_user_has_one_turn() {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_time().build().unwrap();
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        let flow = Arc::new(Flow::new());
        let at_once: Arc<[AtomicUsize; 2]> = Arc::default();
        let begun = Arc::new(AtomicUsize::new(0));
        runtime.block_on(async {
            let mut all = Vec::new();
            for number in 0..20 {
                let (flow, ended) = (Arc::clone(&flow), Arc::clone(&ended));
                let (at_once, begun) = (Arc::clone(&at_once), Arc::clone(&begun));
                all.push(tokio::spawn(async move {
                    let user = User::named(["u", "v"][number % 2], &[]);
                    let work = move || {
                        let own = &at_once[number % 2];
                        assert_eq!(own.fetch_add(1, Ordering::Relaxed), 0, "one user has two turns");
                        begun.fetch_add(1, Ordering::Relaxed);
                        ended.lock().unwrap().recv().unwrap();
                        own.fetch_sub(1, Ordering::Relaxed);
                    };
                    run(&flow, &user, &create(), work).await
                }));
            }
            // Runs only if the worker is free; none of the others can go on before.
            let free = tokio::spawn(async move {
                while begun.load(Ordering::Relaxed) < 2 {
                    tokio::task::yield_now().await;
                }
                (0..20).for_each(|_| end.send(()).unwrap());
            });
            free.await.unwrap();
            for done in join_all(all).await {
                done.unwrap().unwrap();
            }
        });
    }

    #[tokio::test]
    async fn a_turn_lasts_until_the_work_is_done_though_nobody_waits_for_it() {
        let flow = Flow::new();
        let user = User::named("u", &[]);
        let (end, ended) = mpsc::channel();
        let (begin, begun) = tokio::sync::oneshot::channel();
        let info = create();
        let mut working = Box::pin(run(&flow, &user, &info, move || {
            begin.send(()).unwrap();
            ended.recv().unwrap();
        }));
        tokio::select! {
            biased;
            _ = &mut working => panic!("it cannot be done"),
            begun = begun => begun.unwrap(),
        }
        drop(working);
        let mut next = Box::pin(flow.heavy(&user, &info));
        assert!(futures::poll!(&mut next).is_pending());
        end.send(()).unwrap();
        assert!(next.await.is_ok());
    }

    #[tokio::test]
    async fn a_failure_of_the_work_is_the_requests() {
        let (flow, user, info) = (Flow::new(), User::named("u", &[]), create());
        let failing = run(&flow, &user, &info, || assert!(info_is_never(), "planted"));
        let failed = futures::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(failing)).await;
        assert!(failed.is_err());
    }

    fn info_is_never() -> bool {
        std::hint::black_box(false)
    }
}
