//! Metrics registry of one kubelet.
