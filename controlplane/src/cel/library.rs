//! What the functions do. Each takes arguments of the types its signature says, or gives an error. Pure.

pub(super) mod convert;
pub(super) mod format;
pub(super) mod kubernetes;
pub(super) mod lists;
pub(super) mod net;
pub(super) mod operators;
pub(super) mod strings;
pub(crate) mod time;
pub(super) mod url;
