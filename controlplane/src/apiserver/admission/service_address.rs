//! Addresses and node ports of Services. The choice is `resource::service`'s; which are taken is read from the window.
//!
//! Two requests at once never share one because Services are written one at a time ([`super::super::write_locks`]): what is chosen here
//! is stored, or refused and free again, before the next request looks.

use super::{Attributes, Operation};
use crate::apiserver::reader::Reader;
use crate::apiserver::status::ApiError;
use crate::resource::service::{Range, allocate, allocate_node_ports, held};
use serde_json::Value;
use std::collections::BTreeSet;

/// Fills in what the Service's type has and it does not name. `start` spreads the choice.
pub(super) fn assign(
    range: Range,
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
    let (mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for stored in reader.list("", "services", "") {
        let metadata = &stored["metadata"];
        if metadata["namespace"] != attributes.namespace || metadata["name"] != attributes.name {
            let (its_addresses, its_ports) = held(&stored);
            addresses.extend(its_addresses);
            ports.extend(its_ports);
        }
    }
    let invalid = |error| ApiError::invalid("", "Service", attributes.name, vec![error]);
    allocate(range, &addresses, start, service).map_err(|error| invalid(error.field_error(service)))?;
    allocate_node_ports(&ports, start, attributes.operation == Operation::Create, service).map_err(invalid)
}
