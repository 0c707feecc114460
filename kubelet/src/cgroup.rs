//! Pod and QoS cgroups.
