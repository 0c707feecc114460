//! Encryption at rest by upstream's EncryptionConfiguration, as a store around a store.
