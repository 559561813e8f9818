//! What tests, `torc-sim cluster` and `torc-bench` share to start real servers.

mod ports;

pub use ports::{free_address, free_run};
