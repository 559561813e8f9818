//! Get, put and delete as the partition's lead.
//!
//! The lead orders the writes of a key: ballots come from one clock, unconditional
//! writes of a key may run side by side (the higher ballot wins in the store), and a
//! conditional write has its key for itself from the check until it is durable.

use std::sync::Arc;
use std::time::{Duration, Instant};

use torc_proto::v1::{
    Consistency, DeleteRequest, DeleteResponse, GetRequest, GetResponse, PutRequest, PutResponse,
};
use torc_proto::{Fault, Reason, record_to_wire, version_to_wire};
use torc_record::{Ballot, Epoch, Record, State};
use torc_replication::{Progress, Role, WriteOp};
use torc_ring::topology::RoutingTable;
use torc_ring::{NodeId, Partition};

use super::request::{Condition, Target, Trust, check_value};
use super::{forward, register};
use crate::clock::unix_ms;
use crate::gate::{Adopted, Pass, stale};
use crate::hot;
use crate::peers::within;
use crate::shared::{Shared, store_fault};

/// How long the other side of a move has for one write before it is asked again.
const PARTNER_TIMEOUT: Duration = Duration::from_secs(1);
const PARTNER_BACKOFF: Duration = Duration::from_millis(10);

pub(super) async fn get(
    shared: &Arc<Shared>,
    request: GetRequest,
    deadline: Instant,
) -> Result<GetResponse, Fault> {
    let table = shared.routing()?;
    let stale_allowed = request.consistency() == Consistency::Stale;
    let GetRequest {
        namespace,
        key,
        digest,
        route,
        ..
    } = request;
    let target = Target::check(&table, &namespace, key, &digest, route, Trust::Given)?;
    if stale_allowed && let Some(found) = find(shared, &target)? {
        count(&target);
        return Ok(answer(Some(found)));
    }
    if target.epoch.is_some() {
        return get_here(shared, &target, deadline).await;
    }
    forward::get(shared, &namespace, &target, deadline).await
}

pub(super) async fn get_here(
    shared: &Arc<Shared>,
    target: &Target,
    deadline: Instant,
) -> Result<GetResponse, Fault> {
    if let Some(registers) = shared.registers.get() {
        return register::get(shared, registers, target, deadline).await;
    }
    let _pass = shared
        .gates
        .enter_as_lead(target.partition, target.epoch, deadline)
        .await?;
    count(target);
    Ok(answer(find(shared, target)?))
}

/// Counts an access that is answered here.
pub(super) fn count(target: &Target) {
    hot::count(target.namespace, &target.digest, target.key.as_bytes());
}

pub(crate) fn find(shared: &Shared, target: &Target) -> Result<Option<Record>, Fault> {
    shared
        .store
        .get(target.namespace, &target.digest, target.key.as_bytes())
        .map_err(|error| store_fault(&error))
}

pub(super) fn answer(found: Option<Record>) -> GetResponse {
    let Some(record) = found else {
        return GetResponse::default();
    };
    let Some(value) = record.visible(unix_ms()) else {
        return GetResponse::default();
    };
    GetResponse {
        found: true,
        value: value.clone(),
        version: Some(version_to_wire(record.version())),
        expires_at_ms: record.expires_at_ms().unwrap_or(0),
    }
}

pub(super) async fn put(
    shared: &Arc<Shared>,
    request: PutRequest,
    deadline: Instant,
) -> Result<PutResponse, Fault> {
    let table = shared.routing()?;
    check_value(&request.value)?;
    let key = request.key.clone();
    let target = Target::check(
        &table,
        &request.namespace,
        key,
        &request.digest,
        request.route,
        Trust::Recompute,
    )?;
    if target.epoch.is_some() {
        return put_here(shared, &target, request, deadline).await;
    }
    forward::put(shared, &target, request, deadline).await
}

pub(super) async fn put_here(
    shared: &Arc<Shared>,
    target: &Target,
    request: PutRequest,
    deadline: Instant,
) -> Result<PutResponse, Fault> {
    let condition = Condition::from_wire(request.condition)?;
    let expires_at_ms = (request.ttl_ms != 0).then(|| unix_ms().saturating_add(request.ttl_ms));
    let state = State::Value {
        value: request.value,
        expires_at_ms,
    };
    if let Some(registers) = shared.registers.get() {
        return register::put(shared, registers, target, (condition, state), deadline).await;
    }
    let (written, _) = Write {
        shared,
        target,
        condition,
        state,
        deadline,
    }
    .run()
    .await?;
    Ok(PutResponse {
        version: Some(version_to_wire(written)),
    })
}

pub(super) async fn delete(
    shared: &Arc<Shared>,
    request: DeleteRequest,
    deadline: Instant,
) -> Result<DeleteResponse, Fault> {
    let table = shared.routing()?;
    let key = request.key.clone();
    let target = Target::check(
        &table,
        &request.namespace,
        key,
        &request.digest,
        request.route,
        Trust::Recompute,
    )?;
    if target.epoch.is_some() {
        return delete_here(shared, &target, request, deadline).await;
    }
    forward::delete(shared, &target, request, deadline).await
}

pub(super) async fn delete_here(
    shared: &Arc<Shared>,
    target: &Target,
    request: DeleteRequest,
    deadline: Instant,
) -> Result<DeleteResponse, Fault> {
    let condition = Condition::from_wire(request.condition)?;
    if let Some(registers) = shared.registers.get() {
        return register::delete(shared, registers, target, condition, deadline).await;
    }
    let state = State::Tombstone;
    let (written, existed) = Write {
        shared,
        target,
        condition,
        state,
        deadline,
    }
    .run()
    .await?;
    Ok(DeleteResponse {
        existed,
        version: Some(version_to_wire(written)),
    })
}

/// One write of this node as the lead.
pub(super) struct Write<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) target: &'a Target,
    pub(super) condition: Option<Condition>,
    pub(super) state: State,
    pub(super) deadline: Instant,
}

/// What asking the partner once told.
enum Asked {
    Accepted,
    /// It did not and will not store the write in this epoch.
    Refused,
    /// Never reached it.
    Unreached,
    /// It may have stored the write.
    Unknown,
}

impl Write<'_> {
    /// Writes, and returns the version and whether there was a value before.
    pub(super) async fn run(self) -> Result<(Ballot, bool), Fault> {
        let alone = self.condition.is_some() || self.state == State::Tombstone;
        let _order = self.shared.order.hold(&self.target.digest, alone).await;
        let pass = self.enter(self.target.epoch).await?;
        count(self.target);
        let table = self.shared.routing()?;
        let before = self.before()?;
        let existed = before
            .as_ref()
            .is_some_and(|record| record.visible(unix_ms()).is_some());
        self.check_condition(before.as_ref(), existed)?;
        let seen = before.map(|record| record.ballot.time).unwrap_or_default();
        let record = Record {
            namespace: self.target.namespace,
            digest: self.target.digest,
            key: self.target.key.clone(),
            ballot: Ballot {
                epoch: pass.epoch,
                time: self.shared.clock.tick_after(seen),
                slot: self.shared.slot(&table)?,
            },
            origin: None,
            state: self.state.clone(),
        };
        let ballot = record.ballot;
        self.store(pass, record).await?;
        Ok((ballot, existed))
    }

    async fn enter(&self, epoch: Option<Epoch>) -> Result<Pass<'_>, Fault> {
        self.shared
            .gates
            .enter_as_lead(self.target.partition, epoch, self.deadline)
            .await
    }

    /// What the key holds. A plain put goes on where that cannot be read any more: the
    /// clock is beyond every ballot that this node has ever stored, so it supersedes it.
    fn before(&self) -> Result<Option<Record>, Fault> {
        let found = find(self.shared, self.target);
        let is_plain = self.condition.is_none() && matches!(self.state, State::Value { .. });
        match found {
            Err(fault) if is_plain && fault.reason == Reason::Corrupt => Ok(None),
            found => found,
        }
    }

    fn check_condition(&self, before: Option<&Record>, existed: bool) -> Result<(), Fault> {
        let unmet = match self.condition {
            None => return Ok(()),
            Some(Condition::IfAbsent) if !existed => return Ok(()),
            Some(Condition::IfVersion(wanted))
                if existed && before.is_some_and(|record| record.version() == wanted) =>
            {
                return Ok(());
            }
            Some(Condition::IfAbsent) => "the key has a value already".to_owned(),
            Some(Condition::IfVersion(wanted)) => match before.filter(|_| existed) {
                Some(record) => format!("the key is at version {}, not {wanted}", record.version()),
                None => format!("the key has no value, so it is not at version {wanted}"),
            },
        };
        Err(Fault::new(Reason::ConditionNotMet, unmet))
    }

    /// Makes the record durable wherever the stage asks for it. Across a change of
    /// epoch the same write goes on as long as this node stays the lead: its own copy
    /// decides what happened.
    async fn store<'s>(&'s self, mut pass: Pass<'s>, record: Record) -> Result<(), Fault> {
        let mut maybe_at_partner = false;
        loop {
            let adopted = *pass;
            let Role::Lead { partner, .. } = adopted.role else {
                return Err(self.gave_up(adopted.epoch, maybe_at_partner));
            };
            let mut write = WriteOp::new(partner);
            if let Progress::Ask(partner) = write.next() {
                match self
                    .ask(partner, adopted, &record, &mut maybe_at_partner)
                    .await
                {
                    Ok(true) => write.on_accepted(partner),
                    Ok(false) => {
                        drop(pass);
                        pass = self.enter_next(adopted.epoch, maybe_at_partner).await?;
                        continue;
                    }
                    Err(fault) => return Err(fault),
                }
            }
            let stored = self.shared.store.write(record).await;
            return stored.map_err(|error| {
                let fault = store_fault(&error);
                let maybe_applied = fault.maybe_applied || write.is_ambiguous(maybe_at_partner);
                Fault {
                    maybe_applied,
                    ..fault
                }
            });
        }
    }

    /// Asks the partner until it has the write (true), or the epoch is over (false).
    async fn ask(
        &self,
        partner: NodeId,
        adopted: Adopted,
        record: &Record,
        maybe_at_partner: &mut bool,
    ) -> Result<bool, Fault> {
        loop {
            match ask_once(
                self.shared,
                partner,
                self.target.partition,
                adopted.epoch,
                record,
            )
            .await
            {
                Asked::Accepted => {
                    *maybe_at_partner = true;
                    return Ok(true);
                }
                Asked::Refused => return Ok(false),
                Asked::Unreached => {}
                Asked::Unknown => *maybe_at_partner = true,
            }
            let table = self.shared.routing()?;
            if table
                .state(self.target.partition)
                .is_some_and(|now| now.epoch > adopted.epoch)
            {
                return Ok(false);
            }
            if Instant::now() + PARTNER_BACKOFF >= self.deadline {
                return Err(self.partner_silent(partner, *maybe_at_partner));
            }
            tokio::time::sleep(PARTNER_BACKOFF).await;
        }
    }

    /// Waits for the epoch after `epoch`.
    async fn enter_next(&self, epoch: Epoch, maybe: bool) -> Result<Pass<'_>, Fault> {
        let next = async {
            let mut changes = self.shared.gates.subscribe();
            loop {
                let pass = self.enter(None).await?;
                if pass.epoch > epoch {
                    return Ok(pass);
                }
                drop(pass);
                crate::gate::before(self.deadline, changes.changed())
                    .await?
                    .map_err(|_| {
                        Fault::new(Reason::NotServing, "the node is stopping: try another one")
                    })?;
            }
        };
        next.await.map_err(|fault: Fault| {
            if maybe {
                self.gave_up(fault.epoch.unwrap_or(epoch), maybe)
            } else {
                fault
            }
        })
    }

    fn gave_up(&self, epoch: Epoch, maybe_at_partner: bool) -> Fault {
        if maybe_at_partner {
            let message = "the partition moved while the write was under way; it may or may not \
                           take effect: read the key before deciding";
            return Fault::unknown(message).at(epoch);
        }
        stale(self.target.partition, epoch)
    }

    fn partner_silent(&self, partner: NodeId, maybe: bool) -> Fault {
        let message = format!(
            "partition {} is moving and node {partner} does not answer",
            self.target.partition
        );
        if maybe {
            Fault::unknown(format!("{message}: the write may or may not take effect"))
        } else {
            Fault::new(Reason::OwnerUnreachable, format!("{message}: try again"))
        }
    }
}

async fn ask_once(
    shared: &Shared,
    partner: NodeId,
    partition: Partition,
    epoch: Epoch,
    record: &Record,
) -> Asked {
    let Ok(table) = shared.routing() else {
        return Asked::Unreached;
    };
    accept_at(
        shared,
        &table,
        partner,
        partition,
        epoch,
        vec![record.clone()],
    )
    .await
}

/// Sends records of a partition to another node and waits until it has them.
async fn accept_at(
    shared: &Shared,
    table: &RoutingTable,
    node: NodeId,
    partition: Partition,
    epoch: Epoch,
    records: Vec<Record>,
) -> Asked {
    let Some(mut client) = table
        .address(node)
        .and_then(|address| shared.peers.replica(address).ok())
    else {
        return Asked::Unreached;
    };
    let request = torc_proto::v1::AcceptRequest {
        partition: partition.0,
        epoch: epoch.0,
        records: records.into_iter().map(record_to_wire).collect(),
    };
    match client.accept(within(PARTNER_TIMEOUT, request)).await {
        Ok(accepted) => {
            let time = torc_record::HybridTime(accepted.into_inner().highest_time);
            shared.clock.observe(time);
            Asked::Accepted
        }
        Err(status) => {
            let fault = Fault::from_status(&status);
            match fault.reason {
                _ if fault.maybe_applied => Asked::Unknown,
                Reason::StaleEpoch => Asked::Refused,
                _ => Asked::Unreached,
            }
        }
    }
}
