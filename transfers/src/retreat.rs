//! The topology leader watches nodes that receive copies, because writes must not wait for an
//! unreachable one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use torc_member::peers::within;
use torc_proto::v1::IdentifyRequest;
use torc_ring::NodeId;
use torc_ring::topology::Command;

use crate::Transfers;

const EVERY: Duration = Duration::from_millis(500);
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const PROPOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Consecutive failed probes after which writes stop waiting for a node.
const STRIKES: u32 = 3;

/// Watches them until the node stops.
pub async fn run(transfers: Arc<Transfers>) {
    let mut strikes: BTreeMap<NodeId, u32> = BTreeMap::new();
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = transfers.cancel.cancelled() => return,
        }
        if !transfers.group.is_leader() {
            strikes.clear();
            continue;
        }
        let awaited = awaited_copiers(&transfers);
        strikes.retain(|node, _| awaited.contains(node));
        for node in awaited {
            let count = strikes.entry(node).or_default();
            *count = if answers(&transfers, node).await {
                0
            } else {
                *count + 1
            };
            if *count >= STRIKES {
                tracing::warn!(%node, "a receiving node does not answer: its moves return to the copying stage");
                let deadline = Instant::now() + PROPOSE_TIMEOUT;
                if transfers
                    .group
                    .propose(Command::Retreat { node }, deadline)
                    .await
                    .is_ok()
                {
                    *count = 0;
                }
            }
        }
    }
}

/// The receiving nodes that writes wait for.
fn awaited_copiers(transfers: &Transfers) -> BTreeSet<NodeId> {
    let topology = transfers.group.topology();
    topology.map_or_else(BTreeSet::new, |topology| topology.awaited_copiers())
}

async fn answers(transfers: &Transfers, node: NodeId) -> bool {
    let client = transfers.member.recipient(node);
    let client = client.and_then(|recipient| transfers.member.peers.replica(&recipient));
    let Ok(mut client) = client else {
        return false;
    };
    let request = within(PROBE_TIMEOUT, IdentifyRequest::default());
    client.identify(request).await.is_ok()
}
