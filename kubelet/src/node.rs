//! The Node object: registration, status, lease.
