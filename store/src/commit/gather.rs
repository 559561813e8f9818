//! Decides whether to wait briefly for a fuller batch.
//!
//! Writers that write again immediately after each answer split into two halves: one is in the
//! batch being synced, the other waits for it, so every batch is half full. Waiting for the writers
//! that were just answered joins the halves: twice the writes per sync, and a latency of one sync
//! instead of one and a half.
//!
//! Writers that do not return must not cost more than this gains: the wait is at most a
//! quarter of a sync, and each useless wait causes more of the next ones to be skipped,
//! until one pays off again.

use std::time::Duration;

const LONGEST_WAIT: Duration = Duration::from_millis(1);
const FIRST_PENALTY: u32 = 8;
const LAST_PENALTY: u32 = 512;

/// What earlier batches have shown.
#[derive(Debug)]
pub(super) struct Gather {
    expected: usize,
    timeout: Duration,
    skips_left: u32,
    penalty: u32,
}

impl Default for Gather {
    fn default() -> Self {
        Self {
            expected: 0,
            timeout: Duration::ZERO,
            skips_left: 0,
            penalty: FIRST_PENALTY,
        }
    }
}

impl Gather {
    /// Records a batch: the number of operations answered, the number already waiting, and the
    /// duration of its sync.
    pub(super) fn note_batch(&mut self, answered: usize, waiting: usize, sync: Duration) {
        self.expected = answered + waiting;
        self.timeout = (sync / 4).min(LONGEST_WAIT);
        self.skips_left = self.skips_left.saturating_sub(1);
    }

    /// The number of operations to wait for, and the time limit.
    pub(super) fn target(&self) -> Option<(usize, Duration)> {
        (self.skips_left == 0 && self.expected > 1).then_some((self.expected, self.timeout))
    }

    /// Records whether the wait paid off.
    pub(super) fn note_wait(&mut self, was_fulfilled: bool) {
        if was_fulfilled {
            self.penalty = FIRST_PENALTY;
        } else {
            self.skips_left = self.penalty;
            self.penalty = (self.penalty * 2).min(LAST_PENALTY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_micros(100);

    #[test]
    fn it_waits_for_those_answered_and_those_waiting_a_quarter_of_a_sync() {
        let mut gather = Gather::default();
        assert_eq!(gather.target(), None, "nothing is known yet");
        gather.note_batch(32, 32, SYNC);
        assert_eq!(gather.target(), Some((64, SYNC / 4)));
        gather.note_batch(2, 0, Duration::from_secs(1));
        assert_eq!(gather.target(), Some((2, LONGEST_WAIT)));
        gather.note_batch(1, 0, SYNC);
        assert_eq!(
            gather.target(),
            None,
            "a single writer has nothing to wait for"
        );
    }

    #[test]
    fn waits_in_vain_become_rare_until_one_pays_off() {
        let mut gather = Gather::default();
        let mut waits = 0;
        for _ in 0..10_000 {
            gather.note_batch(10, 10, SYNC);
            if gather.target().is_some() {
                waits += 1;
                gather.note_wait(false);
            }
        }
        assert!(waits < 30, "{waits} waits in vain");
        while gather.target().is_none() {
            gather.note_batch(10, 10, SYNC);
        }
        gather.note_wait(true);
        gather.note_batch(10, 10, SYNC);
        assert!(gather.target().is_some());
    }
}
