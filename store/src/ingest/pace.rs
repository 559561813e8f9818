//! Lets gets go first: what ingests write goes to the disk piece by piece, with pauses.
//!
//! Otherwise the disk gets all written bytes at once, and a get whose record is not in the page cache waits
//! behind them.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::StoreError;

/// Bytes that go to the disk at a time.
const PIECE: u64 = 1 << 20;
/// While gets wait for the disk, the pause after a piece is this many times what the piece took.
const PAUSE: u32 = 4;
/// Longest pause: a sender that waits too long gives up.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The pace of all ingests together.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    unsynced: u64,
    cold_reads: u64,
}

impl Pace {
    /// Notes written bytes. After a piece of them, syncs, and if gets have waited for the disk since the last
    /// piece, pauses, as do all ingests that write meanwhile.
    ///
    /// # Errors
    /// Those of `sync`.
    pub(super) fn wrote(
        &self,
        bytes: u64,
        cold_reads: impl FnOnce() -> u64,
        sync: impl FnOnce() -> Result<(), StoreError>,
        pause: impl FnOnce(Duration),
    ) -> Result<(), StoreError> {
        let mut state = self.0.lock();
        state.unsynced += bytes;
        if state.unsynced < PIECE {
            return Ok(());
        }
        state.unsynced = 0;
        let begun = Instant::now();
        sync()?;
        let took = begun.elapsed();
        let cold_reads = cold_reads();
        if std::mem::replace(&mut state.cold_reads, cold_reads) != cold_reads {
            pause((took * PAUSE).min(LONGEST_PAUSE));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn pieces_are_synced_and_followed_by_a_pause_if_gets_waited() {
        const SYNC: Duration = Duration::from_millis(2);
        let pace = Pace::default();
        let wrote = |bytes, cold_reads| {
            let (synced, paused) = (Cell::new(false), Cell::new(None));
            let sync = || {
                std::thread::sleep(SYNC);
                synced.set(true);
                Ok(())
            };
            let pause = |time| paused.set(Some(time));
            pace.wrote(bytes, || cold_reads, sync, pause).unwrap();
            (synced.get(), paused.get())
        };
        assert_eq!(wrote(PIECE / 2, 0), (false, None));
        assert_eq!(wrote(PIECE / 2, 0), (true, None));
        assert_eq!(wrote(PIECE - 1, 7), (false, None));
        let (is_synced, pause) = wrote(PIECE, 7);
        assert!(is_synced && pause.unwrap() >= SYNC * PAUSE, "{pause:?}");
        assert_eq!(wrote(PIECE, 7), (true, None), "no get waited since then");
        let failing = || Err(StoreError::Closed);
        let failed = pace.wrote(PIECE, || 8, failing, |_| panic!("it failed"));
        assert!(matches!(failed, Err(StoreError::Closed)));
    }
}
