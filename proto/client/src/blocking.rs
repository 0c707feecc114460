//! Work that holds up a thread (files, mounts, calls that cannot be awaited), kept off the tasks that must not wait for it.
//!
//! Owns where such work runs, and nothing about the work. In a simulation it runs as one more task of the simulation's own
//! thread: another thread would end at a moment that no seed decides.

use std::future::Future;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

#[cfg(feature = "test-util")]
thread_local! {
    static RUNS_HERE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Makes all blocking work that is begun on this thread from now on run on it, as tasks of its runtime. For simulations.
#[cfg(feature = "test-util")]
pub fn run_on_this_thread() {
    RUNS_HERE.set(true);
}

#[cfg(feature = "test-util")]
fn runs_here() -> bool {
    RUNS_HERE.get()
}

#[cfg(not(feature = "test-util"))]
fn runs_here() -> bool {
    false
}

/// Begins `work` where it holds up no task; the handle gives its result. Work that has begun cannot be cancelled.
pub fn spawn<T, F>(work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // Boxed: what carries a task is there once for each result, and not for each work.
    let work: Box<dyn FnOnce() -> T + Send> = Box::new(work);
    if runs_here() {
        return tokio::spawn(async move { work() });
    }
    tokio::task::spawn_blocking(work)
}

/// Begins a task that may hold up its thread as long as it likes, on one that serves no other. What it awaits goes on as ever.
pub fn spawn_task<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    if runs_here() {
        return tokio::spawn(task);
    }
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(task))
}
