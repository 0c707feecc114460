//! Which of a Service's slices may hold the same endpoints: those of one address type and the same ports.

use super::is_owned;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A group as slices name it: ports in any order are the same, as upstream compares them.
pub(super) type Named = (
    String,
    Vec<(Option<String>, Option<String>, Option<i32>, Option<String>)>,
);

/// The group of that address type and these ports.
pub(super) fn named(kind: &str, ports: &[EndpointPort]) -> Named {
    let port = |p: &EndpointPort| (p.name.clone(), p.protocol.clone(), p.port, p.app_protocol.clone());
    let mut ports: Vec<_> = ports.iter().map(port).collect();
    ports.sort();
    (kind.to_owned(), ports)
}

/// The Service's slices by their groups: there may be very many of both.
pub(super) fn by_group(service: &Service, slices: &[Arc<EndpointSlice>]) -> BTreeMap<Named, Vec<Arc<EndpointSlice>>> {
    let mut groups: BTreeMap<Named, Vec<_>> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| is_owned(slice, service)) {
        let group = named(&slice.address_type, slice.ports.as_deref().unwrap_or_default());
        groups.entry(group).or_default().push(slice.clone());
    }
    groups
}
