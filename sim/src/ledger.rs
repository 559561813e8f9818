//! Checks an `eventual` key.
//!
//! * Every later read of a majority finds the version that a majority has confirmed, or a newer
//!   one.
//! * A write has one version, and a version has one value.
//! * A write reported as unavailable is stored nowhere.
//! * A value that a majority read has found expired is found by no later such read.
//! * In the end, all replicas hold the same, including every write that a majority confirmed.

use std::collections::{BTreeMap, BTreeSet};

use torc_record::{Ballot, Record, State};

use crate::history::{Value, number};

/// Everything written to a key, and all answers about it. Value 0 is a tombstone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    issued: BTreeMap<Ballot, Value>,
    versions: BTreeMap<Value, Ballot>,
    /// (value, simulated millisecond from which on it is expired).
    pub(crate) expiries: Vec<(Value, u64)>,
    by_majority: Ballot,
    /// The highest version confirmed by any number of replicas.
    by_any: Ballot,
    never: BTreeSet<Value>,
    /// The highest version found expired.
    expired: Ballot,
    /// For each read that found the key absent: the highest version confirmed before it, and the
    /// time of the answer.
    absent: Vec<(Ballot, u64)>,
    problem: Option<String>,
}

impl Ledger {
    /// The lower bounds of a read that begins now: the highest version that a majority has
    /// confirmed, and the highest one found expired.
    pub(crate) const fn floor(&self) -> (Ballot, Ballot) {
        (self.by_majority, self.expired)
    }

    /// A version is sent to a replica.
    pub(crate) fn issue(&mut self, record: &Record) {
        let value = value_of(record);
        let known = *self.issued.entry(record.ballot).or_insert(value);
        let version = *self.versions.entry(value).or_insert(record.ballot);
        if known != value {
            self.fail(|| format!("version {} has two values", record.ballot));
        }
        if value != 0 && version != record.ballot {
            self.fail(|| {
                format!(
                    "value {value} has the versions {version}, {}",
                    record.ballot
                )
            });
        }
    }

    fn fail(&mut self, what: impl FnOnce() -> String) {
        self.problem.get_or_insert_with(what);
    }

    /// A read found this; returns the problem, if any.
    pub(crate) fn found(
        &self,
        version: Ballot,
        value: Value,
        (floor, expired): (Ballot, Ballot),
    ) -> Option<String> {
        if self.issued.get(&version) != Some(&value) {
            return Some(format!("value {value} was never written as {version}"));
        }
        if self.never.contains(&value) {
            return Some(format!("value {value} was called unavailable"));
        }
        if version <= expired {
            return Some(format!("{version} was read, and had expired before"));
        }
        (version < floor).then(|| format!("{version} was read, and {floor} was confirmed before"))
    }

    /// A majority read found nothing.
    pub(crate) fn absent(&mut self, floor: Ballot, ms: u64) {
        if floor > Ballot::default() {
            self.absent.push((floor, ms));
        }
        // No other version can have been found.
        let mut newer = self.issued.range(floor..).rev();
        if let (Some((version, value)), None) = (newer.next(), newer.next())
            && *version == floor
            && *value != 0
        {
            self.expired = self.expired.max(floor);
        }
    }

    /// A write was confirmed; returns the problem, if any.
    pub(crate) fn confirmed(
        &mut self,
        version: Ballot,
        value: Option<Value>,
        by_majority: bool,
    ) -> Option<String> {
        self.by_any = self.by_any.max(version);
        if by_majority {
            self.by_majority = self.by_majority.max(version);
        }
        let wrong = self.issued.get(&version) != Some(&value.unwrap_or(0));
        wrong.then(|| format!("a write was confirmed as {version}, which is another one's"))
    }

    /// A write was reported as stored nowhere.
    pub(crate) fn never(&mut self, value: Option<Value>) {
        self.never.extend(value);
    }

    /// Checks what all replicas hold in the end; with `keeps_all`, a version that a single replica
    /// confirmed must not be lost either.
    pub(crate) fn held_in_the_end(&mut self, held: Option<&Record>, ms: u64, keeps_all: bool) {
        let confirmed = if keeps_all {
            self.by_any
        } else {
            self.by_majority
        };
        match held {
            Some(record) if record.ballot >= confirmed => {}
            Some(record) => {
                self.fail(|| format!("{} is left, {confirmed} was confirmed", record.ballot));
            }
            None => self.absent(confirmed, ms),
        }
        if let Some(value) = held.map(value_of)
            && value != 0
            && self.never.contains(&value)
        {
            self.fail(|| format!("value {value} was called unavailable and is there"));
        }
    }

    /// The first problem; clocks may consider a value expired up to `early_ms` too early.
    pub(crate) fn judge(&mut self, early_ms: u64) -> Option<String> {
        let absent = std::mem::take(&mut self.absent);
        for (floor, ms) in absent {
            if !self.may_be_absent(floor, ms + early_ms) {
                self.fail(|| format!("absent after {floor} was confirmed"));
            }
        }
        self.problem.take()
    }

    /// Whether some version at or above `floor` explains that the key is absent.
    fn may_be_absent(&self, floor: Ballot, ms: u64) -> bool {
        let mut newer = self.issued.range(floor..).map(|(_, value)| *value);
        newer.any(|value| {
            let has_expired = |(known, at): &(Value, u64)| *known == value && *at <= ms;
            value == 0 || self.expiries.iter().any(has_expired)
        })
    }
}

fn value_of(record: &Record) -> Value {
    match &record.state {
        State::Tombstone => 0,
        State::Value { value, .. } => number(value),
    }
}
