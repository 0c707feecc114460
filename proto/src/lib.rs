//! Contracts both sides must agree on.
//!
//! Owns the generated gRPC bindings (behind features) and [`api`], pure functions on Kubernetes types. Never does I/O,
//! never reads a clock, never spawns a task.

pub mod api;

/// The Container Runtime Interface, v1 (package `runtime.v1`), client and server halves.
#[cfg(feature = "cri")]
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod cri {
    include!(concat!(env!("OUT_DIR"), "/cri/runtime.v1.rs"));
}

/// containerd's event service, which reports task starts and exits where CRI has no event stream.
#[cfg(feature = "containerd")]
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod containerd {
    include!(concat!(env!("OUT_DIR"), "/containerd/containerd.services.events.v1.rs"));
}

/// What the control plane needs of etcd's v3 API.
#[cfg(feature = "etcd")]
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod etcd {
    include!(concat!(env!("OUT_DIR"), "/etcd/etcdserverpb.rs"));
}

/// The gRPC health checking protocol, which probes ask.
#[cfg(feature = "health")]
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod health {
    include!(concat!(env!("OUT_DIR"), "/health/grpc.health.v1.rs"));
}

/// How a node's plugins register with the kubelet.
#[cfg(feature = "plugin")]
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod plugin_registration {
    include!(concat!(env!("OUT_DIR"), "/plugin/pluginregistration.rs"));
}

/// What the kubelet asks of drivers for dynamic resource allocation.
#[cfg(feature = "dra")]
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod dra {
    /// The service's present form.
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/dra/k8s.io.kubelet.pkg.apis.dra.v1.rs"));
    }

    /// The same under its older name.
    pub mod v1beta1 {
        include!(concat!(env!("OUT_DIR"), "/dra/k8s.io.kubelet.pkg.apis.dra.v1beta1.rs"));
    }

    /// How drivers tell of their devices' health.
    pub mod health {
        include!(concat!(env!("OUT_DIR"), "/dra/v1alpha1.rs"));
    }
}

/// Device plugins, v1beta1: their registration and what they are asked, client and server halves.
#[cfg(feature = "devices")]
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod device_plugin {
    include!(concat!(env!("OUT_DIR"), "/device_plugin/v1beta1.rs"));
}

/// The PodResources API, v1.
#[cfg(feature = "devices")]
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod pod_resources {
    include!(concat!(env!("OUT_DIR"), "/pod_resources/v1.rs"));
}

/// The PodResources API, v1alpha1.
#[cfg(feature = "devices")]
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod pod_resources_v1alpha1 {
    include!(concat!(env!("OUT_DIR"), "/pod_resources_v1alpha1/v1alpha1.rs"));
}
