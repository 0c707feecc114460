//! Services, their endpoints and this node, made into rules of the kernel.

pub mod config;
mod duration;
pub mod flags;
