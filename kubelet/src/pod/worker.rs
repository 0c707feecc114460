//! (to be written: worker)
