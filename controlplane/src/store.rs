//! Revisions and what reads them: the crate `store` has etcd's semantics behind one trait, here are the backend on disk, the form of
//! values, what reads upstream's, and the read window that serves everything else.
//!
//! Owns what is written and in which order, and the form of values ([`value`]). Never interprets one: what an object means is the
//! API server's.

pub use ::store::*;

pub mod counted;
pub mod disk;
mod pace;
pub mod readable;
pub mod told;
pub mod value;
pub mod window;

#[cfg(test)]
#[tokio::test]
async fn disk_conforms() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk::Disk::open(directory.path()).unwrap();
    conformance::all(std::sync::Arc::new(disk)).await;
}
