//! Health of the store.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{StoreError, StoreHealth};

/// State shared by all readers and writers. Once stopped, it stays stopped.
#[derive(Debug, Default)]
pub(crate) struct Health {
    out_of_space: AtomicBool,
    stopped: OnceLock<StoreError>,
}

impl Health {
    /// Fails if the store has failed or was closed.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.stopped.get() {
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }

    /// Stops the store if this error requires it; keeps the first reason.
    pub(crate) fn note(&self, error: &StoreError) {
        if matches!(error, StoreError::Failed { .. }) && self.stopped.set(error.clone()).is_ok() {
            tracing::error!(%error, "the store has stopped");
        }
    }

    pub(crate) fn close(&self) {
        // A store that failed before keeps that reason.
        let _ = self.stopped.set(StoreError::Closed);
    }

    pub(crate) fn set_out_of_space(&self, is_out: bool) {
        match (self.out_of_space.swap(is_out, Ordering::Relaxed), is_out) {
            (false, true) => tracing::warn!("out of disk space: writes are refused"),
            (true, false) => tracing::info!("disk space is available again: writes are accepted"),
            _ => {}
        }
    }

    pub(crate) fn is_out_of_space(&self) -> bool {
        self.out_of_space.load(Ordering::Relaxed)
    }

    pub(crate) fn report(&self) -> StoreHealth {
        match self.stopped.get() {
            Some(why) => StoreHealth::Failed(why.to_string()),
            None if self.is_out_of_space() => StoreHealth::OutOfSpace,
            None => StoreHealth::Ok,
        }
    }
}
