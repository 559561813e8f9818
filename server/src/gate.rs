//! The epoch fence of every partition, and the order between operations and a
//! change of epoch.
//!
//! An operation holds its partition's gate for reading while it works; adopting an
//! epoch takes the gate for writing. So when an epoch is adopted, every operation
//! of the one before has ended, and none of the new one has begun.

use std::time::Instant;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, watch};
use torc_proto::{Fault, Reason};
use torc_record::Epoch;
use torc_replication::{Fence, Role};
use torc_ring::{Layered, Partition, Partitions};

/// What this node has adopted for one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Adopted {
    /// The epoch.
    pub(crate) epoch: Epoch,
    /// This node's part in it.
    pub(crate) role: Role,
    /// False while a lead waits for the one it displaces to adopt this epoch.
    pub(crate) open: bool,
}

impl Adopted {
    pub(crate) fn new(epoch: Epoch, role: Role) -> Self {
        let waits = matches!(
            role,
            Role::Lead {
                displaces: Some(_),
                ..
            }
        );
        Self {
            epoch,
            role,
            open: !waits,
        }
    }
}

/// Nothing adopted yet.
impl Default for Adopted {
    fn default() -> Self {
        Self::new(Epoch(0), Role::Outsider)
    }
}

pub(crate) type Pass<'a> = RwLockReadGuard<'a, Adopted>;

/// One gate a partition.
#[derive(Debug)]
pub(crate) struct Gates {
    gates: Layered<RwLock<Adopted>>,
    /// Counts changes, for those who wait for one.
    changes: watch::Sender<u64>,
}

impl Gates {
    pub(crate) fn new(partitions: Partitions) -> Self {
        Self {
            gates: Layered::new(partitions),
            changes: watch::Sender::new(0),
        }
    }

    fn gate(&self, partition: Partition) -> Result<&RwLock<Adopted>, Fault> {
        self.gates.get(partition).ok_or_else(|| {
            Fault::new(
                Reason::Invalid,
                format!("partition {partition} does not exist"),
            )
        })
    }

    /// Passes the fence: with the epoch a message carries, or with whatever epoch is
    /// adopted when it carries none. Waits, until `deadline`, to adopt a newer one.
    pub(crate) async fn enter(
        &self,
        partition: Partition,
        message: Option<Epoch>,
        deadline: Instant,
    ) -> Result<Pass<'_>, Fault> {
        let gate = self.gate(partition)?;
        let mut changes = self.changes.subscribe();
        loop {
            let pass = match gate.try_read() {
                Ok(pass) => pass,
                Err(_) => before(deadline, gate.read()).await?,
            };
            match message.map_or(Fence::Pass, |epoch| Fence::check(pass.epoch, epoch)) {
                Fence::Pass => return Ok(pass),
                Fence::Refuse => return Err(stale(partition, pass.epoch)),
                Fence::AdoptFirst => drop(pass),
            }
            before(deadline, changes.changed())
                .await?
                .map_err(|_| stopping())?;
        }
    }

    /// Passes as the serving lead; waits while the lead is not open yet.
    pub(crate) async fn enter_as_lead(
        &self,
        partition: Partition,
        message: Option<Epoch>,
        deadline: Instant,
    ) -> Result<Pass<'_>, Fault> {
        let mut changes = self.changes.subscribe();
        loop {
            let pass = self.enter(partition, message, deadline).await?;
            match pass.role {
                Role::Lead { .. } if pass.open => return Ok(pass),
                Role::Lead { .. } => drop(pass),
                Role::Follower { .. } | Role::Newcomer { .. } | Role::Outsider => {
                    return Err(stale(partition, pass.epoch));
                }
            }
            before(deadline, changes.changed())
                .await?
                .map_err(|_| stopping())?;
        }
    }

    /// As [`Gates::enter_as_lead`], if that can be had without waiting. Several of these
    /// may be held at a time.
    pub(crate) fn try_enter_as_lead(
        &self,
        partition: Partition,
        message: Option<Epoch>,
    ) -> Option<Pass<'_>> {
        let pass = self.gate(partition).ok()?.try_read().ok()?;
        let passes = message.is_none_or(|epoch| Fence::check(pass.epoch, epoch) == Fence::Pass);
        let serves = matches!(pass.role, Role::Lead { .. }) && pass.open;
        (passes && serves).then_some(pass)
    }

    /// Stops the partition: no operation is under way, none begins while this is held.
    pub(crate) async fn close(
        &self,
        partition: Partition,
    ) -> Result<RwLockWriteGuard<'_, Adopted>, Fault> {
        Ok(self.gate(partition)?.write().await)
    }

    /// Adopts an epoch once the operations of the one before have ended. An older
    /// epoch than the adopted one changes nothing.
    pub(crate) async fn adopt(&self, partition: Partition, adopted: Adopted) {
        let Some(gate) = self.gates.get(partition) else {
            return;
        };
        let mut held = gate.write().await;
        if adopted.epoch > held.epoch {
            *held = adopted;
        }
    }

    /// Opens a lead that waited, if it is still in that epoch.
    pub(crate) async fn open(&self, partition: Partition, epoch: Epoch) {
        let Some(gate) = self.gates.get(partition) else {
            return;
        };
        let mut held = gate.write().await;
        if held.epoch == epoch {
            held.open = true;
        }
        drop(held);
        self.announce();
    }

    /// Wakes whoever waits for a change.
    pub(crate) fn announce(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What is adopted now. Waits for a change that is under way.
    pub(crate) async fn adopted(&self, partition: Partition) -> Option<Adopted> {
        match self.gates.get(partition) {
            Some(gate) => Some(*gate.read().await),
            None => None,
        }
    }
}

pub(crate) fn stale(partition: Partition, adopted: Epoch) -> Fault {
    let message = format!(
        "partition {partition} is in epoch {adopted} and served elsewhere or otherwise: fetch the topology"
    );
    Fault::new(Reason::StaleEpoch, message).at(adopted)
}

fn stopping() -> Fault {
    Fault::new(Reason::NotServing, "the node is stopping: try another one")
}

/// Waits for a future until the deadline of an operation that has not begun.
pub(crate) async fn before<T>(
    deadline: Instant,
    future: impl Future<Output = T>,
) -> Result<T, Fault> {
    tokio::time::timeout_at(deadline.into(), future)
        .await
        .map_err(|_| {
            Fault::new(
                Reason::Deadline,
                "the time was over before the operation began: try again",
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;
    use torc_ring::NodeId;

    const P: Partition = Partition(0);
    const LEAD: Role = Role::Lead {
        partner: None,
        displaces: None,
    };

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    async fn gates_at(epoch: u64, role: Role) -> Arc<Gates> {
        let gates = Arc::new(Gates::new(Partitions::DEFAULT));
        gates.adopt(P, Adopted::new(Epoch(epoch), role)).await;
        gates
    }

    #[tokio::test]
    async fn a_stale_epoch_is_refused_with_ours() {
        let gates = gates_at(7, LEAD).await;
        let fault = gates.enter(P, Some(Epoch(6)), soon()).await.unwrap_err();
        assert_eq!(
            (fault.reason, fault.epoch),
            (Reason::StaleEpoch, Some(Epoch(7)))
        );
    }

    #[tokio::test]
    async fn a_newer_epoch_waits_until_it_is_adopted() {
        let gates = gates_at(7, LEAD).await;
        let waiting = Arc::clone(&gates);
        let entered = tokio::spawn(async move {
            waiting
                .enter_as_lead(P, Some(Epoch(8)), soon())
                .await
                .map(|pass| pass.epoch)
        });
        tokio::task::yield_now().await;
        gates.adopt(P, Adopted::new(Epoch(8), LEAD)).await;
        gates.announce();
        assert_eq!(entered.await.unwrap(), Ok(Epoch(8)));
    }

    #[tokio::test]
    async fn a_lead_that_displaces_another_waits_until_it_is_opened() {
        let role = Role::Lead {
            partner: Some(NodeId(1)),
            displaces: Some(NodeId(1)),
        };
        let gates = gates_at(7, role).await;
        let over = Instant::now();
        let fault = gates.enter_as_lead(P, None, over).await.unwrap_err();
        assert_eq!(
            fault.reason,
            Reason::Deadline,
            "not open: it must not answer"
        );
        gates.open(P, Epoch(6)).await;
        assert!(
            gates.enter_as_lead(P, None, over).await.is_err(),
            "opened for another epoch"
        );
        gates.open(P, Epoch(7)).await;
        assert!(gates.enter_as_lead(P, None, soon()).await.is_ok());
    }

    #[tokio::test]
    async fn adopting_waits_for_operations_under_way() {
        let gates = gates_at(7, LEAD).await;
        let pass = gates.enter(P, None, soon()).await.unwrap();
        let adopting = Arc::clone(&gates);
        let next = Adopted::new(Epoch(8), Role::Outsider);
        let adopted = tokio::spawn(async move { adopting.adopt(P, next).await });
        tokio::task::yield_now().await;
        assert!(
            !adopted.is_finished(),
            "the operation of epoch 7 has not ended"
        );
        drop(pass);
        adopted.await.unwrap();
        assert_eq!(gates.adopted(P).await, Some(next));
    }

    #[tokio::test]
    async fn an_older_topology_changes_nothing() {
        let gates = gates_at(7, LEAD).await;
        gates.adopt(P, Adopted::new(Epoch(6), Role::Outsider)).await;
        assert_eq!(gates.adopted(P).await, Some(Adopted::new(Epoch(7), LEAD)));
    }
}
