//! Records the histories of keys as real clients observe them.
//!
//! A new key replaces a key before its history exceeds the checkers' limit. Slots stand
//! for keys: a hot slot gets many requests, and its key changes often.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use torc_client::Version;
use torc_sim::history::{KeyHistory, Kind, Operation, Seen, Value};

/// Operations after which a key is replaced, not counting the last reads.
const MOST_OPERATIONS: usize = 116;

/// The lifetime of a value, derived from its number: one in five expires.
pub(super) fn ttl_of(value: Value) -> Option<Duration> {
    let expires = value != 0 && value.is_multiple_of(5);
    expires.then(|| Duration::from_millis(u64::from(200 + value % 2_000)))
}

/// A key and the observations of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorded {
    pub(super) name: String,
    pub(super) history: KeyHistory,
    /// One per operation.
    pub(super) by: Vec<Asker>,
    /// The version that each operation found or wrote, if reported.
    pub(super) versions: Vec<Option<Version>>,
}

/// The origin of an operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Asker {
    /// The client; `None` for the harness itself.
    pub(super) client: Option<u32>,
    /// The node that was called directly; `None` if the library chose one.
    pub(super) node: Option<u32>,
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.client {
            Some(client) => write!(f, "client {client}")?,
            None => f.write_str("last read")?,
        }
        self.node
            .map_or(Ok(()), |node| write!(f, " at node {node}"))
    }
}

/// Counts of operations by how they ended.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) operations: u64,
    pub(super) answered: u64,
    pub(super) written: u64,
    pub(super) unmet: u64,
    pub(super) failed: u64,
    pub(super) unknown: u64,
    /// The failed operations that went through the library, which retries until the deadline. The
    /// others are one attempt at one node.
    pub(super) library_failed: u64,
    /// The same for unknown outcomes.
    pub(super) library_unknown: u64,
}

/// The answer to an operation.
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
    /// Nothing was changed, and nothing was learned.
    Failed,
    /// The outcome is unknown.
    Unknown,
}

/// A running operation: its key, and its index in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) key: usize,
    index: usize,
    by_library: bool,
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
    last_answer: Option<Instant>,
    longest_unavailability: Duration,
}

/// The shared record of all clients of a run.
#[derive(Debug, Default)]
pub(super) struct Recorder(Mutex<State>);

impl Recorder {
    /// The present key of a slot.
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

    /// Notes that an operation begins. `kind` gets a value that was never written before.
    pub(super) fn begin(&self, key: usize, by: Asker, kind: impl FnOnce(Value) -> Kind) -> Begun {
        let mut state = self.lock();
        state.moment += 1;
        state.last_value += 1;
        state.tally.operations += 1;
        let (call, kind) = (state.moment, kind(state.last_value));
        let recorded = &mut state.keys[key];
        let index = recorded.history.operations.len();
        recorded.by.push(by);
        recorded.versions.push(None);
        if let Kind::Put(value) | Kind::PutIfAbsent(value) | Kind::Cas(_, value) = kind
            && ttl_of(value).is_some()
        {
            // Clocks may be an hour wrong, so it may expire at once, but must never return.
            recorded.history.expiries.push((value, 0));
        }
        let by_library = by.node.is_none();
        recorded.history.operations.push(Operation {
            kind,
            seen: Seen::Unknown,
            call,
            ret: u64::MAX,
            ret_ms: 0,
        });
        Begun {
            ticket: Ticket {
                key,
                index,
                by_library,
            },
            name: recorded.name.clone(),
            kind,
        }
    }

    /// Notes how an operation ended.
    pub(super) fn end(&self, ticket: Ticket, answer: Answer) {
        let mut state = self.lock();
        state.moment += 1;
        let moment = state.moment;
        state.tally.note(answer, ticket.by_library);
        if !matches!(answer, Answer::Failed | Answer::Unknown) {
            state.note_answer();
        }
        let recorded = &mut state.keys[ticket.key];
        if let Answer::Found(_, version) | Answer::Written(version) = answer {
            recorded.versions[ticket.index] = Some(version);
        }
        let operation = &mut recorded.history.operations[ticket.index];
        let seen = match answer {
            Answer::Unknown => return,
            // The present value is not reported, so the operation is removed from the history. Any
            // client that later sees its value has seen one that was never written.
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

    /// The keys' names, by index.
    pub(super) fn names(&self) -> Vec<String> {
        let state = self.lock();
        state.keys.iter().map(|key| key.name.clone()).collect()
    }

    /// The longest time without any answered operation.
    pub(super) fn longest_unavailability(&self) -> Duration {
        self.lock().longest_unavailability
    }

    /// Takes everything.
    pub(super) fn finish(&self) -> (Vec<Recorded>, Tally) {
        let state = std::mem::take(&mut *self.lock());
        (state.keys, state.tally)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn note_answer(&mut self) {
        let now = Instant::now();
        let before = self.last_answer.replace(now).unwrap_or(now);
        self.longest_unavailability = self.longest_unavailability.max(now - before);
    }
}

impl Tally {
    fn note(&mut self, answer: Answer, by_library: bool) {
        self.library_failed += u64::from(by_library && answer == Answer::Failed);
        self.library_unknown += u64::from(by_library && answer == Answer::Unknown);
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
    /// The part that the checkers need: without operations that neither saw nor changed anything.
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
        let put = recorder.begin(key, Asker::default(), Kind::Put);
        let Kind::Put(value) = put.kind else {
            panic!("a put");
        };
        recorder.end(put.ticket, Answer::Failed);
        let get = recorder.begin(key, Asker::default(), |_| Kind::Get);
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
            recorder.begin(first, Asker::default(), Kind::Put);
        }
        assert_ne!(recorder.key_of(1), first);
    }
}
