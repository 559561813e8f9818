//! The answers to clients.

use torc_record::Ballot;
use torc_replication::{OpId, Outcome, Quorum};

use crate::history::{Kind, Seen, Value, number};
use crate::workload::{Asked, Pending};
use crate::world::World;

impl World {
    /// Records the answer to an operation.
    pub(crate) fn finished(&mut self, op: OpId, outcome: &Outcome) {
        let Some(pending) = self.workload.pending.remove(&op) else {
            return;
        };
        self.moment += 1;
        match pending.asked {
            Asked::Register { index } => self.note_outcome(&pending, index, outcome),
            Asked::Eventual { .. } => self.note_eventual(&pending, outcome),
        }
        self.next_request(pending.client);
    }

    fn note_outcome(&mut self, pending: &Pending, index: usize, outcome: &Outcome) {
        let (moment, ms) = (self.moment, self.told_ms());
        let workload = &mut self.workload;
        let operation = &mut workload.histories[pending.key].operations[index];
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
            Outcome::Written { existed: false, .. } => {
                workload.known.remove(&who);
                Seen::Value(0)
            }
            Outcome::Written { version, fast, .. } => {
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
                let expected = matches!(operation.kind,
                    Kind::Cas(old, _) | Kind::DeleteIf(old) if old == value);
                if expected {
                    workload.renamed = Some(pending.key);
                }
                Seen::Value(value)
            }
            Outcome::Unavailable | Outcome::OutOfSpace | Outcome::Reconciled | Outcome::Refused => {
                // The answer claims that nothing was changed. If it was, some client sees a value
                // that was never written.
                operation.kind = Kind::Get;
                return;
            }
            Outcome::Unknown | Outcome::Overtaken => {
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

    fn note_eventual(&mut self, pending: &Pending, outcome: &Outcome) {
        let Asked::Eventual {
            quorum,
            value,
            is_write,
            floor,
        } = pending.asked
        else {
            return;
        };
        let ms = self.told_ms();
        let by_majority = quorum != Quorum::One;
        let ledger = &mut self.workload.ledgers[pending.key];
        let problem = match outcome {
            Outcome::Found { value, version, .. } => {
                let floor = if by_majority {
                    floor
                } else {
                    Default::default()
                };
                ledger.found(*version, number(value), floor)
            }
            Outcome::Absent { .. } if by_majority && !is_write => {
                ledger.absent(floor.0, ms);
                None
            }
            Outcome::Written { version, .. } if is_write => {
                ledger.confirmed(*version, value, by_majority)
            }
            Outcome::Unavailable | Outcome::OutOfSpace => {
                ledger.never(value);
                None
            }
            Outcome::Unknown => {
                self.workload.unknown += 1;
                return;
            }
            _ => None,
        };
        if !matches!(outcome, Outcome::Unavailable | Outcome::OutOfSpace) {
            self.workload.answered += 1;
        }
        if let Some(problem) = problem {
            self.workload.breaks(pending.key, || problem);
        }
    }

    /// Notes that a scan found this version of a key of an `eventual` namespace, or nothing.
    pub(crate) fn note_listed(
        &mut self,
        key: usize,
        found: Option<(Ballot, Value)>,
        floor: (Ballot, Ballot),
    ) {
        let ms = self.told_ms();
        let ledger = &mut self.workload.ledgers[key];
        let problem = if let Some((version, value)) = found {
            ledger.found(version, value, floor)
        } else {
            ledger.absent(floor.0, ms);
            None
        };
        if let Some(problem) = problem {
            self.workload.breaks(key, || problem);
        }
    }

    /// A node has crashed: its callers will never learn the outcome.
    pub(crate) fn abandon(&mut self, node: usize) {
        let waiting = |(_, pending): &(&OpId, &Pending)| pending.node == node;
        let lost = self.workload.pending.iter().filter(waiting);
        let lost: Vec<_> = lost.map(|(op, _)| *op).collect();
        for op in lost {
            if let Some(pending) = self.workload.pending.remove(&op) {
                self.counts.add("caller lost");
                self.next_request(pending.client);
            }
        }
        self.abandon_scans(node);
    }

    /// A caller abandons its operation and will never learn the outcome.
    pub(crate) fn cancel(&mut self, node: usize, op: OpId) {
        let Some(pending) = self.workload.pending.remove(&op) else {
            return;
        };
        self.counts.add("cancelled");
        self.coordinate(node, |process, now, out| {
            process.coordinator.abandon(now, op, out);
        });
        self.next_request(pending.client);
    }

    /// Number of operations without an answer.
    pub(crate) fn waiting(&self) -> usize {
        self.workload.pending.len() + self.scans.len()
    }
}
