//! ConfigMaps, Secrets and service account tokens pods refer to.
