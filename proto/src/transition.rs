//! Transitions on the wire.

use torc_ring::topology::{Losses, Transition, TransitionKind};

use crate::v1::{self, ChangeKind};

/// A transition, under way or ended.
#[must_use]
pub fn transition_to_wire(transition: &Transition) -> v1::Transition {
    let (done, active) = transition.counts();
    let ended = transition.ended_at_ms.is_some();
    v1::Transition {
        id: transition.id,
        kind: change_kind_to_wire(transition.kind).into(),
        node: transition.kind.node().map_or(0, |node| node.0),
        partitions_total: transition.total,
        partitions_done: if ended { transition.total } else { done },
        partitions_active: active,
        bytes_moved: transition.moved.bytes,
        records_moved: transition.moved.records,
        bytes_planned: transition.planned.bytes,
        records_planned: transition.planned.records,
        started_at_ms: transition.started_at_ms,
        ended_at_ms: transition.ended_at_ms.unwrap_or(0),
        replaced: replaced(transition.kind),
        aborted: transition.aborted,
        dead: transition.dead.iter().map(|node| node.0).collect(),
        namespaces: transition.namespaces.clone(),
        replicas_after: replicas_after(transition.kind),
    }
}

/// The number of replicas after an alteration; 0 for other changes.
#[must_use]
pub fn replicas_after(kind: TransitionKind) -> u32 {
    match kind {
        TransitionKind::Alter { replicas, .. } => replicas.into(),
        TransitionKind::Join(_)
        | TransitionKind::Leave(_)
        | TransitionKind::Replace { .. }
        | TransitionKind::Reweight { .. } => 0,
    }
}

/// The kind of a transition.
#[must_use]
pub const fn change_kind_to_wire(kind: TransitionKind) -> ChangeKind {
    match kind {
        TransitionKind::Join(_) => ChangeKind::Join,
        TransitionKind::Leave(_) => ChangeKind::Leave,
        TransitionKind::Replace { .. } => ChangeKind::Replace,
        TransitionKind::Reweight { .. } => ChangeKind::Reweight,
        TransitionKind::Alter { .. } => ChangeKind::Alter,
    }
}

/// The node that a replacement removes; 0 for other changes.
#[must_use]
pub const fn replaced(kind: TransitionKind) -> u64 {
    match kind {
        TransitionKind::Replace { old, .. } => old.0,
        _ => 0,
    }
}

/// What the loss of nodes costs.
#[must_use]
pub fn losses_to_wire(losses: Losses) -> v1::Losses {
    v1::Losses {
        replicas: losses.replicas.into(),
        majority: losses.majority,
        minority: losses.minority,
        none: losses.none,
    }
}
