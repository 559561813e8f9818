//! Links cut or slowed on purpose, for tests of real clusters.
//!
//! A node that was started with `TORC_TEST_LINK_FAULTS=FILE` reads the file every 100 ms:
//!
//! ```json
//! {"drop_to": [2, 3], "drop_from": [3], "delay_ms": {"2": 40}, "group_drop_to": [2]}
//! ```
//!
//! Messages to the nodes in `drop_to` and from those in `drop_from` are dropped; both on
//! one node cut it off both ways, one of them one way. Messages to a node in `delay_ms`
//! leave that much later, in order. What is missing is empty; a file that is missing or
//! malformed changes nothing to what was read last, so write it beside and rename it.
//! Only messages between replicas are hit, not clients' requests. Calls of the topology group
//! to the nodes in `group_drop_to` do not leave: who is to hear nothing of it either is named by
//! all others.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use serde::Deserialize;
use torc_ring::NodeId;

const READ_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Plan {
    drop_to: HashSet<NodeId>,
    drop_from: HashSet<NodeId>,
    delay_ms: HashMap<u64, u64>,
    group_drop_to: HashSet<NodeId>,
}

/// Faults in force. Without a file there are none, and asking costs one load.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    any: AtomicBool,
    plan: RwLock<Plan>,
}

impl Faults {
    pub(crate) fn cut_to(&self, node: NodeId) -> bool {
        self.ask(|plan| plan.drop_to.contains(&node))
    }

    pub(crate) fn cut_from(&self, node: NodeId) -> bool {
        self.ask(|plan| plan.drop_from.contains(&node))
    }

    /// Whether calls of the topology group to this node do not leave.
    #[must_use]
    pub fn cuts_group_to(&self, node: NodeId) -> bool {
        self.ask(|plan| plan.group_drop_to.contains(&node))
    }

    pub(crate) fn delay_to(&self, node: NodeId) -> Option<Duration> {
        let delay = |plan: &Plan| plan.delay_ms.get(&node.0).copied();
        self.ask(delay).map(Duration::from_millis)
    }

    fn ask<T: Default>(&self, question: impl FnOnce(&Plan) -> T) -> T {
        if self.inner.any.load(Ordering::Relaxed) {
            question(&self.inner.plan.read())
        } else {
            T::default()
        }
    }

    /// Reads the file again and again, until it is dropped.
    pub async fn watch(self, file: PathBuf) {
        tracing::warn!(file = %file.display(), "links between nodes are cut as this file says");
        let mut every = tokio::time::interval(READ_EVERY);
        loop {
            every.tick().await;
            if let Ok(text) = tokio::fs::read(&file).await {
                self.set(&text);
            }
        }
    }

    fn set(&self, text: &[u8]) {
        let Ok(plan) = serde_json::from_slice::<Plan>(text) else {
            return;
        };
        let mut present = self.inner.plan.write();
        if *present != plan {
            tracing::warn!(?plan, "links between nodes");
            self.inner
                .any
                .store(plan != Plan::default(), Ordering::Relaxed);
            *present = plan;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_says_what_is_cut_and_a_malformed_one_says_nothing() {
        let faults = Faults::default();
        let (two, three) = (NodeId(2), NodeId(3));
        faults.set(br#"{"drop_to": [2], "drop_from": [3], "delay_ms": {"2": 40}}"#);
        assert!(faults.cut_to(two) && !faults.cut_to(three));
        assert!(faults.cut_from(three) && !faults.cut_from(two));
        assert_eq!(faults.delay_to(two), Some(Duration::from_millis(40)));
        assert!(!faults.cuts_group_to(two), "the group is another matter");
        faults.set(b"{");
        assert!(faults.cut_to(two), "half a file is not read");
        faults.set(b"{}");
        assert!(!faults.cut_to(two) && faults.delay_to(two).is_none());
    }
}
