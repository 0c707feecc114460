//! Admission: the chain of mutating and validating plugins.
