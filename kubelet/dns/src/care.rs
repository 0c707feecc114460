//! What is kept as it should be while questions are answered: the link with its rules, which others may change, and what resolvers there
//! are. The kernel is asked on a thread of its own: whoever holds its lock on links (a thousand of them that end, a slow driver) keeps
//! that thread waiting, and no answer.

use crate::interface;
use crate::serve::Server;
use client::beat;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How often the link, the rules and the resolvers' file are looked at.
pub(crate) const LOOK: Duration = Duration::from_secs(5);

/// Makes what is missing, and says whether anything was. Blocks.
pub(crate) type Ensure = Arc<dyn Fn() -> Result<bool, interface::Error> + Send + Sync>;

/// Reads the resolvers' file when it is another.
pub(crate) async fn look_after(server: Rc<Server>) {
    loop {
        beat::wait(LOOK).await;
        server.forwarder.read_resolvers();
        server.forwarder.count();
    }
}

/// Makes again what others removed, every so often. Ends when that panics.
pub(crate) async fn keep(ensure: Ensure, every: Duration) {
    loop {
        beat::wait(every).await;
        let ensure = ensure.clone();
        match client::blocking::spawn(move || ensure()).await {
            Ok(Ok(false)) => {}
            Ok(Ok(true)) => {
                tracing::warn!("cluster DNS: its link or its rules were changed by others, and are made again");
            }
            Ok(Err(error)) => tracing::warn!(%error, "cluster DNS: its link or its rules cannot be made again"),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tokio::sync::mpsc::unbounded_channel;

    /// Longer than anything here takes.
    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn a_kernel_that_makes_us_wait_holds_up_no_answer() {
        let (begin, mut begun) = unbounded_channel();
        let (end, mut ended) = unbounded_channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Mutex::new(released);
        let ensure: Ensure = Arc::new(move || {
            let _ = begin.send(());
            let _ = end.send(released.lock().unwrap().recv_timeout(PATIENCE).is_ok());
            Ok(false)
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async move {
            let keeping = tokio::task::spawn_local(keep(ensure, Duration::ZERO));
            begun.recv().await.unwrap();
            // The kernel has not answered yet, and here something else is done.
            release.send(()).unwrap();
            assert_eq!(ended.recv().await, Some(true), "nothing else was done meanwhile");
            // And it goes on.
            begun.recv().await.unwrap();
            release.send(()).unwrap();
            keeping.abort();
        });
    }
}
