//! The group as a whole: real sockets, real stores, several nodes in one process.

mod agreement;
mod cluster;
pub(crate) mod fixture;
mod founding;
mod recover;
mod voting;
mod wire;
