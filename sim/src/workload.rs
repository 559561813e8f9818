//! The requests in progress, and what the clients have observed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use torc_record::{Ballot, Digest, HybridTime, Key, NamespaceId, Record};
use torc_replication::{
    Config, Envelope, KeyId, Locator, OpId, Quorum, Request, Rules, SameRound, ScanRound, Tag,
};
use torc_ring::NodeId;

use crate::history::{KeyHistory, Kind, Seen, Value};
use crate::ledger::Ledger;
use crate::profile::Faults;
use crate::rng::Rng;

/// The namespace whose keys are registers.
const REGISTERS: NamespaceId = NamespaceId::DEFAULT;
/// The namespace in which the last writer wins.
const EVENTUAL: NamespaceId = NamespaceId(2);
/// A namespace that is created with records. Its keys are registers, too.
const NEW: NamespaceId = NamespaceId(3);
/// Stands for an operation without a client.
pub(crate) const NOBODY: usize = usize::MAX;

/// Whether the last writer wins in a namespace.
pub(crate) fn is_eventual(namespace: NamespaceId) -> bool {
    namespace == EVENTUAL
}

/// Whether a namespace is created with records.
pub(crate) fn is_new(namespace: NamespaceId) -> bool {
    namespace == NEW
}

/// The rules for reconciling replicas.
pub(crate) fn reconcile_rules(at: &Locator) -> Rules {
    if is_eventual(at.namespace) {
        Rules::Eventual(Quorum::Majority)
    } else {
        Rules::Linearizable
    }
}

/// A running operation.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) client: usize,
    pub(crate) key: usize,
    pub(crate) node: usize,
    pub(crate) asked: Asked,
}

/// The request, for the checkers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked {
    /// Its index in the key's history.
    Register { index: usize },
    /// An operation on a key of an `eventual` namespace.
    Eventual {
        quorum: Quorum,
        /// The value to write.
        value: Option<Value>,
        is_write: bool,
        /// The highest version that a majority had confirmed when it began, and the highest one
        /// found expired.
        floor: (Ballot, Ballot),
    },
}

/// An operation that a client is about to call.
#[derive(Debug)]
pub(crate) struct PlannedCall {
    pub(crate) key: usize,
    pub(crate) request: Request,
    pub(crate) what: What,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    Register(Kind),
    Eventual {
        quorum: Quorum,
        value: Option<Value>,
    },
}

impl PlannedCall {
    /// A get of a key, from a majority where that matters.
    pub(crate) fn get(workload: &Workload, key: usize) -> Self {
        let what = if workload.is_eventual(key) {
            What::Eventual {
                quorum: Quorum::Majority,
                value: None,
            }
        } else {
            What::Register(Kind::Get)
        };
        Self {
            key,
            request: Request::Get,
            what,
        }
    }
}

/// A running scan.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) client: usize,
    pub(crate) node: usize,
    pub(crate) until_us: u64,
    pub(crate) after: Option<KeyId>,
    pub(crate) tag: Tag,
    pub(crate) config: Arc<Config>,
    pub(crate) asking: Asking,
    /// When the round began.
    pub(crate) call: u64,
    pub(crate) time: HybridTime,
    /// For each key, what majorities had confirmed then.
    pub(crate) floors: Vec<(Ballot, Ballot)>,
}

#[derive(Debug)]
pub(crate) enum Asking {
    Pages(ScanRound),
    /// A page from which a filter dropped these records.
    Filtered(ScanRound, Vec<Record>),
    /// Asks as a backup does whether a quorum holds the same as the node's disk, which held these
    /// records.
    Same(SameRound, Vec<Record>),
}

impl Asking {
    pub(crate) fn asks(&self) -> Vec<(NodeId, Envelope)> {
        match self {
            Self::Pages(round) | Self::Filtered(round, _) => round.asks().collect(),
            Self::Same(round, _) => round.asks().collect(),
        }
    }
}

/// The open merge.
#[derive(Debug)]
pub(crate) struct Merge {
    pub(crate) number: u8,
    pub(crate) ballot: Ballot,
    /// Whether every node acts in its epoch, so that records may be put.
    pub(crate) is_reserved: bool,
    /// The reservation in the history of each key that is a register.
    pub(crate) at: BTreeMap<usize, usize>,
}

/// The namespace that is created with records.
#[derive(Debug, Default)]
pub(crate) struct Creation {
    /// What every replica takes.
    pub(crate) records: Vec<Record>,
    /// The nodes that have taken the records.
    pub(crate) holders: BTreeSet<usize>,
    /// Whether the namespace has its name.
    pub(crate) is_named: bool,
    /// The nodes that know it.
    pub(crate) knowing: BTreeSet<usize>,
}

/// The clients of a run, and their observations.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) keys: Vec<Locator>,
    /// For keys that are registers; empty for the others.
    pub(crate) histories: Vec<KeyHistory>,
    /// For keys of `eventual` namespaces.
    pub(crate) ledgers: Vec<Ledger>,
    pub(crate) pending: BTreeMap<OpId, Pending>,
    /// Operations that each client waits for.
    pub(crate) open: Vec<u32>,
    /// For each client and key, the newest version known, and its value.
    pub(crate) known: BTreeMap<(usize, usize), (Ballot, Value)>,
    pub(crate) issued: u64,
    pub(crate) limit: u64,
    pub(crate) next_value: Value,
    /// The most that any clock was ever ahead, milliseconds.
    ahead_ms: u64,
    pub(crate) fast: u64,
    pub(crate) answered: u64,
    pub(crate) unknown: u64,
    /// A mismatch whose value was the expected one: an identity write gave it a new version.
    pub(crate) renamed: Option<usize>,
    /// The first other impossible result.
    pub(crate) broken: Option<(usize, String)>,
}

impl Workload {
    pub(crate) fn new(seed: u64, faults: &Faults) -> Self {
        // A separate generator, so that the run's draws do not depend on it.
        let mut rng = Rng::new(seed ^ 0x6b65_7973);
        let mut key = |number: u8| {
            let of = if faults.twins && number == 1 {
                0
            } else {
                number
            };
            let mut digest = [0; 16];
            let spread = (seed ^ u64::from(of)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            digest[..8].copy_from_slice(&(spread | 1).to_be_bytes());
            digest[8..].copy_from_slice(&u64::from(of).to_be_bytes());
            let key = Key::new(Bytes::copy_from_slice(&[b'a' + number])).ok()?;
            let eventual = rng.chance(faults.eventual);
            let is_new = faults.creation && number > 0;
            Some(Locator {
                namespace: match (eventual, is_new) {
                    (true, _) => EVENTUAL,
                    (false, true) => NEW,
                    (false, false) => REGISTERS,
                },
                digest: Digest(digest),
                key,
            })
        };
        let keys: Vec<_> = (0..faults.keys.max(1)).filter_map(&mut key).collect();
        Self {
            histories: vec![KeyHistory::default(); keys.len()],
            ledgers: vec![Ledger::default(); keys.len()],
            keys,
            pending: BTreeMap::new(),
            open: vec![0; usize::from(faults.clients)],
            known: BTreeMap::new(),
            issued: 0,
            limit: u64::from(faults.operations),
            next_value: 0,
            ahead_ms: faults.skew_ms,
            fast: 0,
            answered: 0,
            unknown: 0,
            renamed: None,
            broken: None,
        }
    }

    pub(crate) fn is_eventual(&self, key: usize) -> bool {
        is_eventual(self.keys[key].namespace)
    }

    /// The index of this key in the run, if any.
    pub(crate) fn key_of(&self, at: &Locator) -> Option<usize> {
        self.keys.iter().position(|known| known == at)
    }

    pub(crate) fn note_clock(&mut self, error_ms: i64) {
        self.ahead_ms = self.ahead_ms.max(error_ms.max(0) as u64);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.issued >= self.limit && self.pending.is_empty()
    }

    pub(crate) fn breaks(&mut self, key: usize, what: impl FnOnce() -> String) {
        self.broken.get_or_insert_with(|| (key, what()));
    }

    /// Sets expiries from the worst clock, which is known only at the end, and removes orders of
    /// operations without an answer.
    pub(crate) fn finish(&mut self) {
        let early = self.ahead_ms + 2;
        for history in &mut self.histories {
            for (_, from) in &mut history.expiries {
                *from = from.saturating_sub(early);
            }
            let is_known = |index: &usize| history.operations[*index].seen != Seen::Unknown;
            // A conditional write that did not apply is a read, which may precede a reservation.
            let is_read = |index: &usize| {
                let operation = &history.operations[*index];
                let conditional = matches!(
                    operation.kind,
                    Kind::PutIfAbsent(_) | Kind::Cas(..) | Kind::DeleteIf(_)
                );
                conditional && matches!(operation.seen, Seen::Value(_))
            };
            let reserves =
                |index: &usize| matches!(history.operations[*index].kind, Kind::Reserve(_));
            history
                .orders
                .retain(|(a, b)| is_known(a) && is_known(b) && !(reserves(a) && is_read(b)));
        }
        for (key, ledger) in self.ledgers.iter_mut().enumerate() {
            if let Some(what) = ledger.judge(early) {
                self.broken.get_or_insert((key, what));
            }
        }
    }
}
