//! The interface of a measured server.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;

use super::case::Work;
use super::closed_loop::Sample;
use super::data::Data;
use crate::process;

/// A running server, and a client of it.
pub(super) trait Subject {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// The server's process; the first one if there are several.
    fn process(&self) -> Result<u32>;

    /// Total processor time of the server's processes.
    fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.process()?)
    }

    /// Stores all records.
    fn load<'a>(&'a self, data: &'a Data) -> LocalBoxFuture<'a, Result<()>>;

    /// Runs a case for a time; `None` if the server does not support it.
    fn run<'a>(
        &'a self,
        work: Work,
        data: &'a Data,
        time: Duration,
    ) -> LocalBoxFuture<'a, Result<Option<Sample>>>;
}
