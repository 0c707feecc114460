//! The kubelet's HTTPS server.
