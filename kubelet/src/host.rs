//! The syscalls: mounts, /proc.
