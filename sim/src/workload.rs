//! Clients, what they ask, and what they saw.

use std::collections::BTreeMap;

use bytes::Bytes;
use torc_record::{Ballot, Digest, Key, NamespaceId};
use torc_replication::{Condition, Locator, OpId, Outcome, Request};

use crate::history::{KeyHistory, Kind, Operation, Seen, Value};
use crate::node::{PARTITION, START_MS};
use crate::profile::Faults;
use crate::run::HEALED_CLOCK_MS;
use crate::world::{Event, World};

/// An operation under way.
#[derive(Debug)]
struct Pending {
    client: usize,
    key: usize,
    node: usize,
    /// Where it is in its key's history.
    index: usize,
}

/// The clients of a run and the histories of its keys.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) keys: Vec<Locator>,
    pub(crate) histories: Vec<KeyHistory>,
    pending: BTreeMap<OpId, Pending>,
    /// The newest version a client knows of a key, and its value.
    known: BTreeMap<(usize, usize), (Ballot, Value)>,
    pub(crate) issued: u64,
    limit: u64,
    next_value: Value,
    /// How far ahead any clock ever was, milliseconds.
    ahead_ms: u64,
    pub(crate) fast: u64,
    pub(crate) answered: u64,
    pub(crate) unknown: u64,
    /// Mismatches whose value was the expected one: an identity gave it a new version.
    pub(crate) renamed: Option<usize>,
}

impl Workload {
    pub(crate) fn new(seed: u64, faults: &Faults) -> Self {
        let key = |number: u8| {
            let mut digest = [0; 16];
            let spread = (seed ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            digest[..8].copy_from_slice(&(spread | 1).to_be_bytes());
            digest[8..].copy_from_slice(&u64::from(number).to_be_bytes());
            let key = Key::new(Bytes::copy_from_slice(&[b'a' + number])).ok()?;
            Some(Locator {
                namespace: NamespaceId::DEFAULT,
                digest: Digest(digest),
                key,
            })
        };
        let keys: Vec<_> = (0..faults.keys.max(1)).filter_map(key).collect();
        Self {
            histories: vec![KeyHistory::default(); keys.len()],
            keys,
            pending: BTreeMap::new(),
            known: BTreeMap::new(),
            issued: 0,
            limit: u64::from(faults.operations),
            next_value: 0,
            ahead_ms: faults.skew_ms,
            fast: 0,
            answered: 0,
            unknown: 0,
            renamed: None,
        }
    }

    pub(crate) fn note_clock(&mut self, error_ms: i64) {
        self.ahead_ms = self.ahead_ms.max(error_ms.max(0) as u64);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.issued >= self.limit && self.pending.is_empty()
    }

    /// Expiries are bounded by the worst clock, known only at the end.
    pub(crate) fn finish(&mut self) {
        for history in &mut self.histories {
            for (_, from) in &mut history.expiries {
                *from = from.saturating_sub(self.ahead_ms + 2);
            }
        }
    }
}

impl World {
    /// A client asks for something.
    pub(crate) fn client(&mut self, client: usize) {
        if self.workload.issued >= self.workload.limit {
            return;
        }
        let up: Vec<_> = (0..self.nodes.len())
            .filter(|n| self.nodes[*n].is_up())
            .collect();
        let key = self.rng.below(self.workload.keys.len() as u64) as usize;
        let (request, kind) = self.choose(client, key);
        // Reads of the usual coordinator would repair what the others never see.
        let affinity = match kind {
            Kind::Get => self.faults.affinity / 4,
            _ => self.faults.affinity,
        };
        let usual = self
            .group
            .config
            .members
            .get(key % self.group.config.members.len());
        let usual = usual
            .and_then(|m| self.index(m.node))
            .filter(|n| self.nodes[*n].is_up());
        let outsiders: Vec<_> = up
            .iter()
            .copied()
            .filter(|node| self.group.config.index(self.nodes[*node].id).is_none())
            .collect();
        let outsider = self.rng.pick(&outsiders);
        let usual = match outsider.filter(|_| self.rng.chance(self.faults.outside)) {
            Some(node) => Some(node),
            None => usual.filter(|_| self.rng.chance(affinity)),
        };
        let node = match usual {
            Some(node) => Some(node),
            None => self.rng.pick(&up),
        };
        let Some(node) = node else {
            self.schedule(5_000, Event::Client(client));
            return;
        };
        let patience = self.rng.between(20, 90);
        self.ask(Some(client), key, node, request, kind, patience);
    }

    /// Calls a node for an operation and notes the call.
    pub(crate) fn ask(
        &mut self,
        client: Option<usize>,
        key: usize,
        node: usize,
        request: Request,
        kind: Kind,
        patience_ms: u64,
    ) {
        self.workload.issued += 1;
        self.moment += 1;
        let op = OpId(self.workload.issued);
        let history = &mut self.workload.histories[key];
        let pending = Pending {
            client: client.unwrap_or(usize::MAX),
            key,
            node,
            index: history.operations.len(),
        };
        history.operations.push(Operation {
            kind,
            seen: Seen::Unknown,
            call: self.moment,
            ret: u64::MAX,
            ret_ms: u64::MAX,
        });
        self.workload.pending.insert(op, pending);
        let at = self.workload.keys[key].clone();
        self.trace.note(self.us, || {
            format!(
                "op {} is asked at node {}: {kind:?} of key {key}",
                op.0,
                node + 1
            )
        });
        let deadline_ms = self.us / 1_000 + patience_ms;
        self.coordinate(node, |process, now, out| {
            let place = (PARTITION, at);
            process
                .coordinator
                .start(now, op, place, request, deadline_ms, out);
        });
    }

    fn choose(&mut self, client: usize, key: usize) -> (Request, Kind) {
        if self.rng.chance(self.faults.get) {
            return (Request::Get, Kind::Get);
        }
        if self.rng.chance(self.faults.delete) {
            let condition = Condition::None;
            return (Request::Delete { condition }, Kind::Delete);
        }
        self.workload.next_value += 1;
        let value = self.workload.next_value;
        let mut expires_at_ms = None;
        if self.rng.chance(self.faults.expiry) {
            let lives = self.rng.between(5, 120);
            let at = START_MS + self.us / 1_000 + lives;
            expires_at_ms = Some(at);
            self.workload.histories[key]
                .expiries
                .push((value, at - START_MS));
        }
        let (condition, kind) = if self.rng.chance(self.faults.conditional) {
            match self.workload.known.get(&(client, key)) {
                Some((version, old)) => (Condition::Version(*version), Kind::Cas(*old, value)),
                None => (Condition::Absent, Kind::PutIfAbsent(value)),
            }
        } else {
            (Condition::None, Kind::Put(value))
        };
        let put = Request::Put {
            value: Bytes::copy_from_slice(&value.to_be_bytes()),
            expires_at_ms,
            condition,
        };
        (put, kind)
    }

    /// An operation is answered.
    pub(crate) fn finished(&mut self, op: OpId, outcome: &Outcome) {
        let Some(pending) = self.workload.pending.remove(&op) else {
            return;
        };
        self.moment += 1;
        self.note_outcome(&pending, outcome);
        self.next_request(pending.client);
    }

    fn note_outcome(&mut self, pending: &Pending, outcome: &Outcome) {
        let later_ms = if self.healing {
            HEALED_CLOCK_MS as u64
        } else {
            0
        };
        let (moment, ms) = (self.moment, self.us / 1_000 + later_ms);
        let workload = &mut self.workload;
        let operation = &mut workload.histories[pending.key].operations[pending.index];
        let who = (pending.client, pending.key);
        let mut fast_one = false;
        let seen = match outcome {
            Outcome::Found {
                value,
                version,
                fast,
                ..
            } => {
                fast_one = *fast;
                let value = number(value);
                workload.known.insert(who, (*version, value));
                Seen::Value(value)
            }
            Outcome::Absent { fast } => {
                fast_one = *fast;
                workload.known.remove(&who);
                Seen::Value(0)
            }
            Outcome::Written { version, fast } => {
                fast_one = *fast;
                match operation.writes() {
                    Some(value) => workload.known.insert(who, (*version, value)),
                    None => workload.known.remove(&who),
                };
                Seen::Done
            }
            Outcome::Mismatch { current } => {
                let value = current.as_ref().map_or(0, |(value, _)| number(value));
                match current {
                    Some((_, version)) => workload.known.insert(who, (*version, value)),
                    None => workload.known.remove(&who),
                };
                let expected = matches!(operation.kind, Kind::Cas(old, _) if old == value);
                if expected {
                    workload.renamed = Some(pending.key);
                }
                Seen::Value(value)
            }
            Outcome::Unavailable | Outcome::Settled => {
                // It says that nothing was changed: if it was, somebody sees a value
                // that nobody wrote.
                operation.kind = Kind::Get;
                return;
            }
            Outcome::Unknown => {
                workload.unknown += 1;
                return;
            }
        };
        workload.fast += u64::from(fast_one);
        workload.answered += 1;
        operation.seen = seen;
        operation.ret = moment;
        operation.ret_ms = ms;
    }

    fn next_request(&mut self, client: usize) {
        if client < usize::from(self.faults.clients) {
            let after = self.rng.between(50, 4_000);
            self.schedule(after, Event::Client(client));
        }
    }

    /// A node crashed: whoever waits for it will never know.
    pub(crate) fn abandon(&mut self, node: usize) {
        let waiting = |(_, pending): &(&OpId, &Pending)| pending.node == node;
        let lost: Vec<_> = self
            .workload
            .pending
            .iter()
            .filter(waiting)
            .map(|(op, _)| *op)
            .collect();
        for op in lost {
            if let Some(pending) = self.workload.pending.remove(&op) {
                self.workload.unknown += 1;
                self.next_request(pending.client);
            }
        }
    }

    /// Operations nobody has answered yet.
    pub(crate) fn waiting(&self) -> usize {
        self.workload.pending.len()
    }
}

fn number(value: &Bytes) -> Value {
    let bytes: [u8; 4] = value.as_ref().try_into().unwrap_or_default();
    Value::from_be_bytes(bytes)
}
