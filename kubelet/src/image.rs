//! Images: pulls and credentials.
