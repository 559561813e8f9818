//! Hints: writes that this node coordinated and other nodes missed, kept until those nodes
//! accept them.
//!
//! Hints are bounded in memory and also stored in sled, so they survive a restart. One
//! task writes the newest state of each changed hint; a lost hint costs only a comparison
//! of replicas.
//!
//! A node that seems unreachable is offered one hint at a time, and many once it accepts one.

#![expect(
    clippy::cast_possible_wrap,
    reason = "hints are bounded far below 2^63"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use torc_proto::link::{envelope_from_wire, envelope_to_wire};
use torc_proto::v1;
use torc_record::{DIGEST_LEN, Digest, Epoch, NamespaceId};
use torc_replication::{
    Envelope, Hint, HintId, Hints, KeyId, Locator, Message, Outcome, Quorum, Request, Rules, Tag,
};
use torc_ring::{NodeId, Partitions, Token};
use torc_store::Scratch;

use super::metrics::HintMetrics;
use super::{Registers, Wanted};

/// The sled tree that stores hints.
const TREE: &str = "hints";
/// Limit on the hints of a node, and on the bytes of their keys and values.
const CAPACITY: usize = 32_768;
const CAPACITY_BYTES: usize = 32 << 20;
/// Hints in flight to one node.
const AT_A_TIME: usize = 256;
/// Time limit for one hint.
const HAND_TIME: Duration = Duration::from_secs(2);
/// Interval between attempts to hand over hints.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The hints of this node.
pub(super) struct HintKeeper {
    hints: Mutex<Hints>,
    /// Hints that changed since they were written to sled.
    changed: Mutex<BTreeSet<HintId>>,
    wake: Notify,
    /// The last hint that each node was offered.
    offered: Mutex<BTreeMap<NodeId, KeyId>>,
    metrics: HintMetrics,
}

impl HintKeeper {
    pub(super) fn new(metrics: HintMetrics) -> Self {
        Self {
            hints: Mutex::new(Hints::new(CAPACITY, CAPACITY_BYTES)),
            changed: Mutex::default(),
            wake: Notify::new(),
            offered: Mutex::default(),
            metrics,
        }
    }

    /// Keeps a hint.
    pub(super) fn keep(&self, hint: Hint) {
        let mut hints = self.hints.lock();
        let before = hints.dropped();
        let changed = hints.keep(hint);
        self.metrics.dropped.inc_by(hints.dropped() - before);
        self.count(&hints);
        drop(hints);
        self.note(changed);
    }

    /// Removes a hint.
    fn end(&self, hint: &Hint) -> bool {
        let mut hints = self.hints.lock();
        let ended = hints.confirmed(hint.to, &hint.record);
        self.count(&hints);
        drop(hints);
        if ended {
            self.note(vec![(hint.to, KeyId::of(&hint.record))]);
        }
        ended
    }

    fn count(&self, hints: &Hints) {
        self.metrics.held.set(hints.len() as i64);
        self.metrics.held_bytes.set(hints.bytes() as i64);
    }

    fn note(&self, changed: Vec<HintId>) {
        if !changed.is_empty() {
            self.changed.lock().extend(changed);
            self.wake.notify_one();
        }
    }

    /// The next hints for a node. They go round, so that those which it does not accept yet do not
    /// hold up others.
    fn for_node(&self, node: NodeId, limit: usize) -> Vec<Hint> {
        let mut offered = self.offered.lock();
        let hints = self.hints.lock();
        let records: Vec<_> = match offered.get(&node) {
            Some(last) => hints.for_node_after(node, *last, limit).cloned().collect(),
            None => hints.for_node(node, limit).cloned().collect(),
        };
        match records.last() {
            Some(last) => offered.insert(node, KeyId::of(last)),
            None => offered.remove(&node),
        };
        let hints = records.into_iter();
        hints.map(|record| Hint { to: node, record }).collect()
    }
}

/// Loads the hints of an earlier process, then writes changes to sled.
pub(super) async fn write(registers: Arc<Registers>, scratch: Scratch) {
    let keeper = &registers.hints;
    for (name, bytes) in scratch.list(TREE).await {
        match read(&name, bytes.into(), registers.partitions) {
            Some(hint) => keeper.keep(hint),
            None => scratch.delete(TREE, &name).await,
        }
    }
    loop {
        let changed = std::mem::take(&mut *keeper.changed.lock());
        for id in changed {
            let record = keeper.hints.lock().get(id).cloned();
            match record {
                Some(record) => {
                    let hint = Hint { to: id.0, record };
                    let bytes = bytes_of(&hint, registers.partitions);
                    scratch.put(TREE, &name_of(id), &bytes).await;
                }
                None => scratch.delete(TREE, &name_of(id)).await,
            }
        }
        if keeper.changed.lock().is_empty() {
            keeper.wake.notified().await;
        }
    }
}

/// Hands hints over to their nodes as soon as the nodes accept them.
pub(super) async fn hand_over(registers: Arc<Registers>) {
    let nodes = || registers.hints.hints.lock().nodes();
    hand_over_to_each(nodes, |node| registers.hand_over_to(node)).await;
}

/// Calls `hand` for each of the nodes, one call per node at a time: again at once if it made
/// progress, else after a pause. A node that takes long delays no other.
async fn hand_over_to_each<Handing>(
    nodes: impl Fn() -> Vec<NodeId>,
    hand: impl Fn(NodeId) -> Handing,
) where
    Handing: Future<Output = bool>,
{
    let hand = |node| hand(node).map(move |progress| (node, progress));
    let mut handing = FuturesUnordered::new();
    let mut busy = BTreeSet::new();
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some((node, progress)) = handing.next() => {
                if progress {
                    handing.push(hand(node));
                } else {
                    busy.remove(&node);
                }
            }
            _ = look.tick() => {
                for node in nodes() {
                    if busy.insert(node) {
                        handing.push(hand(node));
                    }
                }
            }
        }
    }
}

impl Registers {
    /// Hands over some of a node's hints; returns whether it accepted any.
    async fn hand_over_to(self: &Arc<Self>, node: NodeId) -> bool {
        let limit = if self.is_out_of_reach(node) {
            1
        } else {
            AT_A_TIME
        };
        let hints = self.hints.for_node(node, limit);
        let handing = hints.into_iter().map(|hint| self.hand_over(hint));
        join_all(handing).await.contains(&true)
    }

    /// Returns whether the hint is finished.
    async fn hand_over(self: &Arc<Self>, hint: Hint) -> bool {
        let metrics = &self.hints.metrics;
        let partition = self
            .partitions
            .holding(hint.record.namespace, Token::of(&hint.record.digest));
        let Some(config) = self.config(partition) else {
            return false;
        };
        let is_acceptor = |index| config.acceptors().contains(index);
        if !config.index(hint.to).is_some_and(is_acceptor) {
            // The node that replaced it has copied what it needs.
            metrics.dropped.inc();
            return self.hints.end(&hint);
        }
        let wanted = Wanted {
            partition,
            at: Locator::of(&hint.record),
            rules: Rules::Eventual(Quorum::One),
            request: Request::HandOver(hint.clone()),
            deadline: Instant::now() + HAND_TIME,
            trace: None,
        };
        match self.operate(wanted).await {
            Outcome::Written { .. } => {
                metrics.sent.inc();
                self.hints.end(&hint)
            }
            // A collection has begun since then: the replica gets the write by comparison instead.
            Outcome::Refused => {
                metrics.dropped.inc();
                self.hints.end(&hint)
            }
            _ => false,
        }
    }
}

fn name_of((node, key): HintId) -> Vec<u8> {
    let mut name = node.0.to_be_bytes().to_vec();
    name.extend(key.namespace.0.to_be_bytes());
    name.extend(key.digest.0);
    name
}

fn id_of(name: &[u8]) -> Option<HintId> {
    let (node, rest) = name.split_first_chunk::<8>()?;
    let (namespace, digest) = rest.split_first_chunk::<4>()?;
    let key = KeyId {
        digest: Digest(<[u8; DIGEST_LEN]>::try_from(digest).ok()?),
        namespace: NamespaceId(u32::from_be_bytes(*namespace)),
    };
    Some((NodeId(u64::from_be_bytes(*node)), key))
}

/// Encoded as a message between nodes, whose limits are checked when it is read.
fn bytes_of(hint: &Hint, partitions: Partitions) -> Vec<u8> {
    let envelope = Envelope {
        partition: partitions.holding(hint.record.namespace, Token::of(&hint.record.digest)),
        epoch: Epoch(0),
        message: Message::Store {
            tag: Tag::default(),
            record: hint.record.clone(),
        },
    };
    envelope_to_wire(envelope).encode_to_vec()
}

/// Decodes a hint; `None` if it is malformed or belongs to another cluster.
fn read(name: &[u8], bytes: Bytes, partitions: Partitions) -> Option<Hint> {
    let (to, key) = id_of(name)?;
    let envelope = v1::Envelope::decode(bytes).ok()?;
    let envelope = envelope_from_wire(envelope, partitions).ok()?;
    let Message::Store { record, .. } = envelope.message else {
        return None;
    };
    (KeyId::of(&record) == key).then_some(Hint { to, record })
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_record::{Ballot, HybridTime, Key, NodeSlot, Record, State};

    fn hint() -> Hint {
        let record = Record {
            namespace: NamespaceId(7),
            digest: Digest([9; DIGEST_LEN]),
            key: Key::new(&b"k"[..]).unwrap(),
            origin: None,
            ballot: Ballot {
                epoch: Epoch(3),
                time: HybridTime(4),
                slot: NodeSlot(5),
            },
            state: State::Value {
                value: Bytes::from_static(b"v"),
                expires_at_ms: Some(6),
            },
        };
        Hint {
            to: NodeId(2),
            record,
        }
    }

    #[tokio::test]
    async fn a_node_that_takes_long_delays_no_other() {
        let calls = std::cell::Cell::new(0);
        let enough = Notify::new();
        let hand = async |node| {
            if node == NodeId(1) {
                return std::future::pending().await;
            }
            tokio::task::yield_now().await;
            calls.set(calls.get() + 1);
            if calls.get() == 100 {
                enough.notify_one();
            }
            true
        };
        let nodes = || vec![NodeId(1), NodeId(2)];
        tokio::select! {
            () = hand_over_to_each(nodes, hand) => {}
            () = enough.notified() => {}
            () = tokio::time::sleep(Duration::from_secs(10)) => {}
        }
        assert!(calls.get() >= 100);
    }

    #[test]
    fn a_hint_survives_the_disk_and_what_is_none_is_refused() {
        let partitions = Partitions::new(64).unwrap();
        let hint = hint();
        let name = name_of((hint.to, KeyId::of(&hint.record)));
        let bytes = Bytes::from(bytes_of(&hint, partitions));
        assert_eq!(read(&name, bytes.clone(), partitions), Some(hint));
        assert_eq!(read(&name[1..], bytes.clone(), partitions), None);
        let mut other = name.clone();
        other[9] ^= 1;
        assert_eq!(read(&other, bytes.clone(), partitions), None, "another key");
        assert_eq!(read(&name, bytes.slice(1..), partitions), None);
        assert_eq!(read(&name, Bytes::from_static(b"junk"), partitions), None);
    }
}
