//! Counts the starts of a data directory, to detect an older copy or a clone of it.
//!
//! A start durably takes the number after the last confirmed one, and a random draw. It keeps
//! both until the topology group has confirmed them; only then does the node act as a replica.
//! So a copy of a directory takes a number that its original has already taken, with a different
//! draw, unless it was made while a start was not confirmed. See `docs/decisions/boot-counter.md`.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde::{Deserialize, Serialize};
use torc_group::GroupError;
use torc_member::identity::{IdentityError, Membership};
use torc_member::peers::within;
use torc_proto::v1::{IdentifyRequest, Start};
use torc_proto::{DATA_DIR_ADVICE, Fault, Reason};
use torc_record::HybridTime;
use torc_ring::NodeId;
use torc_ring::topology::{Boot, Command, TopologyError};
use torc_store::{LogTail, Recovery, Store, StoreError};

use crate::own_node::OwnNode;

pub(crate) const BOOT: &str = "boot";
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
const PROPOSE_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(100);

/// A start, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Taken {
    boot: Boot,
    confirmed: bool,
}

/// The start that this process will take; writes nothing.
pub(crate) fn next(store: &Store) -> Result<Boot, IdentityError> {
    let Some(bytes) = store.meta_get(BOOT)? else {
        return Ok(after(0));
    };
    let taken: Taken =
        serde_json::from_slice(&bytes).map_err(|_| IdentityError::Malformed { name: BOOT })?;
    Ok(if taken.confirmed {
        after(taken.boot.number)
    } else {
        taken.boot
    })
}

/// No earlier process of the data directory has used a clock reading above this one. If the end of the log was just
/// cut off, any reading may have been used.
pub(crate) fn ceiling(store: &Store, recovery: &Recovery) -> HybridTime {
    match recovery.log_tail {
        LogTail::Damaged { .. } => HybridTime(u64::MAX),
        LogTail::Whole | LogTail::Torn { .. } => store.node_ceiling(),
    }
}

fn after(number: u64) -> Boot {
    Boot {
        number: number + 1,
        draw: rand::random(),
    }
}

/// The number of the last start that the topology group has confirmed, as far as the store knows.
pub(crate) fn last_confirmed(store: &Store) -> Result<u64, IdentityError> {
    let next = next(store)?;
    Ok(next.number.saturating_sub(1))
}

/// Durably takes a start. Writes nothing if it was taken before.
pub(crate) fn take(store: &Store, boot: Boot) -> Result<(), StoreError> {
    write(store, boot, false)
}

fn write(store: &Store, boot: Boot, confirmed: bool) -> Result<(), StoreError> {
    let json = serde_json::to_vec(&Taken { boot, confirmed }).unwrap_or_default();
    if store.meta_get(BOOT)?.as_ref() == Some(&json) {
        return Ok(());
    }
    store.meta_set(BOOT, &json)
}

/// Refuses to join a cluster whose feature level this release does not support, as far as this node
/// knows that level.
pub(crate) fn check_level(own: &OwnNode, me: Membership) -> Result<(), TopologyError> {
    let Some(topology) = own.group.topology() else {
        return Ok(());
    };
    let who = format!("this node ({} of cluster {})", me.node, me.cluster);
    let release = &own.settings.release;
    release.check_works_at(topology.feature_level(), who)
}

/// Refuses to run with a copy of the data directory, as far as other nodes know that it is one.
pub(crate) async fn check(own: &OwnNode, me: Membership) -> Result<(), Fault> {
    check_alone(own, me).await?;
    check_current(own, me).await
}

/// Refuses to run beside another process with a copy of this data directory, found at the address
/// that the topology has for this node.
async fn check_alone(own: &OwnNode, me: Membership) -> Result<(), Fault> {
    let topology = own.group.topology();
    let member = topology.as_ref().and_then(|it| it.members().get(&me.node));
    let Some(address) = member.map(|member| member.identity.peer_address.clone()) else {
        return Ok(());
    };
    let mut client = own.member.peers.stranger(&address)?;
    let Ok(found) = client
        .identify(within(ASK_TIMEOUT, IdentifyRequest::default()))
        .await
    else {
        return Ok(());
    };
    let found = found.into_inner();
    let boot = found.boot.map(Boot::from).unwrap_or_default();
    if found.incarnation[..] != own.member.identity.incarnation.0 || boot == own.boot {
        return Ok(());
    }
    let message = format!(
        "node {} is already running at {address}: this data directory is a clone of that node's. {DATA_DIR_ADVICE}",
        me.node
    );
    Err(Fault::new(Reason::Superseded, message))
}

/// Refuses to run with an older copy of the data directory, if another member has received later writes from it. Before the
/// group confirms this start, which would supersede the original.
async fn check_current(own: &OwnNode, me: Membership) -> Result<(), Fault> {
    let topology = own.group.topology();
    let members = topology.iter().flat_map(|it| it.members());
    let others = members.filter(|(node, _)| **node != me.node);
    let start = Start {
        node: me.node.0,
        incarnation: own.member.identity.incarnation.0.to_vec().into(),
        ceiling: own.ceiling.0,
    };
    let asking = others.map(async |(_, other)| {
        let start = Some(start.clone());
        let mut client = own.member.peers.stranger(&other.identity.peer_address)?;
        let request = within(ASK_TIMEOUT, IdentifyRequest { start });
        let asked = client.identify(request).await;
        asked.map_err(|status| Fault::from_status(&status))
    });
    let answers = join_all(asking).await.into_iter();
    let mut faults = answers.filter_map(Result::err);
    let superseded = faults.find(|fault| fault.reason == Reason::Superseded);
    superseded.map_or(Ok(()), Err)
}

/// Waits until the topology group has confirmed this start. A refusal stops the node.
pub(crate) async fn confirm(own: Arc<OwnNode>) {
    let mut topologies = own.group.watch();
    loop {
        let member = own.member.identity.node().filter(|me| {
            let topology = topologies.borrow_and_update();
            topology
                .as_ref()
                .is_some_and(|it| it.members().contains_key(me))
        });
        let Some(node) = member else {
            if topologies.changed().await.is_err() {
                return;
            }
            continue;
        };
        match try_confirm(&own, node).await {
            Ok(()) => {
                own.member.confirmed.send_replace(true);
                return;
            }
            Err(Unconfirmed::ForEver(why)) => return own.group.disown(&why),
            Err(Unconfirmed::Yet(fault)) if fault.reason == Reason::NoSuchNode => {
                tracing::warn!(%node, "this node has left its cluster: start it with an empty data directory");
                return;
            }
            Err(Unconfirmed::Yet(fault)) => {
                tracing::debug!(%fault, "the topology group has not confirmed this start yet");
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Why a start is not confirmed.
enum Unconfirmed {
    /// The group will never confirm it: the node must stop.
    ForEver(String),
    /// A retry may succeed.
    Yet(Fault),
}

async fn try_confirm(own: &OwnNode, node: NodeId) -> Result<(), Unconfirmed> {
    let boot = own.boot;
    let command = Command::Booted {
        node,
        incarnation: own.member.identity.incarnation,
        boot,
        release: own.settings.release.clone(),
    };
    match own.group.propose(command, PROPOSE_TIMEOUT).await {
        Err(GroupError::Refused(TopologyError::Superseded { known, .. })) => {
            let fault = Fault::superseded(node, boot, known);
            return Err(Unconfirmed::ForEver(fault.message));
        }
        Err(GroupError::Refused(error @ TopologyError::OtherLevel { .. })) => {
            return Err(Unconfirmed::ForEver(error.to_string()));
        }
        answer => answer.map_err(|error| Unconfirmed::Yet(error.into()))?,
    };
    let store = own.store.clone();
    let written = tokio::task::spawn_blocking(move || write(&store, boot, true)).await;
    let lost = |why: String| Unconfirmed::Yet(Fault::new(Reason::Internal, why));
    written
        .map_err(|error| lost(error.to_string()))?
        .map_err(|error| lost(error.to_string()))?;
    tracing::info!(%node, number = boot.number, "the topology group confirmed this start");
    Ok(())
}
