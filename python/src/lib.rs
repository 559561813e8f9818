//! The extension module of the Python package `torc`: the Rust client library as Python sees it.
//!
//! [`operations`] turns Python arguments into operations and their answers into objects. [`client`]
//! waits for them on the calling thread, [`aio`] notifies an event loop; nothing else differs.
//!
//! [`generation`] and [`plan`] are separate: they build on disk, without a cluster.
//!
//! Invariants:
//! * No wait holds the GIL.
//! * No thread of the runtime ever takes the GIL, so busy Python code delays no connection.
//! * A forked process neither uses nor drops objects of its parent ([`process::Owned`]).

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

// Requests are allocated on one thread and freed on another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The extension module.
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
