//! Work on large bodies, away from the threads that serve everybody else.
//!
//! Owns how much of it runs at once. Never decides what is done.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// Patches of more bytes than this, with the object they are for, are large.
const LARGE_BYTES: usize = 64 << 10;
/// Large ones at once, so that they never have all processors.
static AT_ONCE: Semaphore = Semaphore::const_new(2);

/// Runs `work` about so many bytes: at once if they are few, else in its turn and off the worker.
pub(super) async fn run<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes <= LARGE_BYTES {
        return work();
    }
    // Never closed, so there is always a place to wait for.
    let _place = AT_ONCE.acquire().await;
    off_worker(work)
}

/// Runs `work` while another thread takes over what the worker has to do, where there are several.
pub(super) fn off_worker<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_worker_goes_on_while_large_work_takes_long() {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).build().unwrap();
        let (end, ended) = std::sync::mpsc::channel();
        runtime.block_on(async {
            let large = tokio::spawn(run(LARGE_BYTES + 1, move || ended.recv().unwrap()));
            // Runs only if the worker is free.
            tokio::spawn(async move { end.send(7).unwrap() });
            assert_eq!(large.await.unwrap(), 7);
            assert_eq!(run(1, || 8).await, 8);
        });
    }
}
