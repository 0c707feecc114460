//! API connector and informer, for the node agent and the control plane alike.
