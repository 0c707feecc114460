//! Names of the objects that controllers, informers and commands agree on. Constants only.

/// The ConfigMap with the cluster's CA, one in every namespace.
pub mod root_ca {
    /// The ConfigMap's name.
    pub const NAME: &str = "kube-root-ca.crt";
}

/// The ConfigMap that tells a joining node where the cluster is.
pub mod cluster_info {
    /// The ConfigMap's namespace.
    pub const NAMESPACE: &str = "kube-public";
    /// The ConfigMap's name.
    pub const NAME: &str = "cluster-info";
}

/// The Secrets that are bootstrap tokens.
pub mod bootstrap_token {
    /// The Secrets' type.
    pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
    /// The Secrets' namespace.
    pub const NAMESPACE: &str = "kube-system";
    /// What the Secrets' names begin with, before the token's id.
    pub const NAME_PREFIX: &str = "bootstrap-token-";
}
