//! The faults of operations that did not succeed.

use std::time::Duration;

use torc_proto::{Fault, Reason};
use torc_record::Condition;
use torc_replication::Outcome;
use torc_ring::Partition;

use super::node::KvNode;

/// Advice to wait while replicas have been out of reach for longer than a restart takes: it exceeds the usual time of an
/// operation, so callers give up.
const OUTAGE: Duration = Duration::from_secs(10);

/// The fault of an unsuccessful outcome.
pub(super) fn of(
    node: &KvNode,
    outcome: Outcome,
    (condition, partition): (Option<Condition>, Partition),
) -> Fault {
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
        _ => advised(node, partition),
    }
}

/// As [`no_quorum`], with advice on when to try again.
pub(super) fn advised(node: &KvNode, partition: Partition) -> Fault {
    let fault = no_quorum(partition);
    if !is_out(node, partition) {
        return fault;
    }
    let message = format!(
        "too few replicas of partition {partition} have responded for some time, and nothing was changed: see \
         `kvctl status`"
    );
    Fault { message, ..fault }.retry_after(OUTAGE)
}

/// Whether a partition has no quorum without the replicas that have been out of reach for long.
fn is_out(node: &KvNode, partition: Partition) -> bool {
    let (Ok(table), Ok(registers)) = (node.member.routing(), node.member.registers()) else {
        return false;
    };
    let Some(state) = table.state(partition) else {
        return false;
    };
    let gone = registers.gone();
    !state.config.answering(|node| !gone.contains(&node)).1
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
