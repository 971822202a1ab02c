//! Placeholder module header, replaced by the crate's owner.
