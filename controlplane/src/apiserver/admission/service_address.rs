//! Addresses and node ports of Services: the one owner of who gets which, so that two requests at once never share one.
//!
//! What stored Services hold is read from the window; this module remembers only what it gave to requests that are not stored
//! yet. The choice itself is `resource::service`'s, pure.

use super::{Attributes, Operation};
use crate::apiserver::reader::Reader;
use crate::apiserver::status::ApiError;
use crate::resource::service::{Range, allocate, allocate_node_ports, held};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A request that has not been stored after this long never will be (write handlers end sooner).
const PENDING: Duration = Duration::from_secs(40);

/// What was given to a Service that is not stored yet.
struct Promise {
    addresses: BTreeSet<IpAddr>,
    ports: BTreeSet<u16>,
    until: Instant,
}

/// Gives Services their addresses and node ports.
pub(super) struct ServiceAddresses {
    range: Range,
    /// By namespace and name.
    promised: Mutex<BTreeMap<(String, String), Promise>>,
}

impl ServiceAddresses {
    pub(super) fn new(range: Range) -> Self {
        Self {
            range,
            promised: Mutex::default(),
        }
    }

    /// Fills in what the Service's type has and it does not name. `start` spreads the choice.
    pub(super) fn assign(
        &self,
        attributes: &Attributes<'_>,
        service: &mut Value,
        old: Option<&Value>,
        reader: &Reader,
        start: u64,
    ) -> Result<(), ApiError> {
        if let (Operation::Update, Some(old)) = (attributes.operation, old) {
            // What the old object holds and the new one leaves out stays.
            attributes.kind.strategy.prepare_update(service, old, "");
        }
        let own = (attributes.namespace.to_owned(), attributes.name.to_owned());
        let now = Instant::now();
        // Held until the promise is written: the next request sees it.
        let mut promised = self.promised.lock().unwrap_or_else(PoisonError::into_inner);
        promised.retain(|(namespace, name), promise| {
            promise.until > now && reader.get("", "services", namespace, name).is_none()
        });
        let (mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new());
        for stored in reader.list("", "services", "") {
            let metadata = &stored["metadata"];
            if metadata["namespace"] != own.0.as_str() || metadata["name"] != own.1.as_str() {
                let (its_addresses, its_ports) = held(&stored);
                addresses.extend(its_addresses);
                ports.extend(its_ports);
            }
        }
        for promise in promised
            .iter()
            .filter(|(whose, _)| **whose != own)
            .map(|(_, promise)| promise)
        {
            addresses.extend(&promise.addresses);
            ports.extend(&promise.ports);
        }
        let invalid = |error| ApiError::invalid("", "Service", attributes.name, vec![error]);
        allocate(self.range, &addresses, start, service).map_err(|error| invalid(error.field_error(service)))?;
        allocate_node_ports(&ports, start, service).map_err(invalid)?;
        if !attributes.dry_run {
            let (addresses, ports) = held(service);
            let until = now + PENDING;
            promised.insert(
                own,
                Promise {
                    addresses,
                    ports,
                    until,
                },
            );
        }
        Ok(())
    }
}
