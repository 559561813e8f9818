//! What a server under measurement can do.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;

use super::case::Work;
use super::closed_loop::Sample;
use super::data::Data;
use crate::process;

/// A server that runs, and a client of it.
pub(super) trait Subject {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// The server's process, the first of several.
    fn process(&self) -> Result<u32>;

    /// Processor time of the server's processes, all together.
    fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.process()?)
    }

    /// Stores all records.
    fn load<'a>(&'a self, data: &'a Data) -> LocalBoxFuture<'a, Result<()>>;

    /// Works for a time; none if the server has nothing of the kind.
    fn run<'a>(
        &'a self,
        work: Work,
        data: &'a Data,
        time: Duration,
    ) -> LocalBoxFuture<'a, Result<Option<Sample>>>;
}
