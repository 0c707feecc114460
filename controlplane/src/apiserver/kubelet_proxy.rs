//! Proxying of logs and streaming to kubelets.
