//! The topology leader watches nodes that receive copies, because writes must not wait for an
//! unreachable one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use torc_proto::v1::IdentifyRequest;
use torc_ring::NodeId;
use torc_ring::topology::Command;

use crate::peers::within;
use crate::shared::Shared;

const EVERY: Duration = Duration::from_millis(500);
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const PROPOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Consecutive failed probes after which writes stop waiting for a node.
const STRIKES: u32 = 3;

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut strikes: BTreeMap<NodeId, u32> = BTreeMap::new();
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = shared.cancel.cancelled() => return,
        }
        if !shared.group.is_leader() {
            strikes.clear();
            continue;
        }
        let awaited = awaited_copiers(&shared);
        strikes.retain(|node, _| awaited.contains(node));
        for node in awaited {
            let count = strikes.entry(node).or_default();
            *count = if answers(&shared, node).await {
                0
            } else {
                *count + 1
            };
            if *count >= STRIKES {
                tracing::warn!(%node, "a receiving node does not answer: its moves return to the copying stage");
                let deadline = Instant::now() + PROPOSE_TIMEOUT;
                if shared
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
fn awaited_copiers(shared: &Shared) -> BTreeSet<NodeId> {
    let topology = shared.group.topology();
    topology.map_or_else(BTreeSet::new, |topology| topology.awaited_copiers())
}

async fn answers(shared: &Shared, node: NodeId) -> bool {
    let client = shared.recipient(node);
    let client = client.and_then(|recipient| shared.peers.replica(&recipient));
    let Ok(mut client) = client else {
        return false;
    };
    let request = within(PROBE_TIMEOUT, IdentifyRequest {});
    client.identify(request).await.is_ok()
}
