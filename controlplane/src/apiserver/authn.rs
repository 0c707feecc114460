//! Authentication: who makes a request.
