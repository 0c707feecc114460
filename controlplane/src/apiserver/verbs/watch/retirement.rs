//! When the kind of a watch is not served any more as it was when the watch began: it ends before anything is written that is of
//! another form than its own, and clients watch again from where they are.

use super::Call;
use crate::apiserver::served::Served;
use crate::resource::Kind;
use std::sync::Arc;
use tokio::sync::watch;

/// See the module.
pub(super) struct Retirement {
    kind: Arc<Kind>,
    /// What is served, for a kind that came in; what is built in stays.
    served: Option<watch::Receiver<Arc<Served>>>,
}

impl Retirement {
    pub(super) fn of(call: &Call<'_>) -> Self {
        let is_defined = call.kind.structural.is_some();
        Self {
            kind: Arc::clone(&call.kind),
            served: is_defined.then(|| call.server.publisher().follow()),
        }
    }

    /// Whether the kind is served in another form, or not at all.
    pub(super) fn is_over(&self) -> bool {
        let Some(served) = &self.served else { return false };
        let own = &self.kind;
        let served = served.borrow();
        let kind = served.registry().by_resource(&own.group, &own.version, &own.plural);
        kind.is_none_or(|kind| kind.defined.form != own.defined.form)
    }

    /// Returns when something else is served, where that matters.
    pub(super) async fn changed(&mut self) {
        if let Some(served) = &mut self.served
            && served.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}
