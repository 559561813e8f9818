//! The records that a collection drops.

use crate::{Ballot, State};

impl State {
    /// The one rule of collection: it drops a version at or below the watermark that is
    /// a tombstone, or a value that had expired by the watermark's own time.
    #[must_use]
    pub fn is_collected(&self, ballot: Ballot, watermark: Ballot) -> bool {
        let gone = match self {
            Self::Tombstone => true,
            Self::Value { expires_at_ms, .. } => {
                expires_at_ms.is_some_and(|at| at <= watermark.time.unix_ms())
            }
        };
        gone && ballot <= watermark
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, HybridTime, NodeSlot};

    fn ballot(epoch: u64, unix_ms: u64) -> Ballot {
        Ballot {
            epoch: Epoch(epoch),
            time: HybridTime::from_unix_ms(unix_ms),
            slot: NodeSlot(0),
        }
    }

    fn value(expires_at_ms: Option<u64>) -> State {
        State::Value {
            value: bytes::Bytes::new(),
            expires_at_ms,
        }
    }

    #[test]
    fn tombstones_and_what_had_expired_go_up_to_the_watermark() {
        let watermark = ballot(2, 100);
        assert!(State::Tombstone.is_collected(watermark, watermark));
        assert!(!State::Tombstone.is_collected(ballot(2, 101), watermark));
        assert!(
            State::Tombstone.is_collected(ballot(1, 500), watermark),
            "of an earlier epoch, whatever its time"
        );
        assert!(value(Some(100)).is_collected(ballot(2, 50), watermark));
        assert!(!value(Some(101)).is_collected(ballot(2, 50), watermark));
        assert!(!value(Some(100)).is_collected(ballot(3, 50), watermark));
        assert!(!value(None).is_collected(ballot(1, 1), watermark));
    }
}
