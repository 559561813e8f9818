//! The clients' histories: the input of the checkers.
//!
//! Values are numbers, unique in a run; 0 is "absent". Times are positions in the run's
//! sequence of events, so no two are equal.

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
    /// Delete, and tell whether there was something.
    Delete,
    /// Delete whatever is there.
    Erase,
    /// Delete it if this is there, named by its version.
    DeleteIf(Value),
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
            Kind::Get | Kind::Delete | Kind::Erase | Kind::DeleteIf(_) => None,
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
    /// Of two operations that were under way at once, the first must take effect first:
    /// they were asked for in this order, in one batch. Both are answered.
    pub orders: Vec<(usize, usize)>,
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
            (Kind::Delete, Seen::Unknown) | (Kind::Erase, Seen::Done | Seen::Unknown) => Some(0),
            (Kind::DeleteIf(old), Seen::Done | Seen::Unknown) => {
                (old == state && state != 0).then_some(0)
            }
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
                let expects = matches!(operation.kind,
                    Kind::Cas(old, _) | Kind::DeleteIf(old) if old == value);
                operation.seen == Seen::Value(value) || expects
            })
        };
        let deletes = |after: u64| {
            self.operations.iter().any(|operation| {
                matches!(operation.kind, Kind::Delete | Kind::DeleteIf(_))
                    && operation.seen == Seen::Done
                    && operation.ret > after
            })
        };
        let needless = |operation: &Operation| {
            operation.seen == Seen::Unknown
                && operation.writes().is_none_or(|value| {
                    !observed(value) && !self.expires(value) && !deletes(operation.call)
                })
                && !matches!(
                    operation.kind,
                    Kind::Delete | Kind::Erase | Kind::DeleteIf(_)
                )
        };
        let mut pruned = Self {
            expiries: self.expiries.clone(),
            ..Self::default()
        };
        let mut place = Vec::with_capacity(self.operations.len());
        for operation in &self.operations {
            place.push(pruned.operations.len());
            if !needless(operation) {
                pruned.operations.push(*operation);
            }
        }
        let orders = self.orders.iter();
        pruned.orders = orders.map(|(a, b)| (place[*a], place[*b])).collect();
        pruned
    }

    /// With the operations in the order of their calls.
    pub(crate) fn sorted(mut self) -> Self {
        let in_order = self.operations.is_sorted_by_key(|operation| operation.call);
        if in_order {
            return self;
        }
        let mut by_call: Vec<_> = (0..self.operations.len()).collect();
        by_call.sort_by_key(|index| self.operations[*index].call);
        let mut place = vec![0; by_call.len()];
        for (at, index) in by_call.iter().enumerate() {
            place[*index] = at;
        }
        self.operations = by_call.iter().map(|at| self.operations[*at]).collect();
        for (first, second) in &mut self.orders {
            (*first, *second) = (place[*first], place[*second]);
        }
        self
    }

    /// For each operation those that must take effect before it, as bits.
    pub(crate) fn before(&self) -> Vec<u128> {
        let mut before = vec![0; self.operations.len()];
        for (first, second) in &self.orders {
            before[*second] |= 1 << first;
        }
        before
    }
}
