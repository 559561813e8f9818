//! The faults of operations that did not succeed.

use torc_proto::{Fault, Reason};
use torc_record::Condition;
use torc_replication::Outcome;
use torc_ring::Partition;

/// The fault of an unsuccessful outcome.
pub(super) fn of(outcome: Outcome, condition: Option<Condition>, partition: Partition) -> Fault {
    match outcome {
        Outcome::Mismatch { current } => {
            let version = current.map(|(_, version)| version);
            Fault::new(Reason::ConditionNotMet, unmet(condition, version))
        }
        Outcome::Unknown => Fault::unknown(
            "too few replicas confirmed the write in time. It may still take effect: get the \
             key before you retry",
        ),
        Outcome::Overtaken => Fault::unknown(
            "another write of the key overtook this one, and too few replicas know whether this \
             one took effect: get the key before you retry",
        ),
        Outcome::OutOfSpace => Fault::new(
            Reason::OutOfSpace,
            format!(
                "too few replicas of partition {partition} have disk space, and nothing was \
                 changed: free space on the nodes that `kvctl status` shows as full, and retry"
            ),
        ),
        _ => no_quorum(partition),
    }
}

fn unmet(condition: Option<Condition>, version: Option<torc_record::Ballot>) -> String {
    let why = match (condition, version) {
        (Some(Condition::IfVersion(wanted)), Some(version)) => {
            format!("the key is at version {version}, not {wanted}")
        }
        (Some(Condition::IfVersion(wanted)), None) => {
            format!("the key has no value, so it is not at version {wanted}")
        }
        (Some(Condition::IfOlderThan(bound)), Some(version)) => {
            format!("the key is at version {version}, which is not older than {bound}")
        }
        (Some(Condition::IfOlderThan(bound)), None) => {
            format!(
                "the key has no value, and its last delete, expired write or collection is at {bound} or later"
            )
        }
        _ => "the key already has a value".to_owned(),
    };
    format!("{why}; nothing was changed")
}

/// No quorum of the partition's replicas answered.
pub(crate) fn no_quorum(partition: Partition) -> Fault {
    let message = format!(
        "too few replicas of partition {partition} respond, and nothing was changed: retry"
    );
    Fault::new(Reason::OwnerUnreachable, message)
}
