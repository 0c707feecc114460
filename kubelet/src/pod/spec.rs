//! Pure translation of a Pod to CRI messages.

/// Placeholder shape until the translation lands.
pub fn container_hash(container: &k8s_openapi::api::core::v1::Container) -> String {
    format!("{}/{}", container.name, container.image.as_deref().unwrap_or_default())
}
