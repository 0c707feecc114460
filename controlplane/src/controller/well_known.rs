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

/// The Secrets that hold a token of a service account, as upstream had them before tokens were asked for.
pub mod account_token {
    /// The Secrets' type.
    pub const SECRET_TYPE: &str = "kubernetes.io/service-account-token";
    /// The annotation with the account's name.
    pub const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
    /// The annotation with its UID.
    pub const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
    /// The label with the last day on which the token was used.
    pub const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
    /// The label with the day since which it is not accepted, for nobody used it.
    pub const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
    /// The namespace of the ConfigMap that says since when uses are noted.
    pub const TRACKING_NAMESPACE: &str = "kube-system";
    /// Its name.
    pub const TRACKING_NAME: &str = "kube-apiserver-legacy-service-account-token-tracking";
    /// Its key with the day.
    pub const TRACKING_KEY: &str = "since";
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
