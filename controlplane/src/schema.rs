//! The static schema table of built-in types: walk, prune, defaults. Pure.
