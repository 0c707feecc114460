//! The names of the cluster, answered on the node.
