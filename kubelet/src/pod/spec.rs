//! Pure translation of a Pod to CRI messages.
