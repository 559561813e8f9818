//! The clients' histories: the input of the checkers.
//!
//! Values are numbers, unique in a run; 0 is "absent". Times are positions in the run's
//! sequence of events, so no two are equal.

/// A value's number; 0 is absent.
pub type Value = u32;

/// The number that a client stored as these bytes.
pub(crate) fn number(value: &[u8]) -> Value {
    let bytes: [u8; 4] = value.try_into().unwrap_or_default();
    Value::from_be_bytes(bytes)
}

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
    /// Reserve the merge with this number, below [`MAX_MERGES`].
    Reserve(u8),
    /// Store this value unless the key was written or deleted since this merge was reserved.
    Merge(u8, Value),
}

/// Most merges of a run.
pub const MAX_MERGES: u8 = 4;

/// The state of a register is its value, and for each merge a bit: whether the key was neither
/// written nor deleted since the merge was reserved.
const VALUE: Value = Value::MAX >> MAX_MERGES;

const fn untouched_since(merge: u8) -> Value {
    !VALUE & (VALUE + 1) << merge
}

/// The observed outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// No answer: it may have happened, or not, or may still happen.
    Unknown,
    /// A read found this value, or a write did not apply because of it.
    Value(Value),
    /// The write applied.
    Done,
}

/// One operation on one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// What it was.
    pub kind: Kind,
    /// Its outcome.
    pub seen: Seen,
    /// When it was called.
    pub call: u64,
    /// When it returned; `u64::MAX` if it never did.
    pub ret: u64,
    /// When it returned, in simulated milliseconds; only for expiry.
    pub ret_ms: u64,
}

impl Operation {
    /// The value it would write.
    #[must_use]
    pub const fn writes(&self) -> Option<Value> {
        match self.kind {
            Kind::Put(value)
            | Kind::PutIfAbsent(value)
            | Kind::Cas(_, value)
            | Kind::Merge(_, value) => Some(value),
            Kind::Get | Kind::Delete | Kind::Erase | Kind::DeleteIf(_) | Kind::Reserve(_) => None,
        }
    }
}

/// The operations on one key, and the earliest times at which values may expire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyHistory {
    /// In the order of the calls.
    pub operations: Vec<Operation>,
    /// (value, first simulated millisecond at which any clock may consider it expired).
    pub expiries: Vec<(Value, u64)>,
    /// Of each pair of concurrent operations, the first must take effect first: they were requested
    /// in this order in one batch. Both are answered.
    pub orders: Vec<(usize, usize)>,
}

impl KeyHistory {
    /// Whether an operation that returned then may find this value expired.
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

    /// The register after `operation` on `state`, if that explains what the operation saw. An
    /// expired value counts as absent for the operation that saw it so, and for all later ones.
    #[must_use]
    pub fn step(&self, operation: &Operation, state: Value) -> Option<Value> {
        let (value, marks) = (state & VALUE, state & !VALUE);
        let empty = value == 0 || self.may_have_expired(value, operation.ret_ms);
        let seen = |found: Value| match found {
            0 => empty.then_some(marks),
            found => (found == value).then_some(state),
        };
        let current = value;
        match (operation.kind, operation.seen) {
            (Kind::Get, Seen::Unknown | Seen::Done) => Some(state),
            (Kind::Reserve(merge), _) => Some(state | untouched_since(merge)),
            (Kind::Merge(merge, value), Seen::Done | Seen::Unknown) => {
                (marks & untouched_since(merge) != 0).then_some(value)
            }
            (Kind::Merge(merge, _), Seen::Value(found)) => {
                let is_superseded = marks & untouched_since(merge) == 0;
                seen(found).filter(|_| is_superseded)
            }
            (Kind::Put(value), Seen::Unknown | Seen::Done) => Some(value),
            (Kind::PutIfAbsent(value), Seen::Done | Seen::Unknown) => empty.then_some(value),
            (Kind::Cas(old, value), Seen::Done | Seen::Unknown) => {
                (old == current && current != 0).then_some(value)
            }
            (Kind::Delete, Seen::Done) => (current != 0).then_some(0),
            // A merged record does not undo it.
            (Kind::Delete, Seen::Value(0)) => empty.then_some(0),
            (Kind::Delete, Seen::Unknown) | (Kind::Erase, Seen::Done | Seen::Unknown) => Some(0),
            (Kind::DeleteIf(old), Seen::Done | Seen::Unknown) => {
                (old == current && current != 0).then_some(0)
            }
            (_, Seen::Value(value)) => seen(value),
        }
    }

    /// Leaves out writes of unknown outcome whose absence explains the observations as well: puts
    /// that no operation observed and that never expire, unless a delete needs a value to be there.
    /// Makes searches about 700 times shorter.
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

    /// Sorts the operations by their calls.
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

    /// For each operation, those that must take effect before it, as bits.
    pub(crate) fn before(&self) -> Vec<u128> {
        let mut before = vec![0; self.operations.len()];
        for (first, second) in &self.orders {
            before[*second] |= 1 << first;
        }
        before
    }
}
