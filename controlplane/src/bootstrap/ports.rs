//! Repairs what a shared store says of node ports: each that a Service holds is marked as taken, and none stays marked that none holds
//! (upstream's portallocator repair, whose times these are).
//!
//! Owns no decision about who has a port: that is claimed by the write of the Service (`apiserver::verbs`). What is marked and not held
//! may be a claim on its way: it is freed only after some looks.

use crate::apiserver::ApiServer;
use crate::apiserver::port_claims::Taken;
use crate::resource::service::held_ports;
use crate::store::StoreError;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(180);
/// How many looks in a row a port is marked and held by none before it is free.
const LOOKS: u32 = 3;

/// In how many looks in a row each port was marked and held by none.
pub(super) type Leaked = BTreeMap<u16, u32>;

/// Repairs until shutdown.
pub async fn keep(server: ApiServer, shutdown: CancellationToken) {
    let mut leaked = Leaked::new();
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        if let Err(error) = look(&server, &mut leaked).await {
            tracing::warn!(%error, "what says which node ports are taken cannot be repaired now");
        }
    }
}

/// One look, where the store is shared.
///
/// # Errors
/// Whatever the store answers.
pub(super) async fn look(server: &ApiServer, leaked: &mut Leaked) -> Result<(), StoreError> {
    let store = server.store();
    if !store.is_shared() {
        return Ok(());
    }
    // First what is marked, then who holds: what is claimed in between changes the first, and nothing is written over it.
    let taken = Taken::read(&**store).await?;
    server.reader().refresh().await?;
    let services = server.reader().objects("", "services").unwrap_or_default();
    let held: BTreeSet<u16> = services
        .values()
        .flat_map(|stored| held_ports(&stored.tree()))
        .collect();
    let wanted = repaired(&taken.ports, &held, leaked);
    if wanted != taken.ports {
        tracing::warn!(
            missing = ?held.difference(&taken.ports).collect::<Vec<_>>(),
            leaked = ?taken.ports.difference(&wanted).collect::<Vec<_>>(),
            "node ports were not marked as they are held",
        );
        // Changed by somebody else meanwhile: the next look sees it.
        taken.replace(&**store, &wanted).await?;
    }
    Ok(())
}

/// What is to be marked. Pure.
fn repaired(taken: &BTreeSet<u16>, held: &BTreeSet<u16>, leaked: &mut Leaked) -> BTreeSet<u16> {
    *leaked = taken
        .difference(held)
        .map(|port| (*port, leaked.get(port).unwrap_or(&0) + 1))
        .collect();
    let stays = taken
        .iter()
        .filter(|port| leaked.get(port).is_none_or(|looks| *looks < LOOKS));
    stays.chain(held).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_marked_at_once_and_what_is_not_is_freed_late() {
        let set = |ports: &[u16]| ports.iter().copied().collect::<BTreeSet<u16>>();
        let mut leaked = Leaked::new();
        assert_eq!(repaired(&set(&[1, 2]), &set(&[2, 3]), &mut leaked), set(&[1, 2, 3]));
        assert_eq!(
            repaired(&set(&[1, 2, 3, 4]), &set(&[2, 3]), &mut leaked),
            set(&[1, 2, 3, 4])
        );
        // The port 4 has a holder in between: its count begins anew.
        assert_eq!(
            repaired(&set(&[1, 2, 3, 4]), &set(&[2, 3, 4]), &mut leaked),
            set(&[2, 3, 4])
        );
        assert_eq!(repaired(&set(&[2, 3, 4]), &set(&[2, 3]), &mut leaked), set(&[2, 3, 4]));
        assert_eq!(repaired(&set(&[2, 3, 4]), &set(&[2, 3]), &mut leaked), set(&[2, 3, 4]));
        assert_eq!(repaired(&set(&[2, 3, 4]), &set(&[2, 3]), &mut leaked), set(&[2, 3]));
    }
}
