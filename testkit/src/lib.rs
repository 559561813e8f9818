//! Helpers to start real programs, shared by tests, `torc-sim cluster` and `torc-bench`.

mod examples;
mod objects;
mod ports;
pub mod redis;

pub use examples::{example_output, run_example};
pub use objects::{Faulty, Overtaken};
pub use ports::{free_address, free_run};
