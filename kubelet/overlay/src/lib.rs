//! How pods of this node reach those of others.
