//! Discovery documents, derived from the table of kinds.
