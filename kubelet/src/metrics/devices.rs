//! Device plugins, and what is asked of the PodResources API (kubelet contract §13).

use super::labels::{Counters, DEFAULT_BUCKETS, Histograms, counters, histograms, label};
use prometheus_client::registry::Registry;
use std::time::Duration;

/// Counts device plugins' registrations and allocations. Cheap to clone.
#[derive(Clone)]
pub struct DeviceMetrics {
    registrations: Counters,
    allocations: Histograms,
}

impl DeviceMetrics {
    pub(super) fn register(r: &mut Registry) -> Self {
        Self {
            registrations: counters(
                r,
                "kubelet_device_plugin_registration",
                "Registrations of device plugins, by resource",
            ),
            allocations: histograms(
                r,
                "kubelet_device_plugin_alloc_duration_seconds",
                "Time that device plugins took to allocate devices in seconds, by resource",
                DEFAULT_BUCKETS,
            ),
        }
    }

    /// Counts a registration. Whoever registers is root on this machine, and resources are bounded ([`DeviceMetrics::forget`]).
    pub fn registered(&self, resource: &str) {
        let of = label("resource_name", resource.to_owned());
        self.registrations.get_or_create(&of).inc();
    }

    /// A resource whose plugin went long ago is told of no more: others come under ever new names.
    pub fn forget(&self, resource: &str) {
        let of = label("resource_name", resource.to_owned());
        self.registrations.remove(&of);
        self.allocations.remove(&of);
    }

    /// Counts an allocation, however it ended.
    pub fn allocated(&self, resource: &str, took: Duration) {
        let of = label("resource_name", resource.to_owned());
        self.allocations.get_or_create(&of).observe(took.as_secs_f64());
    }
}

/// A call of the PodResources API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodResourcesCall {
    /// `List`.
    List,
    /// `Get`.
    Get,
    /// `GetAllocatableResources`.
    Allocatable,
}

/// Counts calls of the PodResources API. Cheap to clone.
#[derive(Clone)]
pub struct PodResourcesMetrics {
    all: Counters,
    /// Of each kind of call, all and those that failed.
    list: (Counters, Counters),
    get: (Counters, Counters),
    allocatable: (Counters, Counters),
}

impl PodResourcesMetrics {
    pub(super) fn register(r: &mut Registry) -> Self {
        let mut pair = |call: &str| {
            let name = |what: &str| format!("kubelet_pod_resources_endpoint_{what}_{call}");
            let requests = counters(r, &name("requests"), "Calls of the PodResources API of this kind");
            let errors = counters(
                r,
                &name("errors"),
                "Calls of the PodResources API of this kind that failed",
            );
            (requests, errors)
        };
        let (list, get, allocatable) = (pair("list"), pair("get"), pair("get_allocatable"));
        let name = "kubelet_pod_resources_endpoint_requests";
        Self {
            all: counters(r, name, "Calls of the PodResources API, by its version"),
            list,
            get,
            allocatable,
        }
    }

    /// Counts a call of an older version, of which there is one kind.
    pub fn called_older(&self, version: &'static str) {
        self.all.get_or_create(&label("server_api_version", version)).inc();
    }

    /// Counts a call of a version and whether it failed.
    pub fn called(&self, version: &'static str, call: PodResourcesCall, failed: bool) {
        let of = label("server_api_version", version);
        self.all.get_or_create(&of).inc();
        let (requests, errors) = match call {
            PodResourcesCall::List => &self.list,
            PodResourcesCall::Get => &self.get,
            PodResourcesCall::Allocatable => &self.allocatable,
        };
        requests.get_or_create(&of).inc();
        if failed {
            errors.get_or_create(&of).inc();
        }
    }
}
