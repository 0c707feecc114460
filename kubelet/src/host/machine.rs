//! Facts about the machine, read from injected `/proc` and `/sys` roots.
