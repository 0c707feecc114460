//! Admission to the node: one task owns the node's ledger.
