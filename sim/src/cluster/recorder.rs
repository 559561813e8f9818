//! The histories of keys, as real clients see them.
//!
//! A key is given up for a fresh one before it has more operations than the checkers take.
//! Slots stand for keys: a hot one is asked for often, and its key changes often.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use torc_client::Version;
use torc_sim::history::{KeyHistory, Kind, Operation, Seen, Value};

/// Operations after which a key is given up. The last reads come on top.
const MOST_OPERATIONS: usize = 116;

/// A key and what was seen of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorded {
    pub(super) name: String,
    pub(super) history: KeyHistory,
    /// Which client asked, and which node if it was asked straight; one an operation.
    pub(super) by: Vec<String>,
}

/// How many operations ended how.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) operations: u64,
    pub(super) answered: u64,
    pub(super) written: u64,
    pub(super) unmet: u64,
    pub(super) failed: u64,
    pub(super) unknown: u64,
}

/// What the answer to an operation was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// A get found this.
    Found(Value, Version),
    /// A get, or a delete, found nothing.
    Absent,
    /// A put was stored.
    Written(Version),
    /// A delete deleted something.
    Deleted,
    /// A condition was not met, and nothing was changed.
    Unmet,
    /// Nothing was changed, and nothing was learnt.
    Failed,
    /// Nobody knows.
    Unknown,
}

/// An operation under way: which key, and where in its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) key: usize,
    index: usize,
}

/// An operation that may begin.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    pub(super) ticket: Ticket,
    pub(super) name: String,
    pub(super) kind: Kind,
}

#[derive(Debug, Default)]
struct State {
    moment: u64,
    last_value: Value,
    slots: HashMap<u64, usize>,
    keys: Vec<Recorded>,
    tally: Tally,
}

/// What all clients of a run record in.
#[derive(Debug, Default)]
pub(super) struct Recorder(Mutex<State>);

impl Recorder {
    /// The key that a slot stands for now.
    pub(super) fn key_of(&self, slot: u64) -> usize {
        let mut state = self.lock();
        let known = state.slots.get(&slot).copied();
        let is_fresh = |key: &usize| state.keys[*key].history.operations.len() < MOST_OPERATIONS;
        if let Some(key) = known.filter(is_fresh) {
            return key;
        }
        let key = state.keys.len();
        state.keys.push(Recorded {
            name: format!("{slot}/{key}"),
            ..Recorded::default()
        });
        state.slots.insert(slot, key);
        key
    }

    /// Notes that an operation begins. `kind` is given a value that nobody ever wrote.
    pub(super) fn begin(&self, key: usize, by: String, kind: impl FnOnce(Value) -> Kind) -> Begun {
        let mut state = self.lock();
        state.moment += 1;
        state.last_value += 1;
        state.tally.operations += 1;
        let (call, kind) = (state.moment, kind(state.last_value));
        let recorded = &mut state.keys[key];
        let index = recorded.history.operations.len();
        recorded.by.push(by);
        recorded.history.operations.push(Operation {
            kind,
            seen: Seen::Unknown,
            call,
            ret: u64::MAX,
            ret_ms: 0,
        });
        Begun {
            ticket: Ticket { key, index },
            name: recorded.name.clone(),
            kind,
        }
    }

    /// Notes how an operation ended.
    pub(super) fn end(&self, ticket: Ticket, answer: Answer) {
        let mut state = self.lock();
        state.moment += 1;
        let moment = state.moment;
        state.tally.note(answer);
        let operation = &mut state.keys[ticket.key].history.operations[ticket.index];
        let seen = match answer {
            Answer::Unknown => return,
            // What was there instead is not told: as if nothing had been asked. Whoever sees
            // its value yet has seen one that nobody wrote.
            Answer::Unmet | Answer::Failed => {
                operation.kind = Kind::Get;
                operation.ret = moment;
                return;
            }
            Answer::Found(value, _) => Seen::Value(value),
            Answer::Absent => Seen::Value(0),
            Answer::Written(_) | Answer::Deleted => Seen::Done,
        };
        operation.seen = seen;
        operation.ret = moment;
    }

    /// The keys' names, in the order of their numbers.
    pub(super) fn names(&self) -> Vec<String> {
        let state = self.lock();
        state.keys.iter().map(|key| key.name.clone()).collect()
    }

    /// Everything, leaving nothing.
    pub(super) fn finish(&self) -> (Vec<Recorded>, Tally) {
        let state = std::mem::take(&mut *self.lock());
        (state.keys, state.tally)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    fn note(&mut self, answer: Answer) {
        let counter = match answer {
            Answer::Found(..) | Answer::Absent => &mut self.answered,
            Answer::Written(_) | Answer::Deleted => &mut self.written,
            Answer::Unmet => &mut self.unmet,
            Answer::Failed => &mut self.failed,
            Answer::Unknown => &mut self.unknown,
        };
        *counter += 1;
    }
}

impl Recorded {
    /// What the checkers need: nothing that neither saw nor changed anything.
    pub(super) fn to_check(&self) -> KeyHistory {
        let mut history = self.history.clone();
        let says_nothing = |o: &Operation| o.kind == Kind::Get && o.seen == Seen::Unknown;
        history
            .operations
            .retain(|operation| !says_nothing(operation));
        history
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_sim::check::{Verdict, check};

    #[test]
    fn a_write_that_is_said_to_have_failed_and_is_seen_is_a_violation() {
        let recorder = Recorder::default();
        let key = recorder.key_of(1);
        let put = recorder.begin(key, String::new(), Kind::Put);
        let Kind::Put(value) = put.kind else {
            panic!("a put");
        };
        recorder.end(put.ticket, Answer::Failed);
        let get = recorder.begin(key, String::new(), |_| Kind::Get);
        recorder.end(get.ticket, Answer::Found(value, Version::default()));
        let (keys, tally) = recorder.finish();
        assert_eq!((tally.operations, tally.failed, tally.answered), (2, 1, 1));
        assert_eq!(check(&keys[0].to_check()), Verdict::Violation);
    }

    #[test]
    fn a_key_is_given_up_before_the_checkers_refuse_it() {
        let recorder = Recorder::default();
        let first = recorder.key_of(1);
        for _ in 0..MOST_OPERATIONS {
            assert_eq!(recorder.key_of(1), first);
            recorder.begin(first, String::new(), Kind::Put);
        }
        assert_ne!(recorder.key_of(1), first);
    }
}
