//! The bytes of a replica's facts.
//!
//! Facts are separate entries in the log; when the log is cut, the manifest carries the facts of
//! all partitions on. In bytes, little-endian:
//!
//! | bytes | facts |
//! |---|---|
//! | 8 | epoch |
//! | 8 | since |
//! | 8 | ceiling |
//! | 18 | collected: epoch (8), hybrid time (8), node slot (2) |
//! | 18 | collecting |
//!
//! The replica interprets them. The store keeps them; of these facts it reads only `collecting`, to
//! tell which records a collection may drop soon. The *watermark* of a partition belongs to the
//! store: the highest ballot of a purge since the last wipe. So does the highest ballot of a record, which
//! outlives wipes.

use torc_record::{Ballot, Epoch, HybridTime, ReplicaFacts};

use crate::format::{BALLOT_LEN, ballot_at, ballot_bytes, u64_at};

/// Bytes of a partition's facts.
pub(crate) const META_LEN: usize = 24 + 2 * BALLOT_LEN;

/// Facts as bytes.
pub(crate) fn facts_bytes(facts: &ReplicaFacts) -> [u8; META_LEN] {
    let mut out = [0; META_LEN];
    out[..8].copy_from_slice(&facts.epoch.0.to_le_bytes());
    out[8..16].copy_from_slice(&facts.since.0.to_le_bytes());
    out[16..24].copy_from_slice(&facts.ceiling.0.to_le_bytes());
    out[24..42].copy_from_slice(&ballot_bytes(facts.collected));
    out[42..].copy_from_slice(&ballot_bytes(facts.collecting));
    out
}

/// Reads facts at an offset; the caller guarantees that they exist.
pub(crate) fn facts_at(bytes: &[u8], at: usize) -> ReplicaFacts {
    ReplicaFacts {
        epoch: Epoch(u64_at(bytes, at)),
        since: Epoch(u64_at(bytes, at + 8)),
        ceiling: HybridTime(u64_at(bytes, at + 16)),
        collected: ballot_at(bytes, at + 24),
        collecting: ballot_at(bytes, at + 42),
    }
}

/// All durable state of a partition beside its records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) meta: ReplicaFacts,
    pub(crate) watermark: Ballot,
    /// The highest ballot of a record that is or was stored.
    pub(crate) highest: Ballot,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::packed::tests::unhex;
    use torc_record::NodeSlot;

    pub(crate) fn meta() -> ReplicaFacts {
        let ballot = |slot| Ballot {
            epoch: Epoch(4),
            time: HybridTime(5),
            slot: NodeSlot(slot),
        };
        ReplicaFacts {
            epoch: Epoch(1),
            since: Epoch(2),
            ceiling: HybridTime(3),
            collected: ballot(6),
            collecting: ballot(7),
        }
    }

    #[test]
    fn the_bytes_of_facts_do_not_change() {
        let golden = unhex(
            "0100000000000000 0200000000000000 0300000000000000
             0400000000000000 0500000000000000 0600
             0400000000000000 0500000000000000 0700",
        );
        assert_eq!(facts_bytes(&meta()), golden[..]);
        assert_eq!(facts_at(&golden, 0), meta());
    }
}
