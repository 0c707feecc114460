//! Whole kubelets whose machine goes down.
