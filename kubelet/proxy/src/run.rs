//! The run loop: follows Services and EndpointSlices, and keeps the kernel's rules as they say. Owns the connection to
//! nf_tables and the memory of what was written; decides nothing itself.

use client::informer::Informer;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// What the loop follows.
#[derive(Clone)]
pub struct Sources {
    /// Services of all namespaces.
    pub services: Informer<Service>,
    /// EndpointSlices of all namespaces.
    pub slices: Informer<EndpointSlice>,
}
