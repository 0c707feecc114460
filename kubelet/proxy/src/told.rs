//! What the proxy has to say about objects: events, for whoever writes them.

use std::sync::Arc;

/// An event of `events.k8s.io/v1`, without what its writer knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// `Service` or `Node`.
    pub kind: &'static str,
    /// The object's namespace, or empty.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// It is of type Warning, otherwise Normal.
    pub is_warning: bool,
    /// Upstream's reason.
    pub reason: &'static str,
    /// Upstream's action.
    pub action: &'static str,
    /// What happened.
    pub note: String,
}

/// Takes events to where they are written. It must not block.
pub type Tell = Arc<dyn Fn(Told) + Send + Sync>;
