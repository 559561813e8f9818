//! Helpers to start real programs, shared by tests, `torc-sim cluster` and `torc-bench`.

mod kvd;
mod objects;
mod ports;
mod process;
mod programs;
pub mod redis;
mod wait;

pub use kvd::{Kvd, SMALL_DATA};
pub use objects::{Faulty, Overtaken};
pub use ports::{free_address, free_run};
pub use process::Process;
pub use programs::{build, example_output, program, programs_dir, run_example};
pub use rustix::process::Signal;
pub use wait::{TIMEOUT, http_get, until, until_or};
