//! Ingests in progress, and those that wait for the thread that puts them in force.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::buffers::Buffers;
use super::file::{IngestFile, Ready, Region, SliceInfo};
use super::pace::Pace;
use crate::StoreError;

/// Longest sleep without a wake-up.
const NAP: Duration = Duration::from_millis(100);

/// The shared state of ingests.
#[derive(Debug, Default)]
pub(crate) struct Ingests {
    state: Mutex<State>,
    changed: Condvar,
    pub(super) buffers: Buffers,
    pub(super) pace: Pace,
}

#[derive(Debug, Default)]
struct State {
    /// The segment of new ingests.
    open: Option<Arc<IngestFile>>,
    /// An ingest has begun since memory was released.
    holds_memory: bool,
    is_stopping: bool,
}

impl Ingests {
    /// Reserves space in the segment of new ingests, and creates that segment if there is none.
    pub(super) fn reserve(
        &self,
        slices: &[SliceInfo],
        create: impl FnOnce() -> Result<IngestFile, StoreError>,
    ) -> Result<(Arc<IngestFile>, Vec<Region>), StoreError> {
        let mut state = self.state.lock();
        if state.is_stopping {
            return Err(StoreError::Closed);
        }
        state.holds_memory = true;
        let file = if let Some(open) = &state.open {
            Arc::clone(open)
        } else {
            let file = Arc::new(create()?);
            state.open = Some(Arc::clone(&file));
            file
        };
        let regions = file.reserve(slices);
        Ok((file, regions))
    }

    pub(super) fn wake(&self) {
        let _state = self.state.lock();
        self.changed.notify_one();
    }

    /// Hands over the slices of a partition to put in force; refuses them if the thread has ended.
    pub(super) fn deliver(&self, file: &IngestFile, ready: Ready) {
        let state = self.state.lock();
        file.finish(ready);
        if state.is_stopping {
            refuse(file);
        }
        self.changed.notify_one();
    }

    /// Accepts no more ingests.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopping = true;
        if let Some(open) = state.open.take() {
            refuse(&open);
        }
        self.changed.notify_one();
    }

    /// The next segment with waiting slices and no ingest in progress; `None` to stop. Removes
    /// segments in which all ingests were abandoned, with `remove`. Once no ingest has been in progress for a while,
    /// frees the buffers and calls `release`.
    pub(super) fn next(
        &self,
        remove: impl Fn(&Path),
        release: impl Fn(),
    ) -> Option<Arc<IngestFile>> {
        let mut state = self.state.lock();
        let mut leaving: Option<Arc<IngestFile>> = None;
        loop {
            if state.is_stopping {
                if let Some(leaving) = leaving {
                    refuse(&leaving);
                }
                return None;
            }
            if let Some(open) = state.open.take_if(|open| open.progress() == (false, false)) {
                remove(open.path());
            }
            if leaving.is_none() && state.open.as_ref().is_some_and(|open| open.progress().0) {
                // New ingests go to another segment, so that this one can be completed.
                leaving = state.open.take();
            }
            if let Some(file) = leaving.take_if(|file| !file.progress().1) {
                return Some(file);
            }
            let has_slept = self.changed.wait_for(&mut state, NAP).timed_out();
            let is_idle = has_slept && state.open.is_none() && leaving.is_none();
            if is_idle && std::mem::take(&mut state.holds_memory) {
                self.buffers.clear();
                MutexGuard::unlocked(&mut state, &release);
            }
        }
    }
}

/// Refuses all waiting slices of a segment that will not be completed.
fn refuse(file: &IngestFile) {
    for ready in file.take_ready() {
        // Fails if the caller is gone and needs no answer.
        drop(ready.done.send(Err(StoreError::Closed)));
    }
}
