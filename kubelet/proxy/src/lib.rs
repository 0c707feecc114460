//! Services, their endpoints and this node, made into rules of the kernel.
