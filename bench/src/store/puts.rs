//! Durable puts by concurrent writers. A writer waits until its record is durable, then stores the next.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join_all;

use super::engine::Engine;
use crate::records;

/// Acknowledged puts per second, over `time`, after a tenth of it to warm up. Every record is
/// different.
pub(super) fn rate(store: &dyn Engine, writers: u64, time: Duration) -> Result<f64> {
    let next = Cell::new(0_u64);
    put_until(store, writers, &next, Instant::now() + time / 10)?;
    let (before, started) = (next.get(), Instant::now());
    put_until(store, writers, &next, started + time)?;
    Ok((next.get() - before) as f64 / started.elapsed().as_secs_f64())
}

/// Returns when all writers have been answered.
fn put_until(store: &dyn Engine, writers: u64, next: &Cell<u64>, end: Instant) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let writer = async || {
        while Instant::now() < end {
            let index = next.replace(next.get() + 1);
            store.put(records::pair(index)).await?;
        }
        anyhow::Ok(())
    };
    runtime.block_on(try_join_all((0..writers).map(|_| writer())))?;
    Ok(())
}
