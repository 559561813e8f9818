//! The extension module of the Python package `torc`: the Rust client library as Python sees it.
//!
//! [`operations`] turns arguments of Python into operations and their answers into objects; [`client`] waits for
//! them on the thread that calls, [`aio`] lets an event loop know. Nothing else differs between the two.
//!
//! [`generation`] and [`plan`] are apart: they build on disks and ask no cluster.
//!
//! Invariants:
//! * Every wait is outside of the GIL.
//! * No thread of the runtime ever takes the GIL, so Python code that computes holds up no connection.
//! * What belongs to the process that made it is neither used nor dropped in a forked one ([`process::Owned`]).

mod aio;
mod answer;
mod arrow;
mod client;
mod convert;
mod error;
mod generation;
mod operations;
mod plan;
mod process;
mod scan;
mod version;

use pyo3::pymodule;

// Requests are made on one thread and freed on another one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What `torc` is made of.
#[pymodule]
mod _torc {
    #[pymodule_export]
    use crate::aio::{Core, Ticket};
    #[pymodule_export]
    use crate::arrow::{Buckets, Values};
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::generation::{Generation, build};
    #[pymodule_export]
    use crate::plan::{BuildPlan, plan_build};
    #[pymodule_export]
    use crate::scan::Scan;
    #[pymodule_export]
    use crate::version::Version;
}
