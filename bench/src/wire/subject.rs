//! What a server under measurement can do.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;

use super::case::Work;
use super::closed_loop::Sample;
use super::data::Data;

/// A server that runs, and a client of it.
pub(super) trait Subject {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// The server's process.
    fn process(&self) -> Result<u32>;

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
