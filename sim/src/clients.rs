//! Clients and their requests.

use std::collections::BTreeMap;

use bytes::Bytes;
use torc_record::Condition;
use torc_replication::{OpId, Operation as TorcOperation, Quorum, Request, Rules};

use crate::event::Event;
use crate::history::{Kind, Operation, Seen, Value};
use crate::node::{PARTITION, START_MS};
use crate::workload::{Asked, Pending, PlannedCall, What};
use crate::world::World;

impl World {
    /// A client makes a request.
    pub(crate) fn client(&mut self, client: usize) {
        if self.workload.issued >= self.workload.limit {
            return;
        }
        let count = if self.rng.chance(self.faults.batch) {
            self.rng.between(2, 5)
        } else {
            1
        };
        let scans = self.rng.chance(self.faults.scan);
        let planned: Vec<_> = (0..count).map(|_| self.plan_call(client)).collect();
        let Some(node) = self.node_for(&planned[0]) else {
            self.schedule(5_000, Event::Client(client));
            return;
        };
        let at = |call: &PlannedCall| &self.workload.keys[call.key];
        if planned.iter().any(|call| self.is_unknown(node, at(call))) {
            self.schedule(1_000, Event::Client(client));
            return;
        }
        let timeout_ms = self.rng.between(20, 90);
        if scans {
            self.begin_scan(client, node, timeout_ms);
        } else {
            self.ask(client, node, planned, timeout_ms);
        }
    }

    /// The node that a client calls.
    fn node_for(&mut self, planned: &PlannedCall) -> Option<usize> {
        let up: Vec<_> = (0..self.nodes.len())
            .filter(|n| self.nodes[*n].is_up())
            .collect();
        // Reads from the usual coordinator would repair what the others never see.
        let affinity = match planned.request {
            Request::Get => self.faults.affinity / 4,
            _ => self.faults.affinity,
        };
        let members = &self.group.config.members;
        let usual = members.get(planned.key % members.len());
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
        match usual {
            Some(node) => Some(node),
            None => self.rng.pick(&up),
        }
    }

    /// Calls a node with operations, all at once, and notes the calls.
    pub(crate) fn ask(
        &mut self,
        client: usize,
        node: usize,
        planned: Vec<PlannedCall>,
        timeout_ms: u64,
    ) {
        let mut calls = Vec::with_capacity(planned.len());
        let mut writes: BTreeMap<usize, usize> = BTreeMap::new();
        if let Some(open) = self.workload.open.get_mut(client) {
            *open += planned.len() as u32;
        }
        for call in planned {
            let (key, is_write) = (call.key, call.request.is_write());
            let (op, asked, operation) = self.call(client, node, call, timeout_ms);
            if let (Asked::Register { index }, true) = (asked, is_write)
                && let Some(earlier) = writes.insert(key, index)
            {
                // Writers of a key take turns in the order of arrival.
                let orders = &mut self.workload.histories[key].orders;
                orders.push((earlier, index));
            }
            calls.push((op, operation));
        }
        if let Some((op, operation)) = self.start_alone(node, calls) {
            self.read_alone(node, op, operation);
        }
    }

    /// Notes one call.
    fn call(
        &mut self,
        client: usize,
        node: usize,
        planned: PlannedCall,
        timeout_ms: u64,
    ) -> (OpId, Asked, TorcOperation) {
        self.workload.issued += 1;
        self.moment += 1;
        let PlannedCall { key, request, what } = planned;
        let op = OpId(self.workload.issued);
        let (asked, rules) = match what {
            What::Register(kind) => {
                let history = &mut self.workload.histories[key];
                history.operations.push(Operation {
                    kind,
                    seen: Seen::Unknown,
                    call: self.moment,
                    ret: u64::MAX,
                    ret_ms: u64::MAX,
                });
                let index = history.operations.len() - 1;
                let reserved = self.merge.as_ref().filter(|merge| merge.is_reserved);
                let reserved = reserved.and_then(|merge| merge.at.get(&key));
                if let Some(reserved) = reserved.filter(|_| request.is_write()) {
                    history.orders.push((*reserved, index));
                }
                (Asked::Register { index }, Rules::Linearizable)
            }
            What::Eventual { quorum, value } => {
                let asked = Asked::Eventual {
                    quorum,
                    value,
                    is_write: request.is_write(),
                    floor: self.workload.ledgers[key].floor(),
                };
                (asked, Rules::Eventual(quorum))
            }
        };
        let pending = Pending {
            client,
            key,
            node,
            asked,
        };
        self.workload.pending.insert(op, pending);
        let at = self.workload.keys[key].clone();
        self.trace.note(self.us, || {
            format!(
                "op {} is asked at node {}: {what:?} of key {key}",
                op.0,
                node + 1
            )
        });
        if !self.healing && self.rng.chance(self.faults.cancel) {
            let after = self.rng.between(200, timeout_ms * 1_000);
            self.schedule(after, Event::Cancel { node, op });
        }
        let operation = TorcOperation {
            partition: PARTITION,
            at,
            rules,
            request,
            deadline_ms: self.us / 1_000 + timeout_ms,
        };
        (op, asked, operation)
    }

    fn plan_call(&mut self, client: usize) -> PlannedCall {
        let key = self.rng.below(self.workload.keys.len() as u64) as usize;
        if self.workload.is_eventual(key) {
            return self.plan_eventual_call(key);
        }
        let (request, kind) = self.choose(client, key);
        PlannedCall {
            key,
            request,
            what: What::Register(kind),
        }
    }

    fn plan_eventual_call(&mut self, key: usize) -> PlannedCall {
        let quorum = match self.rng.below(5) {
            0 => Quorum::One,
            1 => Quorum::All,
            _ => Quorum::Majority,
        };
        let mut value = None;
        let request = if self.rng.chance(self.faults.get) {
            Request::Get
        } else if self.rng.chance(self.faults.delete) {
            Request::Delete {
                condition: None,
                tells_existed: self.rng.chance(250),
            }
        } else {
            let (number, expires_at_ms) = self.new_value(key);
            value = Some(number);
            put(number, expires_at_ms, None)
        };
        PlannedCall {
            key,
            request,
            what: What::Eventual { quorum, value },
        }
    }

    /// A value that was never written before, and its expiry.
    fn new_value(&mut self, key: usize) -> (Value, Option<u64>) {
        self.workload.next_value += 1;
        let value = self.workload.next_value;
        let mut expires_at_ms = None;
        if self.rng.chance(self.faults.expiry) {
            let lives = self.rng.between(5, 120);
            let at = START_MS + self.us / 1_000 + lives;
            expires_at_ms = Some(at);
            let expiry = (value, at - START_MS);
            self.workload.histories[key].expiries.push(expiry);
            self.workload.ledgers[key].expiries.push(expiry);
        }
        (value, expires_at_ms)
    }

    fn choose(&mut self, client: usize, key: usize) -> (Request, Kind) {
        if self.rng.chance(self.faults.get) {
            return (Request::Get, Kind::Get);
        }
        if self.rng.chance(self.faults.delete) {
            let known = self.workload.known.get(&(client, key)).copied();
            let (condition, tells_existed, kind) = match (self.rng.below(4), known) {
                (0, Some((version, old))) => (
                    Some(Condition::IfVersion(version)),
                    true,
                    Kind::DeleteIf(old),
                ),
                (1, _) => (None, true, Kind::Delete),
                _ => (None, false, Kind::Erase),
            };
            let request = Request::Delete {
                condition,
                tells_existed,
            };
            return (request, kind);
        }
        let (value, expires_at_ms) = self.new_value(key);
        if let Some(merge) = self.merge.as_ref().filter(|it| it.is_reserved)
            && self.rng.chance(self.faults.merge)
        {
            let kind = Kind::Merge(merge.number, value);
            return (
                put(
                    value,
                    expires_at_ms,
                    Some(Condition::IfOlderThan(merge.ballot)),
                ),
                kind,
            );
        }
        let (condition, kind) = if self.rng.chance(self.faults.conditional) {
            match self.workload.known.get(&(client, key)) {
                Some((version, old)) => {
                    (Some(Condition::IfVersion(*version)), Kind::Cas(*old, value))
                }
                None => (Some(Condition::IfAbsent), Kind::PutIfAbsent(value)),
            }
        } else {
            (None, Kind::Put(value))
        };
        (put(value, expires_at_ms, condition), kind)
    }

    pub(crate) fn next_request(&mut self, client: usize) {
        let Some(open) = self.workload.open.get_mut(client) else {
            return;
        };
        *open = open.saturating_sub(1);
        if *open == 0 {
            let after = self.rng.between(50, 4_000);
            self.schedule(after, Event::Client(client));
        }
    }
}

fn put(value: Value, expires_at_ms: Option<u64>, condition: Option<Condition>) -> Request {
    Request::Put {
        value: Bytes::copy_from_slice(&value.to_be_bytes()),
        expires_at_ms,
        condition,
    }
}
