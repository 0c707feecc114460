//! Flags and KubeletConfiguration, resolved.
