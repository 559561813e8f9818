//! The group as a whole: real sockets, real stores, several nodes in one process.

pub(super) mod fixture;
