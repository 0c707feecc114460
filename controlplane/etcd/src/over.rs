//! That nothing is read or written here any more, for good, and why: whoever finds it out first says so.

use store::StoreError;
use tokio::sync::watch;

/// See the module.
pub(crate) struct Over(watch::Sender<Option<String>>);

impl Over {
    /// All goes on.
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// # Errors
    /// `Unusable`: nothing is answered any more.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match &*self.0.borrow() {
            None => Ok(()),
            Some(why) => Err(StoreError::Unusable(why.clone())),
        }
    }

    /// Nothing goes on from here; the first reason is the one that is told.
    pub(crate) fn end(&self, why: &str) {
        self.0.send_if_modified(|over| {
            let is_first = over.is_none();
            if is_first {
                tracing::error!(why, "nothing is read or written any more");
                *over = Some(why.to_owned());
            }
            is_first
        });
    }

    /// Waits until nothing is answered any more, and tells why.
    pub(crate) fn reason(&self) -> impl Future<Output = String> + Send + use<> {
        let mut over = self.0.subscribe();
        async move {
            let why = over.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
            match why {
                Some(why) => why,
                // The store is gone, and nobody is told anything.
                None => std::future::pending().await,
            }
        }
    }
}
