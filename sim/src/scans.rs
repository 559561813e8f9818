//! Scanning clients: pages of a quorum, in rounds, and separate gets for keys in doubt.
//!
//! A key's result in a scan is added to its history as a get during that round.

use std::collections::BTreeSet;
use std::sync::Arc;

use torc_record::{Ballot, HybridTime, Record, State};
use torc_replication::{
    Config, Entry, Envelope, FilteredPage, KeyId, KnownPage, Listed, ListedEntry, Locator,
    Mutation, OpId, SameRound, ScanAnswer, ScanRound, ScanStep, Storage, Tag,
};
use torc_ring::NodeId;

use crate::event::Event;
use crate::history::{Kind, Operation, Seen, Value, number};
use crate::ledger::Ledger;
use crate::node::PARTITION;
use crate::workload::{Asking, NOBODY, PlannedCall, Scan, is_eventual};
use crate::world::World;

/// Operation numbers are below this.
const FIRST: u64 = 1 << 41;

impl World {
    /// A client scans the partition through a node.
    pub(crate) fn begin_scan(&mut self, client: usize, node: usize, timeout_ms: u64) {
        if let Some(open) = self.workload.open.get_mut(client) {
            *open += 1;
        }
        self.workload.issued += 1;
        self.next_scan += 1;
        self.counts.add("scanned");
        let until_us = self.us + timeout_ms * 1_000;
        self.begin_round(FIRST + self.next_scan, client, node, until_us, None);
    }

    /// Requests a page; without a topology, the client stops.
    fn begin_round(
        &mut self,
        id: u64,
        client: usize,
        node: usize,
        until_us: u64,
        after: Option<KeyId>,
    ) {
        let process = self.nodes[node].process.as_ref();
        let config = process.and_then(|it| it.coordinator.config(PARTITION).cloned());
        let Some(config) = config else {
            return self.next_request(client);
        };
        self.moment += 1;
        self.next_scan += 1;
        let tag = Tag {
            op: OpId(id),
            round: HybridTime(self.next_scan),
        };
        let asking = self.asking(&config, node, tag, after);
        let scan = Scan {
            client,
            node,
            until_us,
            after,
            tag,
            asking,
            config,
            call: self.moment,
            time: HybridTime::from_unix_ms(self.nodes[node].now(self.us).unix_ms),
            floors: self.workload.ledgers.iter().map(Ledger::floor).collect(),
        };
        self.ask_for_page(&scan);
        self.scans.insert(id, scan);
    }

    fn ask_for_page(&mut self, scan: &Scan) {
        self.send_asks(scan.node, scan.asking.asks());
        let after = self.rng.between(4_000, 12_000);
        let tag = scan.tag;
        self.schedule(after, Event::ScanLate { tag });
    }

    fn send_asks(&mut self, node: usize, asks: Vec<(NodeId, Envelope)>) {
        let from = self.nodes[node].id;
        for (to, envelope) in asks {
            self.transmit(from, to, envelope);
        }
    }

    /// No quorum has answered yet: repeats the request, or starts a new round.
    pub(crate) fn scan_late(&mut self, tag: Tag) {
        let id = tag.op.0;
        let is_present = self.scans.get(&id).is_some_and(|scan| scan.tag == tag);
        let Some(scan) = is_present.then(|| self.scans.remove(&id)).flatten() else {
            return;
        };
        if self.us > scan.until_us {
            self.counts.add("scan given up");
            return self.next_request(scan.client);
        }
        let process = self.nodes[scan.node].process.as_ref();
        let config = process.and_then(|it| it.coordinator.config(PARTITION));
        let is_same = config.is_some_and(|config| config.epoch == scan.config.epoch);
        if is_same && self.rng.chance(500) {
            self.ask_for_page(&scan);
            self.scans.insert(id, scan);
        } else {
            self.begin_round(id, scan.client, scan.node, scan.until_us, scan.after);
        }
    }

    /// Delivers an answer to the scanning node; returns whether it belonged to a scan.
    pub(crate) fn scan_answer(&mut self, node: usize, from: NodeId, envelope: &Envelope) -> bool {
        let Some((tag, answer)) = ScanAnswer::of(&envelope.message) else {
            return false;
        };
        let any_round = self.mutations.has(Mutation::ScanAnyRound);
        let fits = |scan: &&mut Scan| (scan.tag == tag || any_round) && scan.node == node;
        let Some(scan) = self.scans.get_mut(&tag.op.0).filter(fits) else {
            return true;
        };
        if matches!(answer, ScanAnswer::Same { .. }) {
            self.counts.add("scanned by sums");
        }
        let step = match &mut scan.asking {
            Asking::Pages(round) | Asking::Filtered(round, _) => {
                let mode = |record: &Record| Some(is_eventual(record.namespace));
                round.on_answer(from, answer, scan.time, mode)
            }
            Asking::Same(round, _) => match round.on_answer(from, &answer) {
                None => ScanStep::Wait,
                Some(is_same) => {
                    if let Some(scan) = self.scans.remove(&tag.op.0) {
                        self.take_compared(&scan, is_same);
                    }
                    return true;
                }
            },
        };
        match step {
            ScanStep::Wait => {}
            ScanStep::Ask => {
                let asks = scan.asking.asks();
                self.send_asks(node, asks);
            }
            ScanStep::Listed(listed) => {
                if let Some(scan) = self.scans.remove(&tag.op.0) {
                    self.take_listed(&scan, listed);
                }
            }
            ScanStep::Differs => {
                if let Some(scan) = self.scans.remove(&tag.op.0) {
                    self.counts.add("filtered page differs");
                    let (client, node) = (scan.client, scan.node);
                    self.begin_round(tag.op.0, client, node, scan.until_us, scan.after);
                }
            }
        }
        true
    }

    /// A quorum holds what the node's disk held at the time of the request, or it does not.
    fn take_compared(&mut self, scan: &Scan, is_same: bool) {
        let id = scan.tag.op.0;
        let (round, held) = match &scan.asking {
            Asking::Same(round, held) if is_same => (round, held),
            _ => return self.begin_round(id, scan.client, scan.node, scan.until_us, scan.after),
        };
        self.counts.add("found the same");
        self.moment += 1;
        for key in 0..self.workload.keys.len() {
            let at = &self.workload.keys[key];
            match held.iter().find(|record| Locator::of(record) == *at) {
                // Whether it is absent by now, or is chosen, is unknown.
                Some(record)
                    if record.expires_at_ms().is_some()
                        || !scan.config.is_chosen(
                            record.ballot,
                            round.holders(),
                            self.mutations,
                        ) => {}
                Some(record) if matches!(record.state, State::Value { .. }) => {
                    self.tell_listed(scan, key, Some(record));
                }
                _ => self.tell_listed(scan, key, None),
            }
        }
        self.next_request(scan.client);
    }

    /// How a round asks: usually as a scan does, with the page of its own node first, or without it
    /// if that was late; a round from the beginning sometimes asks as a backup does.
    fn asking(
        &mut self,
        config: &Arc<Config>,
        node: usize,
        tag: Tag,
        after: Option<KeyId>,
    ) -> Asking {
        let me = self.nodes[node].id;
        if after.is_none() && self.rng.chance(250) {
            let disk = &self.nodes[node].disk;
            let sum = disk.sum_between(None, None, u64::MAX);
            let known = sum.map(|sum| KnownPage {
                next: None,
                count: sum.count,
                sum: sum.sum,
            });
            if let Some(known) = known {
                let round = SameRound::new(Arc::clone(config), tag, known, self.mutations);
                let entries = disk.scan(None, usize::MAX).entries.into_iter();
                let held = entries.filter_map(|entry| match entry {
                    Entry::Found(record) => Some(record),
                    Entry::Unreadable(_) => None,
                });
                return Asking::Same(round, held.collect());
            }
        }
        if self.rng.chance(250)
            && let Some((page, dropped)) = self.filtered_page(node, after)
        {
            let config = Arc::clone(config);
            let round = ScanRound::of_filtered(config, tag, after, page, self.mutations);
            return Asking::Filtered(round, dropped);
        }
        let first = self.rng.chance(667).then_some(me);
        Asking::Pages(ScanRound::new(
            Arc::clone(config),
            first,
            tag,
            after,
            self.mutations,
        ))
    }

    /// A page of a node's disk in which a filter keeps every other value, and the records dropped;
    /// `None` if a sum cannot identify the page.
    fn filtered_page(
        &mut self,
        node: usize,
        after: Option<KeyId>,
    ) -> Option<(FilteredPage, Vec<Record>)> {
        let limit = if self.rng.chance(500) { 3 } else { usize::MAX };
        let disk = &self.nodes[node].disk;
        let scanned = disk.scan(after, limit);
        let next = scanned.next();
        let sum = disk.sum_between(after, next, u64::MAX)?;
        let readable = scanned.entries.into_iter().filter_map(|entry| match entry {
            Entry::Found(record) => Some(record),
            Entry::Unreadable(_) => None,
        });
        let all: Vec<_> = readable.collect();
        let last = all.last().filter(|_| next.is_some()).map(Locator::of);
        let odd = self.rng.chance(500);
        let keeps = |record: &Record| match &record.state {
            State::Value { value, .. } => (number(value) % 2 == 1) == odd,
            State::Tombstone => false,
        };
        let (records, dropped): (Vec<_>, Vec<_>) = all.into_iter().partition(keeps);
        let page = FilteredPage {
            records,
            known: KnownPage {
                next,
                count: sum.count,
                sum: sum.sum,
            },
            last,
            left_out: dropped.iter().map(|record| record.ballot.epoch).collect(),
        };
        Some((page, dropped))
    }

    fn take_listed(&mut self, scan: &Scan, listed: Listed) {
        self.moment += 1;
        let Listed { entries, next } = listed;
        let next = next.map(|at| at.id());
        let mut told = BTreeSet::new();
        for entry in entries {
            let at = match &entry {
                ListedEntry::Value(record) => Locator::of(record),
                ListedEntry::Ask(at) => at.clone(),
            };
            let Some(key) = self.workload.key_of(&at) else {
                // A key that no client uses.
                if matches!(entry, ListedEntry::Ask(_)) {
                    self.get_foreign(scan.node, at);
                }
                continue;
            };
            if !told.insert(key) {
                self.workload
                    .breaks(key, || "a scan told it twice".to_owned());
            }
            match entry {
                ListedEntry::Value(record) => self.tell_listed(scan, key, Some(&record)),
                ListedEntry::Ask(_) => {
                    let planned = PlannedCall::get(&self.workload, key);
                    let timeout_ms = if self.healing { 1_000 } else { 60 };
                    self.ask(NOBODY, scan.node, vec![planned], timeout_ms);
                }
            }
        }
        let passed = |at: &Locator| {
            let is_before = next.is_none_or(|next| at.id() <= next);
            Some(at.id()) > scan.after && is_before
        };
        let dropped = match &scan.asking {
            Asking::Filtered(_, dropped) => &dropped[..],
            _ => &[],
        };
        for key in 0..self.workload.keys.len() {
            if told.contains(&key) || !passed(&self.workload.keys[key]) {
                continue;
            }
            let at = &self.workload.keys[key];
            match dropped.iter().find(|record| Locator::of(record) == *at) {
                // Whether it is absent by now, or outdated, is unknown.
                Some(record)
                    if record.expires_at_ms().is_some() || is_eventual(record.namespace) => {}
                Some(record) if matches!(record.state, State::Value { .. }) => {
                    self.tell_listed(scan, key, Some(record));
                }
                _ => self.tell_listed(scan, key, None),
            }
        }
        if next.is_some() {
            let id = scan.tag.op.0;
            return self.begin_round(id, scan.client, scan.node, scan.until_us, next);
        }
        self.next_request(scan.client);
    }

    /// A scan reports this value, or none, for a key.
    fn tell_listed(&mut self, scan: &Scan, key: usize, record: Option<&Record>) {
        self.trace.note(self.us, || {
            let version = record.map(|record| record.ballot.to_string());
            format!("scan {}: key {key} is {version:?}", scan.tag.op.0 - FIRST)
        });
        let found: Option<(Ballot, Value)> = record.map(|record| match &record.state {
            State::Value { value, .. } => (record.ballot, number(value)),
            State::Tombstone => (record.ballot, 0),
        });
        if self.workload.is_eventual(key) {
            return self.note_listed(key, found, scan.floors[key]);
        }
        let ret_ms = self.told_ms();
        self.workload.histories[key].operations.push(Operation {
            kind: Kind::Get,
            seen: Seen::Value(found.map_or(0, |(_, value)| value)),
            call: scan.call,
            ret: self.moment,
            ret_ms,
        });
        self.workload.issued += 1;
    }

    /// The scans' node has crashed.
    pub(crate) fn abandon_scans(&mut self, node: usize) {
        let lost = self.scans.iter().filter(|(_, scan)| scan.node == node);
        let lost: Vec<_> = lost.map(|(id, _)| *id).collect();
        for id in lost {
            if let Some(scan) = self.scans.remove(&id) {
                self.next_request(scan.client);
            }
        }
    }
}
