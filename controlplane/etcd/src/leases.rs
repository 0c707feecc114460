//! etcd's leases: what is written with one goes when nobody keeps it alive any more.

use crate::rpc::Rpc;
use proto::etcd::{LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest};
use std::sync::Arc;
use std::time::Duration;
use store::StoreError;
use tokio::task::JoinHandle;
use tonic::{Response, Status};

/// A new lease, over so long after it was made unless somebody keeps it alive; tells its number. One whose answer is lost ends by itself.
pub(crate) async fn grant(rpc: &Rpc, lifetime: Duration) -> Result<i64, StoreError> {
    let ttl = lifetime.as_secs() as i64;
    let granted = rpc.lease(|mut client| async move {
        let granted = client.lease_grant(LeaseGrantRequest { ttl, id: 0 });
        granted.await.map(Response::into_inner)
    });
    Ok(granted.await?.id)
}

/// A lease that is kept alive as long as the value lives.
pub(crate) struct Lease {
    rpc: Arc<Rpc>,
    pub(crate) id: i64,
    keeping: JoinHandle<()>,
}

impl Lease {
    /// A new one, over so long after it was kept alive last.
    pub(crate) async fn grant(rpc: &Arc<Rpc>, lifetime: Duration) -> Result<Self, StoreError> {
        let id = grant(rpc, lifetime).await?;
        Ok(Self {
            rpc: Arc::clone(rpc),
            id,
            keeping: tokio::spawn(keep(Arc::clone(rpc), id, lifetime / 3)),
        })
    }

    /// Ends it, and what was written with it, at once.
    pub(crate) async fn revoke(self) -> Result<(), StoreError> {
        let id = self.id;
        let revoked = self.rpc.lease(|mut client| async move {
            match client.lease_revoke(LeaseRevokeRequest { id }).await {
                // It is over already.
                Err(status) if status.code() == tonic::Code::NotFound => Ok(()),
                other => other.map(drop),
            }
        });
        revoked.await
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

async fn keep(rpc: Arc<Rpc>, id: i64, pause: Duration) {
    loop {
        tokio::time::sleep(pause).await;
        let kept = rpc.lease(|mut client| async move {
            let once = tokio_stream::once(LeaseKeepAliveRequest { id });
            let mut answers = client.lease_keep_alive(once).await?.into_inner();
            let answer = answers.message().await?;
            answer.ok_or_else(|| Status::unavailable("the lease is not told of"))
        });
        match kept.await {
            Ok(answer) if answer.ttl == 0 => return tracing::warn!("a lease of etcd's is over"),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "a lease of etcd's cannot be kept alive"),
        }
    }
}
