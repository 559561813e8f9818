//! The IP addresses of the other members.
//!
//! Members may advertise names, as in Kubernetes, so a task resolves them: when the topology has
//! changed, and now and then, because names get other addresses. While a name cannot be resolved,
//! its last addresses stay.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::join_all;
use tokio::sync::watch;
use torc_record::Epoch;
use torc_ring::NodeId;

/// Interval at which the names are resolved again.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Time for the resolution of a name.
const LOOKUP_TIME: Duration = Duration::from_secs(5);

/// The addresses of each.
#[derive(Debug, Default)]
pub struct Addresses(ArcSwap<BTreeMap<NodeId, Vec<IpAddr>>>);

impl Addresses {
    /// Whether another member has this address.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.load().values().any(|known| known.contains(&address))
    }
}

/// Keeps the addresses up to date for ever. `members`: the peer addresses of the others; they may be
/// different after each of the `changes`.
pub async fn run(
    addresses: Arc<Addresses>,
    members: impl Fn() -> Vec<(NodeId, String)>,
    mut changes: watch::Receiver<Epoch>,
) {
    loop {
        changes.borrow_and_update();
        let before = addresses.0.load_full();
        let resolving = members().into_iter();
        let resolving = resolving.map(async |(node, name)| {
            let resolved = resolve(&name).await;
            let resolved = resolved.or_else(|| before.get(&node).cloned());
            (node, resolved.unwrap_or_default())
        });
        let resolved = join_all(resolving).await;
        addresses.0.store(Arc::new(resolved.into_iter().collect()));
        // Fails only if the node is gone.
        let _ = tokio::time::timeout(LOOK_EVERY, changes.changed()).await;
    }
}

/// The addresses of `HOST:PORT`; `None` if the name cannot be resolved.
async fn resolve(name: &str) -> Option<Vec<IpAddr>> {
    let found = tokio::time::timeout(LOOKUP_TIME, tokio::net::lookup_host(name)).await;
    let found = found.ok()?.ok()?;
    Some(found.map(|address| address.ip().to_canonical()).collect())
}
