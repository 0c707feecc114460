//! What the tests of several crates share and no test framework gives.

pub mod exposition;
