//! Controllers: pure plans and one harness.
