//! The faults of a member that cannot do what was asked.

use torc_proto::{Fault, Reason};
use torc_record::Epoch;
use torc_ring::Partition;
use torc_store::StoreError;

/// The partition has moved in epoch `adopted`.
#[must_use]
pub fn stale(partition: Partition, adopted: Epoch) -> Fault {
    let message =
        format!("partition {partition} moved in epoch {adopted}: refresh the topology and retry");
    Fault::new(Reason::StaleEpoch, message).at(adopted)
}

/// The fault that clients get for a store's error.
#[must_use]
pub fn store_fault(error: &StoreError) -> Fault {
    let reason = match error {
        StoreError::OutOfSpace => Reason::OutOfSpace,
        StoreError::Refused(_) | StoreError::Keyless { .. } => Reason::Invalid,
        StoreError::Corrupt { .. }
        | StoreError::LostBatch { .. }
        | StoreError::Damaged { .. }
        | StoreError::BadIngest { .. } => Reason::Corrupt,
        StoreError::Failed { .. } | StoreError::Closed | StoreError::NotHeld { .. } => {
            Reason::NotServing
        }
        _ => Reason::Internal,
    };
    Fault {
        maybe_applied: error.outcome_unknown(),
        ..Fault::new(reason, error.to_string())
    }
}
