//! What a request asks for, read from its method and path alone (control-plane contract §2.1). Pure.

/// The parsed meaning of a request: a verb on a resource, or a plain path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether the path names a resource; otherwise only `path` and `verb` (the lower-case method) mean anything.
    pub is_resource: bool,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or the lower-case HTTP method.
    pub verb: String,
    /// The raw path without the query.
    pub path: String,
    /// API group, empty for core.
    pub group: String,
    /// API version, such as `v1`.
    pub version: String,
    /// Namespace, empty at cluster scope.
    pub namespace: String,
    /// Plural resource name.
    pub resource: String,
    /// Subresource, empty for none.
    pub subresource: String,
    /// Object name, empty for collections (list and watch narrowed by `metadata.name=x` carry x).
    pub name: String,
    /// Path elements after the subresource (proxy paths).
    pub rest: String,
}
