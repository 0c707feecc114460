//! What the node, its pods and their containers use: looked at once for everybody who asks within a second, and only then.
//!
//! Owns the looks and what is remembered between them (two samples of CPU time for rates, the sizes of pods' files). Polls nothing and
//! keeps no history. [`numbers`] are values, [`v1`] and [`v2`] make them of the kernel's text, [`rate`], [`leaf`] and [`container`] decide; [`reading`] over [`opened`],
//! [`node`], [`process`], [`logs`] and [`files`] are the edge, [`sampler`] joins them. Which names the numbers are told under is
//! [`crate::server`]'s.

pub mod container;
pub mod diskstats;
pub mod files;
mod leaf;
pub mod logs;
pub mod node;
pub mod numbers;
mod opened;
mod process;
pub mod rate;
mod reading;
pub mod sampler;
mod shared;
mod text;
mod v1;
mod v2;

pub use reading::{Depth, Trees};
pub use sampler::Sampler;
