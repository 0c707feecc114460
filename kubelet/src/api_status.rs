//! The one writer of pod status to the API server.
