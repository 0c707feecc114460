//! Serving certificates.
