//! Encryption at rest by upstream's EncryptionConfiguration, as a store around a store.
//!
//! [`Encrypted`] writes values as the configuration's first provider for their resource makes them, and shows what is stored as it was
//! written, whichever of the providers wrote it: prefixes, layouts and authenticated data are upstream's, so that either API server
//! reads what the other wrote. What cannot be read is shown as that ([`store::unreadable`]) and is never written over.
//!
//! Owns the configuration's rules ([`config`]), the ciphers ([`cipher`]), the order of providers ([`Transformers`]) the keys of
//! key management plugins ([`kms`]) and what is counted of all that ([`metrics`]). Never decides which keys belong to which resource: it is told ([`Locate`]).

pub mod cipher;
pub mod config;
mod encrypted;
pub mod kms;
pub mod metrics;
mod provider;
mod transformers;

pub use encrypted::{Encrypted, Encryption, Locate, Place};
pub use provider::OpenError;
pub use transformers::{LOOK_AGAIN, LOOK_EVERY, Transformers};
