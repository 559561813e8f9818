//! The claims of D. Lemire's essay, and of its discussion.

pub(super) mod cache;
pub(super) mod cascade;
pub(super) mod halves;
