//! Cuts or slows links, for tests of real clusters.
//!
//! A node with `TORC_TEST_LINK_FAULTS=FILE` reads the file every 100 ms:
//!
//! ```json
//! {"drop_to": [2, 3], "drop_from": [3], "delay_ms": {"2": 40}, "group_drop_to": [2]}
//! ```
//!
//! The node drops messages to the nodes in `drop_to` and from those in `drop_from`; both
//! together cut a node off in both directions, one of them in one direction. Messages to a node
//! in `delay_ms` leave later by this time, in order. Missing fields are empty; while the file is
//! missing or malformed, the last content stays, so write another file and rename it. Only
//! messages between replicas are affected, not clients' requests. The node makes no calls of the
//! topology group to the nodes in `group_drop_to`: to cut a node off from the group, list it on
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

/// The current faults. Without a file there are none, and a check costs one load.
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

    /// Whether to drop calls of the topology group to this node.
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

    /// Reads the file periodically, until it is dropped.
    pub async fn watch(self, file: PathBuf) {
        tracing::warn!(file = %file.display(), "links between nodes follow this file");
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
