//! Endpoints that are not storage verbs: reviews, tokens, health, version, metrics.
