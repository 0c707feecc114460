//! The CNI conflist this node writes from its podCIDR.
