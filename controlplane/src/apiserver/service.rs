//! The one request path.
