//! Certificate authority, certificates, keys, kubeconfigs.
