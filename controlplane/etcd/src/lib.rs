//! The backend on etcd v3: upstream's key layout over its gRPC API.
