//! (being written: cri)
